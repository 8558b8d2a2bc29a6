"""Generate pseudo-questions, and measure BM25 on them."""

import numpy as np
import pytest

from posir_data.texts import CollectedText, TextCollection
from posir_inspect.questions import (
    Wording,
    build_question_task,
    generate_questions,
    keep_rarest_words,
    measure_unread_baseline,
)
from posir_tasks.values.read_part import ReadPart, WindowSource
from posir_tasks.values.schemes import RelativePositions
from tests.support.probed_encoders import invent_texts


def collect(*texts: str) -> TextCollection:
    collected = tuple(CollectedText(f"{row}.txt", text, "en") for row, text in enumerate(texts))
    return TextCollection("texts", collected, (), "en", {"en": len(texts)}, len(texts))


def test_one_question_per_tenth_with_its_span():
    questions = generate_questions(collect(*invent_texts(8, 40)), [100] * 8)
    data = questions.build_data(Wording.VERBATIM)
    texts = dict(zip(data.corpus["id"], data.corpus["text"], strict=True))
    evidence = data.evidence
    spans = zip(evidence.document_ids, evidence.starts, evidence.ends, strict=True)
    assert [texts[name][start:end] for name, start, end in spans] == data.queries["text"][:]
    cells = RelativePositions(bins=10).cells(evidence)
    assert np.bincount(cells.position, minlength=10).tolist() == [8] * 10
    assert [int(name.partition("-")[2]) for name in evidence.query_ids] == cells.position.tolist()
    selection = questions.select_first(3)
    assert (len(selection.documents), selection.questions) == (3, questions.questions[:30])


def test_repeated_and_short_sentences_are_skipped():
    first, second = invent_texts(2, 3)
    header = "This paragraph is printed in every text of the collection."
    collection = collect(f"{header} {first} Too short.", f"{header} {second}")
    sentences = {
        question.wordings[Wording.VERBATIM]
        for question in generate_questions(collection, [9, 9]).questions
    }
    assert sentences
    assert not sentences & {header, "Too short."}


def test_rarest_words_keep_their_order():
    counts = {"the": 9, "of": 8, "in": 8}
    assert keep_rarest_words("The red barge sank.", counts) == "red barge sank"
    assert (
        keep_rarest_words("The barge of the miller sank in the red river.", counts)
        == "barge miller sank red river"
    )
    assert keep_rarest_words("駅前の店は閉まった。", {}) != ""


#: Words of two texts. A text has ten sentences.
TOPICS = (
    "alpha beta gamma delta epsilon zeta eta theta",
    "iron zinc copper lead nickel cobalt silver gold",
)
FIRST_30 = ReadPart.first(30, WindowSource.MEASURED)


def build_task(*texts: str):
    collection = collect(*texts)
    questions = generate_questions(
        collection, [len(text.text.split()) for text in collection.texts]
    )
    task = build_question_task("texts", "en", questions, Wording.VERBATIM)
    task.load_data()
    return task


def write_text(topic: str) -> str:
    words = topic.split()
    return " ".join(
        f"Number {number} {' '.join(words[: number % 5 + 3])} {words[-1]}." for number in range(10)
    )


def test_unread_baseline_searches_the_read_part():
    task = build_task(*map(write_text, TOPICS))
    assert measure_unread_baseline(task, ReadPart.first(10_000, WindowSource.MEASURED)) is None
    baseline = measure_unread_baseline(task, FIRST_30)
    assert baseline.shared_words == 1
    assert baseline.chance == pytest.approx((1 + 1 / 1.58496) / 2, abs=1e-4)
    # If the unread part is about the other topic, BM25 does not find it.
    starts = [write_text(topic).partition(" Number 5")[0] for topic in TOPICS]
    texts = [
        f"{start} {write_text(topic)}"
        for start, topic in zip(starts, reversed(TOPICS), strict=True)
    ]
    assert measure_unread_baseline(build_task(*texts), FIRST_30).shared_words < 0.8
