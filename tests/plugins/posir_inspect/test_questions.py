"""Pseudo-questions quote their text, at controlled positions."""

import numpy as np
import pytest

from posir_data.texts import CollectedText, TextCollection
from posir_inspect.questions import (
    Wording,
    ask_questions,
    build_question_task,
    keep_rarest_words,
    measure_unread_baseline,
)
from posir_tasks.values.read_part import ReadPart, WindowSource
from posir_tasks.values.schemes import RelativePositions
from tests.support.probed_encoders import invent_texts


def collect(*texts: str) -> TextCollection:
    sources = tuple(CollectedText(f"{row}.txt", text, "en") for row, text in enumerate(texts))
    return TextCollection("texts", sources, (), "en", {"en": len(texts)}, len(texts))


def test_spans_quote_the_question_and_every_tenth_is_asked_about():
    questions = ask_questions(collect(*invent_texts(8, 40)), [100] * 8)
    data = questions.build_data(Wording.VERBATIM)
    text, evidence = dict(zip(data.corpus["id"], data.corpus["text"], strict=True)), data.evidence
    places = zip(evidence.document_ids, evidence.starts, evidence.ends, strict=True)
    assert [text[name][start:end] for name, start, end in places] == data.queries["text"][:]
    cells = RelativePositions(bins=10).cells(evidence)
    assert np.bincount(cells.position, minlength=10).tolist() == [8] * 10
    assert [int(name.partition("-")[2]) for name in evidence.query_ids] == cells.position.tolist()
    first = questions.first(3)
    assert (len(first.documents), first.questions) == (3, questions.questions[:30])


def test_repeated_and_short_sentences_are_not_asked_about():
    first, second = invent_texts(2, 3)
    header = "This paragraph is printed in every text of the collection."
    collection = collect(f"{header} {first} Too short.", f"{header} {second}")
    asked = {
        question.wordings[Wording.VERBATIM]
        for question in ask_questions(collection, [9, 9]).questions
    }
    assert asked
    assert not asked & {header, "Too short."}


def test_the_rarest_words_are_kept_in_their_order():
    counts = {"the": 9, "of": 8, "in": 8}
    assert keep_rarest_words("The red barge sank.", counts) == "red barge sank"
    assert (
        keep_rarest_words("The barge of the miller sank in the red river.", counts)
        == "barge miller sank red river"
    )
    assert keep_rarest_words("駅前の店は閉まった。", {}) != ""


#: Two topics of eight words each, in ten sentences of a text.
TOPICS = (
    "alpha beta gamma delta epsilon zeta eta theta",
    "iron zinc copper lead nickel cobalt silver gold",
)
FIRST_30 = ReadPart.first(30, WindowSource.MEASURED)


def build_task(*texts: str):
    collection = collect(*texts)
    questions = ask_questions(collection, [len(text.text.split()) for text in collection.texts])
    task = build_question_task("texts", "en", questions, Wording.VERBATIM)
    task.load_data()
    return task


def write_text(topic: str) -> str:
    words = topic.split()
    return " ".join(
        f"Number {number} {' '.join(words[: number % 5 + 3])} {words[-1]}." for number in range(10)
    )


def test_what_is_read_of_a_text_leads_to_its_unread_sentences():
    task = build_task(*map(write_text, TOPICS))
    assert measure_unread_baseline(task, ReadPart.first(10_000, WindowSource.MEASURED)) is None, (
        "everything is read"
    )
    baseline = measure_unread_baseline(task, FIRST_30)
    assert baseline.shared_words == 1
    assert baseline.chance == pytest.approx((1 + 1 / 1.58496) / 2, abs=1e-4)
    # Words of other topics lead nowhere.
    texts = [write_text(topic).partition(" Number 5")[0] for topic in TOPICS]
    swapped = [
        f"{start} {write_text(other)}" for start, other in zip(texts, reversed(TOPICS), strict=True)
    ]
    assert measure_unread_baseline(build_task(*swapped), FIRST_30).shared_words < 0.8
