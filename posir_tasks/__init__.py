"""PosIR: position-aware retrieval tasks for mteb.

Importing this package registers the tasks with mteb, before or after mteb is imported. With
autoload (see `posir doctor`), no import is needed.
"""

from typing import TYPE_CHECKING, Any

import posir_autoload

if TYPE_CHECKING:
    from posir_tasks.tasks.base import PositionTask

__all__ = ["PositionTask"]
__version__ = "0.1.0"

posir_autoload.install()


def __getattr__(name: str) -> Any:
    """Import mteb on demand."""
    if name == "PositionTask":
        from posir_tasks.tasks.base import PositionTask

        return PositionTask
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
