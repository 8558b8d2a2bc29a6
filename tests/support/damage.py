"""Seeded damage to files and JSON values, and commands called in this process as a user calls
them.
"""

import io
import json
import logging
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

#: A place in a JSON value: keys and indices from the outside in.
Place = tuple[str | int, ...]
#: A command that takes longer hangs.
LIMIT_SECONDS = 60.0

#: Values that replace others: of other types, of no finite number, and of sizes and contents that
#: break readers.
HOSTILE: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        -1,
        1,
        2,
        10**6,
        2**31,
        2**53 + 1,
        2**63,
        2**64,
        2**64 + 1,
        -(2**63),
        10**400,
        0.5,
        -0.0,
        1e-300,
    ),
    *(
        float("nan"),
        float("inf"),
        float("-inf"),
        1e308,
        "",
        " ",
        "0",
        "1e999",
        "nan",
        "\ud800",
        "\0",
        "\x1b[31m",
        "é" * 300,
    ),
    *(
        "../../../etc/passwd",
        "=cmd|' /C calc'!A0",
        "<script>",
        "x" * 100_000,
        [],
        [[]],
        [None],
        [0],
        {},
        {"": {}},
        {"a": [1]},
    ),
)


def nest(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


def places(value: Any, place: Place = ()) -> Iterator[Place]:
    """Yield the place of every value within JSON, itself included."""
    yield place
    inside = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, item in inside:
        yield from places(item, (*place, key))


def find(value: Any, place: Place) -> Any:
    for key in place:
        value = value[key]
    return value


def choose_place(value: Any, draw: random.Random) -> Place:
    """Return a random place; each level is drawn by itself, so that long lists do not hide what
    stands beside them.
    """
    place: Place = ()
    while value and isinstance(value, dict | list) and (not place or draw.random() < 0.85):
        key = draw.choice(list(value) if isinstance(value, dict) else range(len(value)))
        place, value = (*place, key), value[key]
    return place


def change_number(number: float, draw: random.Random) -> Any:
    if isinstance(number, int):
        return draw.choice(
            [
                number + 1,
                number - 1,
                -number - 1,
                number * 10 + 7,
                number + 0.5,
                str(number),
                float(number),
            ]
        )
    return draw.choice([number + 0.1, -number - 0.1, number * 2 + 1, int(number) + 3, str(number)])


def change_text(text: str, draw: random.Random) -> Any:
    """Return another text, most often a similar one."""
    at = draw.randrange(len(text) + 1)
    return draw.choice(
        [
            *(
                text[:at] + draw.choice("0aZ~é{ \n") + text[at + 1 :],
                text[:at],
                text[at:],
                text + text,
                text.swapcase(),
            ),
            *(text[:at] + "\ud800" + text[at:], text[::-1], [text], f" {text}"),
        ]
    )


def damage_json(original: Any, draw: random.Random, place: Place | None = None) -> tuple[str, Any]:
    """Return what was done, and a copy of a JSON value in which one place is changed, removed,
    renamed, doubled or nested.
    """
    value = deepcopy(original)
    place = place or choose_place(value, draw)
    if not place:
        return "the whole value", draw.choice([*HOSTILE, [value], {"a": value}])
    holder, key = find(value, place[:-1]), place[-1]
    old = holder[key]
    kind = draw.choice(
        [
            "hostile",
            "hostile",
            "similar",
            "similar",
            "similar",
            "remove",
            "rename",
            "double",
            "wrap",
            "swap",
        ]
    )
    if kind == "similar" and isinstance(old, bool | int | float | str):
        holder[key] = change_text(old, draw) if isinstance(old, str) else change_number(old, draw)
    elif kind == "remove":
        del holder[key]
    elif kind == "rename" and isinstance(holder, dict):
        holder[draw.choice([f"{key}2", str(key).upper(), "", "\ud800"])] = holder.pop(key)
    elif kind == "double" and isinstance(holder, list):
        holder.insert(key, deepcopy(old))
    elif kind == "wrap":
        holder[key] = draw.choice([[old], {"a": old}, nest(70), nest(400)])
    elif kind == "swap":
        other = choose_place(original, draw)
        holder[key] = deepcopy(find(original, other))
        key = f"{key} from {'.'.join(map(str, other))}"
    else:
        holder[key] = draw.choice(HOSTILE)
    return f"{kind} {'.'.join(map(str, (*place[:-1], key)))}", value


def damage_bytes(content: bytes, draw: random.Random) -> tuple[str, bytes]:
    """Return what was done, and a file's content that was cut, overwritten, doubled, or encoded in
    another way.
    """
    at = draw.randrange(len(content) + 1)
    some = draw.choice(
        [
            b"\xff",
            b"\0",
            b"NaN",
            b"1e999",
            b"9" * 400,
            b"[" * 5000,
            b'"',
            b"\n",
            b",",
            b"{}",
            b"\r",
            b"\xed\xa0\x80",
        ]
    )
    line = content.rfind(b"\n", 0, at) + 1
    end = content.find(b"\n", at) + 1 or len(content)
    text = content.decode("utf-8", "replace")
    changed = {
        "cut": content[:at],
        "cut the start": content[at:],
        f"insert {some[:9]!r}": content[:at] + some + content[at:],
        f"overwrite with {some[:9]!r}": content[:at] + some + content[at + len(some) :],
        "replace a byte": content[:at] + bytes([draw.randrange(256)]) + content[at + 1 :],
        "remove a byte": content[:at] + content[at + 1 :],
        "double": content + content,
        "double a line": content[:end] + content[line:],
        "remove a line": content[:line] + content[end:],
        "empty": b"",
        "UTF-16": text.encode("utf-16"),
        "UTF-8 with a mark": b"\xef\xbb\xbf" + content,
        "Latin 1": text.encode("latin-1", "replace"),
        "carriage returns": content.replace(b"\n", b"\r\n"),
    }
    kind = draw.choice(list(changed))
    return f"{kind} at {at}", changed[kind]


def repeat_key(text: str, draw: random.Random) -> tuple[str, str]:
    """Return what was done, and JSON in which one object has a key twice, the second time with
    another value.
    """
    starts = [
        at
        for at, character in enumerate(text)
        if character == "{" and text[at + 1 :].lstrip().startswith('"')
    ]
    if not starts:
        return "no object", text
    at = draw.choice(starts)
    key, end = json.JSONDecoder().raw_decode(text[at + 1 :].lstrip())
    assert end
    return (
        f"repeat the key {key}",
        f"{text[: at + 1]}{json.dumps(key)}: {draw.choice(['0', 'null', '[]'])}, {text[at + 1 :]}",
    )


def damage_json_text(
    text: str, draw: random.Random, place: Place | None = None
) -> tuple[str, bytes]:
    """Return what was done, and a JSON document with another value, a key that is repeated, or
    damaged bytes.
    """
    drawn = draw.random()
    if drawn < 0.1:
        what, changed = repeat_key(text, draw)
        return what, changed.encode()
    if drawn < 0.25:
        return damage_bytes(text.encode(), draw)
    what, value = damage_json(json.loads(text), draw, place)
    return what, json.dumps(value).encode()


class HangError(BaseException):
    """Something took longer than the limit."""


@contextmanager
def time_limit(seconds: float = LIMIT_SECONDS) -> Iterator[None]:
    """Raise HangError in the main thread if what is done inside takes longer."""

    def stop(_: int, __: FrameType | None) -> None:
        raise HangError(f"more than {seconds:g} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@dataclass(frozen=True)
class Ended:
    status: int
    printed: str
    said: str

    @property
    def everything(self) -> str:
        return self.printed + self.said


class _ToStream(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stderr)


def call_posir(*arguments: object) -> Ended:
    """Call `posir` in this process.

    What is no exit by a status is raised, as Python would print its traceback.
    """
    from posir_tasks.command.app import main

    printed, said, handler = io.StringIO(), io.StringIO(), _ToStream(logging.WARNING)
    argv, sys.argv = sys.argv, ["posir", *map(str, arguments)]
    logging.getLogger().addHandler(handler)
    status = 0
    try:
        with redirect_stdout(printed), redirect_stderr(said), time_limit():
            main()
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    finally:
        logging.getLogger().removeHandler(handler)
        sys.argv = argv
    return Ended(status, printed.getvalue(), said.getvalue())


def try_cases(name: str, number: int, examine: Callable[[random.Random], bool]) -> None:
    """Examine all cases; print their counts, and fail with all that went wrong.

    Args:
        name: The name of what is tried, from which the cases are drawn.
        number: The number of cases.
        examine: Called with a seeded source of random numbers; returns whether what it damages was
            accepted, and raises `WrongError` if the outcome is wrong. Any other exception is a
            traceback.
    """
    accepted, slowest, failures = 0, 0.0, []
    for case in range(number):
        start = time.monotonic()
        try:
            accepted += examine(random.Random(f"{name}-{case}"))
        except (Exception, HangError) as error:
            failures.append(f"case {case}: {_describe(error)}")
        slowest = max(slowest, time.monotonic() - start)
    counts = f"{number:,} cases, {accepted:,} accepted, slowest {slowest:.1f} s"
    print(f"\n{name}: {counts}", file=sys.__stdout__)
    assert not failures, f"{name}: {len(failures)} of {counts}:\n" + "\n".join(failures)


class WrongError(Exception):
    """The outcome of a case is wrong."""


@contextmanager
def noted(what: str) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        error.add_note(what)
        raise


def _describe(error: BaseException) -> str:
    done = getattr(error, "__notes__", [])
    trace = error.__traceback__
    last = ""
    while trace:
        name = trace.tb_frame.f_code.co_filename
        if "posir" in name and "site-packages" not in name and f"{os.sep}tests{os.sep}" not in name:
            last = f"{Path(name).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return f"{'; '.join(done)}: {type(error).__name__}: {str(error)[:300]} ({last})"


def check_ended(ended: Ended, names: Sequence[str]) -> None:
    """Raise WrongError if a command ended with a traceback, or with an error that names none of the
    given names.
    """
    if "Traceback" in ended.everything:
        raise WrongError(f"traceback: {ended.everything[-300:]}")
    if ended.status and not any(name in ended.everything for name in names):
        raise WrongError(
            f"status {ended.status} without naming {names[0]}: {ended.everything[-300:]!r}"
        )
