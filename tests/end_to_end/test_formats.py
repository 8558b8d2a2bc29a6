"""Every format and every command that reads data: what the format holds is used, and the rest is
refused in one sentence.
"""

import gzip
import json
from collections.abc import Mapping
from pathlib import Path

import polars as pl
import pytest

from posir_build.sample import open_source
from posir_build.settings import BuildSettings
from posir_data.api import read_sources
from posir_data.texts import read_texts
from posir_mitigate.trials import open_task
from posir_probe.data import open_probe_source
from posir_stats.api import compute_statistics
from posir_tasks.base.errors import DataError, PosirError
from posir_tasks.data.questions import collect_questions
from posir_tasks.data.repository import DATA_VARIABLE, open_repository
from posir_tasks.datasets.opening import open_data
from posir_tasks.text.sentences import find_sentences
from posir_train.examples import read_examples
from posir_train.settings import open_dataset
from tests.plugins.posir_train.texts import build_examples
from tests.support.commands import run
from tests.support.datasets import (
    POSIR_FOLDER,
    build_squad,
    posir_tables,
    write_beir_folder,
    write_domain,
)
from tests.support.hub import serve
from tests.support.models import write_tiny_model

EXAMPLES = build_examples(articles=6, questions=6)
TEXTS = {document.id: document.text for document in EXAMPLES.documents}
ASKED = {
    example.id: (example.question, example.document.id, example.evidence)
    for example in EXAMPLES.examples
}
QUESTIONS = sorted(
    (question, TEXTS[document], answer) for question, document, answer in ASKED.values()
)


def write_lines(file: Path, rows: list[dict]) -> Path:
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return file


#: Question, document and evidence by id.
Asked = Mapping[str, tuple[str, str, str]]


def layout(folder: Path, texts: Mapping[str, str] = TEXTS, asked: Asked = ASKED) -> Path:
    write_domain(folder, posir_tables(texts, asked))
    return folder


def parent_of_layout(folder: Path) -> Path:
    layout(folder / POSIR_FOLDER)
    (folder / "notes.txt").write_text("A text beside the data. It is not a part of it.")
    return folder


def language_of_layout(folder: Path) -> Path:
    return layout(folder) / "eng-Latn"


def squad_file(folder: Path, texts: Mapping[str, str] = TEXTS, asked: Asked = ASKED) -> Path:
    file = folder / "facts.json"
    file.write_text(json.dumps(build_squad(texts, asked)))
    return file


def compress(file: Path) -> Path:
    """Replace a file by a compressed one, as `gzip` does."""
    compressed = file.with_name(f"{file.name}.gz")
    compressed.write_bytes(gzip.compress(file.read_bytes()))
    file.unlink()
    return compressed


def compressed_squad_file(folder: Path) -> Path:
    return compress(squad_file(folder))


def folder_of_questions_and_texts(folder: Path) -> Path:
    for number, article in enumerate(build_squad(TEXTS, ASKED)["data"]):
        (folder / f"{number}.json").write_text(json.dumps({"data": [article]}))
    return folder


def question_rows(texts: Mapping[str, str] = TEXTS, asked: Asked = ASKED) -> list[dict]:
    return [
        {"id": name, "context": texts[document], "question": question,
         "answers": {"text": [answer], "answer_start": [texts[document].index(answer)]}}
        for name, (question, document, answer) in asked.items()
    ]  # fmt: skip


def question_lines(folder: Path, texts: Mapping[str, str] = TEXTS, asked: Asked = ASKED) -> Path:
    return write_lines(folder / "facts.jsonl", question_rows(texts, asked))


def compressed_lines(folder: Path) -> Path:
    return compress(question_lines(folder))


def question_parquet(folder: Path) -> Path:
    pl.DataFrame(question_rows()).write_parquet(folder / "facts.parquet")
    return folder / "facts.parquet"


def beir(folder: Path, texts: Mapping[str, str] = TEXTS, asked: Asked = ASKED) -> Path:
    queries = [
        {"_id": name, "text": question, "answer": answer}
        for name, (question, _, answer) in asked.items()
    ]
    qrels = [(name, document, 1) for name, (_, document, _) in asked.items()]
    return write_beir_folder(
        folder, [{"_id": name, "text": text} for name, text in texts.items()], queries, qrels
    )


def compressed_beir(folder: Path) -> Path:
    beir(folder)
    for name in ("corpus", "queries"):
        compress(folder / f"{name}.jsonl")
    return folder


def beir_of_sentences(folder: Path) -> Path:
    """Write evidence as SciFact does: the numbers of the sentences that have it, whose text is the
    evidence.
    """
    beir(folder)
    queries = [
        {
            "_id": name,
            "text": question,
            "metadata": {document: [{"sentences": [find_sentence(TEXTS[document], answer)[0]]}]},
        }
        for name, (question, document, answer) in ASKED.items()
    ]
    write_lines(folder / "queries.jsonl", queries)
    return folder


def find_sentence(text: str, answer: str) -> tuple[int, str]:
    sentences = [span.slice(text) for span in find_sentences(text, "eng-Latn")]
    return next(
        (number, sentence) for number, sentence in enumerate(sentences) if answer in sentence
    )


def plain_texts(folder: Path, texts: Mapping[str, str] = TEXTS) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text(text)
    return folder


def text_lines(folder: Path) -> Path:
    return write_lines(
        folder / "texts.jsonl", [{"_id": name, "text": text} for name, text in TEXTS.items()]
    )


def compressed_text_lines(folder: Path) -> Path:
    return compress(text_lines(folder))


def text_parquet(folder: Path) -> Path:
    pl.DataFrame({"id": list(TEXTS), "text": list(TEXTS.values())}).write_parquet(
        folder / "texts.parquet"
    )
    return folder / "texts.parquet"


WITH_QUESTIONS = (
    layout,
    parent_of_layout,
    language_of_layout,
    squad_file,
    compressed_squad_file,
    question_lines,
    question_parquet,
    beir,
    compressed_lines,
    compressed_beir,
    folder_of_questions_and_texts,
)
TEXTS_ALONE = (plain_texts, text_lines, compressed_text_lines, text_parquet)


def texts_of_inspect(source: str) -> list[str]:
    return [text.text for text in read_texts(source).texts]


def texts_of_build(source: str) -> list[str]:
    settings = BuildSettings.model_construct(
        documents=source, text_field=None, id_field=None, revision=None
    )
    return [document.text for document in open_source(settings).read_texts()]


def texts_of_probe(source: str) -> list[str]:
    (read,) = open_probe_source(source).subsets.values()
    return list(read().documents.values())


def questions_of_probe(source: str) -> list[tuple[str, str, str]]:
    (read,) = open_probe_source(source).subsets.values()
    data = read()
    asked = [(question, data.documents[question.document]) for question in data.questions]
    return [
        (question.text, document, question.span.slice(document)) for question, document in asked
    ]


def questions_of_train(source: str) -> list[tuple[str, str, str]]:
    examples = read_examples(open_dataset(source)).examples
    return [(example.question, example.document.text, example.evidence) for example in examples]


def questions_of_mitigate(source: str) -> list[tuple[str, str, str]]:
    task = open_task(source)
    (subset,) = task.hf_subsets
    data = task.read_subset(subset)
    texts = dict(zip(data.corpus["id"], data.corpus["text"], strict=True))
    rows = zip(
        data.queries["text"],
        data.evidence.document_ids,
        data.evidence.starts,
        data.evidence.ends,
        strict=True,
    )
    return [
        (question, texts[document], texts[document][start:end])
        for question, document, start, end in rows
    ]


def questions_of_import(source: str) -> list[tuple[str, str, str]]:
    imported = collect_questions(read_sources([Path(source)]), "facts", repair=False)
    texts = imported.documents
    rows = [
        (text, texts[document], list(span)) for text, document, span in imported.questions.values()
    ]
    return [(question, text, text[slice(*span)]) for question, text, span in rows]


@pytest.mark.parametrize("read", [texts_of_inspect, texts_of_build, texts_of_probe])
@pytest.mark.parametrize("write", [*WITH_QUESTIONS, *TEXTS_ALONE])
def test_every_command_that_takes_texts_reads_every_format(tmp_path, write, read):
    assert {*read(str(write(tmp_path)))} == {*TEXTS.values()}


@pytest.mark.parametrize(
    "read", [questions_of_probe, questions_of_train, questions_of_mitigate, questions_of_import]
)
@pytest.mark.parametrize("write", WITH_QUESTIONS)
def test_commands_read_questions_of_every_format(tmp_path, write, read):
    assert sorted(read(str(write(tmp_path)))) == QUESTIONS


@pytest.mark.parametrize(
    "read", [questions_of_probe, questions_of_train, questions_of_mitigate, questions_of_import]
)
def test_commands_read_the_evidence_of_scifact(tmp_path, read):
    expected = sorted(
        (question, text, find_sentence(text, answer)[1]) for question, text, answer in QUESTIONS
    )
    assert sorted(read(str(beir_of_sentences(tmp_path)))) == expected


@pytest.mark.parametrize(
    "damage",
    [lambda content: content[:-20], lambda _: b"{}", lambda content: content[:40] + b"!" * 80],
)
@pytest.mark.parametrize("write", [compressed_squad_file, compressed_lines, compressed_beir])
def test_a_damaged_compressed_file_is_one_sentence(tmp_path, write, damage):
    source = write(tmp_path)
    file = source if source.is_file() else source / "corpus.jsonl.gz"
    file.write_bytes(damage(file.read_bytes()))
    for read in (questions_of_import, texts_of_build, texts_of_inspect):
        with pytest.raises(
            DataError, match=r"(facts.jsonl?|corpus.jsonl)\.gz: .*cannot be read \("
        ):
            read(str(source))


@pytest.mark.slow
@pytest.mark.parametrize("write", [layout, question_parquet])
def test_a_dataset_of_the_hub_is_taken_by_every_command(tmp_path, write):
    root = tmp_path / "repository"
    root.mkdir()
    write(root)
    model = write_tiny_model(tmp_path / "model")
    target = ("--language", "eng-Latn", "--domain", "facts", "--output")
    commands = {
        "stats": ("stats", "some/facts", "--format", "json"),
        "compose": ("compose", "some/facts", "--tokens", "20", *target, tmp_path / "composed"),
        "import": ("import", "some/facts", *target, tmp_path / "imported"),
        "mitigate": ("mitigate", model, "some/facts", "--method", "chunks(32)"),
        "probe": ("probe", model, "--data", "some/facts", "--probe", "evidence_moving"),
        "absent": ("stats", "some/other"),
    }
    with serve("some/facts", root, "a" * 40) as hub:
        variables = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "0"}
        outcomes = {
            name: run("posir", *map(str, command), **variables)
            for name, command in commands.items()
        }
    assert {
        name: outcome.stderr
        for name, outcome in outcomes.items()
        if outcome.returncode and name != "absent"
    } == {}
    assert (
        "some/other: no such file or folder, and no dataset on the Hub" in outcomes["absent"].stderr
    )


@pytest.mark.slow
def test_the_language_of_a_card_on_the_hub_is_not_asked_for(tmp_path):
    root = tmp_path / "repository"
    root.mkdir()
    question_parquet(root)
    target = ("--domain", "facts", "--output", str(tmp_path / "imported"))
    for revision, card in (("a" * 40, ""), ("b" * 40, "---\nlanguage:\n- ja\n---\n# Facts\n")):
        if card:
            (root / "README.md").write_text(card)
        with serve("some/facts", root, revision) as hub:
            variables = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / revision)}
            outcome = run("posir", "import", "some/facts", *target, HF_HUB_OFFLINE="0", **variables)
        assert outcome.returncode == int(not card), outcome.stderr
    assert (tmp_path / "imported/jpn-Jpan/facts/queries.parquet").is_file()


@pytest.mark.parametrize("write", WITH_QUESTIONS)
def test_statistics_are_of_every_format_that_has_questions(tmp_path, write):
    (subset,) = compute_statistics(str(write(tmp_path))).subsets
    assert (subset.documents.texts, subset.queries.texts, subset.language) == (6, 36, "eng-Latn")


@pytest.mark.parametrize("read", [questions_of_train, questions_of_mitigate, compute_statistics])
@pytest.mark.parametrize("write", TEXTS_ALONE)
def test_texts_alone_are_refused_where_questions_are_needed(tmp_path, write, read):
    with pytest.raises(
        DataError, match=r"has no questions with the span of their evidence, which posir .* needs"
    ):
        read(str(write(tmp_path)))


@pytest.mark.parametrize("reference", ["none.json", "no/such/folder", "PosIR-Minni"])
def test_what_does_not_exist_is_one_sentence(reference):
    with pytest.raises(PosirError, match=r"no such file(, folder or task| or folder)\."):
        open_data(reference)


def test_posir_data_is_the_folder_of_the_data_or_its_parent(tmp_path, monkeypatch):
    folder = layout(tmp_path)
    monkeypatch.setenv(DATA_VARIABLE, str(folder))
    direct = open_repository("infgrad/PosIR-Benchmark-v1", "main")
    assert "eng-Latn/sports/queries.parquet" in direct.list_paths()
    assert questions_of_train("PosIR-English") == questions_of_train(str(folder))


def test_every_command_skips_a_file_not_in_utf_8_naming_the_byte(tmp_path, caplog):
    plain_texts(tmp_path)
    (tmp_path / "latin.txt").write_bytes("Größe".encode("latin-1"))
    skipped = ("latin.txt", "not UTF-8", "byte 0xf6 at 2")
    assert [
        (skip.name, skip.reason, skip.detail) for skip in read_texts(str(tmp_path)).skipped
    ] == [skipped]
    assert [
        (skip.name, skip.reason, skip.detail) for skip in open_probe_source(str(tmp_path)).skipped
    ] == [skipped]
    settings = BuildSettings.model_construct(
        documents=str(tmp_path), text_field=None, id_field=None, revision=None
    )
    assert [getattr(item, "detail", "") for item in open_source(settings).read_texts()].count(
        skipped[-1]
    ) == 1
    (tmp_path / "facts.json").write_text(json.dumps(build_squad(TEXTS, ASKED)))
    assert len(read_examples(open_dataset(str(tmp_path))).examples) == 36
    assert "Skipped: 1 not UTF-8 (latin.txt: byte 0xf6 at 2)" in caplog.text


def test_a_german_file_is_german(tmp_path):
    file = tmp_path / "fragen.json"
    text = (
        "Die Mühle am Fluss brannte im Jahr 1901 ab. Niemand im Dorf wusste, warum das geschehen "
        "war."
    )
    answers = [{"text": "1901", "answer_start": text.index("1901")}]
    paragraph = {"context": text, "qas": [{"question": "Wann?", "answers": answers}]}
    file.write_text(json.dumps({"data": [{"paragraphs": [paragraph]}]}))
    assert open_data(file).subsets[0].language == "deu-Latn"
    assert open_task(str(file)).metadata.languages == ["deu"]
    (subset,) = compute_statistics(str(file)).subsets
    assert subset.language == "deu-Latn"
