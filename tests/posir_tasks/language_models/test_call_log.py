"""The log of calls: answers survive, scores are batched, other files are refused."""

import sqlite3

import pytest

from posir_tasks.errors import NewerSchemaError, PosirError
from posir_tasks.language_models.call_log import CallLog, Completion, Usage


def test_answers_and_scores_survive_reopening(tmp_path):
    file = tmp_path / "work" / "calls.sqlite"
    log = CallLog(file)
    log.add("k1", "m", "p", Completion("text\0😀", "stop", 10, 5))
    log.add("k1", "m", "p", Completion("another", "stop", 99, 99))
    log.add("k2", "m", "q", Completion("", "length", 1, 2))
    log.add_scores({bytes([row % 256, row // 256]): row / 7 for row in range(1200)})
    # Not closed, as after a kill.
    again = CallLog(file)
    assert again.find("k1") == Completion("text\0😀", "stop", 10, 5)
    assert again.find("k3") is None
    assert again.usage() == {("m", "p"): Usage(1, 10, 5), ("m", "q"): Usage(1, 1, 2)}
    keys = [bytes([row % 256, row // 256]) for row in range(1300)]
    assert again.find_scores(keys) == {key: row / 7 for row, key in enumerate(keys[:1200])}


def test_a_file_that_is_no_log_or_newer_is_refused(tmp_path):
    (tmp_path / "text").write_text("not a database " * 100)
    with pytest.raises(PosirError, match="damaged"):
        CallLog(tmp_path / "text")
    with sqlite3.connect(tmp_path / "newer") as database:
        database.execute("PRAGMA user_version=99")
    with pytest.raises(NewerSchemaError, match="has schema 99"):
        CallLog(tmp_path / "newer")
