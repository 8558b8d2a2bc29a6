"""Output in encodings that lack a character: an ASCII substitute, never an error."""

import codecs
import io
import os
import sys
from pathlib import Path

#: Substitutes of the same width, so that tables stay aligned.
SUBSTITUTES = {
    **dict(zip("–—·✓✗…", "---+x~", strict=True)),
    **dict.fromkeys("▏▎▍▌▋▊▉", ":"),
    **dict(zip("▁▂▃▄▅▆▇█", "_.-=+*%#", strict=True)),
}
HANDLER = "posir.substitute"


def substitute(error: UnicodeError) -> tuple[str, int]:
    """Handle an encoding error; other characters, such as those of names, become escapes from which they can be read back."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    characters = error.object[error.start : error.end]
    return "".join(
        SUBSTITUTES.get(character) or character.encode("ascii", "backslashreplace").decode() for character in characters
    ), error.end


def make_output_encodable() -> None:
    """Let standard output and error substitute what their encoding lacks; a stream that is closed becomes the null device."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
    codecs.register_error(HANDLER, substitute)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=HANDLER)
