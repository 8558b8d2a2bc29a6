"""Errors that are the user's to mend: what was wrong, what is allowed, what to do."""


class PosirError(Exception):
    """A mistake in input, data or environment. Commands print its text, without a traceback, and exit with status 1."""


class DataError(PosirError):
    """The data is not what the loader demands. Names file, row and field."""


class ScoreError(PosirError):
    """A model's scores cannot be ranked (NaN)."""


class ProfileError(PosirError):
    """A stored profile cannot be read, or two profiles cannot be added."""
