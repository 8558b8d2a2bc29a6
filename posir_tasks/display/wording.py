"""Words of messages that several rooms use."""


def counted(number: int, noun: str) -> str:
    """Return a number of things in words, such as `1 file` or `1,380 files`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
