"""Fixtures for every test: no variable of the user's shell and no network reaches them."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# Read by huggingface_hub when it is first imported; a test that needs a Hub runs its client in a process of its own.
os.environ["HF_HUB_OFFLINE"] = "1"

from tests.support.datasets import POSIR_FOLDER, posir_tables, write_domain

# How long an example takes says nothing about whether it is right.
settings.register_profile("posir", deadline=None)
settings.load_profile("posir")

SHARED = Path(__file__).parents[2] / "shared" / "data"


@pytest.fixture(autouse=True)
def _no_variables_of_the_user(monkeypatch):
    for name in ("POSIR_DATA", "POSIR_REVISIONS", "POSIR_CACHE", "POSIR_EMBEDDINGS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def shared_data():
    """The papers' figures and real data, which are no part of the repository."""
    if not SHARED.is_dir():
        pytest.skip(f"{SHARED} is absent")
    return SHARED


@pytest.fixture
def posir_folder(tmp_path):
    """A folder in the PosIR layout with the one valid domain eng-Latn/sports."""
    root = tmp_path / POSIR_FOLDER
    write_domain(root, posir_tables())
    return root
