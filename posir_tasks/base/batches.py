"""Split sequences into batches."""

from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")


def split_batches(items: Sequence[Item], size: int) -> list[Sequence[Item]]:
    """Split a sequence into consecutive batches of at most `size` items."""
    return [items[start : start + size] for start in range(0, len(items), size)]
