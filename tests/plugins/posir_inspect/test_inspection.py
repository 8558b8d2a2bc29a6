"""Inspection of encoders that read a known part of a text, and what is shown of it."""

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

import posir
from posir_inspect.inspection import InspectionInput, InspectionRun, evaluate, inspect_model
from posir_inspect.questions import Wording, ask_questions, build_question_task
from posir_inspect.sections import Inspection, complete_inspection
from posir_inspect.splitting import choose_sizes
from posir_mitigate.references import parse_reference
from posir_significance.findings import ChangeState, Quantity, State
from posir_significance.messages.verdicts import describe_verdict, label_state
from posir_tasks.base.errors import PosirError
from posir_tasks.data.formats.passages import SkippedText
from posir_tasks.display.tables import Medium
from posir_tasks.models.embeddings.encoding import DEFAULT_CONTEXT, ModelEncoder
from posir_tasks.models.reading_length import Bounds, ReadingLength
from posir_tasks.results import read_results
from posir_tasks.text.tokenizer import find_tokenizer
from posir_tasks.text.words import estimate_tokens
from posir_tasks.values.read_part import Part
from posir_tasks.values.rotation_ranks import ROTATED_VARIABLE
from tests.plugins.posir_inspect.test_questions import collect
from tests.support.cli import invoke
from tests.support.embedding_server import serve_embeddings
from tests.support.models import build_encoder, write_tiny_model
from tests.support.probed_encoders import (
    FirstWords,
    KeepsPart,
    RefusesLong,
    invent_texts,
    keep_last,
)


def run(
    encoder: FirstWords, texts: list[str], budget: int | None = None, **options: Any
) -> Inspection:
    return inspect_model(
        InspectionInput(ModelEncoder(encoder), None, collect(*texts), budget), **options
    )


@pytest.fixture(scope="module")
def cut(tmp_path_factory: pytest.TempPathFactory) -> tuple[Inspection, Path]:
    folder = tmp_path_factory.mktemp("results")
    return run(FirstWords(words=60), invent_texts(60, 15), output_folder=folder), folder


@pytest.mark.slow
def test_a_model_that_reads_the_first_third_is_seen_through(cut):
    inspection, folder = cut
    assert (inspection.window.reading.words, inspection.unread.texts_cut) == (Bounds(60, 60), 60)
    assert inspection.unread.share.value == pytest.approx(2 / 3, abs=0.001)
    for fading in inspection.fading:
        findings = fading.findings
        assert findings[Quantity.POSITION_EFFECT].estimate.low > 0.3
        assert findings.value(Quantity.UNREAD_SHARE) == pytest.approx(2 / 3, abs=0.05)
        assert findings.read.part is Part.FIRST
        assert fading.ndcg_at_10_not_read < 0.4
    assert inspection.chunks.row.size in (64, 107)
    assert inspection.chunks.row.state is ChangeState.BETTER
    assert [row.size for row in inspection.chunks.rows] == [None, 107, 64]
    results = {result.task for result in read_results(folder)}
    assert results == {"Inspect-texts-rarest-words", "Inspect-texts-verbatim"}


def test_a_model_that_reads_the_last_words_truncates_the_start(tmp_path):
    inspection = run(KeepsPart(keep_last(60)), invent_texts(20, 15), output_folder=tmp_path)
    assert (inspection.window.reading.part, inspection.unread.texts_cut) == (Part.LAST, 20)
    assert inspection.unread.share.value == pytest.approx(2 / 3, abs=0.001)
    fading = inspection.fading[-1]
    assert fading.ndcg_at_10_not_read < 0.4
    assert {result.values.read.part for result in read_results(tmp_path)} == {Part.LAST}


@pytest.mark.slow
def test_an_order_blind_model_reads_everything_and_nothing_fades():
    inspection = run(FirstWords(), invent_texts(60, 15))
    assert inspection.window.reading.is_complete
    assert inspection.unread.share.value == 0
    for fading in inspection.fading:
        assert fading.findings.state is State.NO_BIAS
        assert fading.findings.value(Quantity.UNREAD_SHARE) == 0
        assert fading.findings[Quantity.POSITION_EFFECT].estimate.value == pytest.approx(
            0, abs=0.005
        )


def test_the_page_of_a_model_that_reads_all_says_the_state():
    inspection = run(FirstWords(), invent_texts(20, 9), 8_000)
    findings = inspection.fading[-1].findings
    assert findings.value(Quantity.UNREAD_SHARE) == 0
    facts = dict(inspection.position_charts()[0].facts())
    assert facts["Bias within the window"].endswith(label_state(findings))


def test_texts_that_the_model_refuses_are_one_message():
    with pytest.raises(
        PosirError,
        match=r"first 60 words .* 5 of 5 texts are longer \(ValueError: at most 60 words\)",
    ):
        run(RefusesLong(60), invent_texts(5, 15))


@pytest.mark.slow
def test_texts_without_a_sentence_to_ask_about():
    inspection = run(
        FirstWords(), ["Yes. No. Yes. No. Perhaps. Not now. Later. Never. Go. Stay. Who? I."]
    )
    assert (inspection.fading, inspection.chunks) == ((), None)
    assert "Not measured" in show(inspection)
    assert "Not measured" in inspection.to_html()


def show(inspection: Inspection) -> str:
    console = Console(
        width=80, force_terminal=True, color_system=None, record=True, highlight=False
    )
    with console.capture() as captured:
        inspection.print_on(console)
    return captured.get()


@pytest.mark.slow
def test_an_inspection_is_a_screen_json_and_a_safe_page(
    cut,
):
    inspection, _ = cut
    printed, findings = show(inspection), inspection.fading[-1].findings
    assert len(printed.splitlines()) < 60
    assert max(map(len, printed.splitlines())) <= 80
    assert describe_verdict(findings) in " ".join(printed.split())
    assert f" {inspection.chunks.row.cost:.1f} " in printed
    assert (
        "PSI" in printed,
        "PSI" in str(complete_inspection(replace(inspection, full=True))),
    ) == (
        False,
        True,
    )
    parsed = json.loads(inspection.to_json())
    assert (parsed["fading"][-1]["groups"]["all"]["state"], parsed["rows"][0]["level"]) == (
        findings.state,
        0.95,
    )
    assert parsed["window"]["measured_on"]["words_read"] == {"low": 60, "high": 60}
    skipped = (SkippedText("<script>alert(1)</script>", "empty"),)
    page = complete_inspection(replace(inspection, skipped=skipped)).to_html()
    assert "<script>alert(1)" not in page
    assert not re.search(
        r'(src|href)="', re.sub(r"<script.*?</script>|<a [^>]*>", "", page, flags=re.DOTALL)
    )
    assert page.count('class="range"') > 2
    shown = ("What to do", "How far the model reads", "chunk size")
    assert sorted(map(page.index, shown)) == list(map(page.index, shown))


def list_searched(encoder: FirstWords, texts: list[str]) -> list[str]:
    """Return what was encoded after the reading length was measured."""
    return encoder.encoded[encoder.encoded.index(texts[0]) :]


@pytest.mark.slow
@pytest.mark.parametrize("budget", [None, 30_000])
def test_each_text_is_encoded_once_and_the_budget_holds(budget: int | None):
    encoder, texts = FirstWords(), invent_texts(60, 15)
    inspection = run(encoder, texts, budget)
    searched = list_searched(encoder, texts)
    assert len(searched) == len(set(searched)) > 60
    total = sum(map(estimate_tokens, searched))
    if budget:
        assert total <= min(budget, 6 * sum(map(estimate_tokens, texts))) * 1.05
        assert inspection.fading_texts < 60
    assert total <= inspection.work.tokens * 1.05


def test_a_budget_below_the_least_work_is_refused():
    texts = invent_texts(20, 15)
    with pytest.raises(PosirError, match="A budget of 10 tokens is too small") as refused:
        run(FirstWords(words=60), texts, 10)
    least = int(re.search(r"at least ([\d,]+) are", str(refused.value))[1].replace(",", ""))
    inspection = run(encoder := FirstWords(words=60), texts, least)
    window = inspection.window.tokens.high
    assert inspection.encoded_tokens == sum(
        min(estimate_tokens(text), window) for text in list_searched(encoder, texts)
    )
    assert inspection.encoded_tokens <= inspection.work.tokens * 1.05
    assert (inspection.work.tokens, inspection.fading_texts) == (least, 2)


@pytest.mark.slow
def test_long_texts_are_compared_in_excerpts():
    known: list[Inspection] = []
    inspection = run(FirstWords(), invent_texts(52, 120), 250_000, show=known.append)
    assert inspection.excerpt_tokens == 512
    assert 2 <= inspection.chunk_texts <= 50
    assert [row.size for row in inspection.chunks.rows] == [None, 256, 128, 64]
    assert [len(part.sections()) for part in known] == [2, 4, 6]
    assert f"{inspection.chunk_texts} excerpts of at most 512 tokens" in " ".join(
        show(inspection).split()
    )


class EveryOther:
    """Writes a question about every other sentence: the sentence backward, which a model that is
    blind to order knows.
    """

    name = "test/first-words"

    def write(self, requests):
        return [
            " ".join(reversed(request.sentence.split())) if row % 2 else None
            for row, request in enumerate(requests)
        ]

    def describe_answers(self):
        return ""


def test_questions_in_other_words_stand_beside_the_others():
    encoder, texts = FirstWords(words=300), invent_texts(8, 12)
    inspection = inspect_model(
        InspectionInput(ModelEncoder(encoder), None, collect(*texts), 30_000, writer=EveryOther())
    )
    searched = list_searched(encoder, texts)
    assert len(searched) == len(set(searched))
    other, (written, rarest) = inspection.other_words, inspection.fading
    assert (written.wording, rarest.wording) == (Wording.OTHER_WORDS, Wording.RAREST_WORDS)
    assert (
        other.questions == written.findings.questions == rarest.findings.questions - other.unwritten
    )
    assert (other.writer, other.writer_is_model) == ("test/first-words", True)
    # The same words in another order.
    assert other.words_alone.shared_words == pytest.approx(1)
    assert [row.size for row in other.chunks.rows] == [row.size for row in inspection.chunks.rows]
    assert other.chunks.rows[0].ndcg_at_10.value == pytest.approx(
        written.findings.value(Quantity.NDCG_AT_10)
    )
    shown = " ".join(show(inspection).split())
    assert "The same in other words" in shown
    assert "This is the inspected model" in shown
    assert [section.title for section in inspection.sections(Medium.PAGE)][:2] == [
        "",
        "How far the model reads",
    ]
    assert sum(bool(row["chunk_size"]) for row in inspection.records()) == 2 * (
        len(inspection.chunks.rows) - 1
    )


def test_a_writer_without_a_question_is_said_so():
    silent = SimpleNamespace(
        name="silent",
        write=lambda requests: [None] * len(requests),
        describe_answers=lambda: "silent: 0 answers.",
    )
    inspection = inspect_model(
        InspectionInput(
            ModelEncoder(FirstWords(60)), None, collect(*invent_texts(3, 6)), 30_000, writer=silent
        )
    )
    assert (inspection.other_words.questions, len(inspection.fading)) == (0, 1)
    assert "0 questions that silent wrote. silent: 0 answers." in show(inspection)


def test_the_measured_chunks_are_what_the_named_model_runs(monkeypatch):
    # The number of vectors is that of the last search.
    monkeypatch.setenv(ROTATED_VARIABLE, "0")
    model, collection = build_encoder(), collect(*invent_texts(4, 8))
    setup = InspectionInput(ModelEncoder(model), find_tokenizer(model), collection, None)
    questions = ask_questions(collection, [setup.counter.count(text) for text in setup.texts])
    units = ("tokens", "words", "characters", "estimated_tokens")
    reading = ReadingLength(
        part=None, **dict.fromkeys(units, Bounds(1, 1)), unit="tokens", documents=1
    )
    known = Inspection(
        model="m",
        revision=None,
        source="texts",
        texts=4,
        texts_found=4,
        languages={},
        median_tokens=1.0,
        tokens_estimated=False,
        skipped=(),
        window=None,
        unread=None,
    )
    chunks = (
        InspectionRun(setup, questions, reading)
        .search_chunks(replace(known, fading_texts=4))
        .chunks.rows
    )
    assert [row.size for row in chunks] == [None, 94, 64]
    task = build_question_task(
        collection.name, collection.language, questions, Wording.RAREST_WORDS
    )
    for row in chunks[1:]:
        chunked = parse_reference(f"chunks({row.size})").wrap(model)
        scores = evaluate(task, chunked, {"batch_size": 7, "show_progress_bar": False})
        assert scores["ndcg_at_10"] == pytest.approx(row.ndcg_at_10.value, abs=1e-5)
        assert chunked.document_vectors == row.vectors > 4


def test_the_largest_chunk_that_fits_is_one_of_the_sizes():
    prompted = build_encoder(prompts={"document": "one two three four: ", "query": ""})
    assert choose_sizes(prompted, DEFAULT_CONTEXT, None) == [89, 64]
    assert choose_sizes(FirstWords(), DEFAULT_CONTEXT, None) == [1024, 512, 256, 128, 64]
    assert choose_sizes(FirstWords(), DEFAULT_CONTEXT, 200) == [200, 128, 64]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(write_tiny_model(tmp_path_factory.mktemp("models") / "tiny"))


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    for number, text in enumerate(invent_texts(12, 6)):
        (folder / f"{number}.txt").write_text(text)
    (folder / "scan.doc").write_bytes(b"%PDF-1.7\x00")
    return folder


@pytest.mark.slow
def test_a_folder_is_inspected_and_shown_in_every_format(model, texts, tmp_path):
    arguments = ("inspect", model, texts)
    text = invoke(*arguments, "--html", tmp_path / "page.html")
    for said in (
        "of these 12 texts",
        "Skipped: 1 binary (scan.doc).",
        "How far the model reads",
        "What to do",
    ):
        assert said in text
    assert "vegaEmbed" in (tmp_path / "page.html").read_text()
    values = json.loads(invoke(*arguments, "--format", "json"))
    assert values["chunks"]["chosen"] in ("whole texts", "chunks of 62 tokens")
    assert [(row["name"], row["reason"]) for row in values["skipped"]] == [("scan.doc", "binary")]


@pytest.mark.slow
def test_a_server_is_inspected(texts):
    with serve_embeddings(model="bge-m3", window=30) as server:
        text = invoke("inspect", server.reference, texts)
    assert "It reads only the first 30 words of a text (about " in text
    assert "although BAAI/bge-m3 claims 8,192 tokens" in text


@pytest.mark.slow
def test_chunks_are_compared_with_chunks_in_context(texts):
    with serve_embeddings(kind="jina") as server:
        values = json.loads(invoke("inspect", f"tiny@jina+{server.url}", texts, "--format", "json"))
    chunkers = {row["chunker"] for row in values["rows"] if row["chunker"]}
    assert chunkers
    assert all(re.fullmatch(r"\d+ tokens in context", chunker) for chunker in chunkers)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tiny", "PosIR-Mini", "--budget", "much"), "Give a number such as"),
        (("tiny", "missing/folder"), "missing/folder: no such file or folder"),
        (("tiny", "PosIR-Minni"), "Did you mean PosIR-Mini"),
        (("mteb/baseline-bm25s", "PosIR-Mini"), "not a dense encoder"),
    ],
)
def test_mistakes_are_explained(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PosirError, match=message):
        invoke("inspect", *arguments)


@pytest.mark.parametrize(
    ("budget", "message"),
    [("60k", "Give a model and texts"), (0, "--budget 0: "), ("x", "--budget x: ")],
)
def test_python_takes_a_budget_as_the_command_does(budget, message):
    with pytest.raises(PosirError, match=message):
        posir.inspect("tiny", budget=budget)
