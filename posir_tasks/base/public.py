"""Declare public functions. Their signatures and docstrings also define the commands.

Positional parameters become arguments of the command, keyword-only parameters options. Their help
is the text under `Args`. `Annotated[type, Option(...)]` adds ranges and other properties that a
type cannot express. Ranges are checked in Python and on the command line. The command prints the
returned `Result`. `posir_tasks.command.options` adds the options that all commands have.
"""

from __future__ import annotations

import inspect
import math
import os
import re
import sys
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from pkgutil import resolve_name
from types import NoneType, UnionType
from typing import Annotated, Any, ParamSpec, TypeAlias, TypeVar

from posir_tasks.base.errors import PosirError, sanitize_errors, summarize_error
from posir_tasks.base.wording import suggest_name

#: Path or name of data, or a list or data frame column of texts.
DataReference: TypeAlias = str | Path | Iterable[str]
#: One or more names.
Names: TypeAlias = str | Iterable[str]

#: Any function, such as a public one.
Function: TypeAlias = Callable[..., Any]
P = ParamSpec("P")
R = TypeVar("R")

#: Attribute of a public function that stores its `Declaration`.
DECLARATION = "posir_declaration"
#: Heading of a docstring section.
SECTION_HEADING = re.compile(r"^(Args|Returns|Raises|Examples):$", re.MULTILINE)
#: Name and text of a parameter in the section `Args`.
ARGS_ENTRY = re.compile(r"^    \**(\w+): (.*(?:\n {5,}.*)*)", re.MULTILINE)


@dataclass(frozen=True)
class Option:
    """Properties of a parameter besides its type: `Annotated[int, Option(min=1)]`."""

    min: float | None = None
    max: float | None = None
    metavar: str | None = None
    """Placeholder for the value in the command's help, such as `LOW,HIGH`."""
    short: str | None = None
    """Short option, such as `-t`."""
    parse: Callable[[str], Any] | None = None
    """Parser of the value on the command line, which raises PosirError. Defaults to the type."""
    one_value: bool = False
    """Whether the command takes a single string where Python takes an iterable."""
    python_only: bool = False
    """Whether the command does not have the parameter, such as a callback."""

    @property
    def limits(self) -> list[str]:
        """The range in words."""
        ends = {"at least": self.min, "at most": self.max}
        return [f"{words} {end:g}" for words, end in ends.items() if end is not None]


#: An integer of at least 1.
Positive: TypeAlias = Annotated[int, Option(min=1)]
#: An integer of at least 1, or None.
OptionalPositive: TypeAlias = Annotated[int | None, Option(min=1)]


@dataclass(frozen=True)
class Declaration:
    """Decorator that declares a public function, checks its arguments and defines its command.

    The fields are properties of the command that the signature cannot express.
    """

    charts: bool = False
    """Whether the result includes charts. Adds the option `--figures`."""
    card: bool = False
    """Whether the result includes a picture of the answer. Adds the option `--card`."""
    streams: bool = False
    """Whether the function calls its parameter `show` with partial results, which are printed."""
    flags: tuple[str, ...] = ()
    """Formats that have their own option, such as `--csv`."""
    check_options: tuple[str, ...] = ()
    """Parameters that turn the command into a check. If any is given, errors exit with status 2
    (inconclusive), since status 1 means that the check failed.
    """
    groups: Mapping[str, str] = field(default_factory=dict)
    """Space-separated option names by heading in the help."""
    settings: str | None = None
    """`module:class` of the settings in the function's keyword arguments. Adds `--set` and
    `--settings-help`.
    """

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Add the checks and the declaration to a function."""
        signature = inspect.signature(function)

        @wraps(function)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
            _check_keywords(function.__name__, kwargs, signature)
            values = signature.bind(*args, **kwargs).arguments
            for parameter in read_parameters(function):
                if parameter.name in values:
                    parameter.check(values[parameter.name])
            # Notebooks print the whole exception chain.
            with sanitize_errors():
                return function(*args, **kwargs)

        setattr(wrapper, DECLARATION, self)
        return wrapper


public = Declaration


@dataclass(frozen=True)
class Parameter:
    """A parameter of a public function and of its command."""

    name: str
    type: Any
    """Type of a single value."""
    default: Any
    """`inspect.Parameter.empty` for a required parameter."""
    help: str
    option: Option = Option()
    repeats: bool = False
    """Whether several values are allowed."""
    is_argument: bool = False
    """Whether the parameter is positional."""

    def check(self, value: Any) -> None:
        """Raise PosirError if any value is out of range or not among the choices."""
        if value is None:
            return
        if typing.get_origin(self.type) is typing.Literal:
            choices = typing.get_args(self.type)
            if value not in choices:
                allowed_values = " or ".join(map(repr, choices))
                raise PosirError(f"{self.name}={value!r}: must be {allowed_values}.")
        limits = self.option.limits
        if not limits:
            return
        low = -math.inf if self.option.min is None else self.option.min
        high = math.inf if self.option.max is None else self.option.max
        allowed_type = int if self.type is int else int | float
        kind = "whole number" if self.type is int else "number"
        for number in to_list(value):
            if not isinstance(number, allowed_type) or isinstance(number, bool):
                raise PosirError(f"{self.name}={number!r}: must be a {kind}.")
            # The comparison is false for NaN.
            if not low <= number <= high:
                raise PosirError(f"{self.name}={number}: must be {' and '.join(limits)}.")


def _check_keywords(name: str, keywords: Iterable[str], signature: inspect.Signature) -> None:
    """Raise TypeError for an unknown keyword, and suggest a similar one."""
    names = signature.parameters
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in names.values()):
        return
    for keyword in keywords:
        if keyword not in names:
            hint = suggest_name(keyword, names)
            raise TypeError(
                f"{name}() has no argument '{keyword}'.{hint} It has {', '.join(names)}."
            )


def to_list(value: Any) -> list[Any]:
    """Convert a single value, an iterable of values or None (no values) to a list."""
    if value is None:
        return []
    is_single = isinstance(value, str | Path) or not isinstance(value, Iterable)
    return [value] if is_single else [*value]


def read_parameters(function: Function) -> list[Parameter]:
    """Read the parameters of a public function from its signature and the section `Args`."""
    sections = SECTION_HEADING.split(inspect.getdoc(function) or "")
    texts: dict[str, str] = {}
    if "Args" in sections:
        texts = dict(ARGS_ENTRY.findall(sections[sections.index("Args") + 1]))
    parameters = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            continue
        annotation = parameter.annotation
        if isinstance(annotation, str):
            # `get_type_hints` fails if the return type is only imported for type checkers.
            annotation = eval(annotation, inspect.unwrap(function).__globals__)
        option = next(iter(getattr(annotation, "__metadata__", ())), Option())
        kind, repeats = (str, False) if option.one_value else _read_type(annotation)
        is_argument = parameter.kind is not inspect.Parameter.KEYWORD_ONLY
        text = _rewrite_options(" ".join(texts.get(name, "").split()), function)
        parameters.append(
            Parameter(name, kind, parameter.default, text, option, repeats, is_argument)
        )
    return parameters


def describe_function(function: Function) -> str:
    """Return a docstring without its sections. Paragraphs except literal blocks are unwrapped."""
    text = _rewrite_options(
        SECTION_HEADING.split(inspect.getdoc(function) or "")[0], function
    ).rstrip()
    blocks = [
        block if is_literal(block) else " ".join(block.split()) for block in text.split("\n\n")
    ]
    return "\n\n".join(blocks)


def is_literal(block: str) -> bool:
    """Return True if a docstring block is indented or has comments, so line breaks are kept."""
    return block.startswith(" ") or "  # " in block


def _rewrite_options(text: str, function: Function) -> str:
    """Convert a docstring to help text: `k` becomes `--k`, and clauses "In Python also ..." are
    removed.
    """
    parameters = inspect.signature(function).parameters.values()
    options = "|".join(item.name for item in parameters if item.kind is item.KEYWORD_ONLY)
    text = re.sub(r"(?:[;,] in|\. In) Python also .*?(?=[;.](?: |$))", "", text)
    if options:
        text = re.sub(f"`({options})`", lambda name: f"--{name[1].replace('_', '-')}", text)
    return text.replace("`", "")


def _read_type(annotation: Any) -> tuple[Any, bool]:
    """Return the type of a single value and whether several values are allowed."""
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    if origin is Annotated:
        return _read_type(arguments[0])
    if origin in (typing.Union, UnionType):
        members = [_read_type(kind) for kind in arguments if kind is not NoneType]
        kinds = [kind for kind, _ in members]
        # `str | Path` becomes str, `int | float` becomes float.
        wider = next((kind for kind in (str, float) if kind in kinds), kinds[0])
        return wider, any(repeats for _, repeats in members)
    is_iterable = isinstance(origin, type) and issubclass(origin, Iterable)
    if is_iterable and not issubclass(origin, tuple | Mapping):
        return _read_type(arguments[0])[0], True
    return annotation, False


def load_object(option: str, reference: str) -> Any:
    """Load `module:object`, which may be in the working folder. Raise PosirError with the option's
    name if the object cannot be loaded.
    """
    name = f"{option} {reference}"
    module, _, attribute = reference.partition(":")
    if not (module and attribute):
        raise PosirError(
            f"{name}: write module:function, such as pipeline:run for `run` in pipeline.py."
        )
    folder = os.getcwd()  # noqa: PTH109 (sys.path contains strings)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return resolve_name(reference)
    except (Exception, SystemExit) as error:  # the user's code
        raise PosirError(f"{name}: cannot be imported ({summarize_error(error)}).") from error


def load_function(option: str, reference: str) -> Function:
    """Load `module:function` or `module:object.method` as `load_object` does."""
    function = load_object(option, reference)
    if not callable(function):
        raise PosirError(
            f"{option} {reference}: {type(function).__name__} is not callable. Give a function."
        )
    return function  # type: ignore[no-any-return]
