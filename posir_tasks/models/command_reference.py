"""References to models and data. Results store them so that posir can print runnable commands."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posir_tasks.data.repository import DATA_VARIABLE
from posir_tasks.models.folder import is_model_folder
from posir_tasks.models.reference_parts import split_reference
from posir_tasks.models.references import (
    ENDPOINT_REFERENCE,
    MODEL_NAME,
    find_origin,
    get_portable_reference,
)
from posir_tasks.models.run_settings import SETTING_VARIABLES, VARIABLES
from posir_tasks.values.result_schema import REFERENCE_KEY

if TYPE_CHECKING:
    from mteb.models import ModelMeta


@dataclass(frozen=True)
class CommandReference:
    """Model, data and run settings as arguments of a shell command."""

    model: str
    """Reference to the model; empty if no command can load it on this machine."""
    data: str = ""
    """Reference to the data; empty if no command can read it on this machine."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables with the run settings."""

    @classmethod
    def from_run(cls, model: str, task: str, run: Mapping[str, Any]) -> CommandReference:
        """Restore a result's reference from the model's full name, the task and the run record."""
        record = run.get(REFERENCE_KEY)
        reference: Mapping[str, Any] = record if isinstance(record, dict) else {}
        variables = reference.get("variables")
        variables = variables if isinstance(variables, dict) else {}
        settings = {name: str(value) for name, value in variables.items() if name in VARIABLES}
        # Add the data folder unless the variable already points to it.
        folder = variables.get(DATA_VARIABLE)
        if isinstance(folder, str) and Path(folder).is_dir():
            current = os.environ.get(DATA_VARIABLE)
            current_folder = Path(current).expanduser().absolute() if current else None
            if current_folder != Path(folder):
                settings[DATA_VARIABLE] = shorten_path(folder)
        data = str(reference.get("data", task))
        if Path(data).is_absolute():
            data = shorten_path(data) if Path(data).exists() else ""
        return cls(_locate_model(str(reference.get("model", model))), data, settings)

    @cached_property
    def public(self) -> CommandReference:
        """A copy that is safe to publish, without local folders and endpoints."""
        paths = ("/", "./")
        is_private = any(
            name.startswith(paths) or ENDPOINT_REFERENCE.fullmatch(name)
            for name in split_reference(self.model)
        )
        variables = {name: value for name, value in self.variables.items() if name != DATA_VARIABLE}
        data = "" if self.data.startswith(paths) else self.data
        return CommandReference("" if is_private else self.model, data, variables)

    def format(self, *words: str) -> str:
        """Format a shell command: the run settings, then the quoted words."""
        assignments = [f"{name}={shlex.quote(value)}" for name, value in self.variables.items()]
        return " ".join([*assignments, shlex.join(words)])


def build_reference(meta: ModelMeta, model: str, data: str = "") -> CommandReference:
    """Build a command reference to a model with the settings that it was loaded with."""
    return CommandReference(model, data, _find_secret_variables(meta))


def build_reference_from_environment(model: str) -> CommandReference:
    """Build a command reference to a model with the settings of this process."""
    settings = {name: os.environ[name] for name in VARIABLES if os.environ.get(name)}
    return CommandReference(model, variables=settings)


def _find_secret_variables(meta: ModelMeta) -> dict[str, str]:
    settings = meta.experiment_kwargs or {}
    # Line breaks are hard to quote in a shell.
    return {
        variable: str(settings[name]).replace("\n", "\\n")
        for name, variable in SETTING_VARIABLES.items()
        if name in settings
    }


#: Reference to a model that no command can load.
NO_REFERENCE = CommandReference("")


def describe_reference(meta: ModelMeta) -> dict[str, Any]:
    """Return the model reference for a result's run record; empty if the full name is enough."""
    record: dict[str, Any] = {}
    if get_portable_reference(meta) != meta.name:
        record["model"] = get_portable_reference(meta)
    variables = _find_secret_variables(meta)
    if variables:
        record["variables"] = variables
    return record


def shorten_path(path: str) -> str:
    """Return a path relative to the working directory if it is inside that directory."""
    absolute = Path(path).expanduser().absolute()
    working_folder = Path.cwd()
    if absolute == working_folder or not absolute.is_relative_to(working_folder):
        return str(absolute)
    return f"./{absolute.relative_to(working_folder)}"


def _locate_model(reference: str) -> str:
    """Return a reference for commands on this machine; empty if a model folder is missing or the
    result is a run of another system.
    """
    if MODEL_NAME.fullmatch(reference) and find_origin(reference) is None:
        return reference
    for name in split_reference(reference):
        is_local = Path(name).is_absolute() or find_origin(name) is not None
        if is_local and not is_model_folder(Path(name)):
            return ""
    is_folder = Path(reference).is_absolute() and is_model_folder(Path(reference))
    return shorten_path(reference) if is_folder else reference
