"""Pseudo-questions quote their text, at controlled positions."""

import numpy as np
import pytest

from posir_data.texts import CollectedText, TextCollection
from posir_inspect.questions import Wording, ask_questions, keep_rarest_words
from posir_tasks.schemes import RelativePositions
from tests.support.probed_encoders import invent_texts


def collect(*texts: str) -> TextCollection:
    sources = tuple(CollectedText(f"{row}.txt", text, "en") for row, text in enumerate(texts))
    return TextCollection("texts", sources, (), "en", {"en": len(texts)}, len(texts))


def test_spans_quote_the_question_and_every_tenth_is_asked_about():
    texts = invent_texts(8, 40)
    questions = ask_questions(collect(*texts), [100] * 8)
    data = questions.build_data(Wording.VERBATIM)
    text = dict(zip(data.corpus["id"], data.corpus["text"], strict=True))
    evidence = data.evidence
    quoted = [
        text[name][start:end] for name, start, end in zip(evidence.document_ids, evidence.starts, evidence.ends, strict=True)
    ]
    assert quoted == data.queries["text"][:]
    cells = RelativePositions(bins=10).cells(evidence)
    assert np.bincount(cells.position, minlength=10).tolist() == [8] * 10
    assert [int(name.partition("-")[2]) for name in evidence.query_ids] == cells.position.tolist()


def test_the_first_texts_have_their_own_questions():
    questions = ask_questions(collect(*invent_texts(20, 40)), [100] * 20)
    first = questions.first(6)
    assert (len(first.documents), len(first.questions)) == (6, 60)
    assert first.questions == questions.questions[:60]


def test_repeated_and_short_sentences_are_not_asked_about():
    first, second = invent_texts(2, 3)
    header = "This paragraph is printed in every text of the collection."
    collection = collect(f"{header} {first} Too short.", f"{header} {second}")
    asked = {question.wordings[Wording.VERBATIM] for question in ask_questions(collection, [9, 9]).questions}
    assert asked
    assert not asked & {header, "Too short."}


@pytest.mark.parametrize(
    ("sentence", "kept"),
    [
        ("The red barge sank.", "red barge sank"),
        ("The barge of the miller sank in the red river.", "barge miller sank red river"),
    ],
)
def test_the_rarest_words_are_kept_in_their_order(sentence: str, kept: str):
    assert keep_rarest_words(sentence, {"the": 9, "of": 8, "in": 8}) == kept
    assert keep_rarest_words("駅前の店は閉まった。", {}) != ""
