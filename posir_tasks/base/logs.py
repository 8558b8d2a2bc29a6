"""Remove secrets and control characters from logs."""

from __future__ import annotations

import logging
from functools import cache
from typing import Any

from posir_tasks.base.wording import escape_controls


class SafeFormatter(logging.Formatter):
    """Sanitizes the output of another formatter, including tracebacks."""

    def __init__(self, formatter: logging.Formatter | None) -> None:
        super().__init__()
        self._formatter = formatter or logging.Formatter()

    def format(self, record: logging.LogRecord) -> str:
        """Format and sanitize a record."""
        return escape_controls(self._formatter.format(record))


def sanitize_log(name: str | None = None) -> None:
    """Sanitize the output of a logger's handlers, by default the root logger's."""
    handlers = list(logging.getLogger(name).handlers)
    if name is None and logging.lastResort:
        handlers.append(logging.lastResort)
    for handler in handlers:
        if not isinstance(handler.formatter, SafeFormatter):
            handler.setFormatter(SafeFormatter(handler.formatter))


@cache
def warn_once(logger: logging.Logger, message: str) -> None:
    """Log a warning, once per process."""
    logger.warning(message)


def sanitize_posir_records() -> None:
    """Sanitize all log records of posir's modules before any handler receives them."""
    build = logging.getLogRecordFactory()
    if getattr(build, "is_from_posir", False):
        return

    def build_safe(name: str, *args: Any, **kwargs: Any) -> logging.LogRecord:
        record = build(name, *args, **kwargs)
        if name.startswith("posir"):
            record.msg = escape_controls(record.getMessage())
            record.args = ()
        return record

    build_safe.is_from_posir = True  # type: ignore[attr-defined]
    logging.setLogRecordFactory(build_safe)
