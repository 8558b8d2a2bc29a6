"""Load and validate the settings of a command from a YAML file, overrides and options."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from enum import EnumType
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails, to_jsonable_python

from posir_tasks.base.errors import PosirError
from posir_tasks.base.records import Fields, Record
from posir_tasks.base.untrusted import InputError, parse_yaml, read_yaml

#: Width of comments in a settings file, in characters.
WIDTH = 96


class Section(BaseModel):
    """A section of settings. It is frozen, rejects unknown fields, and is documented by attribute
    docstrings.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False
    )


Settings = TypeVar("Settings", bound=Section)


def load_settings(
    kind: type[Settings],
    file: Path | None,
    overrides: Mapping[str, object] = MappingProxyType({}),
    options: Mapping[str, object] = MappingProxyType({}),
) -> Settings:
    """Load settings.

    Args:
        kind: The settings class.
        file: A YAML file, or None.
        overrides: Values by field, nested by section. They take precedence over the file.
        options: Values of command options by field. They take precedence over overrides, unless
            they are None or an empty list.

    Raises:
        PosirError: The file is unreadable or a field is invalid. The message names the file and the
            field, or the option.
    """
    values = _merge(_read_yaml(kind, file) if file else {}, overrides)
    values |= {field: value for field, value in options.items() if value not in (None, [])}
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        problems: dict[str, str] = {}
        for problem in error.errors(include_url=False):
            # Parts with brackets name members of a union.
            path = [part for part in map(str, problem["loc"]) if not set("[(") & set(part)]
            if problem["type"] == "literal_error" and len(path) < len(problem["loc"]):
                # Errors of other members of the union are more useful.
                continue
            source = f"{file or 'settings'}: field '{'.'.join(path) or 'settings'}'"
            field = next(iter(path), "")
            # Name the option if it has the invalid value, or could provide the missing one.
            if field in options and (options[field] not in (None, []) or field not in values):
                source = f"--{field.replace('_', '-')}"
            problems[source] = _describe_problem(kind, path, problem)
        lines = [f"{source}: {message}" for source, message in problems.items()]
        raise PosirError("\n".join(lines)) from None


def describe_settings(kind: type[Section]) -> str:
    """Return YAML with the description and default of each setting. Required settings are empty."""
    return "\n".join(_list_lines(kind))


def dump_settings(settings: Section) -> str:
    """Return settings as YAML for `load_settings`, without None values."""
    # The import is slow.
    import yaml

    yaml_text: str = yaml.safe_dump(
        settings.model_dump(mode="json", exclude_none=True), sort_keys=False, allow_unicode=True
    )
    return yaml_text


def _list_lines(kind: type[Section]) -> Iterator[str]:
    import yaml

    for name, field in kind.model_fields.items():
        sentences = [field.description or ""]
        choices = _list_choices(field.annotation)
        if choices:
            sentences.append(f"One of {', '.join(choices)}.")
        if field.is_required():
            sentences.append("Required.")
        comment = " ".join(sentences).strip()
        yield from (f"# {line}" for line in textwrap.wrap(comment, WIDTH))
        section = _find_section(field.annotation)
        if isinstance(field.annotation, type) and section:
            yield f"{name}:"
            yield from (f"  {line}" for line in _list_lines(section))
        elif field.is_required():
            yield f"{name}:"
        else:
            default = to_jsonable_python(field.get_default(call_default_factory=True))
            yield from yaml.safe_dump({name: default}, allow_unicode=True).splitlines()


def _list_choices(kind: Any) -> list[str]:
    """List the values of an enum or a literal, which may be in a union."""
    if get_origin(kind) is Literal:
        return list(map(str, get_args(kind)))
    if isinstance(kind, EnumType):
        return list(map(str, kind))
    return [name for member in get_args(kind) for name in _list_choices(member)]


def _describe_problem(kind: type[Section], path: Sequence[str], problem: ErrorDetails) -> str:
    if problem["type"] == "model_type":
        return f"Input should be a section with fields: {', '.join(_list_fields(kind, path))}"
    if problem["type"] == "extra_forbidden":
        fields = _list_fields(kind, path[:-1])
        matches = get_close_matches(path[-1], fields, 1)
        hint = f"; did you mean {matches[0]}?" if matches else "."
        return f"unknown field{hint} Fields here: {', '.join(fields)}"
    return problem["msg"].removeprefix("Value error, ")


def _list_fields(kind: type[Section], path: Sequence[str]) -> list[str]:
    """List the fields of the section at a path, which may be in a list."""
    section = kind
    for part in path:
        if not part.isdecimal():
            section = _find_section(section.model_fields[part].annotation) or Section
    return list(section.model_fields)


def _find_section(kind: Any) -> type[Section] | None:
    """Find the section in a type such as `tuple[LengthBucket, ...] | None`."""
    if isinstance(kind, type) and issubclass(kind, Section):
        return kind
    return next(filter(None, map(_find_section, get_args(kind))), None)


def _read_yaml(kind: type[Section], file: Path) -> Record:
    required_fields = ", ".join(
        name for name, field in kind.model_fields.items() if field.is_required()
    )
    description = "a YAML file with settings"
    if required_fields:
        description += f", at least {required_fields}"
    try:
        values = read_yaml(file)
    except InputError as error:
        raise PosirError(f"{error}. Expected {description}.") from None
    if not isinstance(values, dict):
        raise PosirError(f"{file}: has no fields; expected {description}.")
    return values


def _merge(values: Fields, changes: Fields) -> Record:
    """Merge changes into values, recursively for sections."""
    merged_values = {**values, **changes}
    for name, change in changes.items():
        if isinstance(change, Mapping) and isinstance(values.get(name), Mapping):
            merged_values[name] = _merge(values[name], change)
    return merged_values


def read_overrides(overrides: Iterable[str], option: str = "--set") -> Record:
    """Parse overrides such as `ask.questions=5` into values nested by section. Later overrides take
    precedence. Raise PosirError if an override is malformed.
    """
    values: Record = {}
    for override in overrides:
        name, separator, text = override.partition("=")
        path = name.strip().split(".")
        if not separator or not all(path):
            raise PosirError(
                f"{option} {override}: expected field=value, such as seed=7 or truncate=true."
            )
        try:
            value = parse_yaml(text, f"{option} {override}")
        except InputError as error:
            raise PosirError(f"{error}. Put quotes around text.") from None
        for part in reversed(path):
            value = {part: value}
        values = _merge(values, value)
    return values
