"""The names of a model and its data in commands, as results record them, so that the commands that
posir prints run.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posir_tasks.data.repository import DATA_VARIABLE
from posir_tasks.models.folder import is_model_folder
from posir_tasks.models.references import ENDPOINT_REFERENCE, model_origin, portable_name
from posir_tasks.models.run_settings import SETTING_VARIABLES, VARIABLES
from posir_tasks.values.result_schema import REFERENCE_KEY

if TYPE_CHECKING:
    from mteb.models import ModelMeta


#: A name of the Hub or of mteb, which is no path, endpoint or combination.
PLAIN_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


@dataclass(frozen=True)
class CommandReference:
    """A model, its data and the settings of its run, as a command of a shell takes them."""

    model: str
    """A name, a folder, an endpoint or a combination of models; empty if no command can load the
    model from here.
    """
    data: str = ""
    """A task, a file, a folder or a dataset of the Hub; empty if no command can read the data from
    here.
    """
    variables: Mapping[str, str] = field(default_factory=dict)
    """Settings of the run: the environment variables of the command."""

    @classmethod
    def from_run(cls, model: str, task: str, run: Mapping[str, Any]) -> CommandReference:
        """Read the reference of a result: its full name of a model, its task, and what it records
        of its run.
        """
        record = run.get(REFERENCE_KEY)
        stored: Mapping[str, Any] = record if isinstance(record, dict) else {}
        variables = stored.get("variables")
        variables = variables if isinstance(variables, dict) else {}
        kept = {name: str(value) for name, value in variables.items() if name in VARIABLES}
        # A task of a local folder; where the variable is set, commands have it anyway.
        folder = variables.get(DATA_VARIABLE)
        if isinstance(folder, str) and Path(folder).is_dir():
            present = os.environ.get(DATA_VARIABLE)
            if not present or Path(present).expanduser().absolute() != Path(folder):
                kept[DATA_VARIABLE] = shorten_path(folder)
        data = str(stored.get("data", task))
        if Path(data).is_absolute():
            data = shorten_path(data) if Path(data).exists() else ""
        return cls(_locate_model(str(stored.get("model", model))), data, kept)

    def for_others(self) -> CommandReference:
        """Return the reference for a public page: without what only this machine has, a folder or
        an endpoint.
        """
        # Reports need neither the registry nor a client of the Hub until they print a command.
        from posir_tasks.models.registry import split_reference

        paths = ("/", "./")
        is_private = any(
            part.startswith(paths) or ENDPOINT_REFERENCE.fullmatch(part)
            for part in split_reference(self.model)
        )
        variables = {name: value for name, value in self.variables.items() if name != DATA_VARIABLE}
        data = "" if self.data.startswith(paths) else self.data
        return CommandReference("" if is_private else self.model, data, variables)

    def write(self, *words: str) -> str:
        """Write a command, given its words without quotes, with the settings of the run before
        it.
        """
        assignments = [f"{name}={shlex.quote(value)}" for name, value in self.variables.items()]
        return " ".join([*assignments, shlex.join(words)])


def refer_to(meta: ModelMeta, model: str, data: str = "") -> CommandReference:
    """Return the reference to a loaded model as a user gave it, with the settings that it was
    loaded with.
    """
    return CommandReference(model, data, _find_variables(meta))


def refer_as_given(model: str) -> CommandReference:
    """Return the reference to a model as a user gave it, with the settings of this process."""
    present = {name: os.environ[name] for name in VARIABLES if os.environ.get(name)}
    return CommandReference(model, variables=present)


def _find_variables(meta: ModelMeta) -> dict[str, str]:
    settings = meta.experiment_kwargs or {}
    # A shell would need other quotes for a line break.
    return {
        variable: str(settings[name]).replace("\n", "\\n")
        for name, variable in SETTING_VARIABLES.items()
        if name in settings
    }


#: The reference where no command can load the model.
NO_REFERENCE = CommandReference("")


def describe_reference(meta: ModelMeta) -> dict[str, Any]:
    """Return the record of the reference to a loaded model in a result; empty if a command takes
    its full name.
    """
    record: dict[str, Any] = {}
    if portable_name(meta) != meta.name:
        record["model"] = portable_name(meta)
    variables = _find_variables(meta)
    if variables:
        record["variables"] = variables
    return record


def shorten_path(path: str) -> str:
    """Write a path relative to the working folder if it is below that."""
    absolute = Path(path).expanduser().absolute()
    here = Path.cwd()
    if absolute == here or not absolute.is_relative_to(here):
        return str(absolute)
    return f"./{absolute.relative_to(here)}"


def _locate_model(reference: str) -> str:
    """Return a reference as a command takes it here; empty if a folder in it is missing, or it
    names a run or no model.
    """
    if PLAIN_NAME.fullmatch(reference) and model_origin(reference) is None:
        return reference
    from posir_tasks.models.registry import split_reference

    for part in split_reference(reference):
        is_local = Path(part).is_absolute() or model_origin(part) is not None
        if is_local and not is_model_folder(Path(part)):
            return ""
    is_folder = Path(reference).is_absolute() and is_model_folder(Path(reference))
    return shorten_path(reference) if is_folder else reference
