"""Scored runs are results as those of `mteb run`."""

import json
from pathlib import Path
from typing import Any

import mteb
import pytest
from mteb.cache import ResultCache

import posir
from posir_score.api import describe_retriever
from posir_tasks.errors import PosirError
from posir_tasks.results import read_results
from tests.support.datasets import write_beir_folder
from tests.support.encoders import write_tiny_bert


@pytest.fixture(scope="module")
def bm25(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the result and the predictions of BM25 on PosIR-Mini."""
    folder = tmp_path_factory.mktemp("bm25")
    model, task = mteb.get_model("mteb/baseline-bm25s"), mteb.get_task("PosIR-Mini")
    mteb.evaluate(model, task, cache=ResultCache(folder / "results"), prediction_folder=folder / "run", show_progress_bar=False)
    return folder


def read_predictions(folder: Path) -> dict[str, dict[str, float]]:
    content = json.loads((folder / "run" / "PosIR-Mini_predictions.json").read_text())
    rankings: dict[str, dict[str, float]] = content["default"]["test"]
    return rankings


def test_an_exported_run_has_the_profile_of_its_model(bm25: Path, tmp_path: Path):
    scored = posir.score(bm25 / "run", data="PosIR-Mini", window="none", output=tmp_path)
    (ours,), (theirs,) = scored.results, read_results(bm25 / "results")
    assert (ours.task, ours.subset, ours.data, ours.ranks) == (theirs.task, theirs.subset, theirs.data, theirs.ranks)
    assert ours.model == "run/baseline-bm25s"
    files = (next(folder.rglob("PosIR-Mini.json")) for folder in (tmp_path, bm25 / "results"))
    mine, other = (json.loads(file.read_text())["scores"]["test"][0] for file in files)
    same = [name for name in other if name not in ("position_run", "mteb_version", "document_ranks", "read")]
    assert {name: mine[name] for name in same} == {name: other[name] for name in same}
    assert scored.runs[0].ndcg_at_10 == pytest.approx(other["ndcg_at_10"], abs=1e-6)
    assert mine["position_run"]["search"]["queries"] == 720
    assert "run/baseline-bm25s" in str(scored)
    assert posir.score(bm25 / "run", data="PosIR-Mini", window="none", output=tmp_path).records() == scored.records()


def test_a_retriever_has_the_profile_of_its_run_and_leaves_no_journal(bm25: Path, tmp_path: Path):
    rankings = read_predictions(bm25)
    texts = dict(zip(*(posir_mini_queries()), strict=True))

    async def search(query: str, k: int) -> list[tuple[str, float]]:
        return list(rankings[texts[query]].items())[:k]

    scored = posir.score(search, data="PosIR-Mini", name="mine", window="none", output=tmp_path)
    (theirs,) = read_results(bm25 / "results")
    assert scored.results[0].ranks == theirs.ranks
    assert not list(tmp_path.glob("*.jsonl"))


def posir_mini_queries() -> tuple[list[str], list[str]]:
    """Return texts and ids."""
    queries = mteb.get_task("PosIR-Mini").read_subset("default").queries  # type: ignore[attr-defined]
    return queries["text"][:], queries["id"][:]


#: A query with one place of evidence, one with two relevant documents, one with grades and no place, one without any relevant.
JUDGED: dict[str, Any] = {
    "corpus": [{"_id": f"d{number}", "text": f"The {number} mills burned down in 1901, long ago."} for number in range(6)],
    "queries": [
        {"_id": "place", "text": "When did the mills burn?", "metadata": {"pos_char_span": [12, 30]}},
        {"_id": "several", "text": "Which mills?"},
        {"_id": "graded", "text": "What was built?"},
        {"_id": "none", "text": "Who?"},
    ],
    "qrels": [
        ("place", "d0", 1), ("several", "d1", 1), ("several", "d2", 1), ("graded", "d3", 2), ("graded", "d9", 1),
        ("none", "d4", 0),
    ],
}  # fmt: skip
RUN = {
    "place": {"d1": 2.0, "d0": 1.0},
    "several": {"d2": 3.0, "d5": 2.0, "d1": 1.0},
    "graded": {"d5": 2.0, "d3": 1.0},
    "none": {"d4": 1.0},
}


def test_several_relevant_documents_and_grades_are_scored_as_trec_eval_does(tmp_path: Path):
    write_beir_folder(tmp_path / "beir", **JUDGED)
    scored = posir.score(RUN, data=tmp_path / "beir", name="mine", output=tmp_path / "results")
    (run,), (result,) = scored.runs, scored.results
    assert (run.counts.queries, run.counts.with_position, result.profile.totals.sum()) == (4, 1, 1)
    # By hand: 1 / log2(3); (1 + 1 / 2) / (1 + 1 / log2(3)); 2 / log2(3) / (2 + 1 / log2(3)), since d9 is judged; 0.
    second = 0.6309297535714575
    assert run.ndcg_at_10 == pytest.approx((second + 1.5 / (1 + second) + 2 * second / (2 + second)) / 4)
    assert run.mrr_at_10 == pytest.approx((1 / 2 + 1 + 1 / 2) / 4)
    assert run.recall_at_100 == pytest.approx((1 + 1 + 1 / 2) / 4)
    scores = json.loads(next((tmp_path / "results").rglob("beir.json")).read_text())["scores"]["test"][0]
    assert scores["ndcg_at_10"] == scores["main_score"] == pytest.approx(run.ndcg_at_10, abs=1e-6)


def test_judgments_without_any_position_are_scored(tmp_path: Path):
    plain = {**JUDGED, "queries": [{"_id": row["_id"], "text": row["text"]} for row in JUDGED["queries"]]}
    write_beir_folder(tmp_path / "beir", **plain)
    scored = posir.score(RUN, data=tmp_path / "beir", name="mine", output=tmp_path / "results")
    assert scored.results == ()
    assert scored.runs[0].counts.with_position == 0
    assert scored.runs[0].mrr_at_10 == pytest.approx(1 / 2)


def test_mistakes_are_sentences(tmp_path: Path):
    with pytest.raises(PosirError, match="missing='no': must be 'error' or 'zero'"):
        posir.score(RUN, data="PosIR-Mini", missing="no")  # type: ignore[arg-type]
    with pytest.raises(PosirError, match="no such file or folder"):
        posir.score(tmp_path / "absent.trec", data="PosIR-Mini")
    with pytest.raises(PosirError, match="k=0: must be at least 1"):
        posir.score(RUN, data="PosIR-Mini", k=0)
    with pytest.raises(
        PosirError, match=r"^int is no run. Give a file or folder, a score by document id by query id, or a retr"
    ):
        posir.score(3, data="PosIR-Mini")  # type: ignore[arg-type]
    with pytest.raises(PosirError, match=r"^Give runs or a retriever"):
        posir.score([tmp_path], data="PosIR-Mini", model="all-MiniLM-L6-v2")


def test_runs_of_one_name_or_with_the_same_rankings_are_refused_before_any_is_scored(tmp_path: Path):
    write_beir_folder(tmp_path / "beir", **JUDGED)
    files = [tmp_path / name for name in ("ok.json", "ok.jsonl")]
    files[0].write_text(json.dumps(RUN))
    rows = [{"qid": query, "docid": name, "score": score} for query, hits in RUN.items() for name, score in hits.items()]
    files[1].write_text("".join(f"{json.dumps(row)}\n" for row in rows))

    def score(*names: str) -> None:
        posir.score([*files], data=tmp_path / "beir", name=[*names], output=tmp_path / "results")

    with pytest.raises(PosirError, match=r"several runs have the name run/ok. Give each a name of its own with --name"):
        score()
    with pytest.raises(PosirError, match=r"run/b and run/a have the same rankings. Leave one of them out"):
        score("a", "b")
    assert not (tmp_path / "results").exists()


def test_a_system_is_its_name_and_revision_and_another_ranking_replaces_its_result_only_if_asked(tmp_path: Path):
    write_beir_folder(tmp_path / "beir", **JUDGED)
    other = {**RUN, "place": {"d0": 1.0}}

    def score(run: Any, **options: Any) -> Any:
        return posir.score(run, data=tmp_path / "beir", name="mine", output=tmp_path / "results", **options).runs[0]

    first = score(RUN)
    assert (first.revision, score(RUN).digest) == ("unversioned", first.digest)
    with pytest.raises(PosirError, match=r"another ranking on beir.*--overwrite"):
        score(other)
    second = score(other, revision="v2")
    assert second.digest != first.digest
    assert len(list((tmp_path / "results").rglob("beir.json"))) == 2
    replaced = score(other, overwrite=True)
    assert (replaced.folder, replaced.ndcg_at_10) == (first.folder, second.ndcg_at_10)
    file = replaced.folder / "beir.json"
    entry = json.loads(file.read_text())["scores"]["test"][0]
    assert entry["position_run"]["search"]["digest"] == second.digest
    with pytest.raises(PosirError, match="--revision a/b"):
        score(RUN, revision="a/b")


@pytest.mark.parametrize(
    ("window", "read"),
    [
        (None, {"kind": "unknown"}),
        ("none", {"kind": "all", "known_by": "given"}),
        (256, {"kind": "part", "part": "first", "tokens": 256, "known_by": "given"}),
    ],
)
def test_what_the_system_reads_is_stored(window: int | str | None, read: dict[str, Any], tmp_path: Path):
    write_beir_folder(tmp_path / "beir", **JUDGED)
    run = posir.score(RUN, data=tmp_path / "beir", window=window, output=tmp_path / "results").runs[0]
    entry = json.loads((run.folder / "beir.json").read_text())["scores"]["test"][0]
    assert entry["read"] == read
    assert ("tokens_read" in entry) == (window is not None)


def test_an_embedder_says_what_is_read_by_its_tokenizer(tmp_path: Path):
    write_beir_folder(tmp_path / "beir", **JUDGED)
    encoder = write_tiny_bert(tmp_path / "encoder")
    run = posir.score(RUN, data=tmp_path / "beir", embedder=str(encoder), output=tmp_path / "results").runs[0]
    entry = json.loads((run.folder / "beir.json").read_text())["scores"]["test"][0]
    assert (entry["read"]["tokens"], entry["read"]["known_by"]) == (64, "class")
    # What is read is added to a result of the same ranking.
    posir.score(RUN, data=tmp_path / "beir", window="none", output=tmp_path / "results")
    assert json.loads((run.folder / "beir.json").read_text())["scores"]["test"][0]["read"]["kind"] == "all"
    with pytest.raises(PosirError, match="Give one of them"):
        posir.score(RUN, data=tmp_path / "beir", window=3, embedder=str(encoder), output=tmp_path / "results")


def test_scores_that_differ_beyond_single_precision_are_no_ties(tmp_path: Path):
    write_beir_folder(tmp_path / "beir", **JUDGED)
    close = {**RUN, "place": {"d1": 1.0, "d0": 1.0 + 1e-12}, "graded": {"d3": 1e300, "d5": 1e299}}
    (run,) = posir.score(close, data=tmp_path / "beir", name="mine", output=tmp_path / "results").runs
    # The relevant documents of both queries are first.
    assert run.mrr_at_10 == pytest.approx((1 + 1 + 1) / 4)


def test_a_file_in_squad_format_keeps_its_ids_and_is_scored_as_it_is_opened(tmp_path: Path):
    text = "The mill burned down in 1901. A heron nested on the crane."
    asked = [
        {"id": 7, "question": "When?", "answers": [{"text": "1901", "answer_start": text.index("1901")}]},
        {"id": 9, "question": "What nested?", "answers": [{"text": "heron", "answer_start": text.index("heron") - 1}]},
    ]
    file = tmp_path / "mills.json"
    file.write_text(json.dumps({"data": [{"paragraphs": [{"context": text, "qas": asked}]}]}))
    data = posir.open_data(file, language="eng-Latn")
    (document,) = (item.id for item in data.read_texts())  # type: ignore[union-attr]
    (tmp_path / "a.trec").write_text("".join(f"{query} Q0 {document} 1 1.0 t\n" for query in (7, 9)))
    for repair, queries in ((True, 2), (False, 1)):
        opened = posir.open_data(file, language="eng-Latn", repair=repair)
        scored = posir.score(
            tmp_path / "a.trec",
            data=file,
            language="eng-Latn",
            repair=repair,
            revision=f"r{queries}",
            output=tmp_path / "results",
        )
        assert len(opened.rows) == scored.runs[0].counts.queries == queries
        assert scored.runs[0].mrr_at_10 == 1


def test_a_function_within_another_has_its_own_name():
    def search(query: str, k: int) -> list[str]:
        return [query] * k

    def rename(retriever: Any) -> str:
        retriever.__module__ = "__main__"
        return describe_retriever(retriever)

    assert rename(lambda _query, _k: []) == "lambda"
    assert rename(search) == "search"
