"""Inspect an index: missing, truncated and chunked documents, and invalid answers."""

import html
import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import posir
from posir_inspect.indexed_texts import (
    MAX_OPENING_CHARACTERS,
    OPENING,
    IndexedTexts,
    plan_questions,
)
from posir_inspect.live_index import (
    THIRDS,
    TRUNCATED,
    WITHIN_WINDOW,
    IndexInspection,
    judge_answers,
    summarize_recall,
)
from posir_inspect.questions import Wording, generate_questions
from posir_score.alignment import AlignmentRules
from posir_score.collecting import FIRST_QUERIES, CollectionSettings
from posir_score.hits import Hit
from posir_significance.findings import ChangeState
from posir_significance.messages.texts import advise_index, describe_recall_change
from posir_tasks.base.errors import PosirError
from posir_tasks.display.labels import join_steps
from posir_tasks.values.read_part import ReadPart, WindowSource
from tests.plugins.posir_inspect.test_questions import collect
from tests.support.cli import invoke
from tests.support.probed_encoders import invent_texts

DOCUMENTS = {f"t{number}": text for number, text in enumerate(invent_texts(20, 30))}
#: Slices that split the words of a sentence into two parts.
HALVES = (slice(6), slice(6, None))
SETTINGS = CollectionSettings(k=3, order="score")


def find(query: str, texts: Mapping[str, str], k: int) -> list[str]:
    """Return the first k texts that contain all words of a query."""
    words = set(re.findall(r"\w+", query))
    return [name for name, text in texts.items() if words <= set(re.findall(r"\w+", text))][:k]


def write_texts(folder: Path) -> Path:
    folder.mkdir()
    for name, text in DOCUMENTS.items():
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def inspect(tmp_path: Path) -> Callable[..., IndexInspection]:
    texts = write_texts(tmp_path / "texts")
    return lambda search, **options: posir.inspect(
        texts, retriever=search, output=tmp_path / "answers", **options
    )


def list_recall(inspection: IndexInspection, unit: str = "document") -> dict[str, float]:
    """Return recall by part of the documents."""
    return {row.part: round(row.recall.value, 9) for row in inspection.rows if row.unit == unit}


def build_index(window: ReadPart | None = None) -> IndexedTexts:
    questions = generate_questions(collect(*DOCUMENTS.values()), [100] * len(DOCUMENTS))
    wordings = (Wording.RAREST_WORDS,)
    window = window or ReadPart.all(WindowSource.GIVEN)
    return IndexedTexts("texts", "en", set(questions.documents), questions, wordings, window, "")


def test_opening_words_are_planned_before_one_sentence_per_third():
    questions = build_index().questions
    planned = plan_questions(questions, (Wording.RAREST_WORDS,))
    assert [(item.subset == OPENING, item.document) for item in planned[:8]] == [
        *((number == 0, "d0") for number in range(4)),
        *((number == 0, "d1") for number in range(4)),
    ]
    assert sorted(item.third for item in planned[1:4]) == [0, 1, 2]
    assert len(planned) == len(questions.documents) + len(questions.questions)
    assert questions.documents["d0"].startswith(planned[0].text)
    assert MAX_OPENING_CHARACTERS - 20 < len(planned[0].text) <= MAX_OPENING_CHARACTERS
    planned = plan_questions(questions, (Wording.RAREST_WORDS, Wording.VERBATIM))
    assert [item.subset for item in planned[:7]].count("verbatim") == 3


def test_index_of_first_halves_has_no_tail_recall(inspect):
    halves = {name: text[: len(text) // 2] for name, text in DOCUMENTS.items()}
    inspection = inspect(lambda query, k: find(query, halves, k))
    assert (inspection.documents, inspection.not_in_index) == (20, ())
    recall = list_recall(inspection)
    assert (recall["first third"], recall["last third"]) == (1, 0)
    (change,) = inspection.changes
    assert (change.state, change.estimate.value) == (
        ChangeState.BETTER,
        pytest.approx(1),
    )
    assert describe_recall_change(change) in " ".join(str(inspection).split())
    assert not Path(inspection.unfinished).is_file()
    complete = inspect(lambda query, k: find(query, DOCUMENTS, k))
    assert set(list_recall(complete).values()) == {1}
    assert complete.changes[0].state is ChangeState.EQUIVALENT


def test_missing_documents_are_listed(inspect):
    texts = {name: text for name, text in DOCUMENTS.items() if name not in ("t3", "t7")}
    # Without its opening words, t5 is excluded from recall.
    texts["t5"] = DOCUMENTS["t5"][len(DOCUMENTS["t5"]) // 2 :]
    inspection = inspect(lambda query, k: find(query, texts, k))
    assert sorted(inspection.not_in_index) == ["t3", "t7"]
    assert inspection.returned.value == pytest.approx(18 / 20)
    assert list_recall(inspection)["last third"] == 1
    assert {row.documents for row in inspection.rows} == {17}


def judge(
    texts: IndexedTexts,
    answer: Callable[[str, str], list[Hit]],
    rules: AlignmentRules | None = None,
) -> Any:
    """Judge the answers to all questions. `answer` gets a document id and a sentence."""
    planned = plan_questions(texts.questions, texts.wordings)
    answers = {
        item.key: SimpleNamespace(
            hits=answer(item.document, item.sentence.slice(DOCUMENTS[f"t{item.document[1:]}"]))
        )
        for item in planned
    }
    return judge_answers(
        texts, planned, SimpleNamespace(answers=answers), rules or AlignmentRules(), SETTINGS
    )


def test_chunk_counts_only_with_the_whole_sentence():
    texts = build_index()
    whole = judge(texts, lambda name, sentence: [Hit(f"{name}#4", 1.0, 1, sentence.upper())])
    assert whole.success["document"].all()
    assert whole.success["chunk"].all()
    # Two chunks that are split within the sentence contain it together.
    split = judge(
        texts,
        lambda name, sentence: [
            Hit(name, text=" ".join(sentence.split()[part])) for part in HALVES
        ],
    )
    assert split.success["chunk"].all()
    half = judge(texts, lambda name, sentence: [Hit(name, text=sentence[: len(sentence) // 2])])
    assert half.success["document"].all()
    assert not half.success["chunk"].any()
    offsets = judge(texts, lambda name, _: [Hit(name, start=0, end=10_000)])
    assert offsets.success["chunk"].all()
    ids = judge(texts, lambda name, _: [Hit(name)])
    assert ("chunk" in ids.success, ids.has_chunks) == (False, False)
    assert judge(texts, lambda name, _: [Hit(f"{name}#2")]).has_chunks
    unknown_hits = judge(
        texts,
        lambda name, _: [
            Hit(name, text="A text that is in no document."),
            *map(Hit, ("elsewhere", "d0")),
        ],
    )
    assert not unknown_hits.success["chunk"].any()
    counts = [re.findall(r"^\d+", text.replace(",", "")) for text in unknown_hits.problems]
    assert counts == [[str(len(unknown_hits.questions))]] * 2
    invalid_offsets = judge(
        texts, lambda name, _: [Hit(name, start=9, end=3), Hit(name, start=10_000, end=10_001)]
    )
    assert not invalid_offsets.success["chunk"].any()
    # Every question gets two hits instead of k = 3, which suggests a fixed limit.
    assert [problem.split()[:4:3] for problem in invalid_offsets.problems] == [
        ["The", "2"],
        [str(2 * len(invalid_offsets.questions)), "are"],
    ]


def test_recall_within_and_beyond_the_window():
    # The embedder reads the first 50 of 100 tokens. The sentence across the boundary is truncated.
    texts = build_index(ReadPart.first(50, WindowSource.GIVEN))
    twelfths = texts.locate_in_window()
    in_first_half = {
        item.id: item.sentence.end <= len(DOCUMENTS[f"t{item.document[1:]}"]) / 2
        for item in texts.questions.questions
    }
    assert {name: twelfth < 12 for name, twelfth in twelfths.items()} == in_first_half
    judgments = judge(
        texts,
        lambda name, sentence: (
            [Hit(name)]
            if sentence in DOCUMENTS[f"t{name[1:]}"][: len(DOCUMENTS[f"t{name[1:]}"]) // 2]
            else []
        ),
    )
    rows, changes = summarize_recall(judgments, twelfths)
    by_part = {row.part: (row.questions, row.recall.value) for row in rows}
    read_count = sum(in_first_half.values())
    assert by_part[WITHIN_WINDOW] == (read_count, pytest.approx(1))
    assert by_part[TRUNCATED] == (len(in_first_half) - read_count, pytest.approx(0))
    assert [(change.subject.model, change.subject.baseline) for change in changes] == [
        (THIRDS[0], THIRDS[-1]),
        (WITHIN_WINDOW, TRUNCATED),
    ]
    assert build_index().locate_in_window() == {}


def test_difference_is_the_mean_within_documents():
    texts = build_index()
    rng = np.random.default_rng(3)
    missing_thirds = {
        (f"d{number}", third) for number in range(20) for third in range(3) if rng.random() < 0.4
    }
    questions = tuple(
        item for item in texts.questions.questions if item.id.rpartition("-")[2] in ("0", "5", "9")
    )
    planned = plan_questions(replace(texts.questions, questions=questions), texts.wordings)
    answers = {
        item.key: SimpleNamespace(
            hits=[]
            if (item.document, item.third) in missing_thirds and item.subset != OPENING
            else [Hit(item.document)]
        )
        for item in planned
    }
    judgments = judge_answers(
        texts, planned, SimpleNamespace(answers=answers), AlignmentRules(), SETTINGS
    )
    rows, (change,) = summarize_recall(judgments, {})
    is_missing = np.array(
        [[(f"d{number}", third) in missing_thirds for third in range(3)] for number in range(20)],
        np.int64,
    )
    differences = is_missing[:, 2] - is_missing[:, 0]
    assert change.estimate.value == pytest.approx(np.mean(differences))
    # With one difference per document, the CR2 standard error is close to that of a mean.
    error = np.std(differences, ddof=1) / np.sqrt(20)
    assert error <= change.estimate.standard_error < 1.1 * error
    assert [row.recall.value for row in rows] == pytest.approx(1 - is_missing.mean(axis=0))


@pytest.mark.parametrize("answer", [lambda query, _: [query], lambda _query, _k: ["x1", "x2"]])
def test_unknown_ids_raise_after_the_first_questions(inspect, tmp_path: Path, answer):
    queries = list[str]()
    with pytest.raises(PosirError, match="no retrieved document"):
        inspect(lambda query, k: queries.append(query) or answer(query, k))
    assert len(queries) <= FIRST_QUERIES + SETTINGS.concurrency
    assert not [*(tmp_path / "answers").glob("*.jsonl")]


def test_failed_questions_are_counted_and_retried(inspect):
    queries = list[str]()

    def search(query: str, k: int) -> list[Any]:
        queries.append(query)
        if len(queries) in (12, 15, 18):
            return [("t1", float("nan"))]
        return find(query, DOCUMENTS, k)

    first = inspect(search, concurrency=1, max_requests=40)
    assert (first.answered, first.planned, len(queries)) == (37, 40, 40)
    assert re.match("3 questions .*nan", first.problems[0])
    assert Path(first.unfinished).is_file()
    second = inspect(search, concurrency=1, max_requests=40)
    assert (second.answered, second.problems, len(queries)) == (40, (), 43)
    assert not Path(first.unfinished).exists()
    # After a complete inspection, all questions are asked again.
    assert inspect(search, concurrency=1, max_requests=20).answered == 20
    assert len(queries) == 63


def test_time_limit_keeps_earlier_answers(inspect):
    queries = list[str]()
    hangs = [True]

    def search(query: str, k: int) -> list[str]:
        queries.append(query)
        if hangs[0] and len(queries) > 15:
            time.sleep(30)
        return find(query, DOCUMENTS, k)

    started = time.monotonic()
    partial = inspect(search, concurrency=1, max_requests=30, max_time=2)
    assert time.monotonic() - started < 15
    assert (partial.answered, partial.planned) == (15, 30)
    hangs[0] = False
    assert inspect(search, concurrency=1, max_requests=30).answered == 30
    assert len(queries) == 16 + 15
    hangs[0] = True
    with pytest.raises(PosirError, match="max-time"):
        inspect(search, concurrency=1, max_requests=9, max_time=0.2)


def test_questions_are_written_with_their_spans(inspect, tmp_path: Path):
    options = {"max_requests": 60, "write_questions": tmp_path / "questions"}
    inspection = inspect(lambda query, k: find(query, DOCUMENTS, k), **options)
    (folder,) = inspection.written
    rows = posir.open_data(folder).to_polars().to_dicts()
    assert len(rows) == 45 == sum(row.questions for row in inspection.rows)
    for row in rows:
        sentence = DOCUMENTS[row["document_id"]][row["start"] : row["end"]]
        assert set(row["query"].split()) <= set(re.findall(r"\w+", sentence))
        assert sentence[-1] == "."
    assert posir.validate(tmp_path / "questions").exit_status == 0
    assert inspect(lambda query, k: find(query, DOCUMENTS, k), **options).written == (folder,)
    with pytest.raises(PosirError, match="already exists"):
        inspect(lambda query, k: find(query, DOCUMENTS, k), **options | {"max_requests": 30})


def test_command_prints_the_result_of_the_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    texts = write_texts(tmp_path / "texts")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POSIR_CACHE", str(tmp_path / "cache"))
    Path("live_index_by_name.py").write_text("def search(query, k):\n    return ['t1', 't2']\n")
    options = "--retriever live_index_by_name:search --max-requests 20 --k 1 --format json --quiet"
    values = json.loads(invoke("inspect", texts, *options.split()))
    assert (values["planned"], values["documents"], values["k"]) == (20, 5, 1)
    for arguments in (
        {"model": texts},
        {"model": "x", "texts": texts, "retriever": find},
        {"retriever": find},
    ):
        with pytest.raises(PosirError, match="retriever"):
            posir.inspect(**arguments)
    with pytest.raises(PosirError, match="max-time"):
        posir.inspect("x", texts, max_time=3)


@pytest.mark.parametrize(
    "template",
    [
        "https://example.org/kb/{}.html",
        # Other names are matched in `tests/plugins/posir_score/test_document_names.py`, too.
        *(
            pytest.param(template, marks=pytest.mark.slow)
            for template in ("/srv/kb/{}.txt", "{}.txt", r"C:\kb\{}.md", "kb/{}.txt#0")
        ),
    ],
)
def test_hits_are_matched_by_file_name(inspect, template: str):
    inspection = inspect(
        lambda query, k: [template.format(name) for name in find(query, DOCUMENTS, k)]
    )
    assert set(list_recall(inspection).values()) == {1}
    assert any("by file name, for example" in problem for problem in inspection.problems)
    assert not any("are not documents" in problem for problem in inspection.problems)


def test_ambiguous_file_names_raise(inspect):
    folders = iter(("old", "new") * 1000)
    with pytest.raises(PosirError, match="both match document"):
        inspect(
            lambda query, k: [
                f"/kb/{next(folders)}/{name}.txt" for name in find(query, DOCUMENTS, k)
            ]
        )
    inspection = inspect(lambda query, k: find(query, DOCUMENTS, k))
    assert set(list_recall(inspection).values()) == {1}


def test_page_shows_finding_bars_and_advice(inspect):
    halves = {name: text[: len(text) // 2] for name, text in DOCUMENTS.items()}
    inspection = inspect(lambda query, k: find(query, halves, k))
    (chart,) = [chart for section in inspection.sections() for chart in section.position_charts]
    recall = list_recall(inspection)
    assert [round(part.value, 9) for part in chart.ndcg_by_part] == [recall[x] for x in THIRDS]
    assert chart.finding == describe_recall_change(inspection.changes[0])
    assert chart.steps[0].startswith("Index chunks")
    assert "a function, k = 10; hits: ids" in inspection.reading
    for third in (THIRDS[0], THIRDS[-1]):
        assert f"{recall[third]:.0%}" in inspection.page_title
    assert inspection.to_html().count(chart.finding) == 1


@pytest.mark.parametrize("count", [1, 2, 4])
def test_advice_with_few_questions(inspect, count: int):
    inspection = inspect(lambda query, k: find(query, DOCUMENTS, k), max_requests=count)
    assert inspection.answered == count
    advice = join_steps(advise_index(None)).replace("`", "")
    for output in (str(inspection), inspection.to_html()):
        text = re.sub("<[^>]*>", "", html.unescape(output)).replace("`", "")
        assert advice in " ".join(text.split())
