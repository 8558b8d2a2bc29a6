"""Logs without secrets and control characters."""

from __future__ import annotations

import logging
from typing import Any

from posir_tasks.base.wording import escape_controls


class SafeFormatter(logging.Formatter):
    """Formats as another formatter does, tracebacks included, and sanitizes the text."""

    def __init__(self, formatter: logging.Formatter | None) -> None:
        super().__init__()
        self._formatter = formatter or logging.Formatter()

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a record."""
        return escape_controls(self._formatter.format(record))


def sanitize_log(name: str | None = None) -> None:
    """Sanitize what the handlers of a logger write, by default those of the root logger."""
    handlers = list(logging.getLogger(name).handlers)
    if name is None and logging.lastResort:
        handlers.append(logging.lastResort)
    for handler in handlers:
        if not isinstance(handler.formatter, SafeFormatter):
            handler.setFormatter(SafeFormatter(handler.formatter))


def sanitize_own_records() -> None:
    """Sanitize all log records of posir's own modules, whatever handler a program has for them."""
    build = logging.getLogRecordFactory()
    if getattr(build, "of_posir", False):
        return

    def build_safe(name: str, *args: Any, **kwargs: Any) -> logging.LogRecord:
        record = build(name, *args, **kwargs)
        if name.startswith("posir"):
            record.msg = escape_controls(record.getMessage())
            record.args = ()
        return record

    build_safe.of_posir = True  # type: ignore[attr-defined]
    logging.setLogRecordFactory(build_safe)
