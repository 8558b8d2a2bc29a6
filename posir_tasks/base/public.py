"""Public functions: each is declared once, and its signature and docstring make the command of the
same name, too.

A parameter that may be given by position is an argument of the command; one that is keyword-only is
the option of the same name. `Annotated[type, Option(...)]` has what a type cannot say, such as a
range, which the function itself checks, so that Python and the command line refuse the same. The
help is the parameter's text under `Args`. What the function returns prints itself;
`posir_tasks.command.options` adds the options that all commands share.
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

#: Data by its path or name, or texts themselves: a list or a column of a data frame.
DataReference: TypeAlias = str | Path | Iterable[str]

P = ParamSpec("P")
R = TypeVar("R")

#: Attribute of a public function with what its command needs beyond the signature.
DECLARATION = "posir_declaration"
#: Line that begins a section of a docstring.
SECTION = re.compile(r"^(Args|Returns|Raises|Examples):$", re.MULTILINE)
#: Text of a parameter in the section `Args`.
DESCRIBED = re.compile(r"^    \**(\w+): (.*(?:\n {5,}.*)*)", re.MULTILINE)


@dataclass(frozen=True)
class Option:
    """Facts that the type of a parameter does not state: `Annotated[int, Option(min=1)]`."""

    min: float | None = None
    """Smallest value."""
    max: float | None = None
    """Largest value."""
    metavar: str | None = None
    """A placeholder for the value in the help of the command, such as `LOW,HIGH`."""
    short: str | None = None
    """A letter for the command, such as `-t`."""
    parse: Callable[[str], Any] | None = None
    """Makes the value from the text that the command is given; by default, the type does. It raises
    PosirError.
    """
    one_value: bool = False
    """Whether what is an iterable in Python, such as a list of texts, is one value for the command,
    which is given as text.
    """
    python_only: bool = False
    """Whether the command does not have it, such as a callback."""


@dataclass(frozen=True)
class Declaration:
    """The part of a command that does not follow from the signature of its function."""

    charts: bool = False
    """Whether what it returns has charts, which `--figures` writes."""
    card: bool = False
    """Whether what it returns has the picture of the answer, which `--card` writes."""
    streams: bool = False
    """Whether it calls its parameter `show`, for Python alone, with what is known so far, which is
    printed.
    """
    flags: tuple[str, ...] = ()
    """The formats that have an option of their own, such as `--csv`."""
    undecided_by: tuple[str, ...] = ()
    """The parameters that make it a check: if one is given, an error is exit status 2, which says
    that nothing was decided.
    """
    groups: Mapping[str, str] = field(default_factory=dict)
    """Titles in its help, each with the names of the options below it."""
    settings: str | None = None
    """`module:class` of the settings that its further keywords are, which `--set` gives and
    `--settings-help` lists.
    """


@dataclass(frozen=True)
class Parameter:
    """A parameter of a public function, as its command has it."""

    name: str
    type: Any
    """Type of a value; of each if there may be several."""
    repeats: bool
    """Whether it takes several values."""
    default: Any
    """`inspect.Parameter.empty` if it is required."""
    is_argument: bool
    """Whether it may be given by position."""
    help: str
    option: Option

    def check(self, value: Any) -> None:
        """Raise PosirError if a value, or one of several, is out of range or none of the
        choices.
        """
        if value is None:
            return
        if typing.get_origin(self.type) is typing.Literal:
            choices = typing.get_args(self.type)
            if value not in choices:
                allowed = " or ".join(map(repr, choices))
                raise PosirError(f"{self.name}={value!r}: must be {allowed}.")
        limits = []
        if self.option.min is not None:
            limits.append(f"at least {self.option.min}")
        if self.option.max is not None:
            limits.append(f"at most {self.option.max}")
        if not limits:
            return
        is_whole = self.type is int
        for number in to_list(value):
            is_number = isinstance(number, int) or (isinstance(number, float) and not is_whole)
            if not is_number or isinstance(number, bool):
                kind = "whole number" if is_whole else "number"
                raise PosirError(f"{self.name}={number!r}: must be a {kind}.")
            low = -math.inf if self.option.min is None else self.option.min
            high = math.inf if self.option.max is None else self.option.max
            if not low <= number <= high:
                raise PosirError(f"{self.name}={number}: must be {' and '.join(limits)}.")


def public(
    *,
    charts: bool = False,
    card: bool = False,
    streams: bool = False,
    flags: tuple[str, ...] = (),
    undecided_by: tuple[str, ...] = (),
    groups: Mapping[str, str] | None = None,
    settings: str | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Declare a public function, whose ranges are checked and whose command follows; arguments are
    those of `Declaration`.
    """

    def declare(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)

        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            _refuse_unknown(function.__name__, kwargs, signature)
            values = signature.bind(*args, **kwargs).arguments
            for parameter in read_parameters(function):
                if parameter.name in values:
                    parameter.check(values[parameter.name])
            # A notebook prints an error with what it was raised from.
            with sanitize_errors():
                return function(*args, **kwargs)

        declaration = Declaration(
            charts, card, streams, flags, undecided_by, groups or {}, settings
        )
        setattr(checked, DECLARATION, declaration)
        return checked

    return declare


def _refuse_unknown(name: str, keywords: Iterable[str], signature: inspect.Signature) -> None:
    """Raise TypeError for a keyword that a function does not have, naming the one that was probably
    meant.
    """
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
    """List what a parameter that takes a text, a path or several was given; empty for None."""
    if value is None:
        return []
    is_one = isinstance(value, str | Path) or not isinstance(value, Iterable)
    return [value] if is_one else [*value]


def read_parameters(function: Callable[..., Any]) -> list[Parameter]:
    """Read the parameters of a public function, each with its text in the section `Args` of the
    docstring.
    """
    sections = SECTION.split(inspect.getdoc(function) or "")
    texts: dict[str, str] = {}
    if "Args" in sections:
        texts = dict(DESCRIBED.findall(sections[sections.index("Args") + 1]))
    parameters = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            continue
        annotation = parameter.annotation
        if isinstance(annotation, str):
            # One by one: the type of what is returned may be known to type checkers alone.
            annotation = eval(annotation, inspect.unwrap(function).__globals__)
        option = Option()
        for part in getattr(annotation, "__metadata__", ()):
            option = part if isinstance(part, Option) else option
        kind, repeats = (str, False) if option.one_value else _read_type(annotation)
        is_argument = parameter.kind is not inspect.Parameter.KEYWORD_ONLY
        text = _name_options(" ".join(texts.get(name, "").split()), function)
        parameters.append(
            Parameter(name, kind, repeats, parameter.default, is_argument, text, option)
        )
    return parameters


def describe_function(function: Callable[..., Any]) -> str:
    """Read the docstring of a function before its sections; indented or commented lines stay
    lines of their own.
    """
    text = _name_options(SECTION.split(inspect.getdoc(function) or "")[0], function).rstrip()
    parts = [part if is_literal(part) else " ".join(part.split()) for part in text.split("\n\n")]
    return "\n\n".join(parts)


def is_literal(part: str) -> bool:
    """Tell whether a part of a docstring keeps its lines: they are indented or commented."""
    return part.startswith(" ") or "  # " in part


def _name_options(text: str, function: Callable[..., Any]) -> str:
    """Write a part of a docstring as the command says it: `k` is `--k`, and what is for Python
    alone is left out.
    """
    parameters = inspect.signature(function).parameters.values()
    options = "|".join(item.name for item in parameters if item.kind is item.KEYWORD_ONLY)
    text = re.sub(r"(?:[;,] in|\. In) Python also .*?(?=[;.](?: |$))", "", text)
    if options:
        text = re.sub(f"`({options})`", lambda name: f"--{name[1].replace('_', '-')}", text)
    return text.replace("`", "")


def _read_type(annotation: Any) -> tuple[Any, bool]:
    """Read the type of a value, of each if there may be several, and whether there may be."""
    if typing.get_origin(annotation) is Annotated:
        return _read_type(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) in (typing.Union, UnionType):
        parts = [_read_type(part) for part in typing.get_args(annotation) if part is not NoneType]
        kinds = [kind for kind, _ in parts]
        # A path may be given as text, and a number as a whole one.
        wider = next((kind for kind in (str, float) if kind in kinds), kinds[0])
        return wider, any(repeats for _, repeats in parts)
    origin = typing.get_origin(annotation)
    is_iterable = isinstance(origin, type) and issubclass(origin, Iterable)
    if is_iterable and not issubclass(origin, tuple | Mapping):
        return _read_type(typing.get_args(annotation)[0])[0], True
    return annotation, False


def _add_working_folder() -> None:
    folder = os.getcwd()  # noqa: PTH109 (sys.path holds texts)
    if folder not in sys.path:
        sys.path.insert(0, folder)


def load_object(option: str, reference: str) -> Any:
    """Load `module:object`, also of the working folder; raise PosirError, naming the option."""
    name = f"{option} {reference}"
    module, _, attribute = reference.partition(":")
    if not (module and attribute):
        raise PosirError(
            f"{name}: write module:function, such as pipeline:run for `run` in pipeline.py."
        )
    _add_working_folder()
    try:
        return resolve_name(reference)
    except (Exception, SystemExit) as error:  # it is the user's own code
        raise PosirError(f"{name}: cannot be imported ({summarize_error(error)}).") from error


def load_function(option: str, reference: str) -> Callable[..., Any]:
    """Load `module:function` or `module:object.method`, also of the working folder; raise
    PosirError, naming the option.
    """
    function = load_object(option, reference)
    if not callable(function):
        raise PosirError(
            f"{option} {reference}: is {type(function).__name__}, which cannot be called. Give a "
            "function."
        )
    return function  # type: ignore[no-any-return]
