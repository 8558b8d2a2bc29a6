"""Published scores are read completely, and derived numbers match the papers."""

import csv
import hashlib
import io
import json
import re
from collections import Counter

import numpy as np
import pandas as pd
import pytest

import posir
from posir_psi.scores import compute_psi
from posir_published import rows as published_module
from posir_published.rows import (
    BUCKET_QUERIES,
    LENGTHS,
    PRINTED_CORRELATIONS,
    PSI_REDUCTION,
    PublishedRow,
    bound_null_psi,
    compute_psi_reductions,
    correlate_with_mmteb,
    find_query_count,
    list_published_bins,
    list_published_curves,
    list_published_rows,
    list_published_tasks,
    read_curves,
    read_models,
    read_posq_systems,
    read_training_scores,
)
from posir_tasks.base.errors import PosirError
from posir_tasks.tasks.catalog import builtin_task_classes
from posir_tasks.text.languages import LANGUAGES
from posir_tasks.values.profile import NDCG_AT_10
from posir_tasks.values.schemes import AbsolutePositions, LabeledPositions
from tests.support.cli import call_posir

#: Hashes of the published tables.
SHA256_BY_FILE = {
    "posir.csv": "b410b169202773c08f6615bcae60397c61301dfe8d2cfdc5c66d60284a8a112a",
    "posq.csv": "adde769a21cfdf228c54bc66c71ce834c988ff68226b49f3ba2edb108e555014",
    "mmteb.csv": "cb51e076d287f1c3b4b2fac097ace996191cf297a85fc70d446d329f1b11b99f",
    "myopic_trap.csv": "8da4b6300b9359a3252351df416a7f19b7c42613876ff433ddd0db2028bbf3ba",
    "training.csv": "c371a29d1ab3e2b3554d9c9cb7571279b544c71896a0dd32f893c29b48a9d9b5",
}


DATA = published_module.files("posir_published") / "data"
#: The averages, which are listed first.
AVERAGES = ("PosIR", "PosIR(cross-lingual)")


def read_table(name):
    return pd.read_csv(DATA / name)


def read_values(task):
    return {
        (row.model, row.length): (row.ndcg_at_10, row.psi_as_published)
        for row in list_published_rows(task)
    }


@pytest.mark.parametrize(("name", "sha256"), SHA256_BY_FILE.items())
def test_a_published_file_is_unchanged_and_has_a_source(name, sha256):
    assert hashlib.sha256((DATA / name).read_bytes()).hexdigest() == sha256
    (line,) = (
        line
        for line in (DATA / "README.md").read_text().splitlines()
        if line.startswith(f"| `{name}`")
    )
    papers = {
        "posq.csv": "2505.13950",
        "myopic_trap.csv": "2505.13950",
        "training.csv": "2605.26578",
    }
    assert papers.get(name, "2601.08363") in line


def test_every_published_score_is_read():
    names = {language.code.split("-")[0]: language.name for language in LANGUAGES}
    expected = {}
    for row in read_table("posir.csv").itertuples():
        task = "-".join(
            ["PosIR", *dict.fromkeys([names[row.query_language], names[row.corpus_language]])]
        )
        expected.setdefault(task, {})[row.model, row.length_bucket] = (row.ndcg_at_10, row.psi)
    tasks = {task for task in list_published_tasks() if task.startswith("PosIR-")}
    assert {task: read_values(task) for task in tasks} == expected
    posq = read_table("posq.csv")
    systems = [system for system in read_posq_systems() if "Raw" not in system.task]
    assert [
        mean for system in systems for mean in system.buckets.values()
    ] == posq.ndcg_at_10.dropna().tolist()
    assert [system.psi for system in systems] == posq.psi.dropna().tolist()
    assert len({system.model for system in systems}) == 20


def test_published_psi_equals_psi_of_the_buckets():
    schemes = {
        "SQuAD-PosQ": AbsolutePositions(),
        "FineWeb-PosQ": LabeledPositions(),
        "FineWeb-PosQ-Raw": LabeledPositions(),
    }
    for system in read_posq_systems():
        axes = schemes[system.task.removesuffix("-Tiny")].axes
        assert tuple(system.buckets) == axes.positions
        assert len(BUCKET_QUERIES[system.task]) == len(axes.positions)
        computed = float(compute_psi(list(system.buckets.values())))
        assert computed == system.psi if "Raw" in system.task else round(computed, 3) == system.psi
    assert BUCKET_QUERIES.keys() == {name + size for name in schemes for size in ("", "-Tiny")}


def test_task_names_exist_in_posir():
    assert tuple(list_published_tasks()[:2]) == AVERAGES
    tasks = list_published_tasks()[2:]
    raw = {"FineWeb-PosQ-Raw", "FineWeb-PosQ-Raw-Tiny"}
    assert set(tasks) - {task.metadata.name for task in builtin_task_classes()} <= raw
    posir = {f"PosIR-{language.name}" for language in LANGUAGES}
    posir |= {
        f"PosIR-{language.name}-English"
        for language in LANGUAGES
        if language.cross_lingual_in_paper
    }
    assert sorted(tasks) == sorted(posir | set(BUCKET_QUERIES))


def test_rows_are_ordered_by_score_then_length():
    rows = list_published_rows("PosIR-Korean")
    assert [row.length for row in rows] == list(LENGTHS) * 10
    assert rows[:: len(LENGTHS)] == sorted(rows[:: len(LENGTHS)], key=lambda row: -row.ndcg_at_10)


def test_rerankers_are_listed_under_their_samples():
    systems = read_table("posq.csv").groupby(["task", "architecture"]).model.unique()
    ran_on_samples = ["late-interaction", "reranker"]
    for dataset in ("SQuAD-PosQ", "FineWeb-PosQ"):
        sampled = {row.model for row in list_published_rows(f"{dataset}-Tiny")}
        full = {row.model for row in list_published_rows(dataset)}
        assert sampled == set(systems[dataset][ran_on_samples].explode())
        assert full == set(systems[dataset].drop(ran_on_samples).explode())


def test_myopic_trap_rows_use_the_first_release():
    rows = {
        row.model: row
        for task in ("FineWeb-PosQ-Raw", "FineWeb-PosQ-Raw-Tiny")
        for row in list_published_rows(task)
    }
    assert len(rows) == 12
    # Table 1: 92.65, 90.63, 87.96; the paper prints no PSI.
    assert rows["voyage-3-large"].psi_as_published == pytest.approx(1 - 87.96 / 92.65)
    assert (rows["voyage-3-large"].queries, rows["colbertv2.0"].task) == (
        265_865,
        "FineWeb-PosQ-Raw-Tiny",
    )
    assert all("Myopic Trap" in row.source for row in rows.values())


def test_notable_bias_is_marked_as_in_the_paper():
    marked = {
        row.model
        for task in list_published_tasks()
        for row in list_published_rows(task)
        if row.notable_bias
    }
    unmarked = {
        row.model
        for task in list_published_tasks()
        for row in list_published_rows(task)
        if row.notable_bias is False
    }
    systems = read_table("posq.csv").groupby("architecture").model.unique()
    # The paper also marks colbertv2.0, which has no result on FineWeb-PosQ.
    assert marked == {*systems["dense"], *systems["late-interaction"]} - {"colbertv2.0"}
    assert unmarked == {"BM25", *systems["reranker"]}


# Training


def test_psi_reductions_match_the_paper():
    reductions = {
        (score.data, score.model): 100 * score.value
        for score in compute_psi_reductions(read_training_scores())
    }
    squad = [round(value) for (data, _), value in reductions.items() if data == "SQuAD-PosQ"]
    # The maximum is 1 - 0.080 / 0.592, 86.5% from rounded PSI values; the paper prints 87.
    assert (min(squad), max(squad), len(squad)) == (57, 86, 8)
    posir = {
        model: round(value, 1)
        for (data, model), value in reductions.items()
        if data.startswith("PosIR")
    }
    assert posir == {"ModernBERT-base": 73.5, "ModernBERT-large": 75.4, "Qwen3-0.6B": 55.8}


def test_training_scores_match_statements_in_the_papers():
    scores = pd.DataFrame([vars(score) for score in read_training_scores()])
    wide = scores[scores.measure == "ndcg_at_10"].pivot(
        index=["data", "model"], columns="training", values="value"
    )
    best = wide.drop(columns="uniform").max(axis=1)
    squad = (wide.uniform - best).loc["SQuAD-PosQ"]
    # 'The highest mean nDCG@10 for five of the eight models', the other three 0.004 to 0.007 behind
    # (Section 5).
    assert sorted(-squad[squad < 0].round(3)) == [0.004, 0.004, 0.007]
    assert (wide.uniform > best).loc[["FineWeb-PosQ", "PosIR, 4 English domains"]].all()
    beir = wide.xs("mean of 8 models", level="model")
    assert (beir.begin - beir.uniform).loc[["FEVER", "HotpotQA"]].round(3).tolist() == [
        0.134,
        0.054,
    ]
    averages = beir.drop("mean of 4 BEIR datasets").mean()
    assert averages.to_numpy() == pytest.approx(
        beir.loc["mean of 4 BEIR datasets", averages.index].to_numpy(), abs=0.001
    )
    cosines = scores[scores.model == "bge-small-en-v1.5"].pivot(
        index=["data", "measure"], columns="training", values="value"
    )
    gains = (100 * (cosines.PADS - cosines.none)).round(1)
    # Table 4 reports these points as 'percent improvement'.
    assert gains["its training datasets"].tolist() == [6.1, 1.0, 1.4]
    assert gains["external datasets"].tolist() == [6.8, 1.3, 1.7]


# Curves of PosIR from figures


def test_curves_agree_with_published_means_and_psi():
    printed = {
        (row.task, row.model, row.length): row
        for task in list_published_tasks()
        for row in list_published_rows(task)
    }
    curves = {key: curve for key, curve in read_curves().items() if curve.task not in AVERAGES}
    assert len(curves) == 506
    for key, curve in curves.items():
        assert len(curve.ndcg_at_10) == 20
        assert np.mean(curve.ndcg_at_10) - printed[key].ndcg_at_10 == pytest.approx(
            curve.mean_error, abs=1e-4
        )
        assert float(compute_psi(curve.ndcg_at_10)) - printed[
            key
        ].psi_as_published == pytest.approx(curve.psi_error, abs=1e-3)
        assert abs(curve.mean_error) <= 0.0005
        assert abs(curve.psi_error) <= 0.01


def test_start_minus_end_compares_seven_bins():
    curves = {
        curve.model: curve
        for curve in list_published_curves("PosIR-English")
        if curve.length == "Q4"
    }
    for curve in curves.values():
        expected = np.mean(curve.ndcg_at_10[:7]) - np.mean(curve.ndcg_at_10[-7:])
        assert curve.start_to_end_unweighted == pytest.approx(expected)
    assert round(100 * curves["NV-Embed-v2"].start_to_end_unweighted, 1) == -31.9
    assert "inf-retriever-v1-1.5b" not in curves, "its curve is not precise enough"


def test_an_average_curve_is_the_mean_over_tasks():
    average = read_curves()["PosIR", "NV-Embed-v2", "Q4"]
    monolingual = [f"PosIR-{language.name}" for language in LANGUAGES]
    curves = [
        curve
        for key, curve in read_curves().items()
        if key[0] in monolingual and key[1:] == ("NV-Embed-v2", "Q4")
    ]
    assert average.tasks == len(curves) == 5
    assert average.ndcg_at_10 == pytest.approx(
        np.mean([curve.ndcg_at_10 for curve in curves], axis=0)
    )
    assert average.psi_error == pytest.approx(np.mean([curve.psi_error for curve in curves]))
    assert list_published_curves("SQuAD-PosQ") == []


def test_bins_of_posir_are_shown_by_length():
    text = call_published("--bins", "-t", "PosIR-English")
    assert re.search(r"NV-Embed-v2 +Q4 +[▁-█]{20} +-31\.9", text)
    assert text.count("not weighted by queries") == 1
    rows = json.loads(call_published("--bins", "-t", "PosIR-English", "--format", "json"))
    assert len(rows) == 20 * len(list_published_curves("PosIR-English"))
    assert {row["queries"] for row in rows} == {None}
    assert all(abs(row["psi_error"]) <= 0.01 for row in rows)
    assert all("read from the authors' figures" in row["source"] for row in rows)


# Averages


def test_average_of_ten_languages_matches_table_2():
    averages = read_values("PosIR")
    for row in read_table("mmteb.csv").itertuples():
        printed = (row.posir, row.posir_q1, row.posir_q2, row.posir_q3, row.posir_q4)
        computed = [averages[row.model, length][0] * 100 for length in LENGTHS]
        assert computed == pytest.approx(printed, abs=0.005 + 1e-9)


@pytest.mark.parametrize(
    ("task", "pairs", "cross_lingual"), [("PosIR", 10, False), ("PosIR(cross-lingual)", 8, True)]
)
def test_averages_match_pandas(task, pairs, cross_lingual):
    posir = read_table("posir.csv")
    part = posir[(posir.query_language != posir.corpus_language) == cross_lingual]
    groups = part.groupby(["model", "length_bucket"])[["ndcg_at_10", "psi"]]
    assert set(groups.size()) == {pairs}
    averages = read_values(task)
    assert averages.keys() == set(groups.groups)
    for key, expected in groups.mean().iterrows():
        assert averages[key] == pytest.approx(tuple(expected), abs=1e-12)


# Query counts and bounds of PSI by chance


def test_overall_score_of_posq_is_the_mean_over_queries():
    for row in [row for task in BUCKET_QUERIES for row in list_published_rows(task)]:
        bins = [bin_ for bin_ in list_published_bins(row.task) if bin_.model == row.model]
        query_scores = np.repeat(
            [bin_.ndcg_at_10 for bin_ in bins], [bin_.queries for bin_ in bins]
        )
        assert row.ndcg_at_10 == pytest.approx(query_scores.mean(), abs=1e-12)


def test_query_counts_match_the_papers():
    assert [sum(BUCKET_QUERIES[name]) for name in ("FineWeb-PosQ", "SQuAD-PosQ")] == [
        25_775,
        93_401,
    ]
    counts = {
        "PosIR": (421_708, True),
        "PosIR-English": (42_015, True),
        "PosIR-German": (42_170, False),
        "SQuAD-PosQ": (92_749, True),
        "NFCorpus": (None, False),
    }
    assert {name: find_query_count(name) for name in counts} == counts
    assert {row.queries for row in list_published_rows("PosIR-English") if row.length != "all"} == {
        None
    }


def simulate_shuffled_psi(gains, queries, draws=400):
    rng = np.random.default_rng(3)
    edges = np.cumsum([0, *queries])[:-1]
    means = np.array(
        [np.add.reduceat(rng.permutation(gains), edges) for _ in range(draws)]
    ) / np.asarray(queries)
    return 1 - means.min(axis=1) / means.max(axis=1)


@pytest.mark.parametrize("queries", [(2_000, 900, 1_100), (400, 300, 250, 200, 200, 400)])
@pytest.mark.parametrize("ranks", [[0.9, 0.04, 0.02, 0.01], [0.2, 0.1, 0.1, 0.1, 0.05]])
def test_null_psi_of_ranks_is_below_the_bound(queries, ranks):
    rng = np.random.default_rng(5)
    gains = rng.choice(
        np.append(NDCG_AT_10[: len(ranks)], 0), sum(queries), p=[*ranks, 1 - sum(ranks)]
    )
    null = simulate_shuffled_psi(gains, queries)
    bound = bound_null_psi(gains.mean(), queries)
    assert null.mean() < bound[0]
    assert np.quantile(null, 0.95) < bound[1]


def test_null_psi_of_scores_of_0_and_1_reaches_the_bound():
    queries = (2_000, 900, 1_100)
    gains = np.arange(sum(queries)) % 5 > 0
    null = simulate_shuffled_psi(gains.astype(float), queries, draws=2_000)
    bound = bound_null_psi(gains.mean(), queries)
    assert null.mean() == pytest.approx(bound[0], rel=0.05)
    assert np.quantile(null, 0.95) == pytest.approx(bound[1], rel=0.1)


def test_bias_is_significant_on_the_full_datasets():
    bounded = {
        name
        for name in list_published_tasks()
        for row in list_published_rows(name)
        if row.psi_chance_mean_at_most is not None
    }
    assert bounded == set(BUCKET_QUERIES), "only tasks with known queries per bucket have bounds"
    rows = {
        task: [
            row.psi_as_published > row.psi_chance_p95_at_most + 0.002
            for row in list_published_rows(task)
        ]
        for task in bounded
    }
    assert rows == {
        "SQuAD-PosQ": [True] * 11,
        "FineWeb-PosQ": [True] * 11,
        # Rerankers, then late-interaction models. On SQuAD-PosQ-Tiny, bge-m3-colbert is at its
        # bound.
        "SQuAD-PosQ-Tiny": [False] * 6 + [True, True, False],
        "FineWeb-PosQ-Tiny": [False] * 6 + [True] * 2,
        "FineWeb-PosQ-Raw": [True] * 7,
        "FineWeb-PosQ-Raw-Tiny": [False] * 3 + [True] * 2,
    }


# MMTEB


def test_correlations_match_the_paper():
    items = correlate_with_mmteb()
    for item in items:
        rho, printed, reading = PRINTED_CORRELATIONS[item.length]
        assert (round(item.rho, 2), item.models) == (rho, 10)
        assert printed <= item.p_value < printed + (0.1 if printed >= 0.1 else 0.01)
        assert (item.printed_rho, item.printed_p_value) == (rho, printed)
        assert item.printed_reading == reading
    expected = (
        read_table("mmteb.csv")
        .drop(columns="model")
        .rank()
        .corr()["mmteb_retrieval"]
        .drop("mmteb_retrieval")
    )
    assert [item.rho for item in items] == pytest.approx(expected.tolist(), abs=1e-12)


def test_p_values_are_corrected_with_holm():
    p_values = {item.length: item.p_value for item in correlate_with_mmteb()}
    ordered = sorted(p_values, key=p_values.get)
    steps = [(5 - rank) * p_values[length] for rank, length in enumerate(ordered)]
    expected = dict(zip(ordered, np.minimum(1, np.maximum.accumulate(steps)), strict=True))
    for item in correlate_with_mmteb():
        assert item.p_corrected == pytest.approx(expected[item.length])


# The command


def call_published(*options):
    result = call_posir(["published", *options], env={"COLUMNS": "140"}, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_table_names_the_source_of_published_results():
    text = call_published("-t", "PosIR-English", "-t", "FineWeb-PosQ")
    assert "PosIR-English · published, Zeng et al. 2026 (arXiv 2601.08363v1)" in text
    assert "FineWeb-PosQ · published, Zeng et al. 2025 (arXiv 2505.13950v5)" in text
    assert "without intervals" in " ".join(text.split())
    (line,) = (line.split() for line in text.splitlines() if line.startswith("NV-Embed-v2 "))
    row = next(
        row
        for row in list_published_rows("PosIR-English")
        if row.model == "NV-Embed-v2" and row.length == "all"
    )
    assert line == [
        "NV-Embed-v2",
        "all",
        "42,015",
        f"{row.ndcg_at_10 * 100:.1f}",
        f"{row.psi_as_published:.3f}",
    ]


def test_csv_and_json_contain_unrounded_rows():
    rows = [row for name in list_published_tasks() for row in list_published_rows(name)]
    from_json = json.loads(call_published("--format", "json", "--lengths"))
    from_csv = list(csv.DictReader(io.StringIO(call_published("--format", "csv", "--lengths"))))
    assert [PublishedRow(**row) for row in from_json] == rows
    assert [
        (row["model"], row["task"], row["length"], float(row["psi_as_published"]))
        for row in from_csv
    ] == [(row.model, row.task, row.length, row.psi_as_published) for row in rows]


def test_bins_match_the_papers():
    rows = json.loads(call_published("--bins", "--format", "json", "-t", "FineWeb-PosQ"))
    bm25 = [
        (row["position"], row["queries"], row["ndcg_at_10"])
        for row in rows
        if row["model"] == "BM25"
    ]
    assert bm25 == [("beginning", 8_467, 0.8940), ("middle", 8_213, 0.9080), ("end", 9_095, 0.8836)]
    myopic_trap = read_table("myopic_trap.csv").query("task == 'FineWeb-PosQ-Raw'")
    posq = [
        row
        for row in json.loads(call_published("--bins", "--format", "json"))
        if not row["task"].startswith("PosIR")
    ]
    assert len(posq) == read_table("posq.csv").ndcg_at_10.count() + len(myopic_trap)
    assert "beginning" in call_published("--bins", "-t", "FineWeb-PosQ")


def test_training_shows_all_scores_and_psi_reductions():
    rows = json.loads(call_published("--training", "--format", "json"))
    assert len(rows) == len(read_table("training.csv")) + 14
    assert {row["source"].split(",")[0] for row in rows if row["measure"] == PSI_REDUCTION} == {
        "computed from published"
    }
    text = call_published("--training")
    assert re.search(r"Qwen3-0\.6B +PSI +0\.395 +0\.283 +0\.409 +0\.068 +83\.4", text)
    assert re.search(r"bge-small-en-v1\.5 +cosine, beginning +0\.923 +0\.984", text)


@pytest.mark.parametrize("view", ["--mmteb", "--training"])
def test_explain_adds_details_to_every_view(view):
    *brief, hint = call_published(view).splitlines()
    complete = call_published(view, "--explain").splitlines()
    assert ("--explain" in hint, complete[: len(brief)], len(complete) > len(brief)) == (
        True,
        brief,
        True,
    )


def test_mmteb_shows_computed_and_printed_coefficients():
    finding, *printed = call_published("--mmteb").splitlines()
    assert "Spearman 0.73 in Q1, 0.39 in Q4. With 10 models" in " ".join([finding, *printed])
    lines = {
        line.split()[0]: line.split()[1:] for line in printed if line.partition(" ")[0] in LENGTHS
    }
    expected = ["10", "0.73", "0.01", "strongest", "0.73", "0.016", "0.079", "not", "shown"]
    assert lines["Q1"] == expected
    assert lines.keys() == set(LENGTHS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-t", "PosIR-Hindi"], "'PosIR-Hindi'. Tasks with published results: PosIR, "),
        (["--lengths", "--bins"], "bins cannot be combined with lengths"),
        (["--mmteb", "-t", "PosIR"], "mmteb cannot be combined with task"),
        (["--training", "--bins"], "training cannot be combined with bins"),
    ],
)
def test_invalid_options(options, message):
    with pytest.raises(PosirError, match=message.replace(".", r"\.")):
        call_published(*options)


def test_a_table_is_compared_with_published_rows(tmp_path):
    file = tmp_path / "v2.csv"
    posir.published(task="PosIR-English", lengths=True).to_polars().write_csv(file)
    equal = posir.published(check=file)
    assert {row.state for row in equal.rows} == {"equal"}
    assert (len(equal.rows), equal.exit_status) == (100, 0)
    head = "task,model,length,ndcg_at_10,psi_as_published"
    rows = ("PosIR-English,bge-m3,Q1,0.9,0.12", "PosIR-English,another,all,0.5,")
    file.write_text("\n".join([head, *rows]))
    changed = posir.published(check=file)
    states = Counter(row.state for row in changed.rows)
    assert states == {"missing": 98, "different": 2, "new": 1}
    assert changed.exit_status == 1
    assert all("v1" in row.source for row in changed.rows if row.source)
    file.write_text(f"{head}\nPosIR-English,bge-m3,Q1,90.1,0.12\n")
    with pytest.raises(PosirError, match=r"row 2: field 'ndcg_at_10': '90\.1'"):
        posir.published(check=file)
    with pytest.raises(PosirError, match="check cannot be combined with lengths"):
        posir.published(check=file, lengths=True)


def test_model_descriptions_match_mteb():
    from mteb.models.model_implementations import MODEL_REGISTRY

    printed = {
        row.model.casefold() for task in list_published_tasks() for row in list_published_rows(task)
    }
    registered = {name.split("/")[-1].casefold(): name for name in MODEL_REGISTRY}
    models = read_models()
    assert models.keys() == printed & registered.keys()
    for printed_name, description in models.items():
        name = registered[printed_name]
        assert description["name"] == name
        assert description.get("embed_dim") == MODEL_REGISTRY[name].embed_dim
        assert description.get("max_tokens") == MODEL_REGISTRY[name].max_tokens
