"""Tasks on data in the PosIR layout, from any folder level and with mteb's cache."""

import json
import shutil

import mteb
import polars as pl
import pytest
from mteb.get_tasks import _TASKS_REGISTRY

from posir_tasks import PositionTask
from posir_tasks.base.errors import PosirError
from posir_tasks.results import read_results
from posir_tasks.values.profile import PositionProfile
from posir_tasks.values.schemes import RelativePositions
from tests.support.datasets import posir_tables, write_domain

BM25 = "mteb/baseline-bm25s"


@pytest.fixture(autouse=True)
def _forget_created_tasks():
    before = set(_TASKS_REGISTRY)
    yield
    for name in set(_TASKS_REGISTRY) - before:
        del _TASKS_REGISTRY[name]


@pytest.fixture
def folder(tmp_path):
    """A folder in the PosIR layout, with two English domains and an unlisted Finnish domain."""
    for domain in ("game", "sports"):
        write_domain(tmp_path / "mine", posir_tables(), domain=domain)
    write_domain(tmp_path / "mine", posir_tables(), language="fin-Latn", domain="kirjeet")
    return tmp_path / "mine"


@pytest.fixture
def cache(tmp_path):
    return mteb.ResultCache(tmp_path / "results")


def evaluate(task, cache=None, **options):
    result = mteb.evaluate(
        mteb.get_model(BM25), task, cache=cache, show_progress_bar=False, **options
    )
    return {scores["hf_subset"]: scores for scores in result.task_results[0].scores["test"]}


def create(folder, name="Mine", language="eng-Latn", **options):
    return PositionTask.from_folder(folder, name=name, language=language, **options)


def list_domains(task):
    return [subset.partition("@")[0] for subset in task.hf_subsets]


@pytest.mark.parametrize(
    ("subfolder", "result"),
    [(".", ["game", "sports"]), ("eng-Latn", ["game", "sports"]), ("eng-Latn/sports", ["sports"])],
)
def test_a_folder_contains_the_layout_or_part_of_it(folder, subfolder, result):
    task = create(folder / subfolder)
    assert list_domains(task) == result
    (_, scores) = evaluate(task).popitem()
    assert PositionProfile.from_json(scores["position_profile"]).queries == 4
    assert scores["position_run"]["missing_subsets"] == []


def test_a_domain_can_be_used_without_its_language_folder(folder, tmp_path, monkeypatch):
    shutil.copytree(folder / "eng-Latn" / "sports", tmp_path / "letters")
    monkeypatch.chdir(tmp_path / "letters")
    assert list(evaluate(create("."))) == create(tmp_path / "letters").hf_subsets
    assert list_domains(create(".")) == ["letters"]


def test_a_task_can_have_a_custom_scheme_metadata_and_language(folder):
    scheme = RelativePositions(bins=2, token_bounds=(800,))
    task = create(
        folder, language="fin-Latn", scheme=scheme, license="cc0-1.0", description="Mills."
    )
    assert (task.metadata.license, task.metadata.description) == ("cc0-1.0", "Mills.")
    (scores,) = evaluate(task).values()
    assert scores["languages"] == ["fin-Latn"]
    assert scores["ndcg_at_10"] > 0.9
    profile = PositionProfile.from_json(scores["position_profile"])
    assert (profile.counts.shape[:2], profile.queries) == ((2, 2), 4)


def test_an_interrupted_run_evaluates_only_missing_subsets(folder, cache):
    first = evaluate(create(folder), cache)
    assert evaluate(create(folder), cache, overwrite_strategy="only-cache").keys() == first.keys()
    (loaded,) = cache.load_results(tasks=["Mine"]).model_results[0].task_results
    assert loaded.task.metadata.name == "Mine"
    assert loaded.get_score() == pytest.approx(
        sum(scores["ndcg_at_10"] for scores in first.values()) / 2
    )
    assert {result.subset for result in read_results(cache.cache_path)} == first.keys()
    (file,) = cache.cache_path.rglob("Mine.json")
    half = json.loads(file.read_text())
    done = half["scores"]["test"].pop()
    half["scores"]["test"][0]["ndcg_at_10"] = 0.25
    file.write_text(json.dumps(half))
    resumed = evaluate(create(folder), cache)
    assert sorted(scores["ndcg_at_10"] for scores in resumed.values()) == sorted(
        [0.25, first[done["hf_subset"]]["ndcg_at_10"]]
    )


def test_results_for_other_data_are_not_reused(folder, cache):
    before = evaluate(create(folder), cache)
    corpus = folder / "eng-Latn" / "sports" / "corpus.parquet"
    pl.read_parquet(corpus).with_columns(pl.col("text").str.to_uppercase()).write_parquet(corpus)
    with pytest.raises(ValueError, match="missing splits"):
        evaluate(create(folder), cache, overwrite_strategy="only-cache")
    after = evaluate(create(folder), cache)
    assert not before.keys() & after.keys()
    assert {result.subset for result in read_results(cache.cache_path)} == after.keys()


def test_the_revision_depends_only_on_the_data(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "moved")
    shutil.rmtree(tmp_path / "moved" / "fin-Latn")
    (tmp_path / "moved" / "eng-Latn" / "game" / "notes.parquet").write_text("not of the layout")
    (tmp_path / "moved" / "eng-Latn" / ".game.part").mkdir()
    assert create(tmp_path / "moved").metadata.revision == create(folder).metadata.revision
    assert (
        create(tmp_path / "moved" / "eng-Latn").metadata.revision
        == create(folder).metadata.revision
    )


def test_a_task_is_registered_until_another_takes_its_name(folder):
    first = create(folder, name="Again")
    assert mteb.get_task("Again").hf_subsets == first.hf_subsets
    second = create(folder / "eng-Latn" / "game", name="Again")
    assert mteb.get_task("Again").hf_subsets == second.hf_subsets
    assert [task.metadata.name for task in mteb.get_tasks()].count("Again") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"name": "PosIR-Mini"},
            "task name 'PosIR-Mini': taken by a task of posir_tasks.tasks.posir. Choose another",
        ),
        ({"name": "NFCorpus"}, "task name 'NFCorpus': taken by a task of mteb.tasks"),
        ({"name": "my/letters"}, "the name 'my/letters' is not allowed; use A-Z, a-z, 0-9"),
        (
            {"language": "deu-Latn"},
            "no deu-Latn data; expected",
        ),
        ({"subfolder": "nowhere"}, "/nowhere: no such folder"),
        (
            {"subfolder": "eng-Latn", "language": "fin-Latn"},
            "/eng-Latn: contains the language eng-Latn, not fin-Latn",
        ),
        ({"subfolder": "eng-Latn/sports/qrels"}, "It contains no language"),
        ({"licenze": "mit"}, "task 'Mine': field 'licenze': Extra inputs are not permitted"),
        ({"license": "none"}, "field 'license"),
    ],
)
def test_invalid_arguments_are_reported(folder, arguments, message):
    subfolder = folder / arguments.get("subfolder", ".")
    with pytest.raises(PosirError) as raised:
        create(
            subfolder, **{name: value for name, value in arguments.items() if name != "subfolder"}
        )
    assert message in str(raised.value)
    assert "subfolder" not in arguments or str(subfolder) in str(raised.value)


@pytest.mark.parametrize("code", ["klingon", "eng", "qqq-Latn", "eng-Qqqq"])
def test_an_unknown_language_code_is_reported(folder, code):
    (folder / "eng-Latn").rename(folder / code)
    with pytest.raises(
        PosirError, match=rf"language {code}: .* A code is an individual language of ISO 639-3"
    ):
        create(folder, language=code)


def test_a_hub_repository_needs_an_owner():
    with pytest.raises(PosirError, match="repository 'letters': not allowed; expected owner/name"):
        PositionTask.from_hub("letters", name="Letters", language="eng-Latn")


def test_posir_data_replaces_the_hub_repository(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("POSIR_DATA", str(tmp_path))
    task = PositionTask.from_hub("someone/mine", name="FromHub", language="eng-Latn")
    assert task.hf_subsets == create(folder).hf_subsets
