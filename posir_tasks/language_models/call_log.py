"""SQLite log of answered calls, keyed by a hash of the request.

Answers are committed before they are used, so a killed process never pays twice for a call.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path

from posir_tasks.base.errors import PosirError, check_schema
from posir_tasks.base.wording import pluralize

#: Schema version of the file. Files with a newer version are rejected.
SCHEMA = 2
TABLES = """
CREATE TABLE IF NOT EXISTS calls (
    key TEXT PRIMARY KEY, model TEXT NOT NULL, prompt TEXT NOT NULL, text TEXT NOT NULL,
    finish_reason TEXT NOT NULL,
    input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL, served TEXT NOT NULL,
    answered TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS scores (key BLOB PRIMARY KEY, score REAL NOT NULL) WITHOUT ROWID;
"""


@dataclass(frozen=True)
class Completion:
    """A language model's answer to a request."""

    text: str
    finish_reason: str
    """Finish reason from the server, `stop` for a complete answer."""
    input_tokens: int
    output_tokens: int
    served: str = ""
    """Model named in the response, such as the snapshot behind an alias; empty if not reported."""


@dataclass(frozen=True)
class Usage:
    """Number of answered calls, and their tokens."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.calls + other.calls,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
        )


class CallLog:
    """Thread-safe log of answered calls and reranker scores."""

    def __init__(self, file: Path) -> None:
        """Open or create the file.

        Raises:
            PosirError: The file cannot be opened, is not a log, or has a newer schema.
        """
        self._file = file
        self.usage_by_key: dict[str, Usage] = {}
        """Usage by request key, for new and saved answers."""
        self.faults: dict[str, str] = {}
        """Reason why an answer is unusable, by request key."""
        self._lock = threading.Lock()
        with self._explain():
            file.parent.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(
                file, check_same_thread=False, isolation_level=None, timeout=60
            )
            (schema,) = self._database.execute("PRAGMA user_version").fetchone()
            check_schema(schema, SCHEMA, f"{file}: this log of calls")
            # With a write-ahead log, commits survive a kill without waiting for the disk.
            self._database.executescript(
                f"PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; {TABLES}"
            )
            self._database.execute(f"PRAGMA user_version={SCHEMA}")

    @contextmanager
    def _explain(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise PosirError(
                f"{self._file}: {error}. If the disk is full, free some space and run again; if "
                "the file is corrupt, remove it (its calls will be charged again)."
            ) from error

    def find(self, key: str) -> Completion | None:
        """Return the answer to a request, or None."""
        with self._lock, self._explain():
            row = self._database.execute(
                "SELECT text, finish_reason, input_tokens, output_tokens, served FROM calls WHERE "
                "key = ?",
                (key,),
            ).fetchone()
        return Completion(*row) if row else None

    def add(self, key: str, model: str, prompt: str, completion: Completion) -> None:
        """Store the answer to a request."""
        with self._lock, self._explain():
            self._database.execute(
                "INSERT OR IGNORE INTO calls (key, model, prompt, text, finish_reason, "
                "input_tokens, output_tokens, served) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (key, model, prompt, *astuple(completion)),
            )

    def load_usage(self) -> dict[tuple[str, str], Usage]:
        """Return the usage by model and prompt, over all stored calls."""
        with self._lock, self._explain():
            rows = self._database.execute(
                "SELECT model, prompt, COUNT(*), SUM(input_tokens), SUM(output_tokens) FROM "
                "calls GROUP BY model, prompt ORDER BY model, prompt"
            ).fetchall()
        return {(model, prompt): Usage(*counts) for model, prompt, *counts in rows}

    def describe_answers(self) -> str:
        """Summarize the answers: number, tokens, and reasons why answers were unusable."""
        total = sum(self.usage_by_key.values(), Usage())
        summary = (
            f"{pluralize(total.calls, 'answer')}, {total.input_tokens:,} input tokens, "
            f"{total.output_tokens:,} output tokens"
        )
        counts = Counter(sorted(self.faults.values())).most_common()
        causes = ", ".join(f"{fault} ({count:,})" for fault, count in counts)
        return f"{summary}; not used: {causes}" if causes else summary

    def find_scores(self, keys: Sequence[bytes]) -> dict[bytes, float]:
        """Return the stored scores by key; keys without a score are omitted."""
        query = "SELECT score FROM scores WHERE key = ?"
        with self._lock, self._explain():
            rows = {key: self._database.execute(query, (key,)).fetchone() for key in keys}
        return {key: row[0] for key, row in rows.items() if row}

    def add_scores(self, scores: Mapping[bytes, float]) -> None:
        """Store scores by key in one transaction."""
        with self._lock, self._explain():
            self._database.execute("BEGIN")
            # Commit at the end of the block, or roll back after an error.
            with self._database:
                self._database.executemany(
                    "INSERT OR REPLACE INTO scores VALUES (?, ?)", scores.items()
                )
