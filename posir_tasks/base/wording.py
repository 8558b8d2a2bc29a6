"""Format messages: plurals, suggestions, short names and safe text."""

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

#: Control characters, format characters such as direction marks, and lone surrogates.
CONTROLS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    r"\U000e0000-\U000e0fff]"
)
LINES = re.compile(r"[\t\n]")
#: Maximum length of a secret that is redacted at the end of a shortened text.
MAX_SECRET = 4_096
#: Phrases to keep on one line. Their spaces become `NO_BREAK`, at which textwrap does not break.
UNBREAKABLE = re.compile(
    r"(?:[-+]?[\d.,]+%? )?\[[-+\d.]+, [-+\d.]+\]|\bp <?[\d.]+|\b1 - |\S+ \([-+][\d.]+\)"
    r"|\d (?:points|[A-Z]{3})\b"
)
#: Code in a sentence.
COMMAND = re.compile("`([^`\n]+)`")
NO_BREAK = "\N{NO-BREAK SPACE}"


def pluralize(number: int, noun: str, plural: str | None = None) -> str:
    """Format a number with a noun: `1 file`, `1,380 files`.

    `plural` is the plural if it is irregular or followed by a verb.
    """
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def suggest_name(name: str, names: Iterable[str]) -> str:
    """Return a question with the most similar name, ignoring case, or "" if none is similar."""
    by_lower_case = {candidate.lower(): candidate for candidate in names}
    matches = get_close_matches(name.lower(), by_lower_case, 1)
    return f" Did you mean {by_lower_case[matches[0]]}?" if matches else ""


#: Maximum length of a model name in a chart.
LABEL_WIDTH = 72


def shorten_middle(name: str, width: int = LABEL_WIDTH) -> str:
    """Shorten a name to one line of at most `width` characters by removing the middle."""
    name = " ".join(name.split())
    if len(name) <= width:
        return name
    tail = (width - 1) // 2
    return f"{name[: width - 1 - tail]}…{name[-tail:]}"


def keep_together(text: str) -> str:
    """Replace spaces in numbers with intervals or units with no-break spaces."""
    return UNBREAKABLE.sub(lambda match: match[0].replace(" ", NO_BREAK), text)


#: Id of a paper on arXiv or OpenReview.
PAPER = re.compile(r"\b(arXiv|OpenReview)\s(\d{4}\.\d{4,5}|[\w-]{10})\b")
#: Organization of a model, which may be part of a combination: `hybrid(org/a,org/b)`.
ORGANIZATION = re.compile(r"(?:^|(?<=\w\()|(?<=,))[^\s/(),]+/")


def drop_organization(name: str) -> str:
    """Remove organizations from the name of a model or a combination of models."""
    return ORGANIZATION.sub("", name)


#: Arguments of `+chunks`. They are the defaults if the stride is half the size.
CHUNK_ARGUMENTS = re.compile(r"(?<=\+chunks\()(\d+),(\d+),max,tokens(?=\))")


def shorten_name(name: str) -> str:
    """Remove organization and default chunk arguments from a model name.

    `org/a+chunks(128,64,max,tokens)` becomes `a+chunks(128)`.
    """
    return CHUNK_ARGUMENTS.sub(
        lambda match: match[1] if int(match[1]) // 2 == int(match[2]) else match[0],
        drop_organization(name),
    )


def drop_organizations(names: Sequence[str]) -> list[str]:
    """Apply `shorten_name` to all names, unless two of them become equal."""
    short_names = list(map(shorten_name, names))
    return short_names if len(set(short_names)) == len(set(names)) else list(names)


def shorten_names(names: Sequence[str], width: int) -> list[str]:
    """Shorten names to at most `width` characters, if they stay distinct.

    Organizations and middles are removed or, if names become equal, their common prefix.
    """
    if max(map(len, names), default=0) <= width:
        return list(names)
    short_names = list(map(shorten_name, names))
    begin = len(os.path.commonprefix(short_names))  # noqa: RUF071 (no paths)
    for candidates in (short_names, [f"…{name[begin:]}" for name in short_names]):
        short = [shorten_middle(name, width) for name in candidates]
        if max(map(cell_len, short)) <= width and len(set(short)) == len(set(names)):
            return short
    return list(names)


ORDINALS = (
    *("first", "second", "third", "fourth", "fifth"),
    *("sixth", "seventh", "eighth", "ninth", "tenth"),
)


def format_ordinal(number: int) -> str:
    """Format an ordinal number, up to ten as a word: `third`, `11th`."""
    if number <= len(ORDINALS):
        return ORDINALS[number - 1]
    if number % 100 in {11, 12, 13}:
        return f"{number}th"
    suffix = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"


def escape_controls(text: str) -> str:
    """Redact secrets, and escape control characters except line breaks and tabs.

    This function processes all printed, logged and raised text, which may include untrusted text.
    """
    safe = redact(text)
    return safe if safe.isascii() and safe.isprintable() else CONTROLS.sub(_escape, safe)


def sanitize(value: object, limit: int | None = 80) -> str:
    """Convert an untrusted value to a line of at most `limit` characters without control
    characters.

    Terminals interpret control characters, and CI systems interpret lines. Shortening before
    redaction could leave parts of a secret.
    """
    text = value if isinstance(value, str) else repr(value)
    safe = escape_controls(text if limit is None else text[: limit + MAX_SECRET])
    safe = safe if safe.isascii() and safe.isprintable() else LINES.sub(_escape, safe)
    return safe if limit is None or len(safe) <= limit else safe[: limit - 3] + "..."


def _escape(match: re.Match[str]) -> str:
    return ascii(match[0])[1:-1]


#: Substitutes for unencodable characters, of the same width, so that tables stay aligned.
SUBSTITUTES = dict(zip("–—·✓✗…▏▎▍▌▋▊▉▁▂▃▄▅▆▇█┊░", "---+x~:::::::_.-=+*%#|/", strict=True))
ERROR_HANDLER = "posir.substitute"


def substitute(error: UnicodeError) -> tuple[str, int]:
    """Handle an encoding error with `SUBSTITUTES`, and escape other characters."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = ""
    for character in error.object[error.start : error.end]:
        escape = character.encode("ascii", "backslashreplace").decode()
        text += SUBSTITUTES.get(character, escape)
    return text, error.end


def make_output_encodable() -> None:
    """Make standard output and error substitute unencodable characters. Replace closed streams with
    the null device.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
    codecs.register_error(ERROR_HANDLER, substitute)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=ERROR_HANDLER)
