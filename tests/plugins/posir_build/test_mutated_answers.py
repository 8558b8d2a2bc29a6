"""With mutated answers of a language model, every stage keeps each item or discards it with a
reason.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posir_build.ask import ask_questions
from posir_build.false_negatives import remove_false_negatives
from posir_build.locate import locate_evidence
from posir_build.records import DiscardReason, StageResult
from posir_build.settings import (
    FalseNegativeSettings,
    LocateSettings,
    TranslateSettings,
    VerifySettings,
)
from posir_build.translate import Translator
from posir_build.verify import Verifier
from posir_tasks.language_models.chat_client import AnswerFault
from posir_tasks.text.words import estimate_tokens
from tests.support.construction import (
    FullRetriever,
    ScriptedModel,
    TableReranker,
    document,
    question,
    settings,
)

TEXT = (
    "The mill stood by the river for many years. It burned down in 1901, not in 1902. Ada never "
    "kept bees in the village. The miller moved to Harrow and sold the wheel."
)
MILL = document("mill", TEXT)
BARN = document(
    "barn", "In 1901 the barn by the road burned down, too. Nobody was hurt that night."
)
FIRE = question(MILL, "When did the mill burn down?", "burned down in 1901")
GERMAN = [
    "Die Mühle stand am Fluss.",
    "Sie brannte 1901 ab.",
    "Ada hielt keine Bienen.",
    "Der Müller zog nach Harrow.",
]

TEXTS = st.one_of(
    st.text(max_size=30),
    st.tuples(st.integers(0, len(TEXT)), st.integers(0, len(TEXT))).map(
        lambda ends: TEXT[min(ends) : max(ends)]
    ),
    st.sampled_from(
        [
            *GERMAN,
            TEXT,
            FIRE.text,
            "I'm sorry, but I can't.",
            "Translation:",
            "\ud800",
            "\0",
            " ",
            "{",
            "1903",
        ]
    ),
    st.lists(
        st.sampled_from([*TEXT.split(), "not", "1903", "١٩٠١", "ñ", "}", '"']), max_size=8
    ).map(" ".join),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=5,
)


#: A usable answer to each prompt.
VALID_ANSWERS: dict[str, Any] = {
    "ask_positional": {
        "questions": [
            {"question": "When did the mill burn down?", "answer": "in 1901", "type": "when"}
        ]
    },
    "ask_chunk": {
        "questions": [
            {"question": "Where did the miller move?", "answer": "Harrow", "type": "simple"}
        ]
    },
    "summarize": {"summary": "A mill burned down."},
    "choose_persona": {"persona": 1, "difficulty": "phd", "query_length": "short"},
    "ask_persona": {
        "query": "year of the fire in the mill",
        "answer": "1901",
        "reasoning": "It is there.",
    },
    "locate": {
        "evidence": [{"first_sentence": 2, "last_sentence": 2, "quote": "burned down in 1901"}]
    },
    "relevance": {"relevance": 4},
    "answerable": {"reasoning": "It says so.", "answer": "no"},
    "translate_sentences": {
        "sentences": [{"number": 1, "text": GERMAN[0]}, {"number": 2, "text": GERMAN[3]}]
    },
    "translate_question": {"text": "Wann brannte die Mühle nieder?"},
}


def mutate(draw: Any, value: Any) -> Any:
    """Replace, remove or repeat one part of a value; the replacement may be of any type."""
    items = (
        list(value.items())
        if isinstance(value, dict)
        else list(enumerate(value))
        if isinstance(value, list)
        else []
    )
    kind = draw(st.sampled_from(["inside", "inside", "inside", "replace", "remove", "double"]))
    if not items or kind == "replace":
        same_type = {str: TEXTS, int: st.integers(-1, 6)}.get(type(value), JSON)
        return draw(st.one_of(same_type, same_type, JSON))
    key, first = draw(st.sampled_from(items))
    if isinstance(value, dict):
        others = {name: other for name, other in value.items() if name != key}
        return value | {key: mutate(draw, first)} if kind == "inside" else others
    if kind == "inside":
        return [mutate(draw, first) if row == key else other for row, other in items]
    return [*value, first] if kind == "double" else [other for row, other in items if row != key]


@st.composite
def write_answer(draw: st.DrawFn, prompt: str) -> str:
    """Write a valid or mutated answer, possibly after some prose, or truncated."""
    value = VALID_ANSWERS[prompt]
    for _ in range(draw(st.integers(0, 3))):
        value = mutate(draw, value)
    text = draw(st.sampled_from(["", "", "", "Sure: ", "```json\n", "{", "[1] "])) + json.dumps(
        value
    )
    return text[: draw(st.integers(0, len(text)))] if draw(st.integers(0, 9)) == 0 else text


class MutatedModel(ScriptedModel):
    def __init__(self, draw: Any) -> None:
        super().__init__(lambda prompt, _: draw(write_answer(prompt), label=prompt))


def run_ask(model: MutatedModel) -> Iterator[tuple[StageResult, int]]:
    for method in ("positional", "chunk", "persona"):
        result = ask_questions(
            [MILL], settings(ask={"method": method, "chunk_words": 20, "draws": 3}), model
        )
        # Every question in the answers is kept or discarded.
        questions = [discard for discard in result.discarded if discard.question is not None]
        question_count = sum(len(getattr(answer, "questions", ())) for answer in model.answers)
        model.answers.clear()
        yield result, len(result.questions) + len(questions) - question_count


def run_locate(model: MutatedModel) -> Iterator[tuple[StageResult, int]]:
    result = locate_evidence(
        StageResult((MILL,), (replace(FIRE, span=None),)), LocateSettings(), model, "eng-Latn"
    )
    for located in result.questions:
        assert TEXT[located.evidence.start : located.evidence.end].strip()
    assert all(discard.reason in [*DiscardReason, *AnswerFault] for discard in result.discarded)
    yield result, len(result.questions) + len(result.discarded) - 1


def run_verify(model: MutatedModel) -> Iterator[tuple[StageResult, int]]:
    for rule in ("span", "segments"):
        options = VerifySettings(relevance=rule, audit=True)
        previous = StageResult((MILL,), (FIRE,))
        result = Verifier(previous, options, "eng-Latn", model, (), 1).verify()
        yield result, len(result.questions) + len(result.discarded) - 1


def run_false_negatives(model: MutatedModel) -> Iterator[tuple[StageResult, int]]:
    options = FalseNegativeSettings(embedder="e", rerankers=[{"model": "r"}])
    rerankers = [TableReranker(lambda *_: 1.0)]
    result = remove_false_negatives(
        StageResult((MILL, BARN), (FIRE,)), options, FullRetriever(), rerankers, [model] * 3
    )
    yield result, len(result.questions) + len(result.discarded) - 1


def run_translate(model: MutatedModel) -> Iterator[tuple[StageResult, int]]:
    translator = Translator(
        TranslateSettings(sentences=2), model, "eng-Latn", "deu-Latn", estimate_tokens
    )
    result = translator.translate(StageResult((MILL,), (FIRE,)))
    for translated in result.questions:
        (text,) = (other.text for other in result.documents)
        assert text[translated.evidence.start : translated.evidence.end].strip()
    documents = [discard for discard in result.discarded if discard.question is None]
    yield result, len(result.questions) + len(result.documents) + len(result.discarded) - 2
    assert len(result.documents) + len(documents) == 1


OTHERS = [run_ask, run_verify, run_false_negatives, run_translate]


@pytest.mark.parametrize(
    "run", [run_locate, *(pytest.param(run, marks=pytest.mark.slow) for run in OTHERS)]
)
@given(data=st.data())
def test_a_mutated_answer_is_kept_or_discarded_with_a_reason(run, data):
    for result, missing in run(MutatedModel(data.draw)):
        assert missing == 0
        assert all(discard.reason.strip() and discard.item for discard in result.discarded)
