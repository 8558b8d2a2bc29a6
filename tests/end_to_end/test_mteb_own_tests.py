"""The tests in mteb's source distribution give the same with posir's hook as without."""

import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ElementTree
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.support.commands import CLEAN

#: A model that mteb's tests import and its source distribution lacks: the same random vectors for
#: every batch.
MOCK_MODELS = """
from types import SimpleNamespace

import numpy as np
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import cos_sim, pairwise_cos_sim


class MockSentenceTransformer(SentenceTransformer):
    model_card_data = SimpleNamespace(model_name="mock/MockSentenceTransformer", base_model=None, base_model_revision="1")
    prompts = {}
    similarity_fn_name = "cosine"

    def __init__(self):
        self._modules = {}

    def encode(self, sentences=None, inputs=None, **options):
        return np.random.RandomState(42).randn(len(inputs if sentences is None else sentences), 10)

    @staticmethod
    def similarity(first, second):
        return cos_sim(first, second)

    @staticmethod
    def similarity_pairwise(first, second):
        return pairwise_cos_sim(first, second)

    @staticmethod
    def get_sentence_embedding_dimension():
        return 10

    def max_seq_length(self):
        return 10
"""  # noqa: E501
#: Most seconds of one run, which takes five minutes of processor time.
MAX_SECONDS = 2_400
#: Fewest tests that the source distribution has.
MIN_TESTS = 400


@pytest.fixture(scope="module")
def mteb_tests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unpack the source distribution of the installed version of mteb; return its folder, which
    some tests read.
    """
    folder = tmp_path_factory.mktemp("mteb")
    source = f"mteb=={version('mteb')}"
    options = ("--no-deps", "--no-build-isolation", "--no-binary", ":all:", "--dest", str(folder))
    command = [sys.executable, "-m", "pip", "download", "--quiet", *options, source]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    archives = list(folder.glob("*.tar.gz"))
    if done.returncode or not archives:
        reason = (done.stderr.strip().splitlines() or ["no archive"])[-1]
        pytest.skip(f"the source distribution of {source} cannot be downloaded: {reason}")
    with tarfile.open(archives[0]) as archive:
        archive.extractall(folder, filter="data")
    unpacked = folder / f"mteb-{version('mteb')}"
    if not (unpacked / "tests").is_dir():
        pytest.skip(f"the source distribution of {source} has no tests")
    (unpacked / "tests" / "__init__.py").touch()
    (unpacked / "tests" / "mock_models.py").write_text(MOCK_MODELS)
    return unpacked


def run_tests(folder: Path, *, autoload: bool) -> dict[str, str]:
    """Run mteb's tests, with or without posir's hook; return the outcome of each test by its
    name.
    """
    report = folder / f"autoload-{autoload}.xml"
    home = folder / f"home-{autoload}"
    options = (
        "-q",
        "-p",
        "no:cacheprovider",
        "-c",
        "/dev/null",
        "--rootdir",
        ".",
        f"--junitxml={report}",
    )
    environment = CLEAN | {"POSIR_AUTOLOAD": str(int(autoload)), "OMP_NUM_THREADS": "1"}
    environment |= {
        "HOME": str(home),
        "HF_HOME": str(home / "hub"),
        "MTEB_CACHE": str(home / "mteb"),
    }
    command = [sys.executable, "-m", "pytest", "tests", *options]
    subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, timeout=MAX_SECONDS, check=False
    )
    outcomes = {}
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        outcomes[name] = next(
            (part.tag for part in case if part.tag in ("failure", "error", "skipped")), "passed"
        )
    return outcomes


@pytest.mark.slow
def test_mtebs_own_tests_give_the_same_with_the_hook_as_without(mteb_tests):
    without = run_tests(mteb_tests, autoload=False)
    with_hook = run_tests(mteb_tests, autoload=True)
    assert len(without) >= MIN_TESTS
    # Others need the network, or files that the source distribution lacks.
    assert sum(outcome == "passed" for outcome in without.values()) >= MIN_TESTS * 3 // 4
    assert without.keys() == with_hook.keys()
    # A test of mteb that waits for a process sometimes fails on a busy machine, without the hook.
    assert [
        name
        for name, outcome in with_hook.items()
        if outcome != without[name] and without[name] != "failure"
    ] == []
