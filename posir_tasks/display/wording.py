"""Wording shared by messages."""


def pluralize(number: int, noun: str) -> str:
    """Return a number with its noun, such as `1 file` or `1,380 files`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
