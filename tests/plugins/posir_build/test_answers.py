"""Parse answers as language models write them, or report why they are unusable."""

import pytest

from posir_build.ask import AskedQuestions, DocumentSummary
from posir_build.verify import Relevance
from posir_tasks.language_models.call_log import Completion
from posir_tasks.language_models.chat_client import AnswerFault, UnusableAnswerError, parse_answer

RELEVANT = '{"relevance": 3}'


def parse(text, answer=Relevance, finish="stop", is_bare=False):
    return parse_answer(Completion(text, finish, 1, 1), answer, is_bare=is_bare)


@pytest.mark.parametrize(
    "text",
    [
        RELEVANT,
        f"```json\n{RELEVANT}\n```",
        f"Sure! Here it is: {RELEVANT} I hope {{this}} helps.",
        f"{{not json}} {RELEVANT}",
        '{"relevance": 3, "why": "because"}',
        f'{{"thought": "none"}}\n{RELEVANT}',
        "3",
        "**Relevance: 3.**",
        '{"Relevance": "3"}',
        '{"result": {"relevance": 3}}',
        '```json\n{\n  "relevance": 3,\n}\n```',
        '{"why": "a\nb", "relevance": 3}',
        f'<think>Perhaps {{"relevance": 1}}.</think>\n{RELEVANT}',
        f'Perhaps {{"relevance": 1}}.\n</think>\n{RELEVANT}',
        f"{RELEVANT}<|im_end|>\n" * 100,
    ],
)
def test_json_is_found_in_prose(text):
    assert parse(text).relevance == 3


QUESTION = '{"question": "a?", "answer": "b", "type": "simple"}'


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (f"[{QUESTION}, {QUESTION},]", 2),
        (f"As said in [1]:\n```json\n[{QUESTION}]\n```", 1),
        (f'{{"FAQs": [{QUESTION}, {QUESTION}]}}', 2),
        (QUESTION.replace("b", "</think>"), 1),
        ("[]", 0),
    ],
)
def test_a_bare_list_is_the_only_field(text, number):
    assert len(parse(text, AskedQuestions, finish="length").questions) == number


@pytest.mark.parametrize(
    "text",
    [
        f'{{"questions": [{QUESTION}, {{"question": "x"}}]}}',
        f"[{QUESTION}, {QUESTION}, {{",
        "See [].",
        "{}",
    ],
)
def test_a_damaged_list_is_unusable(text):
    with pytest.raises(UnusableAnswerError):
        parse(text, AskedQuestions)


def test_a_bare_text_is_accepted_if_requested():
    text = '<think>Short.</think> In [1], a "mill" burned.'
    assert parse(text, DocumentSummary, is_bare=True).summary == 'In [1], a "mill" burned.'
    for finish, answer in (("length", text), ("stop", "Sorry, I can't."), ("stop", " ")):
        with pytest.raises(UnusableAnswerError):
            parse(answer, DocumentSummary, finish, is_bare=True)
    with pytest.raises(UnusableAnswerError):
        parse(text, DocumentSummary)


@pytest.mark.parametrize(
    ("text", "finish", "fault", "detail"),
    [
        ("3.2", "stop", AnswerFault.NO_JSON, ""),
        ("-1", "stop", AnswerFault.NO_JSON, ""),
        ("3 or 4", "stop", AnswerFault.NO_JSON, ""),
        ("Three aspects of 3", "stop", AnswerFault.NO_JSON, ""),
        ("", "stop", AnswerFault.EMPTY, ""),
        (f"<think>{RELEVANT}", "stop", AnswerFault.EMPTY, ""),
        (f"<think>{RELEVANT}", "length", AnswerFault.CUT_OFF, ""),
        ('{"relevance": 7}', "stop", AnswerFault.WRONG_FIELDS, "relevance"),
        ('{"grade": 3}', "stop", AnswerFault.WRONG_FIELDS, "relevance"),
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
def test_an_invalid_answer_is_unusable(text, finish, fault, detail):
    with pytest.raises(UnusableAnswerError) as error:
        parse(text, finish=finish)
    assert error.value.fault is fault
    assert detail in error.value.detail


def test_surrogates_are_replaced():
    (question,) = parse(
        '{"questions": [{"question": "a\\ud800?", "answer": "b", "type": "x"}]}', AskedQuestions
    ).questions
    assert question.question == "a??"


def test_the_schema_is_strict():
    schema = AskedQuestions.model_json_schema()
    inner = schema["$defs"]["AskedQuestion"]
    assert schema["additionalProperties"] is inner["additionalProperties"] is False
    assert inner["required"] == list(inner["properties"])
    assert Relevance.model_json_schema()["properties"]["relevance"]["enum"] == [0, 1, 2, 3, 4]
