"""Wording shared by messages."""

import codecs
import io
import os
import re
import sys
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path

from rich.cells import cell_len

from posir_tasks.base.secrets import redact

#: Control and format characters, such as those that turn the direction of writing, and halves of
#: surrogate pairs.
CONTROLS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    r"\U000e0000-\U000e0fff]"
)
LINES = re.compile(r"[\t\n]")
#: The largest number of characters of a secret that is hidden where a text is shortened.
MAX_SECRET = 4_096
#: What a line of a paragraph does not part, and the mark of such a space: textwrap breaks at ASCII
#: spaces only.
INSEPARABLE = re.compile(
    r"(?:[-+]?[\d.,]+%? )?\[[-+\d.]+, [-+\d.]+\]|\bp <?[\d.]+|\b1 - |\S+ \([-+][\d.]+\)"
    r"|\d (?:points|[A-Z]{3})\b"
)
#: Code in a sentence.
COMMAND = re.compile("`([^`\n]+)`")
NO_BREAK = "\N{NO-BREAK SPACE}"


def pluralize(number: int, noun: str, plural: str | None = None) -> str:
    """Write a number with its noun, such as `1 file` or `1,380 files`; an irregular plural, or a
    verb, is given.
    """
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def suggest_name(name: str, names: Iterable[str]) -> str:
    """Ask whether the most similar known name is meant, whatever the case; empty if none is
    similar.
    """
    lowered = {other.lower(): other for other in names}
    close = get_close_matches(name.lower(), lowered, 1)
    return f" Did you mean {lowered[close[0]]}?" if close else ""


#: Characters of a model's name in a chart.
LABEL_WIDTH = 72


def shorten_middle(name: str, width: int = LABEL_WIDTH) -> str:
    """Shorten a name to one line of at most `width` characters; both ends stay, as either may
    identify it.
    """
    name = " ".join(name.split())
    if len(name) <= width:
        return name
    tail = (width - 1) // 2
    return f"{name[: width - 1 - tail]}…{name[-tail:]}"


def bind(text: str) -> str:
    """Bind figures to their intervals, units and signs by spaces that no line ends with."""
    return INSEPARABLE.sub(lambda match: match[0].replace(" ", NO_BREAK), text)


#: A paper by the archive that has it, and its name there.
PAPER = re.compile(r"\b(arXiv|OpenReview)\s(\d{4}\.\d{4,5}|[\w-]{10})\b")
#: The organization of a model, also of one that another is made of: `hybrid(org/a,org/b)`.
ORGANIZATION = re.compile(r"(?:^|(?<=\w\()|(?<=,))[^\s/(),]+/")


def drop_organization(name: str) -> str:
    """Drop the organization from the name of a model, and from the models that it is made of."""
    return ORGANIZATION.sub("", name)


#: Chunks whose arguments after the size are the usual ones, if the stride is half the size.
CHUNKS = re.compile(r"(?<=\+chunks\()(\d+),(\d+),max,tokens(?=\))")


def shorten_name(name: str) -> str:
    """Drop the organization of a model, and the usual arguments of its chunks:
    `org/a+chunks(128,64,max,tokens)` is `a+chunks(128)`.
    """
    return CHUNKS.sub(
        lambda match: match[1] if int(match[1]) // 2 == int(match[2]) else match[0],
        drop_organization(name),
    )


def drop_organizations(names: Sequence[str]) -> list[str]:
    """Drop the organizations from names of models, unless two differ in these alone."""
    bare = list(map(shorten_name, names))
    return bare if len(set(bare)) == len(set(names)) else list(names)


def shorten_names(names: Sequence[str], width: int) -> list[str]:
    """Shorten names of at most `width` characters, if that is possible.

    They lose their organizations and their middles or, where two would become equal, how they all
    begin.
    """
    if max(map(len, names), default=0) <= width:
        return list(names)
    bare = list(map(shorten_name, names))
    begin = len(os.path.commonprefix(bare))  # noqa: RUF071 (no paths)
    for texts in (bare, [f"…{name[begin:]}" for name in bare]):
        short = [shorten_middle(text, width) for text in texts]
        if max(map(cell_len, short)) <= width and len(set(short)) == len(set(names)):
            return short
    return list(names)


ORDINALS = (
    *("first", "second", "third", "fourth", "fifth"),
    *("sixth", "seventh", "eighth", "ninth", "tenth"),
)


def ordinal(number: int) -> str:
    """Write an ordinal number from 1, as a word up to tenth: `third`, `11th`."""
    if number <= len(ORDINALS):
        return ORDINALS[number - 1]
    if number % 100 in {11, 12, 13}:
        return f"{number}th"
    suffix = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"


def escape_controls(text: str) -> str:
    """Hide the secrets of a text, and escape its control characters.

    Those of lines and tabs stay. All that is shown, logged or raised passes here, as it may have
    text from outside.
    """
    shown = redact(text)
    return shown if shown.isascii() and shown.isprintable() else CONTROLS.sub(_escape, shown)


def sanitize(value: object, limit: int | None = 80) -> str:
    """Return a third party's value as one line of limited length without control characters, for a
    message.

    Terminals interpret control characters, and continuous integration interprets lines. Without a
    limit it is complete. Secrets are hidden before the text is shortened: a part of one is still a
    part.
    """
    text = value if isinstance(value, str) else repr(value)
    safe = escape_controls(text if limit is None else text[: limit + MAX_SECRET])
    safe = safe if safe.isascii() and safe.isprintable() else LINES.sub(_escape, safe)
    return safe if limit is None or len(safe) <= limit else safe[: limit - 3] + "..."


def _escape(match: re.Match[str]) -> str:
    return ascii(match[0])[1:-1]


#: Substitutes of the same width, so that tables stay aligned.
SUBSTITUTES = {
    **dict(zip("–—·✓✗…", "---+x~", strict=True)),
    **dict.fromkeys("▏▎▍▌▋▊▉", ":"),
    **dict(zip("▁▂▃▄▅▆▇█┊░", "_.-=+*%#|/", strict=True)),
}
HANDLER = "posir.substitute"


def substitute(error: UnicodeError) -> tuple[str, int]:
    """Handle an encoding error; other characters, such as those of names, become escapes from which
    they can be read back.
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    shown = ""
    for character in error.object[error.start : error.end]:
        escaped = character.encode("ascii", "backslashreplace").decode()
        shown += SUBSTITUTES.get(character, escaped)
    return shown, error.end


def make_output_encodable() -> None:
    """Let standard output and error substitute what their encoding lacks; a stream that is closed
    becomes the null device.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
    codecs.register_error(HANDLER, substitute)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=HANDLER)
