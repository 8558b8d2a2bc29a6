"""The prompts of PosQ (arXiv 2505.13950, appendix B; appendix C in its first version, Myopic Trap):
inputs, outputs and relevance scale.
"""

import re

import pytest

from posir_build.pipeline import PROMPT_SETS, BuildContext, run_stages
from posir_build.settings import BuildSettings
from posir_tasks.base.errors import PosirError
from posir_tasks.base.settings_file import load_settings, read_overrides
from posir_tasks.language_models.call_log import Completion
from posir_tasks.language_models.chat_client import (
    AnswerFault,
    UnusableAnswerError,
    parse_answer,
)
from posir_tasks.language_models.settings import LanguageModelSettings
from tests.support.human_answers import Truth, mini_documents, write_documents
from tests.support.language_model_server import NO_FAILURES, serve_language_model

POSQ = PROMPT_SETS["posq"]
QUESTION = '{"question": "Who?", "answer": "Ada.", "type": "complicated"}'

pytestmark = pytest.mark.usefixtures("short_waits")


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("summarize", {"document"}),
        ("ask_chunk", {"summary", "chunk"}),
        ("relevance", {"question", "text"}),
    ],
)
def test_a_prompt_of_posq_has_its_inputs_in_one_message(name, inputs):
    prompt = POSQ[name]
    assert set(prompt.user.get_identifiers()) == inputs
    values = {key: f"<<{key}>>" for key in (*inputs, "language", "questions")}
    body = prompt.build_request(values, 0, LanguageModelSettings(model="m")).body
    (message,) = body["messages"]
    assert message["role"] == "user"
    assert set(re.findall("<<(.*?)>>", message["content"])) == inputs
    assert "response_format" not in body


def test_the_prompts_have_the_limits_types_and_scale_of_posq():
    summarize, ask, relevance = (POSQ[name].user.template for name in POSQ)
    assert re.findall(r"\d+", summarize) == ["400"]
    assert {"simple", "complicated"} <= set(re.findall(r"\w+", ask))
    assert set(re.findall(r'"(\w+)": ', ask)) == {"question", "answer", "type"}
    assert re.findall(r"^(\d): (\w+)", relevance, re.MULTILINE) == [
        ("0", "not"),
        ("1", "slightly"),
        ("2", "moderately"),
        ("3", "highly"),
        ("4", "perfectly"),
    ]


def parse(name, text):
    prompt = POSQ[name]
    return parse_answer(Completion(text, "stop", 1, 1), prompt.answer, is_bare=prompt.is_bare)


def test_outputs_are_a_text_a_list_and_an_integer():
    assert parse("summarize", " Ada kept bees. ").summary == "Ada kept bees."
    (question,) = parse("ask_chunk", f"[{QUESTION},\n]").questions
    assert (question.question, question.answer, question.type) == ("Who?", "Ada.", "complicated")
    assert [parse("relevance", f"{grade}").relevance for grade in range(5)] == [0, 1, 2, 3, 4]
    for answer in ("5", "2.5", "-1", "3 or 4"):
        with pytest.raises(UnusableAnswerError):
            parse("relevance", answer)
    with pytest.raises(UnusableAnswerError) as error:
        parse("ask_chunk", "Who kept bees? Ada.")
    assert error.value.fault is AnswerFault.NO_JSON


def build_settings(folder, address, *overrides):
    values = [
        f"documents={folder / 'texts'}",
        "language=eng-Latn",
        "domain=harbour",
        f"output={folder / 'data'}",
        f"work={folder / 'work'}",
        f"llm={{model: human, endpoints: [{address}]}}",
        "sample.lengths=any",
        "ask={method: chunk, questions: 1}",
        "verify={relevance: segments, balance: true, leave_out: false}",
    ]
    return load_settings(
        BuildSettings, None, read_overrides([*values, *overrides]), {"prompts": "posq"}
    )


def test_a_build_uses_the_posq_prompts(tmp_path):
    documents = mini_documents()[:4]
    write_documents(tmp_path / "texts", documents)
    with serve_language_model(Truth(documents), rates=NO_FAILURES) as server:
        context = BuildContext(build_settings(tmp_path, server.url))
        results = run_stages(context, "verify")
        questions = results["ask"].questions
        assert len(questions) > len({row.details["chunk"] + row.document for row in questions})
        assert {row.prompt.partition("@")[0] for row in questions} == {"posq_ask_chunk"}
        (note,) = results["ask"].notes
        assert note.endswith(f"end {sum('end' in row.details['labels'] for row in questions)}")
        verdicts = results["verify"].questions[0].verdicts
        assert [row.check for row in verdicts] == ["located", "balanced", "relevance"]
        assert verdicts[-1].prompt.startswith("posq_relevance@1-")
        assert {name.partition("@")[0] for _, name in context.log.load_usage()} == {
            "posq_summarize",
            "posq_ask_chunk",
            "locate",
            "posq_relevance",
        }
        calls = sum(server.answered.values())
        assert run_stages(BuildContext(build_settings(tmp_path, server.url)), "verify") == results
        assert sum(server.answered.values()) == calls


def test_posq_has_no_prompt_for_other_methods(tmp_path):
    with pytest.raises(PosirError, match=r"set ask\.method to chunk"):
        build_settings(tmp_path, "http://localhost/v1", "ask.method=persona")
