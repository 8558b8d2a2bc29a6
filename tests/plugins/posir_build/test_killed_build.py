"""A build that is killed at random moments ends with the same dataset, byte for byte, and no
answered call is sent again.
"""

import os
import random
import shutil
import signal
import sqlite3
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from posir_build.pipeline import BuildContext, run_stages, write_results
from posir_build.settings import STAGE_NAMES
from posir_tasks.models import connection
from tests.plugins.posir_build.test_pipeline import build_settings
from tests.support.human_answers import Truth, mini_documents, write_documents
from tests.support.language_model_server import serve_language_model
from tests.support.processes import CONTEXT

DOCUMENTS = mini_documents()[:16]
KILLS = 20
#: Maximum number of seconds before a kill, a fraction of a build.
MAX_SECONDS = 1.5
#: Same as in `build_settings`.
IN_FLIGHT = 8


def build(folder: Path, url: str) -> None:
    connection.FIRST_WAIT = connection.MAX_WAIT = 0.01
    os.chdir(folder)
    overrides = ("documents=texts", "verify.audit=true")
    context = BuildContext(build_settings(folder, SimpleNamespace(url=url), *overrides))
    write_results(context, run_stages(context, STAGE_NAMES[-1]))


def read_stored_keys(folder: Path) -> set[str]:
    with (
        suppress(sqlite3.OperationalError),
        sqlite3.connect(folder / "work" / "calls.sqlite") as database,
    ):
        return {key for (key,) in database.execute("SELECT key FROM calls")}
    # The build was killed before it created the table.
    return set()


def read_files(folder: Path) -> dict[Path, bytes]:
    return {
        file.relative_to(folder): file.read_bytes()
        for file in (folder / "data").rglob("*")
        if file.is_file()
    }


def run(folder: Path, url: str, seconds: float | None) -> int:
    """Build, kill the process after some seconds, and return the exit code."""
    process = CONTEXT.Process(target=build, args=(folder, url))
    process.start()
    process.join(seconds)
    if process.is_alive():
        os.kill(process.pid, signal.SIGKILL)
    process.join()
    # The server counts an answer after sending it.
    time.sleep(0.1)
    return process.exitcode


@pytest.mark.slow
def test_twenty_kills(tmp_path):
    truth = Truth(DOCUMENTS)
    rng = random.Random(5)
    folders = [tmp_path / name for name in ("whole", "killed")]
    for folder in folders:
        write_documents(folder / "texts", DOCUMENTS)
    with serve_language_model(truth, seconds=0.05) as server:
        assert run(folders[0], server.url, None) == 0
        expected = set(server.answered)
    with serve_language_model(truth, seconds=0.05) as server:
        kills = 0
        longest = MAX_SECONDS
        while kills < KILLS:
            answered = {key: server.answered[key] for key in read_stored_keys(folders[1])}
            start = time.monotonic()
            code = run(folders[1], server.url, rng.uniform(0, longest))
            # Saved answers are never requested again.
            assert {key: server.answered[key] for key in answered} == answered
            kills += code == -signal.SIGKILL
            assert code in (0, -signal.SIGKILL)
            if code == 0:
                # With all answers stored, a build is much shorter.
                longest = time.monotonic() - start
                shutil.rmtree(folders[1] / "data", ignore_errors=True)
        assert run(folders[1], server.url, None) == 0
        # The idempotency keys are the same. A call is sent twice only if it was in flight when the
        # build was killed.
        assert set(server.answered) == expected == read_stored_keys(folders[1])
        assert sum(server.answered.values()) - len(expected) <= KILLS * IN_FLIGHT
    assert read_files(folders[1]) == read_files(folders[0])
