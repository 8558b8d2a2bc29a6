"""PosIR samples: balance, dependence on the data, and tasks."""

import random

import mteb
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mteb.models.model_implementations.bm25 import BM25Search

import posir
from posir_leaderboard.board.groups import list_builtin_groups
from posir_leaderboard.validation import read_subset_facts
from posir_run.sizes import measure_subsets
from posir_tasks.base.errors import DataError, PosirError
from posir_tasks.data.data import PositionData, digest_data
from posir_tasks.data.declared import DISTRACTORS
from posir_tasks.data.nano import (
    DomainSample,
    choose_questions,
    count_domain_questions,
    locate_sample,
)
from posir_tasks.datasets.opening import open_data
from posir_tasks.tasks.catalog import find_task
from posir_tasks.values.evidence import Evidence
from tests.support.datasets import POSIR_FOLDER, posir_tables, write_domain

NAME = "PosIR-English-Nano"


def build_evidence(questions):
    """Build evidence in documents of 900 characters from tuples of question id, third and document
    length in tokens.
    """
    names, thirds, lengths = (
        (list(column) for column in zip(*questions, strict=True)) if questions else ([], [], [])
    )
    starts = 300 * np.array(thirds, np.int64) + 100
    return Evidence(
        names,
        ["d"] * len(names),
        starts,
        starts + 20,
        np.full(len(names), 900),
        np.array(lengths, np.int64),
    )


QUESTION = st.tuples(st.uuids().map(str), st.integers(0, 2), st.integers(1, 40))
QUESTIONS = st.lists(QUESTION, max_size=60, unique_by=lambda question: question[0])


@given(QUESTIONS, st.integers(0, 70), st.randoms())
def test_thirds_are_balanced_with_representative_lengths(questions, count, rng):
    selection = choose_questions(build_evidence(questions), count)
    assert (selection, len(selection)) == (sorted(set(selection)), min(count, len(questions)))
    sampled_lengths = [
        [questions[row][2] for row in selection if questions[row][1] == third] for third in range(3)
    ]
    all_lengths = [
        [length for _, question_third, length in questions if question_third == third]
        for third in range(3)
    ]
    max_size = max(map(len, sampled_lengths))
    assert all(
        len(sampled) in (max_size, max_size - 1) or len(sampled) == len(full)
        for sampled, full in zip(sampled_lengths, all_lengths, strict=True)
    )
    # Up to any length, the sample has its share of documents, to within one question.
    for sampled, full in zip(sampled_lengths, all_lengths, strict=True):
        for length in full:
            share = len(sampled) * sum(other <= length for other in full) / len(full)
            assert abs(sum(other <= length for other in sampled) - share) < 1
    # The order of rows has no effect.
    shuffled = rng.sample(questions, len(questions))
    names = {questions[row][0] for row in selection}
    assert {shuffled[row][0] for row in choose_questions(build_evidence(shuffled), count)} == names


def test_posir_domains_get_equal_shares():
    assert (
        count_domain_questions("sports", ["sports"])
        == count_domain_questions("game", ["game", "mine", "sports"])
        == 48
    )
    assert [
        count_domain_questions("mine", ["mine", "sports"]),
        count_domain_questions("mine", ["mine", "other"]),
    ] == [1_500, 750]


def test_samples_contain_relevant_documents_and_best_distractors():
    texts = {f"d{number}": f"text {number}" for number in range(40)}
    questions = {"q0": ("a?", "d3", (0, 4)), "q1": ("b?", "d30", (0, 4))}
    data = PositionData.from_questions(texts, questions)
    ranked = [f"d{number}" for number in range(20)]
    sample = DomainSample.from_candidates(
        data, data.evidence, {"q0": ranked, "q1": ["d39", "d38"]}, 48
    )
    expected = {"d30", "d38", "d39", *(f"d{number}" for number in range(DISTRACTORS + 1))}
    assert (set(sample.documents), sample.questions) == (expected, ["q0", "q1"])
    applied = sample.apply(data)
    assert applied.corpus["text"][:] == [texts[name] for name in texts if name in expected]


def make_tables(seed=0, documents=300):
    """Build tables of documents with four sentences of random words and a question about one of
    them.
    """
    words = [
        f"{first}{last}" for first in "bdfgklmnprst" for last in ("arok", "elim", "ozun", "utix")
    ]
    rng, texts, questions = random.Random(seed), {}, {}
    for number in range(documents):
        sentences = [" ".join(rng.choices(words, k=9)) for _ in range(4)]
        texts[f"d{number}"] = ". ".join(sentences)
        questions[f"q{number}"] = (
            " ".join(sentences[number % 4].split()[::2]),
            f"d{number}",
            sentences[number % 4],
        )
    return posir_tables(texts, questions)


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("POSIR_DATA", str(tmp_path))
    monkeypatch.setenv("POSIR_CACHE", str(tmp_path / "cache"))
    write_domain(tmp_path / POSIR_FOLDER, make_tables())
    return tmp_path / POSIR_FOLDER


def test_a_sample_is_selected_once_and_rejected_for_other_data(root, monkeypatch, caplog):
    task = mteb.get_task(NAME)
    plan = measure_subsets([(task, "sports")])[0]
    result = mteb.evaluate(
        mteb.get_model("mteb/baseline-bm25s"), task, cache=None, show_progress_bar=False
    )
    run = result.task_results[0].scores["test"][0]["position_run"]
    assert "selecting the sample from the full corpus" in caplog.text
    full, sample = find_task("PosIR-English")().read_subset("sports"), task.read_subset("sports")
    assert (len(sample.queries), plan.queries, plan.counted) == (48, 48, False)
    # Compare with mteb's search of the full corpus.
    model, task_arguments = (
        BM25Search(),
        {"task_metadata": task.metadata, "hf_split": "test", "hf_subset": "sports"},
    )
    model.index(full.corpus, **task_arguments, encode_kwargs={})
    results = model.search(
        sample.queries, top_k=DISTRACTORS, top_ranked=None, **task_arguments, encode_kwargs={}
    )
    expected = {
        *sample.evidence.document_ids,
        *(name for scores in results.values() for name in scores),
    }
    assert expected <= set(sample.corpus["id"]) < set(full.corpus["id"])
    digests = [digest_data(data) for data in (sample, full)]
    assert run["data_digest"] == digests[0] != digests[1]
    assert read_subset_facts(type(task), "sports", "main").digest == digests[0]
    assert len(open_data(NAME).subsets[0].read().queries) == 48
    assert measure_subsets([(task, "sports")])[0].queries == 48
    with monkeypatch.context() as patched:
        patched.setattr("posir_tasks.search.first_stage.load_first_stage", None)
        assert task.read_subset("sports").queries["id"][:] == sample.queries["id"][:]
        write_domain(root, make_tables(seed=1))
        with pytest.raises(DataError, match=f"`posir study nano {NAME}`"):
            task.read_subset("sports")
    assert posir.nano("PosIR-English").to_polars().drop("documents").rows() == [("sports", 48, 300)]
    assert len(task.read_subset("sports").queries) == 48
    locate_sample(NAME, "sports").write_text("{}")
    with pytest.raises(DataError, match="not a sample"):
        task.read_subset("sports")


@pytest.mark.usefixtures("root")
def test_planning_does_not_select_a_sample():
    row = posir.nano("PosIR-English", plan=True).to_polars().row(0, named=True)
    assert (row["documents"], row["seconds"] > 0) == (300, True)
    assert not locate_sample(NAME, "sports").exists()
    with pytest.raises(PosirError, match="PosIR-German-English: has no sample"):
        posir.nano("PosIR-German-English")


def test_samples_have_tasks_and_a_separate_benchmark():
    assert (
        find_task("PosIR-Hindi-Nano").language.name,
        find_task("PosIR-German-English-Nano"),
    ) == ("Hindi", None)
    assert len(mteb.get_benchmark("PosIR(nano)").tasks) == 10
    groups = {group.name: group for group in list_builtin_groups({"PosIR-Hindi-Nano"})}
    assert groups["PosIR(nano)"].labels.keys() > {NAME, "PosIR-Hindi-Nano"}
    assert not {NAME, "PosIR-Hindi-Nano"} & (
        groups["PosIR"].labels.keys() | groups["PosIR(cross-lingual)"].labels.keys()
    )


def test_sample_sizes_are_planned_without_data(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    task = mteb.get_task(NAME)
    sizes = measure_subsets((task, domain) for domain in task.hf_subsets)
    assert (
        sum(size.queries for size in sizes),
        sum(sum(size.documents.texts) for size in sizes),
    ) == (31 * 48, 31 * 48 * 13)
