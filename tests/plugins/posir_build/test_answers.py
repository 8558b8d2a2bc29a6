"""Answers of language models, as they write them: each is read, or unusable for a named reason."""

import pytest

from posir_build.ask import AskedQuestions
from posir_build.verify import Relevance
from posir_tasks.language_models.call_log import Completion
from posir_tasks.language_models.chat_client import AnswerFault, UnusableAnswerError, parse_answer

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
    ("text", "finish", "fault", "detail"),
    [
        ("3", "stop", AnswerFault.NO_JSON, ""),
        ("", "stop", AnswerFault.NO_JSON, ""),
        ('{"relevance": 7}', "stop", AnswerFault.OTHER_FIELDS, "relevance"),
        ('{"grade": 3}', "stop", AnswerFault.OTHER_FIELDS, "relevance"),
        ('{"relevance": ', "stop", AnswerFault.INVALID_JSON, ""),
        ('{"relevance": 3, "relevance": 4}', "stop", AnswerFault.INVALID_JSON, ""),
        ('{"relevance": ', "length", AnswerFault.CUT_OFF, ""),
        ("I'm sorry, but I can't help with that.", "stop", AnswerFault.REFUSED, ""),
        ("抱歉,我无法回答", "stop", AnswerFault.REFUSED, ""),
        ("", "content_filter", AnswerFault.REFUSED, ""),
        ("{" * 3000, "stop", AnswerFault.INVALID_JSON, ""),
        ('{"a":' * 3000, "stop", AnswerFault.INVALID_JSON, ""),
        ('{"relevance": ' + "1" * 5000 + "}", "stop", AnswerFault.INVALID_JSON, ""),
    ],
)
def test_an_answer_without_the_json_is_unusable(text, finish, fault, detail):
    with pytest.raises(UnusableAnswerError) as unusable:
        parse(text, finish=finish)
    assert unusable.value.fault is fault
    assert detail in unusable.value.detail


def test_surrogates_are_replaced():
    (asked,) = parse(
        '{"questions": [{"question": "a\\ud800?", "answer": "b", "type": "x"}]}', AskedQuestions
    ).questions
    assert asked.question == "a??"


def test_the_schema_is_what_strict_servers_accept():
    schema = AskedQuestions.model_json_schema()
    inner = schema["$defs"]["AskedQuestion"]
    assert schema["additionalProperties"] is inner["additionalProperties"] is False
    assert inner["required"] == list(inner["properties"])
    assert Relevance.model_json_schema()["properties"]["relevance"]["enum"] == [0, 1, 2, 3, 4]
