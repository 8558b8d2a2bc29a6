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
    """Return a number with its noun, such as `1 file` or `1,380 files`; an irregular plural, or a
    verb, is given.
    """
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def suggest_name(name: str, known: Iterable[str]) -> str:
    """Return a question with the known name that is most similar to a name, whatever the case;
    empty if none is.
    """
    lowered = {other.lower(): other for other in known}
    close = get_close_matches(name.lower(), lowered, 1)
    return f" Did you mean {lowered[close[0]]}?" if close else ""


#: Characters of a model's name in a chart.
LABEL_WIDTH = 72


def shorten_middle(name: str, width: int = LABEL_WIDTH) -> str:
    """Return a name on one line of at most `width` characters.

    A longer one keeps both ends, as either may identify it, or the beginning of the model and that
    of the method after a plus.
    """
    name = " ".join(name.split())
    if len(name) <= width:
        return name
    tail, (model, plus, method) = (width - 1) // 2, name.partition("+")
    if not plus or tail < len("…+…"):
        return f"{name[: width - 1 - tail]}…{name[-tail:]}"
    # A number that is cut would be another one.
    most = min(len(method.partition(",")[0]) + len("…)"), width - len("model+"))
    method = _shorten_end(method, max(tail, width - 1 - len(model), most))
    return f"{_shorten_end(model, width - 1 - len(method))}+{method}"


def _shorten_end(name: str, width: int) -> str:
    end = "…" + name[-1:] * name.endswith(")")
    return name if len(name) <= width else f"{name[: width - len(end)].rstrip(',-_(')}{end}"


def bind(text: str) -> str:
    """Return a text whose figures are bound to their intervals, units and signs by spaces that no
    line ends with.
    """
    return INSEPARABLE.sub(lambda match: match[0].replace(" ", NO_BREAK), text)


#: A paper by the archive that has it, and its name there.
PAPER = re.compile(r"\b(arXiv|OpenReview)\s(\d{4}\.\d{4,5}|[\w-]{10})\b")
ORGANIZATION = re.compile(r"^[^\s/]+/")


def drop_organizations(names: Sequence[str]) -> list[str]:
    """Return names of models without their organizations, unless two differ in these alone."""
    own = [ORGANIZATION.sub("", name) for name in names]
    return own if len(set(own)) == len(set(names)) else list(names)


def shorten_names(names: Sequence[str], width: int) -> list[str]:
    """Return names of at most `width` characters, if that is possible.

    They lose their organizations and their middles or, where two would become equal, how they all
    begin.
    """
    if max(map(len, names), default=0) <= width:
        return list(names)
    own = [ORGANIZATION.sub("", name) for name in names]
    ends = zip(min(own), max(own), strict=False)
    begin = next((place for place, (first, last) in enumerate(ends) if first != last), 0)
    for texts in (own, [f"…{name[begin:]}" for name in own]):
        short = [shorten_middle(text, width) for text in texts]
        if max(map(cell_len, short)) <= width and len(set(short)) == len(set(names)):
            return short
    return list(names)


def ordinal(number: int) -> str:
    """Return an ordinal number from 1, as a word up to tenth: `third`, `11th`."""
    words = (
        "first",
        "second",
        "third",
        "fourth",
        "fifth",
        "sixth",
        "seventh",
        "eighth",
        "ninth",
        "tenth",
    )
    if number <= len(words):
        return words[number - 1]
    suffix = (
        "th" if number % 100 in {11, 12, 13} else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    )
    return f"{number}{suffix}"


def escape_controls(text: str) -> str:
    """Return a text as it may be shown: without secrets, and with escapes in place of control
    characters.

    Those of lines and tabs stay. All that is shown, logged or raised passes here, as it may have
    text from outside.
    """
    shown = redact(text)
    return shown if shown.isascii() and shown.isprintable() else CONTROLS.sub(_escape, shown)


def sanitized(value: object, limit: int | None = 80) -> str:
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
    characters = error.object[error.start : error.end]
    return "".join(
        SUBSTITUTES.get(character) or character.encode("ascii", "backslashreplace").decode()
        for character in characters
    ), error.end


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
