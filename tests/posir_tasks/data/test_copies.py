"""Copies of relevant documents are counted by all functions, and merged on request."""

import logging
import random
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st

import posir
from posir_score.evidence_spans import read_evidence_data
from posir_tasks.data.copies import choose_originals, find_copies, merge_copies, move_span
from posir_tasks.data.data import Judgments, PositionData, build_text_frame
from posir_tasks.datasets.opening import open_data
from posir_tasks.display.presentation import Result
from posir_tasks.tasks.base import PositionTask
from posir_tasks.text.spans import Span
from posir_tasks.values.evidence import Place
from tests.support.datasets import write_beir_folder

#: `a1` and `z1` are copies with different white space; `b` and `c` are irrelevant copies.
TEXTS = {
    "m": "The mill burned down in 1901, long ago.",
    "a1": "The bridge  was opened\nin 1887 by the king.",
    "z1": "The bridge was opened in 1887 by the king.",
    "b": "Nothing is known of the harbor before 1700.",
    "c": "Nothing is known of the harbor before 1700.",
}
QUERIES = [
    {"_id": "mill", "text": "When did the mill burn?", "answer": "in 1901"},
    {"_id": "bridge", "text": "When was the bridge opened?", "answer": "in 1887"},
]


def write_folder(folder: Path, names: Any = TEXTS, relevant: str = "z1") -> Path:
    corpus = [{"_id": name, "text": text} for name, text in zip(names, TEXTS.values(), strict=True)]
    return write_beir_folder(
        folder, corpus, QUERIES, [("mill", next(iter(names)), 1), ("bridge", relevant, 1)]
    )


def join_footer(result: Result) -> str:
    return " ".join(result.footer)


def build_corpus(texts: dict[str, str]) -> pl.DataFrame:
    return build_text_frame([*texts], [*texts.values()])


@given(
    st.dictionaries(st.text("abc", min_size=1), st.text("xy \n\t", max_size=6), max_size=12),
    st.data(),
)
def test_copies_and_originals_match_a_direct_search(texts: dict[str, str], data: st.DataObject):
    relevant = {name for name in texts if data.draw(st.booleans())}
    by_words: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, text in texts.items():
        by_words[tuple(text.split())].append(name)
    repeated_groups = [names for words, names in by_words.items() if words and len(names) > 1]
    copies = find_copies(build_corpus(texts), relevant)
    assert [[*group] for group in copies.groups] == [
        names for names in repeated_groups if relevant & {*names}
    ]
    assert bool(copies) == bool(copies.groups)
    originals = choose_originals(build_corpus(texts), relevant)
    for names in repeated_groups:
        original = min(relevant & {*names} or names)
        assert {originals.get(name, name) for name in names} == {original}
        assert original not in originals
    assert {*originals} <= {name for names in repeated_groups for name in names}


@given(st.lists(st.text("ab", min_size=1, max_size=3), min_size=1, max_size=6), st.data())
def test_spans_move_to_the_same_words(words: list[str], data: st.DataObject):
    blanks = st.text(" \n\u00a0", min_size=1, max_size=3)
    text, other = ("".join(word + data.draw(blanks) for word in words) for _ in range(2))
    first = data.draw(st.integers(0, len(words) - 1))
    begin = sum(map(len, words[:first]))
    places = [place for place, letter in enumerate(text) if not letter.isspace()]
    span = Span(places[begin], places[begin + len(words[first]) - 1] + 1)
    assert move_span(span, text, other).slice(other) == words[first] == span.slice(text)


def test_scores_of_merged_copies_do_not_depend_on_ids(tmp_path: Path):
    """All documents tie, so ids decide unless copies are merged."""
    scores = {False: set[float](), True: set[float]()}
    for number, ids in enumerate(("abc", "bca", "cab")):
        names = {"m": "", ids[0]: "", ids[1]: "", ids[2]: "", "y": ""}
        folder = write_folder(tmp_path / f"beir{number}", names, relevant=ids[1])
        run = {"mill": {"m": 1.0}, "bridge": {ids[0]: 2.0, ids[1]: 2.0, "y": 1.0}}
        for is_merged in (False, True):
            scored = posir.score(
                run,
                data=folder,
                name=f"{number}{is_merged}",
                output=tmp_path / "out",
                merge_copies=is_merged,
            )
            scores[is_merged].add(round(scored.runs[0].ndcg_at_10, 6))
    assert scores == {False: {1.0, round((1 + 1 / np.log2(3)) / 2, 6)}, True: {1.0}}


def test_merged_whole_documents_are_not_counted_as_chunks(tmp_path: Path):
    run = {"mill": {"m": 3.0, "b": 2.0, "c": 1.0}, "bridge": {"a1": 2.0, "b": 1.5, "z1": 1.0}}
    scored = posir.score(
        run, data=write_folder(tmp_path / "beir"), output=tmp_path / "out", merge_copies=True
    )
    counts = scored.runs[0].counts
    assert (scored.runs[0].ndcg_at_10, counts.depth, counts.chunks, counts.unknown_documents) == (
        1.0,
        3,
        0,
        0,
    )
    chunk_run = {"mill": {"m#1": 3.0, "b#0": 2.0}, "bridge": {"b#0": 3.0, "a1#4": 2.0, "z1#2": 1.0}}
    chunks = posir.score(
        chunk_run,
        data=write_folder(tmp_path / "b2"),
        name="c",
        output=tmp_path / "o",
        merge_copies=True,
    )
    assert chunks.runs[0].counts.chunks == 5
    assert chunks.runs[0].ndcg_at_10 == pytest.approx((1 + 1 / np.log2(3)) / 2)


def test_merged_copies_get_the_highest_grade(tmp_path: Path):
    qrels = [("mill", "m", 1), ("bridge", "a1", 1), ("bridge", "z1", 3), ("bridge", "b", 0)]
    corpus = [{"_id": name, "text": text} for name, text in TEXTS.items()]
    folder = write_beir_folder(tmp_path / "beir", corpus, QUERIES, qrels)
    subset = open_data(folder).subsets[0]
    data, judgments, originals = merge_copies(subset.read(), subset.judgments)
    assert originals == {"z1": "a1", "c": "b"}
    assert judgments.grades == {"mill": {"m": 1}, "bridge": {"a1": 3, "b": 0}}
    # Both copies contain the answer, so one span remains.
    assert (data.evidence.query_ids, data.places, data.queries["id"][:]) == (
        ["mill", "bridge"],
        {},
        ["mill", "bridge"],
    )
    assert [span.slice(TEXTS[name]) for _, _, name, span in data.list_questions() if span] == [
        "in 1901",
        "in 1887",
    ]


def test_excerpts_of_copies_are_moved_to_one_document(tmp_path: Path):
    folder = write_folder(tmp_path / "beir")
    unmerged, merged = (
        read_evidence_data(open_data(folder), merge_copies=is_merged) for is_merged in (False, True)
    )
    assert ([*unmerged.documents], [*merged.documents]) == ([*TEXTS], ["m", "a1", "b"])
    texts = merged.documents
    assert [excerpt.span.slice(texts[excerpt.document]) for _, (excerpt,) in merged.questions] == [
        "in 1901",
        "in 1887",
    ]


def test_overlapping_spans_of_copies_are_merged():
    texts = {"a": "one two three", "b": "one two three", "d": "four"}
    questions = {
        "q": ("Q?", "a", Span(0, 7)),
        "q#2": ("Q?", "b", Span(4, 13)),
        "q#3": ("Q?", "d", Span(0, 4)),
        "r": ("R?", "a", Span(0, 3)),
        "r#2": ("R?", "b", Span(8, 13)),
    }
    places = {name: Place(name[0], 2 if name == "q#2" else 1) for name in questions}
    data = PositionData.from_questions(texts, questions, titles={"b": "T"})
    data = replace(data, places=places)
    merged, _, _ = merge_copies(data, Judgments.from_positions(data))
    rows = [
        (name, document, tuple(span)) for name, _, document, span in merged.list_questions() if span
    ]
    assert rows == [
        ("q", "a", (0, 13)),
        ("q#3", "d", (0, 4)),
        ("r", "a", (0, 3)),
        ("r#2", "a", (8, 13)),
    ]
    assert {name: (place.query, place.grade) for name, place in merged.places.items()} == {
        "q": ("q", 2), "q#3": ("q", 1), "r": ("r", 1), "r#2": ("r", 1),
    }  # fmt: skip
    assert merged.evidence.clusters == ("T", "", "T", "T")


def test_all_functions_report_copies(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    folder, target = write_folder(tmp_path / "beir"), {"language": "eng-Latn", "domain": "harbor"}
    count = "1 of 2 relevant documents has"
    imported = posir.import_data(folder, output=tmp_path / "kept", **target)
    merged = posir.import_data(folder, output=tmp_path / "merged", merge_copies=True, **target)
    assert (count in join_footer(imported), count in join_footer(merged)) == (True, False)
    assert [
        len(open_data(tmp_path / name).subsets[0].read().corpus) for name in ("kept", "merged")
    ] == [5, 3]
    assert [
        count in join_footer(posir.validate(tmp_path / name)) for name in ("kept", "merged")
    ] == [
        True,
        False,
    ]
    functions = {
        "stats": lambda name: posir.stats(tmp_path / name),
        "score": lambda name: posir.score(
            {"mill": {"m": 1.0}, "bridge": {"z1": 1.0}},
            data=tmp_path / name,
            name=name,
            output=tmp_path / "out",
        ),
        "task": lambda name: read_task(tmp_path / name),
    }
    for call_function in functions.values():
        for name, is_counted in (("kept", True), ("merged", False)):
            caplog.clear()
            with caplog.at_level(logging.WARNING):
                call_function(name)
            assert any(count in record.getMessage() for record in caplog.records) == is_counted


def read_task(folder: Path) -> None:
    task = PositionTask.from_folder(folder, name=f"Copies{folder.name}", language="eng-Latn")
    task.load_data()
    assert task.dataset[task.hf_subsets[0]]


@pytest.mark.parametrize("seed", range(12))
def test_scores_of_merged_copies_match_pytrec_eval(tmp_path: Path, seed: int):
    """Run and judgments are merged independently, with the highest score and grade per text."""
    rng = random.Random(seed)
    texts = {
        f"{rng.randrange(10**6):06}": f"Text {rng.randrange(6)} of some words." for _ in range(15)
    }
    queries = [f"q{number}" for number in range(4)]
    grades = {
        query: {name: rng.randrange(3) for name in rng.sample([*texts], 6)} for query in queries
    }
    run = {
        query: {name: rng.randrange(100) / 7 + place / 1e6 for place, name in enumerate(texts)}
        for query in queries
    }
    folder = write_beir_folder(
        tmp_path / "beir",
        [{"_id": name, "text": text} for name, text in texts.items()],
        [{"_id": query, "text": f"What is {query}?"} for query in queries],
        [(query, name, grade) for query, row in grades.items() for name, grade in row.items()],
    )

    def merge(rows: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        frame = pl.DataFrame(
            [(q, texts[name], value) for q, row in rows.items() for name, value in row.items()],
            orient="row",
        )
        highest = frame.group_by("column_0", "column_1").agg(pl.col("column_2").max())
        merged: dict[str, dict[str, Any]] = defaultdict(dict)
        for query, text, value in highest.iter_rows():
            merged[query][text] = value
        return merged

    evaluator = pytrec_eval.RelevanceEvaluator(merge(grades), {"ndcg_cut_10"})
    expected = np.mean([row["ndcg_cut_10"] for row in evaluator.evaluate(merge(run)).values()])
    scored = posir.score(run, data=folder, output=tmp_path / "out", merge_copies=True)
    assert scored.runs[0].ndcg_at_10 == pytest.approx(expected, abs=1e-6)
