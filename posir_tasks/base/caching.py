"""Caches of recent results."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any, ParamSpec, TypeVar

from cachetools import LRUCache, cached

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def cache_recent(
    least: int, size: int, measure: Callable[[Any], int]
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Cache the most recent results of a function of hashable arguments.

    Unlike `functools.lru_cache`, it keeps many small results, such as those of 31 domains, but few
    large ones.

    Args:
        least: Minimum number of cached results, whatever their sizes.
        size: Maximum total size of more results.
        measure: Returns the size of a result.
    """

    def measure_capped(result: Result) -> int:
        return min(max(measure(result), 1), size // least)

    return cached(LRUCache(size, measure_capped), lock=Lock())
