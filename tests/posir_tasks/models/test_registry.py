"""References to models: names, endpoints and hybrids, and errors that suggest a name."""

import json
import os
import re
import sys
from pathlib import Path

import mteb
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mteb.models import ModelMeta
from mteb.models.models_protocols import SearchProtocol

from posir_tasks.base.errors import PosirError
from posir_tasks.models.dispatch import HybridSearch, fuse_rankings
from posir_tasks.models.hub import is_hub_model
from posir_tasks.models.reference_parts import split_models
from posir_tasks.models.references import (
    Endpoint,
    ModelReference,
    get_portable_reference,
    to_file_name,
)
from posir_tasks.models.registry import (
    LOADED_BY_NAME,
    MODEL_NAME,
    ModelRegistry,
    find_model,
    load_model,
    raise_if_unknown,
    raise_if_unloadable,
    read_declarations,
)
from posir_tasks.models.run_settings import add_digest, override_settings
from posir_tasks.tasks.base import PositionTask
from tests.support.commands import python
from tests.support.models import write_tiny_model

BM25 = "mteb/baseline-bm25s"


def build_registry(*names):
    return ModelRegistry({name: ModelMeta.create_empty({"name": name}) for name in names})


NAMES = st.text("a-_./ :é", max_size=5) | st.sampled_from(["a" * 100, "a" * 101, "a" * 102])
HOSTS = st.from_regex(r"[a-z0-9]{1,3}([.-][a-z0-9]{1,4})?[.]?(:[1-9][0-9]{0,3})?", fullmatch=True)
PATHS = st.sampled_from(["", "/v1", "/a", "/a/v1", "-v1", "/v1/v1"])
ENDPOINTS = st.builds(
    Endpoint,
    model=st.text("q-:/@. 06", min_size=1, max_size=4)
    | st.sampled_from(["m" * 100, "m" * 101, "m" * 102]),
    address=st.builds(
        str.__add__, st.sampled_from(["http://", "https://"]), st.builds(str.__add__, HOSTS, PATHS)
    ),
    revision=st.none(),
    kind=st.sampled_from(["", "tei", "ollama"]),
)


@given(endpoints=st.lists(ENDPOINTS, min_size=2, max_size=12, unique_by=str))
@example(endpoints=[Endpoint(f"q{sign}06", "http://localhost:8000/v1", None) for sign in ":-/@ "])
@example(endpoints=[Endpoint("m", f"http://localhost{sign}8000/v1", None) for sign in ":-"])
@example(endpoints=[Endpoint("m", f"{scheme}://a.org/v1", None) for scheme in ("http", "https")])
@example(
    endpoints=[
        Endpoint("m", f"http://a.org:80{path}", None) for path in ("", "/v1", "-v1", "/a", "/a/v1")
    ]
)
def test_endpoint_names_are_unique(endpoints):
    names = [endpoint.name for endpoint in endpoints]
    assert len(set(names)) == len(names)
    assert all(
        re.fullmatch(r"endpoint/[A-Za-z0-9._-]+ \([A-Za-z0-9._-]+( [0-9a-f]{8})?\)", name)
        for name in names
    )
    # These are mteb's folder names.
    assert len({name.replace("/", "__").replace(" ", "_") for name in names}) == len(names)


@given(texts=st.lists(NAMES, min_size=2, max_size=12, unique=True))
@example(texts=["q:06", "q-06", "q 06", "q/06", "q@06"])
@example(texts=["a" * 150 + end for end in "bc"])
def test_file_names_are_unique(texts):
    names = [to_file_name(text) for text in texts]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[A-Za-z0-9._-]{1,100}", name) for name in names)
    assert all(
        name == text or re.search("-[0-9a-f]{8}$", name)
        for name, text in zip(names, texts, strict=True)
    )


@pytest.mark.parametrize("key", ["query_prompt", "first_stage", "query_field"])
@pytest.mark.parametrize(
    "values",
    [
        ("query: ", "query? ", "query_ "),
        ("a/b", "a_b"),
        ("a\nb", "a b"),
        ("a ", "a"),
        ("x" * 300 + ":", "x" * 300 + "?"),
        ("a__window_3", "a_"),
    ],
)
def test_different_settings_are_different_experiments(key, values):
    metas = [
        ModelMeta.create_empty({"name": "a/b", "experiment_kwargs": add_digest({key: value})})
        for value in values
    ]
    assert len({meta.experiment_name for meta in metas}) == len(values)


@pytest.mark.parametrize(
    "chosen", [{}, {"protocol": "posq"}, {"window": 512}, {"query_prompt": "Find this"}]
)
def test_settings_that_mteb_does_not_change_have_no_digest(chosen):
    assert add_digest(chosen) == chosen


def test_settings_are_environment_variables_inside_the_context(monkeypatch):
    monkeypatch.setenv("POSIR_WINDOW", "512")
    settings = {"window": 32, "rotated": 0, "skip_failed": True, "backend": None}
    with override_settings(**settings, query_field=["a=1", "b=2"], domains="news"):
        names = ("WINDOW", "ROTATED", "SKIP_FAILED", "BACKEND", "QUERY_FIELD", "DOMAINS")
        values = [os.environ.get(f"POSIR_{name}") for name in names]
        assert values == ["32", "0", "1", None, "a=1\nb=2", "news"]
    with override_settings(skip_failed=False):
        assert "POSIR_SKIP_FAILED" not in os.environ
    assert os.environ["POSIR_WINDOW"] == "512"


def test_a_unique_bare_name_is_resolved():
    known = build_registry("a/one", "a/two", "b/two")
    assert known["one"].name == known["a/one"].name == "a/one"
    assert [name in known for name in ("one", "two", None)] == [True, False, False]
    with pytest.raises(KeyError, match="two"):
        known["two"]
    assert list(known) == ["a/one", "a/two", "b/two"]
    assert known.get("one") is None
    assert find_model(ModelReference(BM25)) is find_model(ModelReference("baseline-bm25s", "0_3_0"))


def test_a_misspelled_name_is_rejected_without_mteb(monkeypatch):
    from mteb.models.model_implementations import MODEL_REGISTRY

    assert {name for name in MODEL_REGISTRY if MODEL_NAME.fullmatch(name)} <= {*read_declarations()}
    monkeypatch.delitem(sys.modules, "mteb")
    for reference in (
        BM25,
        "all-MiniLM-L6-v2",
        "bge-m3-colbert",
        "BAAI/bge-reranker-v2-gemma",
        "my-model@http://localhost",
    ):
        raise_if_unknown(reference)
    with pytest.raises(
        PosirError, match=r"^no model 'all-MiniLM-L6-v3'\. Did you mean all-MiniLM-L6-v2\?"
    ):
        raise_if_unknown("all-MiniLM-L6-v3")


def write_unsafe_folder(folder: Path) -> str:
    write_tiny_model(folder)
    (folder / "config.json").write_text('{"auto_map": {"AutoModel": "evil.Model"}}')
    return str(folder)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("no-such", "no model 'no-such'"),
        ("nobody/no-such", "no model 'nobody/no-such'"),
        ("no-such+chunks(64)", "no model 'no-such'"),
        ("no-such:colbert", "no model 'no-such'"),
        (f"hybrid({BM25},hybrid({BM25},no-such+both_orders))", "no model 'no-such'"),
        ("all-MiniLM-L12-v2", "all-MiniLM-L12-v2 is not complete in the cache"),
        (
            "intfloat/multilingual-e5-small+chunks",
            "multilingual-e5-small is not complete in the cache",
        ),
        ("./no-such", "no such folder"),
        ("model@http:///v1", "no host"),
        (write_unsafe_folder, "auto_map"),
        (lambda folder: f"hybrid({BM25},{write_unsafe_folder(folder)})", "auto_map"),
        (lambda folder: f"{folder}/", "no such folder"),
    ],
)
def test_an_unusable_model_is_detected_without_mteb(reference, message, tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "mteb")
    with pytest.raises(PosirError, match=message):
        raise_if_unloadable(
            reference if isinstance(reference, str) else reference(tmp_path / "model")
        )
    assert "mteb" not in sys.modules


@pytest.mark.parametrize(
    "reference",
    ["openai/text-embedding-3-small", "m@http://localhost/v1/", "no model has this name"],
)
def test_problems_that_only_loading_shows_are_not_checked(reference, monkeypatch):
    monkeypatch.delitem(sys.modules, "mteb")
    raise_if_unloadable(reference)


def test_unregistered_names_are_looked_up_on_the_hub(monkeypatch):
    monkeypatch.delitem(sys.modules, "mteb")
    monkeypatch.setattr("posir_tasks.models.registry.find_hub_problem", lambda: None)
    monkeypatch.setattr(
        "posir_tasks.models.registry.is_on_hub", lambda name: name == "somebody/their-model"
    )
    raise_if_unknown("somebody/their-model")
    raise_if_unloadable("all-MiniLM-L12-v2")
    with pytest.raises(PosirError, match="the Hub has no model of this name"):
        raise_if_unknown("somebody/their-modle")


def test_mtebs_declarations_contain_the_source_of_weights():
    from mteb.models.model_implementations import MODEL_REGISTRY

    by_name = [name for name, text in read_declarations().items() if LOADED_BY_NAME in text]
    assert len(by_name) > 200
    assert [
        name
        for name in by_name
        if name in MODEL_REGISTRY and not is_hub_model(MODEL_REGISTRY[name])
    ] == []


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (
            ModelReference("mteb/baseline-bm25"),
            rf"no model 'mteb/baseline-bm25'\. Did you mean {BM25}",
        ),
        (
            ModelReference("all-MiniLM-L6-v3"),
            r"Did you mean all-MiniLM-L6-v2\? It is not registered with mteb",
        ),
        (
            ModelReference("no model at all has this name"),
            r"the Hub has no such model that mteb can load\.",
        ),
        (ModelReference(BM25, "older"), r"^Model revision older not found .* Expected 0_3_0\.$"),
    ],
)
@pytest.mark.filterwarnings("ignore:Could not find model")
def test_the_error_for_an_unknown_name_suggests_similar_names(reference, message):
    with pytest.raises(PosirError, match=message):
        find_model(reference)


@pytest.mark.parametrize("find", [find_model, load_model])
def test_a_name_that_is_invalid_on_the_hub_raises_one_error(find):
    for name in ("=cmd", "a/.", "\x1b[31m"):
        with pytest.raises(PosirError, match="the Hub has no "):
            find(ModelReference(name))


@given(rankings=st.lists(st.lists(st.sampled_from("abcdef"), unique=True), min_size=1, max_size=3))
def test_fusion_adds_reciprocal_ranks(rankings: list[list[str]]):
    scores = fuse_rankings(rankings)
    assert scores.keys() == {document for ranking in rankings for document in ranking}
    for document, score in scores.items():
        assert np.isclose(
            score,
            sum(1 / (61 + ranking.index(document)) for ranking in rankings if document in ranking),
        )


def test_models_are_split_at_commas_outside_parentheses():
    for parts in (["a", "b"], ["a", "b+chunks(1,2)"], ["hybrid(a,b)", "c"], ["a"]):
        assert split_models(", ".join(parts)) == parts


def test_a_hybrids_name_lists_its_models_in_order():
    metas = [
        mteb.get_model_meta(f"hybrid({a},{b})")
        for a, b in ((BM25, "all-MiniLM-L6-v2"), ("all-MiniLM-L6-v2", BM25))
    ]
    assert (
        metas[0].name
        == get_portable_reference(metas[0])
        == f"hybrid({BM25},sentence-transformers/all-MiniLM-L6-v2)"
    )
    assert (metas[0].name == metas[1].name, metas[0].revision == metas[1].revision) == (
        False,
        False,
    )
    with_method = mteb.get_model_meta(f"hybrid({BM25},all-MiniLM-L6-v2+chunks(64))")
    assert "+chunks(64" in str(with_method.name)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (f"hybrid({BM25})", "at least two models"),
        (f"hybrid({BM25},)", "at least two models"),
        (f"hybrid({BM25},{BM25})", "occurs more than once"),
        (f"hybrid({BM25},rerank@http://localhost:1/v1)", "reranks and does not search"),
    ],
)
def test_an_invalid_hybrid_is_rejected(reference: str, message: str):
    with pytest.raises(PosirError, match=message):
        mteb.get_model_meta(reference)


def test_a_hybrid_ranks_like_its_fused_models(monkeypatch):
    # With the default cutoffs, scoring would take longer than everything else.
    monkeypatch.setattr(PositionTask, "k_values", (1, 10))
    model, other = mteb.get_model(BM25), mteb.get_model(BM25, k1=0.1)
    hybrid = HybridSearch([model, other])
    hybrid.mteb_model_meta = model.mteb_model_meta
    assert isinstance(hybrid, SearchProtocol)
    result = mteb.evaluate(hybrid, mteb.get_task("PosIR-Mini"), cache=None, show_progress_bar=False)  # type: ignore[arg-type]
    # For BM25, it is 0.689.
    assert 0.6 < result.task_results[0].scores["test"][0]["ndcg_at_10"] < 0.8


#: Calls each function that loads a model, with each model. Prints whether its error contains the
#: model, and which slow libraries were imported.
CALLS = """
import json, sys
import posir
from posir_tasks.base.errors import PosirError

for MODEL in MODELS:
    for name, call in {
        "window": lambda: posir.window(MODEL),
        "inspect": lambda: posir.inspect(MODEL, TEXTS),
        "probe": lambda: posir.probe(MODEL, output=OUTPUT),
        "mitigate": lambda: posir.mitigate(MODEL, "PosIR-Mini", output=OUTPUT),
        "run": lambda: posir.run(model=MODEL, task="PosIR-Mini", output=OUTPUT),
        "evaluate": lambda: posir.evaluate(MODEL, "PosIR-Mini", output_folder=OUTPUT),
        "train": lambda: posir.train(MODEL, data="PosIR-Mini", output=OUTPUT),
    }.items():
        try:
            call()
        except PosirError as error:
            print(json.dumps([name, MODEL.rpartition("/")[2] in str(error), [m for m in HEAVY if m in sys.modules]]))
"""  # noqa: E501


def test_every_command_reports_errors_before_importing_torch(tmp_path):
    (tmp_path / "texts.txt").write_text("the mill stood by the river\n")
    places = {
        "MODELS": ["no-such-model", write_unsafe_folder(tmp_path / "model")],
        "TEXTS": str(tmp_path / "texts.txt"),
        "OUTPUT": str(tmp_path / "out"),
    }
    heavy = ["torch", "mteb", "transformers", "sentence_transformers"]
    answered = python(f"{', '.join(places)} = {[*places.values()]}\nHEAVY = {heavy}\n{CALLS}")
    assert answered.returncode == 0, answered.stderr
    rows = [json.loads(line) for line in answered.stdout.splitlines()]
    assert [row[0] for row in rows] == [
        "window",
        "inspect",
        "probe",
        "mitigate",
        "run",
        "evaluate",
        "train",
    ] * 2
    assert [row for row in rows if row[1:] != [True, []]] == []
