"""Studies against independent computations: sample validity, domain similarity, model groups."""

from dataclasses import asdict, replace

import numpy as np
import pandas as pd
import pytest

from posir_probe import studies
from posir_probe.bias_learning import NeedleInsertion, TextRemoval
from posir_probe.controls import order_blind
from posir_probe.data import ProbeData, ProbeSource
from posir_probe.results import ProbeResult, ProbeSums, SubsetSums
from posir_published.probes import ArchitectureProperty, read_architectures
from posir_report.summary import TaskSummary
from posir_significance.messages.probes import describe_sample_difference
from posir_tasks.base.errors import PosirError, ProfileError
from posir_tasks.display.tables import to_markdown
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.profile import RANKS, PositionProfile
from posir_tasks.values.schemes import AbsolutePositions, RelativePositions
from posir_tasks.values.scores import ResultScores, ResultValues
from tests.support.charts import check_figures
from tests.support.simulation import separate_documents

SCHEME = RelativePositions(bins=6, token_bounds=())


def make_profile(shares, queries=400, scheme=SCHEME):
    """Make a profile in which a share of each bin's queries has rank 1 and the rest are missed."""
    counts = np.zeros((1, len(shares), len(RANKS)), np.int64)
    counts[0, :, 0] = np.round(np.array(shares) * queries)
    counts[0, :, -1] = queries - counts[0, :, 0]
    return PositionProfile(scheme.axes, counts, counts.sum(axis=1))


def make_summary(model, shares, task="PosIR-Mini", **options):
    profile = make_profile(shares, **options)
    start_minus_end = float(np.mean(shares[:2]) - np.mean(shares[-2:]))
    scores = {
        "psi": Estimate(float(1 - min(shares) / max(shares))),
        "start_minus_end": Estimate(start_minus_end),
    }
    result = ResultScores((), {"all": scores}, ())
    return TaskSummary(
        model, "1", task, ("default",), (), "1", ResultValues(separate_documents(profile)), result
    )


SHARES = [0.9, 0.8, 0.7, 0.6, 0.5, 0.4]


def compare(sample, complete):
    largest, *buckets = studies.compare_tiny(sample, complete)
    return largest, buckets


def test_every_tiny_sample_is_compared_with_its_task():
    summaries = [
        make_summary("m", SHARES, task) for task in ("SQuAD-PosQ", "SQuAD-PosQ-Tiny", "Other-Tiny")
    ]
    (pair,) = studies.find_samples(summaries)
    row, *buckets = studies.compare_tiny(*pair)
    assert (row.sample, row.complete, row.queries) == ("SQuAD-PosQ-Tiny", "SQuAD-PosQ", 2_400)
    assert row.difference.value <= row.chance
    assert (row.difference.value, row.difference.low) == (0, 0)
    assert all(
        bucket.difference.low < 0 == bucket.difference.value < bucket.difference.high
        for bucket in buckets
    )
    assert [bucket.position for bucket in buckets] == list(SCHEME.axes.positions)
    assert [bucket.ndcg_at_10_of_complete for bucket in buckets] == pytest.approx(SHARES)
    assert len(studies.draw_samples(summaries)) == 1
    assert "SQuAD-PosQ-Tiny" in to_markdown(studies.build_validity_table([row, *buckets]))
    (sentence,) = studies.describe_validity([row, *buckets])
    assert sentence == describe_sample_difference(
        "m", "SQuAD-PosQ-Tiny", row.difference, row.chance
    )


def test_a_biased_sample_differs_more_than_a_random_sample():
    complete = make_summary("m", SHARES, "T", queries=2_000)
    row, buckets = compare(make_summary("m", [*SHARES[:5], 0.7], "T-Tiny"), complete)
    assert row.difference.value == pytest.approx(0.3)
    assert row.difference.low < 0.3 < row.difference.high
    last = buckets[-1]
    assert (last.ndcg_at_10_of_sample, last.ndcg_at_10_of_complete, last.queries) == pytest.approx(
        (0.7, 0.4, 400)
    )
    # Normal approximation of a binomial share, for a bucket and for the largest of six.
    error = (0.7 * 0.3 / 400) ** 0.5
    assert last.difference.high - 0.3 == pytest.approx(1.96 * error, rel=0.1)
    assert row.difference.high - 0.3 == pytest.approx(2.63 * error, rel=0.1)
    assert row.chance < 0.1
    # Both numbers are shown without a verdict, since with many models some samples differ more by
    # chance.
    assert "verdict" not in asdict(row)
    with pytest.raises(ProfileError):
        compare(make_summary("m", [0.5] * 6, "T-Tiny", scheme=AbsolutePositions()), complete)


def make_result(model, data, seed):
    """Make a needle insertion result: 10 documents, 15 conditions, random cosines."""
    values = np.random.default_rng(seed).random((10, 15))
    sums = ProbeSums.from_means(
        NeedleInsertion().positions, [f"d{row}" for row in range(10)], values
    )
    return ProbeResult(
        model, "1", None, data, "needle_insertion", {"default": SubsetSums("1", "", 10, 10, sums)}
    ), values


def test_probes_are_averaged_over_models_and_datasets():
    models = ["BAAI/bge-m3", "intfloat/e5-large-v2", "nomic-ai/nomic-embed-text-v1.5", "me/other"]
    pairs = {
        (m, d): make_result(m, d, 7 * place + (d == "b"))
        for place, m in enumerate(models)
        for d in ("a", "b")
    }
    results = [result for result, _ in pairs.values()]
    rows = studies.group_results(
        results,
        {"needle_insertion": NeedleInsertion()},
        read_architectures(),
        ArchitectureProperty.POSITIONAL_ENCODING,
    )
    outcome = {(row.data, row.group, row.model, row.position): row for row in rows}
    frame = pd.DataFrame(
        {
            "model": m,
            "data": d,
            "place": ("0%", "50%", "100%")[at % 3],
            "cosine": values[:, at].mean(),
        }
        for (m, d), (_, values) in pairs.items()
        for at in range(15)
    )
    ape_rows = frame[frame.model.isin(models[:2])]
    for place in ("0%", "50%", "100%"):
        position = f"mean over sizes · {place}"
        group = outcome["mean of 2 datasets", "APE", "", position]
        assert group.value.value == pytest.approx(ape_rows[ape_rows.place == place].cosine.mean())
        assert group.models == 2
        assert group.value.low < group.value.value < group.value.high
        other_rows = frame[
            (frame.model == models[2]) & (frame.data == "b") & (frame.place == place)
        ]
        assert outcome["b", "RoPE", models[2], position].value.value == pytest.approx(
            other_rows.cosine.mean()
        )
    assert ("a", "unknown", "me/other", "mean over sizes · 0%") in outcome
    assert ("a", "unknown", "", "mean over sizes · 0%") not in outcome
    published = {
        (row.group, row.position): row.value.value
        for row in studies.list_published_groups(["needle_insertion"])
    }
    assert published["RoPE", "mean over sizes · 0%"] == 0.8189
    tables = studies.build_group_tables(rows)
    assert [table.title for table in tables] == [
        f"needle_insertion · {data}" for data in ("a", "b", "mean of 2 datasets")
    ]
    assert [line[:2] for line in tables[0].rows][2] == ("APE", "mean of 2 models")


def change_result(result, probe, experiment):
    """Change the probe and the experiment of a result, but not its cosines."""
    (sums,) = [subset.sums for subset in result.subsets.values()]
    changed_sums = replace(
        sums,
        positions=probe.positions,
        totals=sums.totals[: len(probe.positions)],
        replicates=sums.replicates[:, : len(probe.positions)],
    )
    subsets = {
        name: replace(subset_sums, sums=changed_sums)
        for name, subset_sums in result.subsets.items()
    }
    return replace(result, probe=probe.name, experiment=experiment, subsets=subsets)


def test_the_mean_of_insertion_and_removal_averages_both_means():
    inserted, values = make_result("BAAI/bge-small-en-v1.5", "a", 3)
    inserted = replace(inserted, experiment="protocol_bias-learning")
    removed = change_result(inserted, TextRemoval(), "protocol_bias-learning")
    other_result, _ = make_result("me/other", "a", 4)
    probes = {"needle_insertion": NeedleInsertion(), "text_removal": TextRemoval()}
    rows = studies.group_results(
        [inserted, removed, other_result],
        probes,
        read_architectures(),
        ArchitectureProperty.POSITIONAL_ENCODING,
    )
    joined = [row for row in rows if row.probe == "mean of needle_insertion and text_removal"]
    assert {(row.data, row.model) for row in joined} == {
        ("a (protocol_bias-learning)", "BAAI/bge-small-en-v1.5")
    }
    for row, place in zip(joined, range(3), strict=True):
        means = values[:, place::3].mean(), values[:, place:9:3].mean()
        assert row.value.value == pytest.approx(np.mean(means))
        assert row.value.low < row.value.value < row.value.high


def test_domains_are_compared_by_their_mean_embeddings():
    domains = {"one": ["a b", "a c"], "two": ["a b c"], "three": ["x y z"]}
    sums = {
        name: studies.DomainSum.from_texts(order_blind, texts) for name, texts in domains.items()
    }
    centroids = []
    for texts in domains.values():
        vectors = order_blind(texts).astype(float)
        centroids.append((vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).mean(axis=0))
    expected = [
        [a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a in centroids] for b in centroids
    ]
    np.testing.assert_allclose(studies.compare_domains(sums), expected, atol=1e-6)
    pairs = studies.list_pairs(sums, "words")
    assert (pairs[0]["first"], pairs[0]["second"], len(pairs)) == ("two", "one", 3)


def make_source(revision="1", **domains):
    def read(texts):
        return replace(ProbeData.from_texts(texts), revision=revision)

    return ProbeSource(
        "words", {name: lambda texts=texts: read(texts) for name, texts in domains.items()}
    )


def test_sums_of_domains_are_saved_and_measured_once(tmp_path):
    file, encoded = tmp_path / "domains" / "words.json", []

    def encoder(texts, prompt_type):
        encoded.extend(texts)
        return order_blind(texts, prompt_type)

    domains = {"one": ["a b", "a c"], "two": ["a b c"]}
    first = studies.measure_domains(encoder, make_source(**domains), file)
    assert len(encoded) == 3
    resumed = studies.measure_domains(encoder, make_source(**domains, three=["x y z"]), file)
    assert encoded[3:] == ["x y z"]
    np.testing.assert_allclose(
        studies.compare_domains(resumed)[:2, :2], studies.compare_domains(first), atol=1e-6
    )
    assert sorted(studies.load_sums(file)) == ["one", "three", "two"]
    studies.measure_domains(encoder, make_source("2", **domains), file)
    assert len(encoded) == 7
    figure = studies.draw_domains({"words": first}, "m")
    check_figures([figure])
    assert "similarity" in str(figure.chart.specification)


def make_sums(language, **texts):
    return {
        f"{language}/{name}": studies.DomainSum.from_texts(order_blind, [text])
        for name, text in texts.items()
    }


def test_a_heat_map_has_a_dataset_in_each_triangle():
    data = {
        "English": make_sums("eng-Latn", a="x y", b="x z", c="u v w"),
        "Chinese": make_sums("cmn", c="x", b="x p q", d="x", a="p q"),
    }
    figure = studies.draw_domains(data, "m")
    (rows,) = [
        rows for rows in figure.chart.to_dict()["datasets"].values() if "similarity" in rows[0]
    ]
    cells = {(row["first"], row["second"]): row["similarity"] for row in rows}
    assert list(dict.fromkeys(first for first, _ in cells)) == ["a", "b", "c"]
    pairs = [pair for name, sums in data.items() for pair in studies.list_pairs(sums, name)]
    expected = {(pair["first"], pair["second"]): pair["similarity"] for pair in pairs}
    assert cells["b", "a"] == pytest.approx(expected["eng-Latn/b", "eng-Latn/a"])
    assert cells["a", "b"] == pytest.approx(expected["cmn/a", "cmn/b"])
    assert cells["b", "c"] == pytest.approx(expected["cmn/b", "cmn/c"])
    for other in (("eng-Latn/a", "eng-Latn/c"), ("eng-Latn/a", "deu-Latn/a", "eng-Latn/b")):
        with pytest.raises(PosirError, match="fewer than two domains in common"):
            studies.find_shared_domains([("eng-Latn/a", "eng-Latn/b"), other])


def test_incomparable_domains_are_reported(tmp_path):
    with pytest.raises(PosirError, match="only one domain"):
        studies.measure_domains(order_blind, make_source(one=["a"]), tmp_path / "one.json")
    file = tmp_path / "damaged.json"
    file.write_text('{"schema": 1}')
    with pytest.raises(PosirError, match=r"damaged\.json: not domain sums"):
        studies.measure_domains(order_blind, make_source(one=["a"], two=["b"]), file)
