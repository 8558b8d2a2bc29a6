"""Probe runs: texts are encoded once, runs resume, and failures are reported."""

import logging
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from posir_probe import probe as probe_module
from posir_probe import probing
from posir_probe.controls import order_blind
from posir_probe.data import ProbeData, ProbeQuestion, ProbeSource
from posir_probe.evidence_moving import EvidenceMoving
from posir_probe.mirror_reversal import MirrorReversal
from posir_probe.posir_paper import EvidenceLocation, GradientSaliency
from posir_probe.probe import Probe, ProbePlan, Summary, build_probe_rows, run_plans, run_probe
from posir_probe.probing import (
    ProbeRun,
    build_builtin_probes,
    collect_probes,
    run_probes,
    select_probes,
)
from posir_probe.results import ProbeSums, read_probe_results
from posir_probe.segments import SegmentSimilarity
from posir_probe.tables import build_measurements, build_probe_tables
from posir_tasks.base.errors import PosirError
from posir_tasks.data.mini import read_mini
from posir_tasks.models.embeddings.encoding import ModelEncoder
from posir_tasks.results import find_result_files
from posir_tasks.text.spans import Span
from posir_tasks.text.tokenizer import EstimatedTokenizer
from tests.support.encoders import RecordingEncoder
from tests.support.probed_encoders import decaying, invent_questions


class WordEncoder(RecordingEncoder):
    """The order-blind control as an mteb model that records the encoded texts."""

    def encode(self, inputs, **_):
        texts = [text for batch in inputs for text in batch["text"]]
        self._encoded += texts
        return order_blind(texts)


@pytest.fixture(scope="module")
def mini():
    return read_mini()


@pytest.fixture
def model():
    return WordEncoder()


@pytest.fixture(scope="module")
def data(mini):
    return next(ProbeData.from_position_data(mini).iterate_blocks(60))


@pytest.fixture
def run(model, data, tmp_path):
    source = ProbeSource("PosIR-Mini", {"eng-Latn/default": lambda: data})
    return ProbeRun(ModelEncoder(model), source, tmp_path, 20)


PROBES = [SegmentSimilarity(3), SegmentSimilarity(10), EvidenceLocation()]


def test_each_distinct_text_is_encoded_once(run, model, data):
    run = replace(run, documents=5)
    run_probes(run, [*PROBES, EvidenceMoving(), MirrorReversal()])
    questions = {question.text for question in data.sample(5).questions}
    documents = [text for text in model.encoded if text not in questions]
    assert len(documents) == len(set(documents))


def test_results_are_saved_next_to_mteb_results_and_measured_once(run, model, tmp_path):
    first = run_probes(run, PROBES)[0]
    files = sorted(tmp_path.rglob("*.json"))
    assert [file.relative_to(tmp_path).as_posix() for file in files] == [
        f"results/test__encoder/1/probes/PosIR-Mini.{probe}.json"
        for probe in ("evidence_location", "segment_similarity_10", "segment_similarity_3")
    ]
    assert list(find_result_files(tmp_path)) == []
    read = {result.probe: result for result in read_probe_results(tmp_path)}
    np.testing.assert_allclose(read["segment_similarity_3"].sums.totals, first.sums.totals)
    assert all(file.stat().st_size < 300_000 for file in files)
    encoded = len(model.encoded)
    np.testing.assert_array_equal(run_probes(run, PROBES)[0].sums.totals, first.sums.totals)
    assert len(model.encoded) == encoded
    # Another sample is measured again.
    assert run_probes(replace(run, documents=30), PROBES)[0].sums.documents == 30
    files[-1].write_text("{")
    with pytest.raises(PosirError, match=r"segment_similarity_3\.json: not a probe result"):
        run_probes(run, PROBES)


def test_texts_are_cut_so_that_the_largest_needle_fits(run, model, data):
    run = replace(run, documents=3, cut=40)
    probes = select_probes(["needle_insertion", "text_removal", "segment_similarity_3"])
    results = {result.probe: result for result in run_probes(run, probes)}
    selections = {
        name: [subset.selection for subset in result.subsets.values()]
        for name, result in results.items()
    }
    assert selections == {
        "needle_insertion": ["seed 1, cut to 20 tokens of the model"],
        "text_removal": ["seed 1, cut to 40 tokens of the model"],
        "segment_similarity_3": ["seed 1"],
    }
    complete_texts = data.sample(3).documents.values()
    longest = [
        text for text in model.encoded if any(text in document for document in complete_texts)
    ]
    for text in complete_texts:
        (tokens,) = EstimatedTokenizer().find_tokens([text])
        assert text in longest
        assert text[: tokens[19, 1]] in longest
        assert text[: tokens[39, 1]] in longest
    # Without a cut, the same probes are measured again.
    uncut_results = run_probes(replace(run, cut=0), probes)
    assert {subset.selection for result in uncut_results for subset in result.subsets.values()} == {
        "seed 1"
    }


def test_a_killed_run_resumes_after_its_last_block(run, model, data, monkeypatch):
    monkeypatch.setattr(probing, "BLOCK_SIZE", 8)
    calls = 0

    def stop_at_second(*arguments, measure=probing.run_plans):
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt
        return measure(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(probing, "run_plans", stop_at_second)
        with pytest.raises(KeyboardInterrupt):
            run_probes(run, PROBES)
    assert run.load("segment_similarity_3").sums.documents == 8
    encoded = set(model.encoded)
    resumed_result = run_probes(run, PROBES)[0]
    assert not encoded & set(model.encoded[len(encoded) :])
    expected = run_probe(SegmentSimilarity(3), order_blind, data.sample(20))
    np.testing.assert_allclose(resumed_result.sums.totals, expected.totals, rtol=1e-5)
    assert [subset.done for subset in resumed_result.subsets.values()] == [20]


def test_an_unsuitable_model_does_not_stop_other_probes(run, caplog):
    with caplog.at_level(logging.WARNING):
        probes = run_probes(run, [*PROBES, GradientSaliency()])
    assert len(probes) == len(PROBES)
    assert "gradient_saliency was not measured: " in caplog.text
    with pytest.raises(PosirError, match="gradients"):
        run_probes(run, [GradientSaliency()])


def test_a_probe_without_questions_does_not_stop_others(model, tmp_path, caplog):
    data = ProbeData(
        {
            name: f"The mill of {name} burned down in the dry summer of the year 1901."
            for name in "abcdef"
        }
    )
    source = ProbeSource("texts", {"en": lambda: data})
    run = ProbeRun(ModelEncoder(model), source, tmp_path, 20)
    with caplog.at_level(logging.WARNING):
        probes = run_probes(run, [*PROBES, EvidenceMoving(), MirrorReversal()])
    assert [probe.probe for probe in probes] == ["segment_similarity_3", "segment_similarity_10"]
    assert "evidence_moving was not measured: texts has no questions" in caplog.text
    assert "mirror_reversal was not measured" in caplog.text
    with pytest.raises(PosirError, match="no questions"):
        run_probes(run, [EvidenceMoving()])


def test_sums_over_blocks_are_additive():
    data = invent_questions(24)
    probes = [probe for probe in build_builtin_probes() if not probe.needs_all]
    blocks = [
        run_plans(decaying, [probe.plan(block) for probe in probes])
        for block in data.iterate_blocks(12)
    ]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(probe_module, "BATCH_SIZE", 7)
        complete = run_plans(
            decaying, [probe.plan(data) for probe in probes], (shares := []).append
        )
    assert len(shares) > 10
    assert sum(shares) == pytest.approx(1)
    for probe, complete_sums, first, second in zip(probes, complete, *blocks, strict=True):
        pooled = first + second
        assert pooled.documents == complete_sums.documents > 0, probe.name
        np.testing.assert_allclose(
            pooled.totals, complete_sums.totals, atol=1e-9, err_msg=probe.name
        )
        np.testing.assert_allclose(
            pooled.replicates, complete_sums.replicates, atol=1e-9, err_msg=probe.name
        )


class Length(Probe):
    """A third-party probe that counts words."""

    name = "length"
    title = "Words"
    source = "nobody"
    summaries = {"words": Summary("Words", lambda values: values[..., 0])}  # noqa: RUF012

    def plan(self, data):
        values = np.array([[float(len(text.split()))] for text in data.documents.values()])
        return ProbePlan(lambda _: ProbeSums.from_means(["words"], list(data.documents), values))


def test_a_plugin_adds_a_probe_and_mistakes_are_reported(monkeypatch, caplog):
    class Plugins:
        @staticmethod
        def iterate_callers(_):
            yield "probes", lambda: [build_builtin_probes()]
            yield "theirs", lambda: [[Length(), Length(), "no probe"]]
            yield "broken", partial(int, "x")

    monkeypatch.setattr("posir_tasks.plugin_api.get_plugins", Plugins)
    with caplog.at_level(logging.WARNING):
        probes = collect_probes()
    assert isinstance(probes["length"], Probe)
    assert select_probes(())[-1].name == "length"
    for message in (
        "declared a probe 'length', a name of plugin 'theirs'",
        "'no probe', which is not a posir_probe.probe.Probe",
        "'broken' could not add its probes",
    ):
        assert message in caplog.text


def test_probes_are_selected_by_name_or_prefix():
    names = [
        probe.name
        for probe in select_probes(["segment_similarity", "gradient_saliency", "text_removal_code"])
    ]
    assert names == [
        "segment_similarity_3",
        "segment_similarity_10",
        "gradient_saliency",
        "text_removal_code",
    ]
    with pytest.raises(
        PosirError, match=r"unknown probe 'evidence_movin'\. Did you mean evidence_moving"
    ):
        select_probes(["evidence_movin"])


BAD = {
    "empty": " ",
    "short": "only three words",
    "whole": "all of it is evidence, every single word of this text here",
}


def test_bad_input_is_counted_and_skipped():
    spans = (("whole", Span(0, len(BAD["whole"]))), ("short", Span(5, 99)), ("short", Span(3, 3)))
    data = ProbeData(BAD, tuple(ProbeQuestion("?", name, span) for name, span in spans))
    assert run_probe(SegmentSimilarity(10), order_blind, data).skipped == {
        "empty text": 1,
        "fewer than 10 words": 1,
    }
    moved_sums = run_probe(EvidenceMoving(), order_blind, data)
    assert moved_sums.skipped == {"the evidence is the whole document": 1, "no evidence span": 2}
    assert np.isnan(moved_sums.values).all()
    for probe in select_probes(()):
        if probe.name != "gradient_saliency":
            run_probe(probe, order_blind, data)


def test_tables_have_sources_intervals_and_warnings(run):
    results = run_probes(run, [*PROBES, MirrorReversal()])
    probes = collect_probes()
    rows = build_probe_rows(results, probes)
    assert {row.kind for row in rows} == {"summary", "position"}
    summaries, positions = build_probe_tables(results[-1].sums, probes["mirror_reversal"])
    assert "mirror_reversal" not in str((summaries.rows, positions))
    assert [row[0] for row in positions.rows] == ["front", "middle", "end"]
    assert list(positions.headings) == ["Position", "Documents as they are", "Documents reversed"]
    assert summaries.rows[0][0] == "nDCG@10 near start minus near end", (
        "what the page states comes first"
    )
    assert len(summaries.rows) == 5, "single values stand in the matrix alone"
    sections = build_measurements(results, run.output).sections()
    notes = [note for section in sections for table in section.tables for note in table.notes]
    sentences = [sentence for section in sections for sentence in section.sentences]
    assert all({*probes[result.probe].notes} <= {*notes, *sentences} for result in results)
    assert not any(result.probe in sentence for result in results for sentence in sentences)


def test_splitting_at_periods_is_another_sample(run):
    probes = select_probes(["segment_similarity_3", "sentence_regression"])
    run_probes(run, probes)
    by_name = {
        result.probe: result for result in run_probes(replace(run, split_at_periods=True), probes)
    }
    selections = {
        name: subset.selection
        for name, result in by_name.items()
        for subset in result.subsets.values()
    }
    assert selections["segment_similarity_3"] == str(run.selection)
    assert selections["sentence_regression"] != str(run.selection)


def test_omitted_documents_are_reported_with_the_reason(run):
    texts = {
        f"{number}": f"The {number} mill burned down one day. " * (7 if number < 17 else 2)
        for number in range(20)
    }
    small_run = replace(
        run, source=ProbeSource("few", {"eng-Latn/default": lambda: ProbeData(texts)})
    )
    results = run_probes(small_run, select_probes(["segment_similarity_3", "sentence_regression"]))
    rows = build_probe_rows(results, collect_probes())
    assert {row.probe: row.left_out for row in rows} == {
        "segment_similarity_3": 0,
        "sentence_regression": 3,
    }
    sections = build_measurements(results, run.output).sections()[-2:]
    assert ["Skipped: 3 (" in str(section.tables) for section in sections] == [False, True]
