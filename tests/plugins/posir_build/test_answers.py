"""Answers of language models, as they write them: each is read, or unusable for a named reason."""

import pytest

from posir_build.ask import AskedQuestions
from posir_build.verify import Relevance
from posir_tasks.language_models.call_log import Completion
from posir_tasks.language_models.chat_client import UnusableAnswerError, parse_answer

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
