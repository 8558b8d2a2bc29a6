"""References to mitigated models: `BASE+METHOD(ARGUMENTS)`, such as `all-MiniLM-L6-v2+chunks(128)`.

BASE is any model reference, and may itself include a method. Results are stored under a name with
all arguments, such as `sentence-transformers/all-MiniLM-L6-v2+chunks(128,64,max,tokens)`, so that
results with different arguments are kept separate. Quote the parentheses in a shell.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from enum import EnumMeta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from posir_tasks.base.errors import PosirError, summarize_error
from posir_tasks.base.wording import suggest_name
from posir_tasks.models.references import ModelLoader, ModelReference, portable_name

if TYPE_CHECKING:
    from mteb.models import ModelMeta
    from mteb.models.models_protocols import MTEBModels

    from posir_mitigate.method import Mitigation

REFERENCE = re.compile(
    r"(?P<base>.+)\+(?P<method>[a-z_]+)(?:\((?P<arguments>[^()]*)\))?", re.DOTALL
)


@cache
def list_methods() -> dict[str, type[Mitigation]]:
    """Return the method classes by name. Imports PyTorch."""
    from posir_mitigate.chunks import BothOrders, Chunks, ContextChunks, LateChunks, LongLateChunks
    from posir_mitigate.temperature import Temperature

    methods = (Chunks, LateChunks, LongLateChunks, ContextChunks, BothOrders, Temperature)
    return {method.NAME: method for method in methods}


def resolve_mitigated(name: str, registry: Mapping[str, ModelMeta]) -> ModelMeta | None:
    """Resolve a reference to a mitigated model. Return None if the name contains no method."""
    match = REFERENCE.fullmatch(name)
    if match is None:
        return None
    from posir_tasks.models.folder import is_model_folder

    # A model name may contain `+`, so an unknown method is an error only if it has arguments.
    if is_model_folder(Path(name).expanduser()) or (
        match["method"] not in list_methods() and match["arguments"] is None
    ):
        return None
    from posir_tasks.models.registry import find_model

    base = match["base"]
    plain = registry[base] if base in registry else find_model(ModelReference(base))
    return describe_mitigated(plain, parse_method(match["method"], match["arguments"] or ""))


def describe_mitigated(base: ModelMeta, method: Mitigation) -> ModelMeta:
    """Build mteb's metadata for a mitigated model."""

    def load(_name: str, _revision: str | None, **options: Any) -> MTEBModels:
        return method.wrap(base.load_model(**options))

    return base.model_copy(
        update={
            "name": f"{base.name}+{method}",
            "loader": ModelLoader(type(method).__name__, f"{portable_name(base)}+{method}", load),
            "loader_kwargs": {},
            "adapted_from": base.name,
            "max_tokens": None if method.UNLIMITED else base.max_tokens,
        }
    )


def parse_reference(text: str) -> Mitigation:
    """Parse a method, such as `chunks(64,mean)`; raise PosirError if it is malformed."""
    match = REFERENCE.fullmatch(f"model+{text.strip().removeprefix('+')}")
    if match is None:
        raise PosirError(f"'{text}': not a method. Examples: chunks(64,mean), both_orders.")
    return parse_method(match["method"], match["arguments"] or "")


def parse_method(name: str, arguments: str) -> Mitigation:
    """Parse a method from its name and comma-separated arguments.

    Numbers are assigned to fields in order. Words such as `mean` and pairs such as `stride=32` can
    appear anywhere.

    Raises:
        PosirError: The method does not exist, or an argument is invalid.
    """
    methods = list_methods()
    if name not in methods:
        raise PosirError(
            f"'+{name}': unknown method.{suggest_name(name, methods)} The methods are "
            f"{', '.join(methods)}."
        )
    method = methods[name]
    types = get_type_hints(method)
    field_names = [field.name for field in fields(method)]
    # Words that enum fields accept, such as max or mean.
    choices = {key: list(types[key]) for key in field_names if isinstance(types[key], EnumMeta)}
    values: dict[str, str] = {}
    syntax = ", ".join(" or ".join(choices.get(key, [key])) for key in field_names)
    help_text = f"The arguments are {syntax}; the default is {method()}."
    for argument in filter(None, map(str.strip, arguments.split(","))):
        key, equals, value = (part.strip() for part in argument.partition("="))
        if not equals:
            value = argument
            matches = [field for field, words in choices.items() if argument in words]
            positional = [field for field in field_names if field not in {*choices, *values}]
            key = next(iter([*matches, *positional]), "")
        if key not in field_names or key in values:
            raise PosirError(
                f"'+{name}({arguments})': unexpected argument '{argument}'. {help_text}"
            )
        values[key] = value
    try:
        mitigation: Mitigation = TypeAdapter(method).validate_python(values)
    except ValidationError as error:
        problem = summarize_error(error)
        raise PosirError(f"'+{name}({arguments})': {problem}. {help_text}") from error
    return mitigation
