"""Answers of language models, as they write them: each is read, or unusable for a named reason."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posir_build.ask import AskedQuestions
from posir_build.locate import Citations, EvidenceError, QuoteError, find_cited_span
from posir_build.settings import LocateSettings
from posir_build.verify import Relevance
from posir_tasks.language_models.call_log import Completion
from posir_tasks.language_models.chat_client import UnusableAnswerError, parse_answer
from posir_tasks.text.sentences import find_sentences

RELEVANT = '{"relevance": 3}'


def parse(text, answer=Relevance, finish="stop"):
    return parse_answer(Completion(text, finish, 1, 1), answer)


@pytest.mark.parametrize(
    "text",
    [
        RELEVANT,
        f"```json\n{RELEVANT}\n```",
        f"Sure! Here it is: {RELEVANT} I hope {{this}} helps.",
        f"{{not json}} {RELEVANT}",
        '{"relevance": 3, "why": "because"}',
        f'{{"thought": "none"}}\n{RELEVANT}',
    ],
)
def test_json_is_found_in_prose(text):
    assert parse(text).relevance == 3


@pytest.mark.parametrize(
    ("text", "finish", "reason"),
    [
        ("3", "stop", "the answer has no JSON"),
        ("", "stop", "the answer has no JSON"),
        ('{"relevance": 7}', "stop", "other fields .*relevance"),
        ('{"grade": 3}', "stop", "other fields .*relevance"),
        ('{"relevance": ', "stop", "JSON is incomplete"),
        ('{"relevance": ', "length", "was cut off"),
        ("I'm sorry, but I can't help with that.", "stop", "refused"),
        ("抱歉,我无法回答", "stop", "refused"),
        ("", "content_filter", "refused"),
        ("{" * 3000, "stop", "JSON is incomplete"),
        ('{"a":' * 3000, "stop", "JSON is incomplete"),
        ('{"relevance": ' + "1" * 5000 + "}", "stop", "JSON"),
    ],
)
def test_an_answer_without_the_json_is_unusable(text, finish, reason):
    with pytest.raises(UnusableAnswerError, match=reason):
        parse(text, finish=finish)


def test_surrogates_are_replaced():
    (asked,) = parse('{"questions": [{"question": "a\\ud800?", "answer": "b", "type": "x"}]}', AskedQuestions).questions
    assert asked.question == "a??"


def test_the_schema_is_what_strict_servers_accept():
    schema = AskedQuestions.model_json_schema()
    inner = schema["$defs"]["AskedQuestion"]
    assert schema["additionalProperties"] is inner["additionalProperties"] is False
    assert inner["required"] == list(inner["properties"])
    assert Relevance.model_json_schema()["properties"]["relevance"]["enum"] == [0, 1, 2, 3, 4]


TEXT = "The mill stood by the river. It burned down in 1901, not in 1902. Ada never kept bees. The mill stood by the road."
DOCUMENT = (TEXT, find_sentences(TEXT, "en"))
WORDS = st.sampled_from([*TEXT.split(), "not", "1903", "١٩٠١", "\0", "ñ", "{", "}", '"', "\\u0000", "I'm sorry"])
QUOTES = st.one_of(
    st.tuples(st.integers(0, len(TEXT)), st.integers(0, len(TEXT))).map(lambda ends: TEXT[min(ends) : max(ends)]),
    st.lists(WORDS, max_size=8).map(" ".join),
    st.text(max_size=30),
)
ANY = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | QUOTES, lambda item: st.lists(item, max_size=3))
CITED = st.fixed_dictionaries(
    {"first_sentence": st.integers(-1, 6) | ANY, "last_sentence": st.integers(-1, 6) | ANY, "quote": QUOTES | ANY}
)
ANSWERS = st.one_of(
    st.fixed_dictionaries({"evidence": st.lists(CITED, max_size=3)}),
    st.fixed_dictionaries({"evidence": ANY}),
    st.dictionaries(st.sampled_from(["evidence", "quote"]), ANY),
)


@given(ANSWERS, st.integers(0, 400), st.sampled_from(["", "Sure: ", "```json\n", "{"]), st.booleans())
@settings(max_examples=200)
def test_a_mutated_answer_is_located_or_discarded_for_a_named_reason(answer, cut, before, is_cut):
    text = before + json.dumps(answer)
    try:
        citations = parse(text[:cut] if is_cut else text, Citations)
        span, quote = find_cited_span(citations, DOCUMENT, LocateSettings())
    except (UnusableAnswerError, EvidenceError, QuoteError) as error:
        reason = str(error)
        assert reason
    else:
        assert 0 <= span.start < span.end <= len(TEXT)
        assert quote.strip()
