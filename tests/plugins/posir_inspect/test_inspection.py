"""Inspect encoders that read a known part of a text, and check the output."""

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
from posir_inspect.questions import Wording, build_question_task, generate_questions
from posir_inspect.sections import Inspection, complete_inspection
from posir_inspect.splitting import choose_sizes
from posir_mitigate.references import parse_reference
from posir_significance.findings import ChangeState, Quantity, State
from posir_significance.messages.verdicts import describe_verdict, label_state
from posir_tasks.base.errors import PosirError
from posir_tasks.data.formats.passages import SkippedItem
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
def truncated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Inspection, Path]:
    """The inspection of a model that reads the first third of each text, and the result folder."""
    folder = tmp_path_factory.mktemp("results")
    return run(FirstWords(words=60), invent_texts(60, 15), output_folder=folder), folder


@pytest.mark.slow
def test_model_that_reads_the_first_third(truncated):
    inspection, folder = truncated
    assert (inspection.window.reading.words, inspection.unread.texts_cut) == (Bounds(60, 60), 60)
    assert inspection.unread.share.value == pytest.approx(2 / 3, abs=0.001)
    for scores in inspection.fading:
        findings = scores.findings
        assert findings[Quantity.POSITION_EFFECT].estimate.low > 0.3
        assert findings.get_value(Quantity.UNREAD_SHARE) == pytest.approx(2 / 3, abs=0.05)
        assert findings.read.part is Part.FIRST
        assert scores.ndcg_at_10_not_read < 0.4
    assert inspection.chunks.selection.size in (64, 107)
    assert inspection.chunks.selection.state is ChangeState.BETTER
    assert [row.size for row in inspection.chunks.rows] == [None, 107, 64]
    results = {result.task for result in read_results(folder)}
    assert results == {"Inspect-texts-rarest-words", "Inspect-texts-verbatim"}


def test_model_that_reads_the_last_words(tmp_path):
    inspection = run(KeepsPart(keep_last(60)), invent_texts(20, 15), output_folder=tmp_path)
    assert (inspection.window.reading.part, inspection.unread.texts_cut) == (Part.LAST, 20)
    assert inspection.unread.share.value == pytest.approx(2 / 3, abs=0.001)
    assert inspection.fading[-1].ndcg_at_10_not_read < 0.4
    assert {result.values.read.part for result in read_results(tmp_path)} == {Part.LAST}


@pytest.mark.slow
def test_order_blind_model_has_no_bias():
    inspection = run(FirstWords(), invent_texts(60, 15))
    assert inspection.window.reading.is_complete
    assert inspection.unread.share.value == 0
    for scores in inspection.fading:
        findings = scores.findings
        assert findings.state is State.NO_BIAS
        assert findings.get_value(Quantity.UNREAD_SHARE) == 0
        assert findings[Quantity.POSITION_EFFECT].estimate.value == pytest.approx(0, abs=0.005)


def test_page_shows_the_verdict_without_truncation():
    inspection = run(FirstWords(), invent_texts(20, 9), 8_000)
    findings = inspection.fading[-1].findings
    assert findings.get_value(Quantity.UNREAD_SHARE) == 0
    *_, verdict = inspection.position_charts()[0].facts()
    assert verdict.state == label_state(findings)


def test_texts_longer_than_the_model_accepts_raise():
    with pytest.raises(
        PosirError,
        match=r"first 60 words .* 5 of 5 texts are longer \(ValueError: at most 60 words\)",
    ):
        run(RefusesLong(60), invent_texts(5, 15))


@pytest.mark.slow
def test_texts_without_eligible_sentences():
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
def test_output_in_terminal_json_and_html(
    truncated,
):
    inspection, _ = truncated
    printed = show(inspection)
    findings = inspection.fading[-1].findings
    assert len(printed.splitlines()) < 60
    assert max(map(len, printed.splitlines())) <= 80
    assert describe_verdict(findings) in " ".join(printed.split())
    assert f" {inspection.chunks.selection.cost:.1f} " in printed
    assert "PSI" not in printed
    assert "PSI" in str(complete_inspection(replace(inspection, full=True)))
    values = json.loads(inspection.to_json())
    assert values["fading"][-1]["groups"]["all"]["state"] == findings.state
    assert values["rows"][0]["level"] == 0.95
    assert values["window"]["measured_on"]["words_read"] == {"low": 60, "high": 60}
    skipped = (SkippedItem("<script>alert(1)</script>", "empty"),)
    page = complete_inspection(replace(inspection, skipped=skipped)).to_html()
    assert "<script>alert(1)" not in page
    assert not re.search(
        r'(src|href)="', re.sub(r"<script.*?</script>|<a [^>]*>", "", page, flags=re.DOTALL)
    )
    assert page.count('class="range"') > 2
    offsets = [page.index(text) for text in ("What to do", "How far the model reads", "chunk size")]
    assert offsets == sorted(offsets)
    undecided = complete_inspection(replace(inspection, chunks=None)).to_html()
    assert "What to do" in undecided
    assert "What to do: Next" not in undecided


def list_searched(encoder: FirstWords, texts: list[str]) -> list[str]:
    """List the texts encoded after the window was measured."""
    return encoder.encoded[encoder.encoded.index(texts[0]) :]


@pytest.mark.slow
@pytest.mark.parametrize("budget", [None, 30_000])
def test_texts_are_encoded_once_within_the_budget(budget: int | None):
    encoder, texts = FirstWords(), invent_texts(60, 15)
    inspection = run(encoder, texts, budget)
    searched = list_searched(encoder, texts)
    assert len(searched) == len(set(searched)) > 60
    total = sum(map(estimate_tokens, searched))
    if budget:
        assert total <= min(budget, 6 * sum(map(estimate_tokens, texts))) * 1.05
        assert inspection.fading_texts < 60
    assert total <= inspection.work.tokens * 1.05


def test_budget_below_the_minimum_raises():
    texts = invent_texts(20, 15)
    with pytest.raises(PosirError, match="A budget of 10 tokens is too small") as raised:
        run(FirstWords(words=60), texts, 10)
    minimum = int(re.search(r"at least ([\d,]+) are", str(raised.value))[1].replace(",", ""))
    encoder = FirstWords(words=60)
    inspection = run(encoder, texts, minimum)
    window = inspection.window.tokens.high
    assert inspection.encoded_tokens == sum(
        min(estimate_tokens(text), window) for text in list_searched(encoder, texts)
    )
    assert inspection.encoded_tokens <= inspection.work.tokens * 1.05
    assert (inspection.work.tokens, inspection.fading_texts) == (minimum, 2)


@pytest.mark.slow
def test_long_texts_are_compared_in_excerpts():
    inspections: list[Inspection] = []
    inspection = run(FirstWords(), invent_texts(52, 120), 250_000, show=inspections.append)
    assert inspection.excerpt_tokens == 512
    assert 2 <= inspection.chunk_texts <= 50
    assert [row.size for row in inspection.chunks.rows] == [None, 256, 128, 64]
    assert [len(item.sections()) for item in inspections] == [2, 4, 6]
    assert f"{inspection.chunk_texts} excerpts of at most 512 tokens" in " ".join(
        show(inspection).split()
    )


class AlternateWriter:
    """Paraphrases every other sentence by reversing it, which an order-blind model ignores."""

    name = "test/first-words"

    def write(self, requests):
        return [
            " ".join(reversed(request.sentence.split())) if row % 2 else None
            for row, request in enumerate(requests)
        ]

    def describe_answers(self):
        return ""


def test_paraphrased_questions():
    encoder, texts = FirstWords(words=300), invent_texts(8, 12)
    inspection = inspect_model(
        InspectionInput(
            ModelEncoder(encoder), None, collect(*texts), 30_000, writer=AlternateWriter()
        )
    )
    searched = list_searched(encoder, texts)
    assert len(searched) == len(set(searched))
    other_words = inspection.other_words
    paraphrased, rarest = inspection.fading
    assert (paraphrased.wording, rarest.wording) == (Wording.OTHER_WORDS, Wording.RAREST_WORDS)
    assert other_words.questions == paraphrased.findings.questions
    assert other_words.questions == rarest.findings.questions - other_words.unwritten
    assert (other_words.writer, other_words.writer_is_model) == ("test/first-words", True)
    # A reversed question has the same words.
    assert other_words.words_alone.shared_words == pytest.approx(1)
    chunk_rows = other_words.chunks.rows
    assert [row.size for row in chunk_rows] == [row.size for row in inspection.chunks.rows]
    assert chunk_rows[0].ndcg_at_10.value == pytest.approx(
        paraphrased.findings.get_value(Quantity.NDCG_AT_10)
    )
    printed = " ".join(show(inspection).split())
    assert "Paraphrased questions" in printed
    assert "This is also the inspected model" in printed
    assert [section.title for section in inspection.sections(Medium.PAGE)][:2] == [
        "",
        "How far the model reads",
    ]
    assert sum(bool(row["chunk_size"]) for row in inspection.records()) == 2 * (
        len(inspection.chunks.rows) - 1
    )


def test_writer_without_questions():
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
    assert "0 questions written by silent. silent: 0 answers." in show(inspection)


def test_chunked_model_reproduces_the_measured_scores(monkeypatch):
    # Without rotated versions, the vectors of the last search can be counted.
    monkeypatch.setenv(ROTATED_VARIABLE, "0")
    model = build_encoder()
    collection = collect(*invent_texts(4, 8))
    request = InspectionInput(ModelEncoder(model), find_tokenizer(model), collection, None)
    questions = generate_questions(collection, request.token_counter.count_all(request.texts))
    units = ("tokens", "words", "characters", "estimated_tokens")
    reading = ReadingLength(
        part=None, **dict.fromkeys(units, Bounds(1, 1)), unit="tokens", documents=1
    )
    inspection = Inspection(
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
    run = InspectionRun(request, questions, reading)
    rows = run.search_chunks(replace(inspection, fading_texts=4)).chunks.rows
    assert [row.size for row in rows] == [None, 94, 64]
    task = build_question_task(
        collection.name, collection.language, questions, Wording.RAREST_WORDS
    )
    for row in rows[1:]:
        chunked_model = parse_reference(f"chunks({row.size})").wrap(model)
        scores = evaluate(task, chunked_model, {"batch_size": 7, "show_progress_bar": False})
        assert scores["ndcg_at_10"] == pytest.approx(row.ndcg_at_10.value, abs=1e-5)
        assert chunked_model.document_vectors == row.vectors > 4


def test_largest_chunk_that_fits_is_a_size():
    encoder = build_encoder(prompts={"document": "one two three four: ", "query": ""})
    assert choose_sizes(encoder, DEFAULT_CONTEXT, None) == [89, 64]
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
def test_folder_in_every_output_format(model, texts, tmp_path):
    arguments = ("inspect", model, texts)
    text = invoke(*arguments, "--html", tmp_path / "page.html")
    for phrase in (
        "of these 12 texts",
        "Skipped: 1 binary (scan.doc).",
        "How far the model reads",
        "What to do",
    ):
        assert phrase in text
    assert "vegaEmbed" in (tmp_path / "page.html").read_text()
    values = json.loads(invoke(*arguments, "--format", "json"))
    assert values["chunks"]["chosen"] in ("whole texts", "chunks of 62 tokens")
    assert [(row["name"], row["reason"]) for row in values["skipped"]] == [("scan.doc", "binary")]


@pytest.mark.slow
def test_inspect_server(texts):
    with serve_embeddings(model="bge-m3", window=30) as server:
        text = invoke("inspect", server.reference, texts)
    assert "It reads only the first 30 words of a text (about " in text
    assert "although BAAI/bge-m3 claims 8,192 tokens" in text


@pytest.mark.slow
def test_contextual_chunks_are_compared(texts):
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
def test_usage_errors(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PosirError, match=message):
        invoke("inspect", *arguments)


@pytest.mark.parametrize(
    ("budget", "message"),
    [("60k", "Give a model and texts"), (0, "--budget 0: "), ("x", "--budget x: ")],
)
def test_budget_errors_in_python(budget, message):
    with pytest.raises(PosirError, match=message):
        posir.inspect("tiny", budget=budget)
