"""A running index, asked for sentences of its documents: those that it lacks, cuts and divides, and
answers that are none.
"""

import html
import json
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import posir
from posir_inspect.live_index import (
    HEAD,
    HEAD_CHARACTERS,
    NOT_READ,
    READ,
    THIRDS,
    IndexedTexts,
    IndexInspection,
    judge_answers,
    plan_questions,
    summarize_recall,
)
from posir_inspect.questions import QuestionSet, Wording, ask_questions
from posir_score.alignment import AlignmentRules
from posir_score.collecting import FIRST_QUERIES, CollectionSettings
from posir_score.hits import Hit
from posir_significance.findings import ChangeState
from posir_significance.messages.texts import advise_index, describe_recall_change
from posir_tasks.base.errors import PosirError
from posir_tasks.values.read_part import ReadPart, WindowSource
from tests.plugins.posir_inspect.test_questions import collect
from tests.support.cli import invoke
from tests.support.probed_encoders import invent_texts

DOCUMENTS = {f"t{number}": text for number, text in enumerate(invent_texts(20, 30))}
PARTS = (slice(6), slice(6, None))
SETTINGS = CollectionSettings(k=3, order="score")


def find(query: str, texts: Mapping[str, str], k: int) -> list[str]:
    """Return the texts that have all words of a query: exact search without chance hits."""
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


def shares(inspection: IndexInspection, unit: str = "document") -> dict[str, float]:
    return {row.part: round(row.recall.value, 9) for row in inspection.rows if row.unit == unit}


def read_index(
    wordings: tuple[Wording, ...] = (Wording.RAREST_WORDS,), read: ReadPart | None = None
) -> IndexedTexts:
    questions = ask_questions(collect(*DOCUMENTS.values()), [100] * len(DOCUMENTS))
    known = read or ReadPart.all(WindowSource.GIVEN)
    return IndexedTexts("texts", "en", set(questions.documents), questions, wordings, known, "")


def test_heads_are_planned_before_a_sentence_of_each_third():
    questions = read_index().questions
    planned = plan_questions(questions, (Wording.RAREST_WORDS,))
    assert [(item.subset == HEAD, item.document) for item in planned[:8]] == [
        *((place == 0, "d0") for place in range(4)),
        *((place == 0, "d1") for place in range(4)),
    ]
    assert sorted(item.third for item in planned[1:4]) == [0, 1, 2]
    assert len(planned) == len(questions.documents) + len(questions.questions)
    assert questions.documents["d0"].startswith(planned[0].text)
    assert HEAD_CHARACTERS - 20 < len(planned[0].text) <= HEAD_CHARACTERS
    both = plan_questions(questions, (Wording.RAREST_WORDS, Wording.VERBATIM))
    assert [item.subset for item in both[:7]].count("verbatim") == 3


def test_an_index_of_the_first_halves_loses_the_tails(inspect):
    halves = {name: text[: len(text) // 2] for name, text in DOCUMENTS.items()}
    inspection = inspect(lambda query, k: find(query, halves, k))
    assert (inspection.documents, inspection.not_in_index) == (20, ())
    success = shares(inspection)
    assert (success["first third"], success["last third"]) == (1, 0)
    (change,) = inspection.changes
    assert (change.state, change.estimate.value) == (
        ChangeState.BETTER,
        pytest.approx(1),
    )
    assert describe_recall_change(change) in " ".join(str(inspection).split())
    assert not Path(inspection.unfinished).is_file()
    complete = inspect(lambda query, k: find(query, DOCUMENTS, k))
    assert set(shares(complete).values()) == {1}
    assert complete.changes[0].state is ChangeState.EQUIVALENT


def test_documents_that_an_index_lacks_are_named(inspect):
    lacking = {name: text for name, text in DOCUMENTS.items() if name not in ("t3", "t7")}
    tails = lacking | {"t5": DOCUMENTS["t5"][len(DOCUMENTS["t5"]) // 2 :]}
    inspection = inspect(lambda query, k: find(query, tails, k))
    assert sorted(inspection.not_in_index) == ["t3", "t7"]
    assert inspection.returned.value == pytest.approx(18 / 20)
    assert shares(inspection)["last third"] == 1
    assert {row.documents for row in inspection.rows} == {17}


def judge(
    texts: IndexedTexts,
    answer: Callable[[str, str], list[Hit]],
    rules: AlignmentRules | None = None,
) -> Any:
    """Judge answers to all questions, given document and text of each."""
    planned = plan_questions(texts.questions, texts.wordings)
    answers = {
        item.key: SimpleNamespace(
            hits=answer(item.document, item.sentence.of(DOCUMENTS[f"t{item.document[1:]}"]))
        )
        for item in planned
    }
    return judge_answers(
        texts, planned, SimpleNamespace(answers=answers), rules or AlignmentRules(), SETTINGS
    )


def test_a_chunk_counts_if_it_has_the_whole_sentence():
    texts = read_index()
    whole = judge(texts, lambda name, sentence: [Hit(f"{name}#4", 1.0, 1, sentence.upper())])
    assert whole.success["document"].all()
    assert whole.success["chunk"].all()
    # Two chunks that meet at white space in the sentence have it together; half of it is not
    # enough.
    cut = judge(
        texts,
        lambda name, sentence: [Hit(name, text=" ".join(sentence.split()[part])) for part in PARTS],
    )
    assert cut.success["chunk"].all()
    half = judge(texts, lambda name, sentence: [Hit(name, text=sentence[: len(sentence) // 2])])
    assert half.success["document"].all()
    assert not half.success["chunk"].any()
    places = judge(texts, lambda name, _: [Hit(name, start=0, end=10_000)])
    assert places.success["chunk"].all()
    ids = judge(texts, lambda name, _: [Hit(name)])
    assert ("chunk" in ids.success, ids.has_chunks) == (False, False)
    assert judge(texts, lambda name, _: [Hit(f"{name}#2")]).has_chunks
    other = judge(
        texts,
        lambda name, _: [
            Hit(name, text="What stands in no document."),
            *map(Hit, ("elsewhere", "d0")),
        ],
    )
    assert not other.success["chunk"].any()
    assert [re.findall(r"^\d+", problem.replace(",", "")) for problem in other.problems] == [
        [str(len(other.questions))]
    ] * 2
    wrong = judge(
        texts, lambda name, _: [Hit(name, start=9, end=3), Hit(name, start=10_000, end=10_001)]
    )
    assert not wrong.success["chunk"].any()
    # Two hits for every question, though three were asked for, are no choice of the question.
    assert [problem.split()[:4:3] for problem in wrong.problems] == [
        ["The", "2"],
        [str(2 * len(wrong.questions)), "are"],
    ]


def test_what_is_read_is_compared_with_what_is_not():
    # Of 100 tokens a document, the first 50; the sentence across the middle is not read whole.
    texts = read_index(read=ReadPart.first(50, WindowSource.GIVEN))
    twelfths = texts.locate_in_read()
    half = {
        item.id: item.sentence.end <= len(DOCUMENTS[f"t{item.document[1:]}"]) / 2
        for item in texts.questions.questions
    }
    assert {name: twelfth < 12 for name, twelfth in twelfths.items()} == half
    judged = judge(
        texts,
        lambda name, sentence: (
            [Hit(name)]
            if sentence in DOCUMENTS[f"t{name[1:]}"][: len(DOCUMENTS[f"t{name[1:]}"]) // 2]
            else []
        ),
    )
    rows, changes = summarize_recall(judged, twelfths)
    by_part = {row.part: (row.questions, row.recall.value) for row in rows}
    assert by_part[READ] == (sum(half.values()), pytest.approx(1))
    assert by_part[NOT_READ] == (len(half) - sum(half.values()), pytest.approx(0))
    assert [(change.subject.model, change.subject.baseline) for change in changes] == [
        (THIRDS[0], THIRDS[-1]),
        (READ, NOT_READ),
    ]
    assert read_index().locate_in_read() == {}


def test_a_difference_is_the_mean_of_those_within_documents():
    texts, rng = read_index(), np.random.default_rng(3)
    lost = {
        (f"d{number}", third) for number in range(20) for third in range(3) if rng.random() < 0.4
    }
    kept = tuple(
        item for item in texts.questions.questions if item.id.rpartition("-")[2] in ("0", "5", "9")
    )
    chosen = QuestionSet(
        texts.questions.documents, texts.questions.tokens, kept, texts.questions.languages
    )
    planned = plan_questions(chosen, texts.wordings)
    answers = {
        item.key: SimpleNamespace(
            hits=[]
            if (item.document, item.third) in lost and item.subset != HEAD
            else [Hit(item.document)]
        )
        for item in planned
    }
    judged = judge_answers(
        texts, planned, SimpleNamespace(answers=answers), AlignmentRules(), SETTINGS
    )
    rows, (change,) = summarize_recall(judged, {})
    differences = [
        ((f"d{number}", 2) in lost) - ((f"d{number}", 0) in lost) for number in range(20)
    ]
    assert change.estimate.value == pytest.approx(np.mean(differences))
    # Of one difference a document, CR2 is the usual standard error of a mean, here with a small
    # further variance.
    error = np.std(differences, ddof=1) / np.sqrt(20)
    assert error <= change.estimate.standard_error < 1.1 * error
    assert [row.recall.value for row in rows] == pytest.approx(
        [1 - np.mean([(f"d{number}", third) in lost for number in range(20)]) for third in range(3)]
    )


@pytest.mark.parametrize("answer", [lambda query, _: [query], lambda _query, _k: ["x1", "x2"]])
def test_unknown_ids_are_refused_after_the_first_questions(inspect, tmp_path: Path, answer):
    asked = list[str]()
    with pytest.raises(PosirError, match="no retrieved document"):
        inspect(lambda query, k: asked.append(query) or answer(query, k))
    assert len(asked) <= FIRST_QUERIES + SETTINGS.concurrency
    assert not [*(tmp_path / "answers").glob("*.jsonl")]


def test_questions_without_an_answer_are_counted_and_asked_again(inspect):
    asked, broken = list[str](), [True]

    def search(query: str, k: int) -> list[Any]:
        asked.append(query)
        if broken[0] and len(asked) in (12, 15, 18):
            return [("t1", float("nan"))]
        return find(query, DOCUMENTS, k)

    first = inspect(search, concurrency=1, max_requests=40)
    assert (first.answered, first.planned, len(asked)) == (37, 40, 40)
    assert re.match("3 questions .*nan", first.problems[0])
    assert Path(first.unfinished).is_file()
    broken[0] = False
    second = inspect(search, concurrency=1, max_requests=40)
    assert (second.answered, second.problems, len(asked)) == (40, (), 43)
    assert not Path(first.unfinished).exists()
    # What is finished is asked anew.
    assert inspect(search, concurrency=1, max_requests=20).answered == 20
    assert len(asked) == 63


def test_time_is_limited_and_what_was_answered_is_kept(inspect):
    asked, hangs = list[str](), [True]

    def search(query: str, k: int) -> list[str]:
        asked.append(query)
        if hangs[0] and len(asked) > 15:
            time.sleep(30)
        return find(query, DOCUMENTS, k)

    started = time.monotonic()
    partial = inspect(search, concurrency=1, max_requests=30, max_time=2)
    assert time.monotonic() - started < 15
    assert (partial.answered, partial.planned) == (15, 30)
    hangs[0] = False
    assert inspect(search, concurrency=1, max_requests=30).answered == 30
    assert len(asked) == 16 + 15
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


def test_the_command_prints_what_the_function_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    texts = write_texts(tmp_path / "texts")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POSIR_CACHE", str(tmp_path / "cache"))
    Path("live_index_by_name.py").write_text("def search(query, k):\n    return ['t1', 't2']\n")
    options = "--retriever live_index_by_name:search --max-requests 20 --k 1 --format json --quiet"
    shown = json.loads(invoke("inspect", texts, *options.split()))
    assert (shown["planned"], shown["documents"], shown["k"]) == (20, 5, 1)
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
    "form",
    ["/srv/kb/{}.txt", "{}.txt", "https://example.org/kb/{}.html", r"C:\kb\{}.md", "kb/{}.txt#0"],
)
def test_hits_are_named_by_their_files(inspect, form: str):
    inspection = inspect(lambda query, k: [form.format(name) for name in find(query, DOCUMENTS, k)])
    assert set(shares(inspection).values()) == {1}
    assert any("matched by file name" in problem for problem in inspection.problems)
    # Without matching, no hit is a document.
    assert not any("are no document" in problem for problem in inspection.problems)


def test_files_that_fit_one_document_are_refused(inspect):
    folders = iter(("old", "new") * 1000)
    with pytest.raises(PosirError, match="both match document"):
        inspect(
            lambda query, k: [
                f"/kb/{next(folders)}/{name}.txt" for name in find(query, DOCUMENTS, k)
            ]
        )
    mended = inspect(lambda query, k: find(query, DOCUMENTS, k))
    assert set(shares(mended).values()) == {1}


def test_the_page_has_the_finding_bars_by_third_and_what_to_do(inspect):
    ends = [{name: text[: len(text) // 2] for name, text in DOCUMENTS.items()}]
    inspection = inspect(lambda query, k: find(query, {**DOCUMENTS, **ends[0]}, k))
    (strip,) = [strip for section in inspection.sections() for strip in section.position_charts]
    by_part = shares(inspection)
    assert [round(part.value, 9) for part in strip.ndcg_by_part] == [by_part[x] for x in THIRDS]
    assert strip.finding == describe_recall_change(inspection.changes[0])
    assert dict(strip.facts())["What to do"].startswith("Index chunks")
    assert "a function, k = 10; hits: ids" in inspection.reading
    first, last = (f"{by_part[part]:.0%}" for part in (THIRDS[0], THIRDS[-1]))
    assert first in inspection.page_title
    assert last in inspection.page_title
    assert inspection.to_html().count(strip.finding) == 1


@pytest.mark.parametrize("number", [1, 2, 4])
def test_few_questions_still_advise_chunks(inspect, number: int):
    inspection = inspect(lambda query, k: find(query, DOCUMENTS, k), max_requests=number)
    assert inspection.answered == number
    advice = advise_index(None).replace("`", "")
    for page in (str(inspection), inspection.to_html()):
        shown = re.sub("<[^>]*>", "", html.unescape(page)).replace("`", "")
        assert advice in " ".join(shown.split())
