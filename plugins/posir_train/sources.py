"""Data for training and forgetting checks."""

from __future__ import annotations

from pathlib import Path

from posir_tasks.sources.opening import Dataset, open_data


def is_data_path(name: str) -> bool:
    """Return whether a name is that of a file, a folder or a dataset on the Hub, and not of a task."""
    return "/" in name or bool(Path(name).suffix) or Path(name).expanduser().exists()


def display_name(name: str) -> str:
    """Return the name of a task or model, or of a file or folder without the folders that it is in."""
    path = Path(name).expanduser()
    return path.resolve().name if path.exists() else name


def open_dataset(name: str) -> Dataset:
    """Open data with evidence; `name` is what `open_data` takes.

    Raises:
        PosirError: There is no such data.
        DataError: It is invalid, or has no question with evidence.
    """
    return open_data(name).with_questions("posir train")
