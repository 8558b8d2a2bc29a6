"""Fixtures for all tests, and their isolation from the user's environment and the network."""

import gc
import os
from pathlib import Path

import pytest
from hypothesis import settings

# huggingface_hub reads this when it is imported; a test that needs a Hub runs the client in another
# process.
os.environ["HF_HUB_OFFLINE"] = "1"
# Each core runs a test: more threads would only wait for each other.
os.environ |= dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS", "RAYON_NUM_THREADS"), "1"
)

from tests.support.browser import CHROMIUM
from tests.support.processes import share_fork_server, use_shared_fork_server

# While tests are collected, much is imported and nothing is garbage: looking for some takes a third
# of the time.
gc.disable()

# The duration of an example says nothing about its correctness. A commit passes or fails for what
# it changed: new examples are drawn by `make test-all` and by `pytest --hypothesis-profile random`.
settings.register_profile("random", deadline=None, max_examples=400)
settings.register_profile("posir", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("posir")

#: Folder of public datasets in SQuAD format, which are not part of the repository; by default
#: beside it.
SQUAD_DATA = Path(
    os.environ.get(
        "POSIR_TEST_DATA", Path(__file__).parents[2] / "shared" / "data" / "squad-format"
    )
)


def pytest_configure(config):
    """Import PyTorch in processes that run tests. The controller of pytest-xdist runs none: it
    starts the fork server of its workers.
    """
    if hasattr(config, "workerinput"):
        use_shared_fork_server()
    elif config.getoption("dist", "no") != "no":
        share_fork_server()
        return
    import tests.support.chart_library
    import tests.support.seeds  # noqa: F401


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="module", autouse=True)
def _freeze_objects():
    """Exclude what a module leaves behind, such as imports and caches, from later garbage
    collections: after thousands of tests, each would take 2 seconds.
    """
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _unset_user_variables(monkeypatch):
    for name in (
        "POSIR_DATA",
        "POSIR_REVISIONS",
        "POSIR_CACHE",
        "POSIR_EMBEDDINGS",
        "OPENAI_API_KEY",
        "COLUMNS",
    ):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def short_waits(monkeypatch):
    """Let servers be asked again at once."""
    for name in ("FIRST_WAIT", "MAX_WAIT"):
        monkeypatch.setattr(f"posir_tasks.models.connection.{name}", 0.001)


@pytest.fixture(scope="session")
def browser():
    """A headless Chromium for all tests of a process, which can have one only; without one they are
    skipped.
    """
    playwright = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium")
    with playwright.sync_playwright() as running:
        chromium = running.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def squad_data():
    """Folder with XQuAD, JaQuAD and COVID-QA; without it, tests on real data are skipped."""
    if not SQUAD_DATA.is_dir():
        pytest.skip(f"{SQUAD_DATA} does not exist")
    return SQUAD_DATA


@pytest.fixture
def posir_folder(tmp_path):
    """Return a folder in the PosIR layout with the single valid domain eng-Latn/sports."""
    # Not imported by the controller of pytest-xdist.
    from tests.support.datasets import POSIR_FOLDER, posir_tables, write_domain

    root = tmp_path / POSIR_FOLDER
    write_domain(root, posir_tables())
    return root
