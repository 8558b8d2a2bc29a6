"""Published formats are read, unsupported formats are named, and errors name missing fields."""

import copy
import csv
import gzip
import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from datasets import Dataset

import posir
from posir_data.api import import_data, read_sources
from posir_tasks.base.errors import DataError, PosirError
from posir_tasks.data.formats.catalog import FORMATS, describe_format
from posir_tasks.data.formats.format import UNSUPPORTED_FORMATS
from posir_tasks.data.formats.passages import Cause
from posir_tasks.data.questions import collect_questions
from posir_tasks.datasets.opening import open_data
from tests.support.datasets import build_squad

TEXT = "Zoë flew to the north. The north wind blew all night, and Zoë 👩‍🚀 slept."
WIND = "The north wind blew all night"
NORTH = TEXT.index("north")
SECOND_NORTH = TEXT.index("north", NORTH + 1)


def write(file: Path, value: Any) -> Path:
    """Write JSON, JSON Lines, CSV or Parquet, depending on the suffix."""
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix == ".json":
        file.write_text(json.dumps(value))
    elif file.suffix == ".jsonl":
        file.write_text("".join(json.dumps(row) + "\n" for row in value))
    elif file.suffix == ".parquet":
        pl.DataFrame(value).write_parquet(file)
    else:
        with file.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, list(value[0]))
            writer.writeheader()
            writer.writerows(value)
    return file


def list_questions(path: Path) -> dict[str, list[str]]:
    """Map questions to the texts of their evidence spans."""
    imported = collect_questions(read_sources([path], scope="corpus"), "d", repair=True)
    evidence_by_question: dict[str, list[str]] = {}
    for name, (query, document, span) in imported.questions.items():
        assert name
        evidence_by_question.setdefault(query, []).append(span.slice(imported.documents[document]))
    return evidence_by_question


def build_question(
    name: str, question: str, *answers: dict[str, Any], **fields: Any
) -> dict[str, Any]:
    return {
        "qid": name,
        "question": question,
        "question_tokens": [[question, 0]],
        "detected_answers": [*answers],
        "answers": [answer["text"] for answer in answers],
        **fields,
    }


def build_answer(text: str, *starts: int) -> dict[str, Any]:
    # Ends are inclusive.
    spans = [[start, start + len(text) - 1] for start in starts]
    return {"text": text, "char_spans": spans, "token_spans": [[0, 0] for _ in spans]}


MRQA = [
    {"header": {"dataset": "Own", "split": "dev"}},
    {
        "context": TEXT,
        "context_tokens": [["Zoë", 0]],
        "qas": [build_question("m1", "Where to?", build_answer("north", NORTH, SECOND_NORTH))],
    },
]


def annotate(evidence: list[str], unanswerable: bool = False) -> dict[str, Any]:
    answer = {
        "unanswerable": unanswerable,
        "extractive_spans": [],
        "yes_no": None,
        "free_form_answer": "",
        "evidence": evidence,
        "highlighted_evidence": [],
    }
    return {"answer": answer, "annotation_id": "a", "worker_id": "w"}


PARAGRAPHS = ["We weighed nine\nbells.", "Copper rings longest.", "We thank the mill."]
QAS = [
    {
        "question": "Which metal rings longest?",
        "question_id": "p1",
        "nlp_background": "two",
        "answers": [annotate([PARAGRAPHS[1]]), annotate(["We weighed nine bells."])],
    }
]
PAPER = {
    "title": "On bells",
    "abstract": "Bells are weighed.",
    "full_text": [
        {"section_name": "Method", "paragraphs": PARAGRAPHS[:1]},
        {"section_name": None, "paragraphs": PARAGRAPHS[1:]},
    ],
    "qas": QAS,
    "figures_and_tables": [],
}
PAIRS = {
    "queries": {"q/1": "Who flew?", "q2": "What rings?"},
    "corpus": {"n|1": TEXT, "n2": "Copper rings longest."},
    "relevant_docs": {"q/1": ["n|1"], "q2": ["n2"]},
    "mode": "text",
}
WRITER = {"model_name": "m", "type": "ai"}
RAG_DATASET = {
    "examples": [
        {
            "query": "What blew?",
            "query_by": WRITER,
            "reference_contexts": [WIND],
            "reference_answer": "The wind.",
            "reference_answer_by": WRITER,
        }
    ]
}
RAGAS = [
    {
        "user_input": "What blew?",
        "reference_contexts": [f"<1-hop>\n\n{WIND}"],
        "reference": "The wind.",
        "synthesizer_name": "multi_hop_specific_query_synthesizer",
    }
]
OLD_RAGAS = [{"question": "What blew?", "contexts": [WIND], "ground_truth": "The wind."}]
AUTORAG = {
    "qa.parquet": [
        {"qid": "1", "query": "Who?", "retrieval_gt": [["a", "b"]], "generation_gt": ["x"]},
        {"qid": "2", "query": "What?", "retrieval_gt": [["c"]], "generation_gt": ["y"]},
    ],
    "corpus.parquet": [
        {"doc_id": name, "contents": f"Text {name}.", "metadata": {"last_modified_datetime": "x"}}
        for name in "abc"
    ],
}


@pytest.mark.parametrize("has_rows", [False, True])
def test_mrqa_spans_are_inclusive_and_include_all_occurrences(tmp_path, has_rows):
    join_lines: list[Any] = copy.deepcopy(MRQA)
    join_lines[1]["qas"] += [
        build_question("m2", "Who?", build_answer("zoë", 0)),
        build_question("m3", "Why?"),
        build_question("m4", "What?", build_answer("wind", SECOND_NORTH)),
    ]
    if has_rows:
        # The layout on the Hub.
        rows = []
        for question in join_lines[1]["qas"]:
            answers = question["detected_answers"]
            spans = [
                {"start": [pair[0] for pair in spans], "end": [pair[1] for pair in spans]}
                for spans in (answer["char_spans"] for answer in answers)
            ]
            texts = [answer["text"] for answer in answers]
            rows.append({"subset": "Own", "context": TEXT, **question})
            rows[-1]["detected_answers"] = {"text": texts, "char_spans": spans}
        file = write(tmp_path / "a.jsonl", rows)
    else:
        file = write(tmp_path / "a.jsonl", join_lines)
    assert open_data(file).kind == "MRQA"
    assert list_questions(file) == {"Where to?": ["north", "north"], "Who?": ["Zoë"]}
    skipped = collect_questions(read_sources([file]), "d", repair=True).skipped
    assert {item.name: item.cause for item in skipped} == {
        "m3": Cause.UNANSWERABLE,
        "m4": Cause.ELSEWHERE,
    }


@pytest.mark.parametrize("suffix", [".json", ".jsonl", ".parquet"])
def test_qasper_evidence_consists_of_paragraphs(tmp_path, suffix):
    other_questions = [
        {"question": name, "question_id": name, "nlp_background": "two", "answers": answers}
        for name, answers in {
            "none": [annotate([], True), annotate([], True)],
            "one": [annotate([], True), annotate([PARAGRAPHS[1]])],
            "table": [annotate(["FLOAT SELECTED: Table 1: Bells."])],
            "lost": [annotate(["A paragraph of another paper."])],
        }.items()
    ]
    paper = PAPER | {"qas": [*QAS, *other_questions]}
    content: Any = {"1901.1": paper}
    if suffix != ".json":
        content = [{"id": "1901.1", **paper}]
    if suffix == ".parquet":
        # The layout on the Hub, with lists as columns.
        content[0]["full_text"] = _to_columns(paper["full_text"])
        content[0]["qas"] = _to_columns(paper["qas"])
        content[0]["figures_and_tables"] = ["a"]
    file = write(tmp_path / f"a{suffix}", content)
    assert open_data(file).kind == "QASPER"
    assert list_questions(file) == {"Which metal rings longest?": [PARAGRAPHS[1], PARAGRAPHS[0]]}
    imported = collect_questions(read_sources([file], scope="corpus"), "d", repair=True)
    assert imported.documents == {
        "1901.1": "Bells are weighed.\n\nMethod\n\nWe weighed nine\nbells.\n\nCopper rings "
        "longest.\n\nWe thank the mill."
    }
    assert {item.name: item.cause for item in imported.skipped} == {
        "none": Cause.UNANSWERABLE,
        "one": Cause.DISAGREEMENT,
        "table": Cause.NOT_TEXT,
        "lost": Cause.UNLOCATED,
    }
    with pytest.raises(PosirError, match="--scope corpus"):
        import_data(file, domain="d", output=tmp_path / "out")


def _to_columns(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in rows[0]}


def test_autorag_and_llamaindex_judgments_are_read(tmp_path):
    for name, rows in AUTORAG.items():
        write(tmp_path / "autorag" / name, rows)
    judgments = open_data(tmp_path / "autorag").subsets[0].judgments
    assert judgments.grades == {"1": {"a": 1, "b": 1}, "2": {"c": 1}}
    assert judgments.queries == {"1": "Who?", "2": "What?"}
    texts = open_data(tmp_path / "autorag").subsets[0].read().corpus
    assert texts["id"][:] == ["a", "b", "c"]
    file = write(tmp_path / "pairs.json", PAIRS)
    assert open_data(file).subsets[0].judgments.grades == {"q/1": {"n|1": 1}, "q2": {"n2": 1}}
    run = tmp_path / "run.json"
    run.write_text(json.dumps({"q/1": {"n|1": 2.0, "n2": 1.0}, "q2": {"n|1": 2.0, "n2": 1.0}}))
    scored = posir.score(run, data=file, language="eng-Latn", output=tmp_path / "results")
    assert scored.rows


GOLDEN = {
    "LlamaIndex": ("rag_dataset.json", RAG_DATASET),
    "ragas": ("testset.jsonl", RAGAS),
    "ragas in Parquet": ("testset.parquet", RAGAS),
    "ragas as a list": ("testset.json", RAGAS),
    "ragas before 0.2": ("testset.json", OLD_RAGAS),
    "ragas of pandas": ("testset.csv", [OLD_RAGAS[0] | {"contexts": repr([WIND])}]),
}


@pytest.mark.parametrize("case", GOLDEN)
def test_golden_sets_have_judgments_and_spans_in_documents(tmp_path, case):
    name, content = GOLDEN[case]
    file = write(tmp_path / name, content)
    subset = open_data(file).subsets[0]
    ((query, grades),) = subset.judgments.grades.items()
    assert subset.judgments.queries == {query: "What blew?"}
    documents = dict(zip(subset.read().corpus["id"], subset.read().corpus["text"], strict=True))
    assert [documents[document] for document in grades] == [WIND]
    write(tmp_path / "both" / name, content)
    source = tmp_path / "both/source_files/source.txt"
    source.parent.mkdir()
    source.write_text(TEXT.replace("north wind", "north\n  wind"))
    assert list_questions(tmp_path / "both") == {"What blew?": ["The north\n  wind blew all night"]}
    source.with_name("copy.txt").write_text(TEXT)
    with pytest.raises(PosirError, match="its context is in 2 documents"):
        import_data(tmp_path / "both", language="eng-Latn", domain="d", output=tmp_path / "out")


def test_published_formats_are_read_from_the_hub(monkeypatch):
    answers = {"text": ["north"], "char_spans": [{"start": [NORTH], "end": [NORTH + 4]}]}
    mrqa = {"context": TEXT, "qid": "m1", "question": "Where to?", "detected_answers": answers}
    rows = {
        "some/mrqa": [{"subset": "Own", **mrqa}],
        "some/ragas": RAGAS,
        "some/drop": UNSUPPORTED_SAMPLES["DROP on the Hub"][1],
        "some/body": [{"question": "What blew?", "answer": WIND, "body": TEXT}],
    }
    monkeypatch.setattr(
        "datasets.load_dataset", lambda name, *_, **__: Dataset.from_list(rows[name])
    )
    opened = open_data("some/mrqa", revision="6" * 40)
    assert (opened.location, opened.find_declared_language()) == (
        "some/mrqa@" + "6" * 40,
        "eng-Latn",
    )
    data = opened.subsets[0].read()
    assert [*data.evidence.starts] == [NORTH]
    judgments = open_data("some/ragas", revision="6" * 40).subsets[0].judgments
    assert [len(grades) for grades in judgments.grades.values()] == [1]
    with pytest.raises(DataError, match="some/drop: is DROP, which posir cannot read"):
        open_data("some/drop", revision="6" * 40)
    data_ = open_data("some/body", revision="6" * 40, column="body").subsets[0].read()
    assert [*data_.evidence.starts] == [TEXT.index(WIND)]


def join_lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\r\n" for row in rows)


TWO_CONTEXTS = [{"question": "What blew?", "contexts": [WIND, "Copper."], "ground_truth": "x"}]
COLUMNS = {"question": ["What blew?"], "contexts": [[WIND, "Copper."]], "ground_truth": ["x"]}
#: File name and content for variations of formats.
VARIATIONS = {
    "MRQA, lines named .json": ("a.json", join_lines(MRQA)),
    "MRQA without header": ("a.json.gz", join_lines(MRQA[1:])),
    "MRQA as a list": ("a.json", json.dumps(MRQA)),
    "QASPER as a list": ("a.json", json.dumps([{"id": "1901.1", **PAPER}], indent=1)),
    "QASPER, lines named .json": ("a.json", join_lines([{"id": "1901.1", **PAPER}])),
    "examples as lines": ("a.jsonl", join_lines(RAG_DATASET["examples"])),
    "ragas, lines named .json": (
        "a.json",
        join_lines([*RAGAS, {**RAGAS[0], "user_input": "Who?"}]),
    ),
    "ragas in one line": ("a.json", join_lines(RAGAS)),
    "ragas with null": (
        "a.jsonl",
        join_lines([*RAGAS, {"user_input": "", "reference_contexts": None}]),
    ),
    "ragas with a text": (
        "a.jsonl",
        join_lines([TWO_CONTEXTS[0] | {"contexts": '[1] He said "Zoë".'}]),
    ),
    "ragas in columns": ("a.json", json.dumps(COLUMNS)),
    "ragas of pandas": (
        "a.json",
        json.dumps({name: {"0": value[0]} for name, value in COLUMNS.items()}),
    ),
    "ragas of NumPy": (
        "a.tsv",
        f"question\tcontexts\tground_truth\nWhat blew?\t['{WIND}' 'Copper.']\tx\n",
    ),
    "DeepEval": (
        "a.json",
        json.dumps([{"input": "What blew?", "context": [WIND], "expected_output": "x"}]),
    ),
}


@pytest.mark.parametrize("case", VARIATIONS)
def test_variations_of_formats_are_read(tmp_path, case):
    name, content = VARIATIONS[case]
    data = f"\ufeff{content}".encode()
    file = tmp_path / name
    file.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    opened = open_data(file, scope="corpus").subsets[0]
    grade_counts = {query: len(grades) for query, grades in opened.judgments.grades.items()}
    expected = {"MRQA": {"m1": 1}, "QASP": {"p1": 1}}.get(case[:4], {"q1": 1})
    if case in ("ragas in columns", "ragas of pandas", "ragas of NumPy"):
        expected = {"q1": 2}
    if case == "ragas, lines named .json":
        expected = {"q1": 1, "q2": 1}
    assert grade_counts == expected


def test_autorag_may_have_several_question_files(tmp_path):
    write(tmp_path / "corpus.parquet", AUTORAG["corpus.parquet"])
    for number, row in enumerate(AUTORAG["qa.parquet"]):
        write(tmp_path / f"qa_{number}.parquet", [row])
    judgments = open_data(tmp_path).subsets[0].judgments
    assert judgments.grades == {"1": {"a": 1, "b": 1}, "2": {"c": 1}}


def test_context_ids_are_document_ids(tmp_path):
    row = RAGAS[0] | {"id": "r1", "reference_context_ids": ["c7"]}
    file = write(tmp_path / "a.jsonl", [row])
    assert open_data(file).subsets[0].judgments.grades == {"r1": {"c7": 1}}


def test_different_texts_with_the_same_id_are_rejected(tmp_path):
    row = RAGAS[0] | {"reference_context_ids": ["c7"]}
    other_row = row | {"reference_contexts": ["Another text."]}
    file = write(tmp_path / "a.jsonl", [row, other_row])
    with pytest.raises(DataError, match="another text has the same id, c7"):
        open_data(file).subsets[0].read()


#: Samples of unsupported formats as published.
UNSUPPORTED_SAMPLES = {
    "ReCoRD": (
        "a.json",
        {
            "version": "1.0",
            "data": [
                {
                    "id": "r",
                    "source": "Daily mail",
                    "passage": {"text": TEXT, "entities": [{"start": 0, "end": 2}]},
                    "qas": [
                        {
                            "id": "r0",
                            "query": "@placeholder flew",
                            "answers": [{"start": 0, "end": 2, "text": "Zoë"}],
                        }
                    ],
                }
            ],
        },
    ),
    "ReCoRD of SuperGLUE": (
        "a.jsonl",
        [
            {
                "source": "Daily mail",
                "passage": {"text": TEXT, "entities": [{"start": 0, "end": 2}]},
                "qas": [{"query": "@placeholder flew", "answers": [], "idx": 0}],
                "idx": 0,
            }
        ],
    ),
    "ReCoRD on the Hub": (
        "a.parquet",
        [
            {
                "passage": TEXT,
                "query": "@placeholder flew",
                "entities": ["Zoë"],
                "entity_spans": {"text": ["Zoë"], "start": [0], "end": [3]},
                "answers": ["Zoë"],
                "idx": {"passage": 0, "query": 0},
            }
        ],
    ),
    "ContractNLI": (
        "a.json",
        {
            "documents": [
                {
                    "id": 1,
                    "file_name": "a.pdf",
                    "text": TEXT,
                    "spans": [[0, 22]],
                    "annotation_sets": [
                        {"annotations": {"nda-1": {"choice": "Entailment", "spans": [0]}}}
                    ],
                }
            ],
            "labels": {"nda-1": {"short_description": "s", "hypothesis": "h"}},
        },
    ),
    "FinanceBench": (
        "a.jsonl",
        [
            {
                "financebench_id": "f",
                "company": "Mill",
                "doc_name": "MILL_2018_10K",
                "question": "How many?",
                "answer": "9",
                "evidence": [
                    {
                        "evidence_text": TEXT,
                        "doc_name": "MILL_2018_10K",
                        "evidence_page_num": 0,
                        "evidence_text_full_page": TEXT,
                    }
                ],
            }
        ],
    ),
    "evidence-inference": (
        "annotations_merged.csv",
        [
            {
                "UserID": "0",
                "PromptID": "1",
                "PMCID": "2",
                "Valid Label": "True",
                "Valid Reasoning": "True",
                "Label": "significantly increased",
                "Annotations": TEXT,
                "Label Code": "1",
                "In Abstract": "True",
                "Evidence Start": "0",
                "Evidence End": "22",
            }
        ],
    ),
    "evidence-inference, prompts": (
        "prompts_merged.csv",
        [
            {
                "PromptID": "1",
                "PMCID": "2",
                "Outcome": "sleep",
                "Intervention": "wind",
                "Comparator": "calm",
            }
        ],
    ),
    "DROP": (
        "a.json",
        {
            "nfl_1": {
                "passage": TEXT,
                "qa_pairs": [
                    {
                        "question": "How many?",
                        "answer": {"number": "2", "date": {}, "spans": []},
                        "query_id": "d",
                    }
                ],
                "wiki_url": "u",
            }
        },
    ),
    "DROP on the Hub": (
        "a.parquet",
        [
            {
                "section_id": "nfl_1",
                "query_id": "d",
                "passage": TEXT,
                "question": "Where?",
                "answers_spans": {"spans": ["north"], "types": ["span"]},
            }
        ],
    ),
    "PubMedQA": (
        "a.json",
        {
            "123": {
                "QUESTION": "Does it ring?",
                "CONTEXTS": [TEXT],
                "LABELS": ["RESULTS"],
                "MESHES": [],
                "YEAR": "2001",
                "final_decision": "yes",
                "LONG_ANSWER": "It does.",
            }
        },
    ),
    "PubMedQA on the Hub": (
        "a.parquet",
        [
            {
                "pubid": 123,
                "question": "Does it ring?",
                "context": {"contexts": [TEXT], "labels": ["RESULTS"], "meshes": ["a"]},
                "long_answer": "It does.",
                "final_decision": "yes",
            }
        ],
    ),
    "QAngaroo": (
        "a.json",
        [
            {
                "id": "WH_1",
                "query": "country_of_origin mill",
                "answer": "north",
                "candidates": ["north", "south"],
                "supports": [TEXT],
            }
        ],
    ),
    "CRUD-RAG": (
        "split_merged.json",
        {
            "event_summary": [{"ID": "1", "event": "e", "summary": "s", "text": TEXT}],
            "questanswer_1doc": [
                {"ID": "1", "event": "e", "news1": TEXT, "questions": "Who?", "answers": "Zoë"}
            ],
        },
    ),
    "training data of DPR": (
        "a.json",
        [
            {
                "dataset": "own",
                "question": "Who?",
                "answers": ["Zoë"],
                "positive_ctxs": [{"title": "t", "text": TEXT}],
                "negative_ctxs": [],
                "hard_negative_ctxs": [],
            }
        ],
    ),
    "HotpotQA": (
        "a.json",
        [
            {
                "_id": "h",
                "question": "Who?",
                "answer": "Zoë",
                "context": [["t", [TEXT]]],
                "supporting_facts": [["t", 0]],
                "type": "bridge",
                "level": "hard",
            }
        ],
    ),
}


@pytest.mark.parametrize("case", UNSUPPORTED_SAMPLES)
def test_unsupported_formats_are_rejected_by_name(tmp_path, case):
    name, content = UNSUPPORTED_SAMPLES[case]
    file = write(tmp_path / name, content)
    (format_,) = [
        format_ for format_ in UNSUPPORTED_FORMATS if case.startswith(format_.title.split()[0])
    ]
    with pytest.raises(DataError) as error_info:
        open_data(file)
    assert f"is {format_.title}, which posir cannot read. {format_.advice}" in str(error_info.value)
    assert "rite " in format_.advice
    # With a text column, the file can be read as texts.
    assert open_data(file, column="text").has_questions is False


def test_all_unsupported_formats_have_samples():
    for format_ in UNSUPPORTED_FORMATS:
        assert any(case.startswith(format_.title.split()[0]) for case in UNSUPPORTED_SAMPLES), (
            format_.title
        )


def remove_field(value: Any, name: str) -> Any:
    """Remove a field at any depth."""
    if isinstance(value, dict):
        return {key: remove_field(item, name) for key, item in value.items() if key != name}
    return [remove_field(item, name) for item in value] if isinstance(value, list) else value


ROW = {"id": "1", "context": TEXT, "question": "What blew?", "answer": WIND}
TYDI = {
    "example_id": 1,
    "language": "english",
    "document_title": "t",
    "document_url": "u",
    "question_text": "What blew?",
    "document_plaintext": TEXT,
    "passage_answer_candidates": [{"plaintext_start_byte": 0, "plaintext_end_byte": 9}],
    "annotations": [
        {
            "annotation_id": 1,
            "passage_answer": {"candidate_index": 0},
            "yes_no_answer": "NONE",
            "minimal_answer": {"plaintext_start_byte": 0, "plaintext_end_byte": 4},
        }
    ],
}
NQ = {
    "example_id": 1,
    "question_text": "What blew?",
    "document_title": "t",
    "document_url": "u",
    "document_text": f"<P> {TEXT} </P>",
    "long_answer_candidates": [{"start_token": 0, "end_token": 9, "top_level": True}],
    "annotations": [
        {
            "annotation_id": 1,
            "long_answer": {"start_token": 0, "end_token": 9, "candidate_index": 0},
            "short_answers": [],
            "yes_no_answer": "NONE",
        }
    ],
}
REPLIQA = {
    "document_id": "d",
    "document_topic": "t",
    "document_path": "p",
    "document_extracted": TEXT,
    "question_id": "q",
    "question": "What blew?",
    "answer": "The wind.",
    "long_answer": WIND,
}
#: Sample and required fields of each supported file format.
SAMPLES: dict[str, tuple[str, Any, str]] = {
    "MRQA": ("a.jsonl", MRQA, "context qas qid question detected_answers text char_spans"),
    "QASPER": (
        "a.json",
        {"1901.1": PAPER},
        "title abstract full_text paragraphs qas question question_id answers answer "
        "unanswerable evidence",
    ),
    "QASPER in rows": ("a.jsonl", [{"id": "1901.1", **PAPER}], "id full_text qas evidence"),
    "an EmbeddingQAFinetuneDataset": ("a.json", PAIRS, "queries corpus relevant_docs"),
    "LabelledRagDataset": ("a.json", RAG_DATASET, "examples query reference_contexts"),
    "ragas": ("a.jsonl", RAGAS, "user_input reference_contexts"),
    "ragas before 0.2": ("a.json", OLD_RAGAS, "question contexts ground_truth"),
    "ragas of pandas": (
        "a.csv",
        [OLD_RAGAS[0] | {"contexts": repr([WIND])}],
        "question contexts ground_truth",
    ),
    "SQuAD": (
        "a.json",
        build_squad(),
        "data paragraphs context qas question answers answer_start text",
    ),
    "JSON Lines": ("a.jsonl", [ROW], "context question answer"),
    "JSON Lines with a span": (
        "a.jsonl",
        [{"context": TEXT, "question": "Who?", "start": 0, "end": 3}],
        "context question start end",
    ),
    "Parquet": ("a.parquet", [ROW], "context question answer"),
    "TyDi QA": (
        "a.jsonl",
        [TYDI],
        "language document_url question_text document_plaintext passage_answer_candidates "
        "annotations candidate_index plaintext_start_byte plaintext_end_byte",
    ),
    "Natural Questions": (
        "a.jsonl",
        [NQ],
        "question_text document_text long_answer_candidates annotations long_answer start_token "
        "end_token",
    ),
    "RepLiQA": (
        "repliqa_0-0.parquet",
        [REPLIQA],
        "document_id document_extracted question answer long_answer",
    ),
}
MISSING_FIELDS = [
    (case, field) for case, (_, _, fields) in SAMPLES.items() for field in fields.split()
]


@pytest.mark.parametrize("case", SAMPLES)
def test_samples_of_all_formats_are_read(tmp_path, case):
    name, content, _ = SAMPLES[case]
    subset = open_data(write(tmp_path / name, content), scope="corpus").subsets[0]
    assert subset.judgments.grades or subset.read().queries


@pytest.mark.parametrize(("case", "field"), MISSING_FIELDS)
def test_errors_name_the_missing_field(tmp_path, case, field):
    name, content, _ = SAMPLES[case]
    file = write(tmp_path / name, remove_field(content, field))
    with pytest.raises(PosirError) as error_info:
        import_data(file, language="eng-Latn", domain="d", output=tmp_path / "out", scope="corpus")
    # Remove the parts of the message that do not depend on the data.
    message, _, _ = str(error_info.value).replace(str(tmp_path), "").partition("Supported formats")
    message = re.sub(r"Expected: .*?\.(?= It contains|$|\n)", "", message)
    for format_ in FORMATS:
        message = message.replace(format_.advice or "-", "")
    assert field in message, message


AUTORAG_NAMES = "corpus.parquet qa.parquet qid query retrieval_gt doc_id contents"


@pytest.mark.parametrize("missing", AUTORAG_NAMES.split())
def test_errors_name_missing_autorag_files_and_columns(tmp_path, missing):
    for name, rows in AUTORAG.items():
        if name != missing:
            write(tmp_path / name, remove_field(rows, missing))
    with pytest.raises(PosirError, match=missing):
        open_data(tmp_path).select_questions("posir score").subsets[0].read()


def test_errors_show_the_first_record_and_the_formats(tmp_path):
    file = write(tmp_path / "a.jsonl", [{"question": "Who?", "answer": "Zoë", "body": TEXT}] * 2)
    message = describe_format(file)
    assert 'first record is {"question": "Who?", "answer": "Zo\\u00eb"' in message
    assert "missing: context" in message
    assert "posir import --formats" in message
    formats = import_data(formats=True)
    assert [row["form"] for row in formats.rows] == [
        format_.title for format_ in FORMATS if format_.suffixes
    ]


def test_documents_may_be_in_another_column(tmp_path):
    row = {"question": "What blew?", "answer": WIND, "body": TEXT}
    for name in ("a.jsonl", "a.parquet"):
        file = write(tmp_path / name, [row])
        output = tmp_path / name.replace(".", "_")
        import_data(file, language="eng-Latn", domain="d", output=output, column="body")
        ((query, _),) = open_data(output).subsets[0].read().evidence.map_positives().items()
        assert query


def test_declared_languages_are_used(tmp_path):
    for case in ("MRQA", "TyDi QA", "RepLiQA"):
        name, content, _ = SAMPLES[case]
        file = write(tmp_path / case.replace(" ", "_") / name, content)
        import_data(file, domain="d", output=tmp_path / "read" / case)
        assert (tmp_path / "read" / case / "eng-Latn/d/queries.parquet").exists()
    write(tmp_path / "MRQA/b.jsonl", MRQA)
    assert open_data(tmp_path / "MRQA").find_declared_language() == "eng-Latn"
    (tmp_path / "MRQA/notes.py").write_text("x = 1\n")
    assert open_data(tmp_path / "MRQA").find_declared_language() == "eng-Latn"
    file = write(tmp_path / "a.jsonl", [TYDI, TYDI | {"language": "telugu"}])
    with pytest.raises(PosirError, match="--language CODE"):
        import_data(file, domain="d", output=tmp_path / "out")
    import_data(tmp_path / "read/MRQA/eng-Latn", domain="e", output=tmp_path / "again")
    file = write(tmp_path / "b.json", build_squad())
    with pytest.raises(PosirError, match=r"may be eng-Latn\. Add --language CODE"):
        import_data(file, domain="d", output=tmp_path / "out")


@pytest.mark.parametrize(
    ("head", "code"),
    [
        ("---\nlanguage: ja\n---\n", "jpn-Jpan"),
        ("\ufeff---\r\nlicense: mit\r\nlanguage:\r\n- deu\r\n---\r\n# Card", "deu-Latn"),
        ("---\nlanguage: [de, fr]\n---\n", ""),
        ("---\nlanguage: klingonese\n---\n", ""),
        ("---\nlanguage: {\n---\n", ""),
        ("---\nlanguage: de\n", ""),
        ("language: de\n---\n", ""),
        ("---\n---\n", ""),
    ],
)
def test_languages_in_dataset_cards_are_used(tmp_path, head, code):
    (tmp_path / "README.md").write_bytes(head.encode())
    file = write(tmp_path / "b.json", build_squad())
    assert open_data(file).find_declared_language() == code
    if code:
        import_data(tmp_path, domain="d", output=tmp_path / "out")
        assert (tmp_path / "out" / code / "d/queries.parquet").exists()
