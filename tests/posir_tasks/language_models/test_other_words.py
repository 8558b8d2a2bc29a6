"""Paraphrased questions, compared with the pairwise definition of stems, exhaustive search, and a
disobedient language model.
"""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from posir_inspect.questions import (
    Wording,
    build_question_task,
    generate_questions,
    measure_word_baseline,
)
from posir_probe.controls import order_blind
from posir_tasks.base.errors import PosirError
from posir_tasks.language_models.asking import LanguageModel
from posir_tasks.language_models.call_log import CallLog
from posir_tasks.language_models.other_words import (
    EmbedderWriter,
    LanguageModelWriter,
    WritingRequest,
    build_vocabulary,
    choose_nearest,
    find_common_words,
    find_shared_words,
    find_stems,
    open_writer,
)
from posir_tasks.language_models.settings import LanguageModelSettings
from posir_tasks.text.words import find_terms
from tests.plugins.posir_inspect.test_questions import collect
from tests.support.human_answers import Truth
from tests.support.language_model_server import NO_FAILURES, serve_language_model

LETTERS = st.text("abcdeé", min_size=1, max_size=8)


def share_stem(first: str, second: str) -> bool:
    """Compare two words according to the module's docstring."""
    if first == second or (min(len(first), len(second)) >= 4 and first[:4] == second[:4]):
        return True
    return all(3 <= len(word) <= 5 for word in (first, second)) and first[:3] == second[:3]


@given(first=LETTERS, second=LETTERS)
@example("cat", "cats")
@example("house", "housing")
@example("the", "theory")
def test_stems_match_the_definition(first, second):
    assert (not find_stems(first).isdisjoint(find_stems(second))) == share_stem(first, second)


@settings(deadline=None, max_examples=50)
@given(
    sentence=st.lists(LETTERS, min_size=3, max_size=8),
    rest=st.lists(LETTERS, max_size=8),
    vocabulary=st.lists(
        st.text("abcdefg", min_size=3, max_size=7), min_size=4, max_size=60, unique=True
    ),
)
def test_a_question_shares_no_stem_with_excluded_texts(sentence, rest, vocabulary):
    text = " ".join([*sentence, *rest]).upper()
    writer = EmbedderWriter("words", order_blind, vocabulary, words=4)
    (question,) = writer.write([WritingRequest(" ".join(sentence), (text,), "en")])
    allowed = [
        word
        for word in vocabulary
        if not any(share_stem(word, other) for other in find_terms(text))
    ]
    question_words = set((question or "").split())
    assert question_words <= set(allowed)
    assert len(question_words) == 4 if question else len(allowed) < 4


def test_words_are_chosen_greedily_by_their_sum():
    rng = np.random.default_rng(2)
    vectors = rng.standard_normal((30, 6))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    target = rng.standard_normal(6)
    rows: list[int] = []
    for _ in range(5):
        sums = {row: vectors[[*rows, row]].sum(axis=0) for row in range(30) if row not in rows}
        rows.append(max(sums, key=lambda row: sums[row] @ target / np.linalg.norm(sums[row])))
    assert choose_nearest(target, vectors, 5) == rows


def test_the_vocabulary_excludes_common_and_rare_words():
    texts = [f"the mill {'river' if row < 3 else 'tower'} text{row} 1901 of" for row in range(20)]
    texts[5] += " river barge"
    texts[6] += " barge"
    assert build_vocabulary(texts) == ["river", "barge"]
    assert find_common_words(texts) == {"the", "mill", "tower", "1901", "of"}
    assert find_common_words(["a mill", "a mill"]) == set()


def test_embedding_models_write_no_questions_in_scripts_without_spaces():
    vocabulary = [f"{first}{second}word" for first in "abcd" for second in "efgh"]
    writer = EmbedderWriter("words", order_blind, vocabulary)
    assert writer.write(
        [WritingRequest("駅前の店は閉まった。", ("駅前の店は閉まった。",), "ja")]
    ) == [None]
    assert writer.write([]) == []


#: Words with distinct stems.
WORDS = [
    f"{first}{second}{third}le" for first in "bdfgk" for second in "aeiou" for third in "mnprs"
]


def write_texts(number: int) -> list[str]:
    """Write texts of five sentences with six words each, from a tenth of all words per text."""
    rng = np.random.default_rng(5)
    texts = []
    for _ in range(number):
        text_words = rng.choice(WORDS, 12, replace=False)
        texts.append(
            " ".join(" ".join(rng.choice(text_words, 6)).capitalize() + "." for _ in range(5))
        )
    return texts


def test_bm25_does_not_find_texts_by_paraphrased_questions():
    collection = collect(*write_texts(40))
    texts = [text.text for text in collection.texts]
    writer = EmbedderWriter("words", order_blind, build_vocabulary(texts))
    questions = generate_questions(collection, [30] * 40).add_paraphrases(writer)
    paraphrased = questions.select_wording(Wording.OTHER_WORDS)
    assert len(paraphrased) == len(questions.questions) > 100
    for question in paraphrased:
        assert not set(find_terms(question.wordings[Wording.OTHER_WORDS])) & set(
            find_terms(questions.documents[question.document])
        )
    scores = {}
    for wording in (Wording.RAREST_WORDS, Wording.OTHER_WORDS):
        task = build_question_task("texts", "en", questions, wording)
        task.load_data()
        scores[wording] = measure_word_baseline(task)
    assert scores[Wording.RAREST_WORDS].shared_words > 0.9
    # Below chance, since other texts contain words of the question.
    assert scores[Wording.OTHER_WORDS].shared_words <= scores[Wording.OTHER_WORDS].chance


def test_sentences_without_a_question_are_skipped():
    class EveryOther:
        name = "every other"

        def write(self, requests):
            return [None if row % 2 else f"question {row}" for row in range(len(requests))]

    questions = generate_questions(collect(*write_texts(4)), [30] * 4)
    paraphrased = questions.add_paraphrases(EveryOther())
    data = paraphrased.build_data(Wording.OTHER_WORDS)
    assert data.queries["id"][:] == [question.id for question in questions.questions[::2]]
    assert data.evidence.document_ids == [
        question.document for question in questions.questions[::2]
    ]
    assert len(paraphrased.build_data(Wording.VERBATIM).queries) == len(questions.questions)


@pytest.mark.parametrize(("disobedience", "calls"), [(0.0, 1), (1.0, 2)])
def test_a_question_is_requested_at_most_twice_and_cached(
    tmp_path: Path, disobedience: float, calls: int
):
    texts = write_texts(3)
    # Invented words may resemble any language; `und` disables the detection.
    requests = [WritingRequest(text.partition(".")[0], (text,), "und") for text in texts]
    with serve_language_model(
        Truth([]), rates={**NO_FAILURES, "same words": disobedience}
    ) as server:
        settings = LanguageModelSettings(model="human", endpoints=[server.url], attempts=2)
        for _ in range(2):
            log = CallLog(tmp_path / "calls.sqlite")
            questions = LanguageModelWriter(LanguageModel(settings, log), frozenset()).write(
                requests
            )
        assert sum(server.answered.values()) == calls * len(requests)
    for question, request in zip(questions, requests, strict=True):
        assert (
            (question is None)
            if disobedience
            else find_shared_words(question, request.sentence, frozenset()) == []
        )


@pytest.mark.parametrize(
    ("failure", "fault"),
    [
        ("refusal as question", "the model refused (6)"),
        ("another language", "another language (6)"),
        ("same question", ""),
    ],
)
def test_unusable_questions_are_skipped_and_counted(tmp_path, failure, fault):
    texts = write_texts(3)
    requests = [WritingRequest(text.partition(".")[0], (text,), "en") for text in texts]
    with serve_language_model(Truth([]), rates={**NO_FAILURES, failure: 1.0}) as server:
        settings = LanguageModelSettings(model="human", endpoints=[server.url], attempts=2)
        model = LanguageModel(settings, CallLog(tmp_path / "calls.sqlite"))
        writer = LanguageModelWriter(model, frozenset())
        assert writer.write(requests) == [None] * 3
    assert fault in writer.describe_answers()


def test_shared_content_words():
    sentence = "The mill's owners sold 40 barges in 1901 to a well-known smith."
    common = frozenset({"the", "in", "to"})
    assert find_shared_words(
        "Who sells vessels in 1901 to the smithy of a mill?", sentence, common
    ) == [
        "1901",
        "mill",
        "smithy",
    ]
    assert find_shared_words("Which trader got boats?", sentence, common) == []
    assert find_shared_words("Who is known?", sentence, common) == ["known"]


@pytest.mark.parametrize(
    "reference", ["@http://localhost:1/v1", "name@http://user:key@localhost/v1"]
)
def test_a_malformed_reference_raises_posir_error(reference: str, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(PosirError, match=re.escape("Write MODEL, or MODEL@ADDRESS")):
        open_writer(reference, [])
    assert open_writer("name@http://localhost:1/v1", []).name == "name"
