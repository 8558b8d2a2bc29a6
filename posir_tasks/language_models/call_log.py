"""Every answered call of a build, in an SQLite file: one row a call, keyed by a hash of what was
asked.

A row is committed before its answer is used, so a build that is killed at any moment never pays for
an answered call again.
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

#: Schema version of the file. A newer one is refused.
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
    """The server's reason; `stop` if the answer is complete."""
    input_tokens: int
    output_tokens: int
    served: str = ""
    """The model that the server names in its answer, such as the snapshot behind an alias; "" if it
    names none.
    """


@dataclass(frozen=True)
class Usage:
    """Calls that were answered, and their tokens as the servers counted them; they add."""

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
    """The answered calls of a build, and the scores of rerankers; may be used by several
    threads.
    """

    def __init__(self, file: Path) -> None:
        """Open or create the file; raise PosirError if it cannot be opened, is not such a file, or
        has a newer schema.
        """
        self._file = file
        self.read: dict[str, Usage] = {}
        """The answers that were read since it was opened, new or saved, by key."""
        self.faults: dict[str, str] = {}
        """Why some of these could not be used, by key."""
        self._lock = threading.Lock()
        with self._explain():
            file.parent.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(
                file, check_same_thread=False, isolation_level=None, timeout=60
            )
            (schema,) = self._database.execute("PRAGMA user_version").fetchone()
            check_schema(schema, SCHEMA, f"{file}: this log of calls")
            # With a write-ahead log, a commit is safe from a kill without waiting for the disk.
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
                "the file is damaged, remove it, and its calls are paid again."
            ) from error

    def find(self, key: str) -> Completion | None:
        """Find the answer to a request; None if it has not been answered."""
        with self._lock, self._explain():
            row = self._database.execute(
                "SELECT text, finish_reason, input_tokens, output_tokens, served FROM calls WHERE "
                "key = ?",
                (key,),
            ).fetchone()
        return Completion(*row) if row else None

    def add(self, key: str, model: str, prompt: str, completion: Completion) -> None:
        """Record the answer to a request."""
        with self._lock, self._explain():
            self._database.execute(
                "INSERT OR IGNORE INTO calls (key, model, prompt, text, finish_reason, "
                "input_tokens, output_tokens, served) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (key, model, prompt, *astuple(completion)),
            )

    def usage(self) -> dict[tuple[str, str], Usage]:
        """Add up the usage by model and prompt."""
        with self._lock, self._explain():
            rows = self._database.execute(
                "SELECT model, prompt, COUNT(*), SUM(input_tokens), SUM(output_tokens) FROM "
                "calls GROUP BY model, prompt ORDER BY model, prompt"
            ).fetchall()
        return {(model, prompt): Usage(*counts) for model, prompt, *counts in rows}

    def describe_read(self) -> str:
        """Describe the answers that were read: number, tokens, and why some could not be used."""
        used = sum(self.read.values(), Usage())
        described = (
            f"{pluralize(used.calls, 'answer')}, {used.input_tokens:,} input tokens, "
            f"{used.output_tokens:,} output tokens"
        )
        counts = Counter(sorted(self.faults.values())).most_common()
        causes = ", ".join(f"{fault} ({count:,})" for fault, count in counts)
        return f"{described}; not used: {causes}" if causes else described

    def find_scores(self, keys: Sequence[bytes]) -> dict[bytes, float]:
        """Find the saved scores by key."""
        query = "SELECT score FROM scores WHERE key = ?"
        with self._lock, self._explain():
            answers = {key: self._database.execute(query, (key,)).fetchone() for key in keys}
        return {key: row[0] for key, row in answers.items() if row}

    def add_scores(self, scores: Mapping[bytes, float]) -> None:
        """Record scores by key, all or none."""
        with self._lock, self._explain():
            self._database.execute("BEGIN")
            # At the end of the block it commits, after an error it rolls back.
            with self._database:
                self._database.executemany(
                    "INSERT OR REPLACE INTO scores VALUES (?, ?)", scores.items()
                )
