"""Sentences that are never read, found by the words that they share with what is read."""

import pytest

from posir_inspect.questions import Wording, ask_questions, build_question_task, measure_unread_baseline
from posir_tasks.read_part import KnownBy, ReadPart
from tests.plugins.posir_inspect.test_questions import collect

#: Two topics of eight words each, in ten sentences of a text.
TOPICS = ("alpha beta gamma delta epsilon zeta eta theta", "iron zinc copper lead nickel cobalt silver gold")


FIRST_30 = ReadPart.first(30, KnownBy.MEASURED)


def build_task(*texts: str):
    collection = collect(*texts)
    questions = ask_questions(collection, [len(text.text.split()) for text in collection.texts])
    task = build_question_task("texts", "en", questions, Wording.VERBATIM)
    task.load_data()
    return task


def write_text(topic: str) -> str:
    words = topic.split()
    return " ".join(f"Number {number} {' '.join(words[: number % 5 + 3])} {words[-1]}." for number in range(10))


def test_what_is_read_of_a_text_leads_to_its_unread_sentences():
    task = build_task(*map(write_text, TOPICS))
    assert measure_unread_baseline(task, ReadPart.first(10_000, KnownBy.MEASURED)) is None, "everything is read"
    baseline = measure_unread_baseline(task, FIRST_30)
    assert baseline.shared_words == 1
    assert baseline.chance == pytest.approx((1 + 1 / 1.58496) / 2, abs=1e-4)


def test_nothing_is_found_by_words_of_other_topics():
    texts = [write_text(topic).partition(" Number 5")[0] for topic in TOPICS]
    swapped = [f"{start} {write_text(other)}" for start, other in zip(texts, reversed(TOPICS), strict=True)]
    baseline = measure_unread_baseline(build_task(*swapped), FIRST_30)
    assert baseline.shared_words < 0.8
