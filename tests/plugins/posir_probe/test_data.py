"""All kinds of data that `posir probe` accepts."""

import json
import random
from pathlib import Path

import numpy as np
import pytest

from posir_probe.controls import order_blind
from posir_probe.data import ProbeData, ProbeQuestion, Selection, open_probe_source
from posir_probe.evidence_moving import EvidenceMoving
from posir_probe.posir_paper import EvidenceLocation, EvidenceLocationStart
from posir_probe.probe import run_probe
from posir_tasks.base.errors import PosirError
from posir_tasks.data.data import PositionData, build_text_frame
from posir_tasks.text.interventions import NO_SPAN
from posir_tasks.text.spans import Span
from posir_tasks.values.evidence import Evidence
from tests.support.datasets import posir_tables, write_domain

MILL = (
    "The mill burned in 1901. Nobody knew why. It was built again of stone, and the miller's son "
    "ran it for forty years."
)
FERRY = (
    "The ferry left the harbour at noon. Nobody on the quay saw where it went. It came back at "
    "nine o'clock."
)


def read(source: object, **options) -> ProbeData:
    (read_subset,) = open_probe_source(str(source), **options).subsets.values()
    return read_subset()


def quote(data: ProbeData) -> list[tuple[str, str]]:
    return [
        (question.document, data.documents[question.document][slice(*question.span)])
        for question in data.questions
    ]


def write_lines(file: Path, rows: list[dict]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


@pytest.fixture
def beir(tmp_path):
    write_lines(
        tmp_path / "corpus.jsonl",
        [{"_id": "a", "text": MILL}, {"_id": "b", "text": FERRY, "title": "Ferry"}],
    )
    queries = [
        {"_id": "1", "text": "When did it burn?", "answer": "1901"},
        {
            "_id": "2",
            "text": "Who ran it?",
            "metadata": {"evidence": ["the miller's son", "built again of stone"]},
        },
        {
            "_id": "3",
            "text": "What left?",
            "metadata": {"evidence": {"b": "The ferry left", "a": "Nobody knew why"}},
        },
        {"_id": "4", "text": "Who knew?", "answer": "Nobody"},
        {"_id": "5", "text": "Where?", "pos_char_span": [4, 9]},
        {"_id": "6", "text": "Which?"},
    ]
    write_lines(tmp_path / "queries.jsonl", queries)
    pairs = [
        ("1", "a", 1),
        ("2", "a", 1),
        ("3", "a", 1),
        ("3", "b", 1),
        ("4", "b", 0),
        ("5", "b", 1),
        ("6", "b", 1),
    ]
    lines = ["query-id\tcorpus-id\tscore", *("\t".join(map(str, pair)) for pair in pairs)]
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "dev.tsv").write_text("\n".join(lines))
    return tmp_path


def test_evidence_of_a_beir_folder_is_found(beir):
    data = read(beir)
    assert list(data.documents) == ["a", "b"]
    assert quote(data) == [
        *(
            ("a", text)
            for text in ("1901", "the miller's son", "built again of stone", "Nobody knew why")
        ),
        *(("b", text) for text in ("The ferry left", "ferry", "")),
    ]
    assert data.questions[-1].span == NO_SPAN
    probe = run_probe(EvidenceLocation(), order_blind, data)
    assert probe.totals.sum() == 6
    assert probe.skipped == {"no evidence span": 1}
    (beir / "qrels" / "dev.tsv").unlink()
    with pytest.raises(PosirError, match="no split 'test'"):
        open_probe_source(str(beir))


def test_a_squad_file_is_read_and_missing_fields_are_reported(tmp_path):
    questions = [
        {
            "id": "1",
            "question": "When?",
            "answers": [{"text": "1901", "answer_start": MILL.index("1901")}],
        },
        {"id": "2", "question": "Who?", "answers": []},
    ]
    file = tmp_path / "mill-v2.json"
    file.write_text(
        json.dumps(
            {"data": [{"title": "Mill", "paragraphs": [{"context": MILL, "qas": questions}]}]}
        )
    )
    source = open_probe_source(str(file))
    assert source.name == "mill-v2"
    assert [(skip.name, skip.detail) for skip in source.skipped] == [("2", "has no answer")]
    assert [evidence for _, evidence in quote(read(file))] == ["1901"]


def test_plain_texts_have_no_questions_and_bad_files_are_reported(tmp_path):
    (tmp_path / "mill.txt").write_text(MILL)
    (tmp_path / "ferry.md").write_text(FERRY)
    (tmp_path / "empty.txt").touch()
    (tmp_path / "scan.doc").write_bytes(b"%PDF\x00")
    (tmp_path / "mixed.txt").write_text(
        f"{FERRY} Die Mühle brannte 1901 ab. Niemand wusste, warum, und niemand fragte danach."
    )
    source = open_probe_source(str(tmp_path))
    skipped = {skip.name: skip.reason for skip in source.skipped}
    assert skipped == {
        "empty.txt": "empty",
        "scan.doc": "binary",
        "mixed.txt": "in mixed languages",
    }
    assert list(source.subsets) == ["en"]
    data = read(tmp_path)
    assert dict(sorted(data.documents.items())) == {"ferry.md": FERRY, "mill.txt": MILL}
    assert data.questions == ()
    assert len(read(tmp_path, limit=1).documents) == 1


def test_data_in_the_posir_layout_and_tasks_are_found_first(tmp_path):
    write_domain(tmp_path, posir_tables())
    assert list(open_probe_source(str(tmp_path)).subsets) == ["eng-Latn/sports"]
    assert len(read(tmp_path).questions) > 0
    assert open_probe_source("PosIR-Mini").name == "PosIR-Mini"
    with pytest.raises(PosirError, match="no such file, folder or task"):
        open_probe_source("PosIR-Minni")


def sample_like_posq_code(texts, low, high, count):
    """Sample the texts of Table 4 as in the authors' code (arXiv 2505.13950, A.4)."""
    eligible = sorted({text for text in texts if low < len(text.split(" ")) < high})
    random.seed(1)
    random.shuffle(eligible)
    return eligible[:count]


def test_samples_match_the_posq_code(tmp_path):
    rng = random.Random(5)
    texts = [
        f"The mill burned. It {' '.join(f'mill{rng.randrange(999)}' for _ in range(n))}."
        for n in range(90, 140)
    ]
    expected = sample_like_posq_code(texts, 100, 120, 7)
    data = ProbeData.from_texts(texts)
    selection = Selection(words=(100, 120))
    assert list(data.sample(7, selection).documents.values()) == expected
    assert list(data.sample(7, Selection(2, (100, 120))).documents.values()) != expected
    assert data.sample(99, selection).corpus == data.documents
    (tmp_path / "texts.jsonl").write_text(
        "".join(f"{json.dumps({'text': text})}\n" for text in texts)
    )
    reread = read(tmp_path / "texts.jsonl", limit=7, selection=selection)
    assert sorted(reread.sample(7, selection).documents.values()) == sorted(expected)


def test_long_documents_are_selected_by_token_counts_in_the_data():
    documents = dict.fromkeys("abcd", "Word. " * 20)
    questions = tuple(ProbeQuestion("?", name, Span(0, 4)) for name in "abc")
    data = ProbeData(documents, questions, tokens={"a": 1024, "b": 1023, "c": 4000})
    assert set(data.sample(9, Selection(tokens=1024)).documents) == {"a", "c"}
    assert set(data.sample(9).documents) == set("abc")
    assert set(data.sample(9, with_questions=False).documents) == set("abcd")


def test_evidence_starts_without_ends_are_used():
    """SQuAD-PosQ only contains the start offset of an answer."""
    corpus = build_text_frame(["a", "b"], [MILL, FERRY])
    queries = build_text_frame(["1", "2"], ["When?", "What?"])
    squad = PositionData(
        corpus, queries, Evidence(["1", "2"], ["a", "b"], np.array([len(MILL) // 2, 0])), "1"
    )
    data = ProbeData.from_position_data(squad)
    assert run_probe(EvidenceLocationStart(), order_blind, data).values[[0, 9, 10]].sum() == 1
    skipped = [
        run_probe(probe, order_blind, data).skipped
        for probe in (EvidenceLocation(), EvidenceMoving())
    ]
    assert skipped == [{"the data has the start of the answer but not its end": 2}] * 2
    labeled = PositionData(
        corpus, queries, Evidence(["1", "2"], ["a", "b"], labels=("beginning", "end")), "1"
    )
    data = ProbeData.from_position_data(labeled)
    assert run_probe(EvidenceLocationStart(), order_blind, data).skipped == {"no evidence span": 2}
    assert [question.text for question in data.questions] == ["When?", "What?"]
