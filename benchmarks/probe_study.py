"""Study which probe predicts retrieval, over models that differ in training, pooling and window
(docs/measured.md).

Usage: python benchmarks/probe_study.py STUDY COVIDQA.json XQUAD.json [PART/PARTS]
       posir study correlate STUDY/results --families STUDY/families.csv

The models are variants of all-MiniLM-L6-v2 with mean, CLS and last-token pooling, and windows of
128 and 256 tokens. They are untrained, or trained briefly on windows of COVID-QA with the evidence
at the beginning, at the end or everywhere. Training papers are not evaluated. STUDY is the folder
of data, models and results. Run the command again to resume. With PART/PARTS, such as 2/3, several
processes share a study; 0/1 only writes the data.
"""

import csv
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import posir
from posir_mitigate.trials import open_data_task
from posir_tasks.datasets.opening import open_data

BASE = "sentence-transformers/all-MiniLM-L6-v2"
POOLINGS, POSITIONS = ("mean", "cls", "lasttoken"), ("begin", "end", "uniform")
UNTRAINED = "untrained"
#: Context windows in tokens.
WINDOWS = (128, 256)
#: Number of COVID-QA papers for training, and questions per paper. Other papers are evaluated.
TRAINED_PAPERS, TRAINED_QUESTIONS = 45, 2
#: Number of documents per dataset, and questions per document.
DOCUMENTS, QUESTIONS = 40, 2
PAIRS = ("controlled_pairs", "controlled_pairs_effect")
REGRESSION = ("sentence_regression", "sentence_regression_fit", "sentence_regression_scatter")
#: Number of probed documents by probes: all if mirror reversal encodes them anyway, few for probes
#: that change texts many times.
DOCUMENTS_BY_PROBES = {
    ("mirror_reversal", "gradient_saliency"): 1_000,
    ("segment_similarity", "permutation", *REGRESSION): 9,
    ("evidence_moving", *PAIRS, "needle_insertion", "text_removal"): 3,
}
TRAINING = {
    "max_steps": 14,
    "batch_size": 8,
    "learning_rate": 2e-4,
    "warmup": 3,
    "schedule": "constant_with_warmup",
    "held_out": 0.1,
    "evaluations": 1,
    "select": "last",
    "budget": "most",
}


@dataclass(frozen=True)
class StudyModel:
    """A model in the study."""

    pooling: str
    training: str
    window: int

    @property
    def weights(self) -> str:
        """Pooling and training. Models with equal weights form a family."""
        return f"{self.pooling}-{self.training}"

    @property
    def reference(self) -> str:
        """Name of the folder in `models`."""
        return f"{self.weights}-{self.window}"


def list_models() -> list[StudyModel]:
    """List the models, the most informative first in case time runs out."""
    weights = [
        (pooling, training) for pooling in POOLINGS[:2] for training in (UNTRAINED, *POSITIONS)
    ]
    weights.sort(key=lambda pair: (UNTRAINED, *POSITIONS).index(pair[1]))
    weights += [(POOLINGS[2], training) for training in (UNTRAINED, *POSITIONS)]
    return [StudyModel(*pair, window) for window in WINDOWS for pair in weights]


def convert_to_squad(name: str, paragraphs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Convert paragraphs to SQuAD format, each as an article."""
    return {
        "data": [
            {"title": f"{name} {number}", "paragraphs": [paragraph]}
            for number, paragraph in enumerate(paragraphs)
        ]
    }


def keep_questions(paragraph: dict[str, Any], questions: int) -> dict[str, Any]:
    """Keep this number of evenly spaced questions of a paragraph."""
    sorted_questions = sorted(paragraph["qas"], key=lambda item: item["answers"][0]["answer_start"])
    step = max(1, len(sorted_questions) // questions)
    return {**paragraph, "qas": sorted_questions[step // 2 :: step][:questions]}


def read_paragraphs(file: Path) -> list[dict[str, Any]]:
    """Read the paragraphs of a file in SQuAD format."""
    return [
        paragraph
        for article in json.loads(file.read_text())["data"]
        for paragraph in article["paragraphs"]
    ]


def read_mini_paragraphs() -> Iterator[dict[str, Any]]:
    """Yield the documents of PosIR-Mini and their questions in SQuAD format."""
    data = open_data("PosIR-Mini").subsets[0].read()
    texts = dict(zip(data.corpus["id"], data.corpus["text"], strict=True))
    questions_by_document: dict[str, list[dict[str, Any]]] = {}
    spans = data.locate_spans()
    for query, document, question, (start, end) in zip(
        data.evidence.query_ids,
        data.evidence.document_ids,
        data.queries["text"],
        spans,
        strict=True,
    ):
        answer = {"text": texts[document][start:end], "answer_start": start}
        questions_by_document.setdefault(document, []).append(
            {"id": query, "question": question, "answers": [answer]}
        )
    for document, questions in questions_by_document.items():
        yield {"context": texts[document], "qas": questions}


def make_data(study: Path, covid_qa: Path, xquad: Path) -> None:
    """Write the training data and the three evaluation datasets."""
    folder = study / "data"
    folder.mkdir(parents=True, exist_ok=True)
    papers, passages = read_paragraphs(covid_qa), read_paragraphs(xquad)
    paragraphs_by_name = {
        "training-papers": [
            keep_questions(paper, TRAINED_QUESTIONS) for paper in papers[:TRAINED_PAPERS]
        ],
        "held-out-papers": [
            keep_questions(paper, QUESTIONS) for paper in papers[TRAINED_PAPERS:][:DOCUMENTS]
        ],
        "xquad": [
            keep_questions(passage, QUESTIONS)
            for passage in passages[:: len(passages) // DOCUMENTS][:DOCUMENTS]
        ],
        "posir-mini": [
            keep_questions(document, QUESTIONS)
            for document in list(read_mini_paragraphs())[:DOCUMENTS]
        ],
    }
    for name, paragraphs in paragraphs_by_name.items():
        (folder / f"{name}.json").write_text(json.dumps(convert_to_squad(name, paragraphs)))
    for source, output, tokens, positions in (
        ("training-papers", "training", 126, "each"),
        ("held-out-papers", "covid-windows", 250, "uniform"),
    ):
        options = [
            "--tokens",
            str(tokens),
            "--positions",
            positions,
            "--set",
            f"tokenizer={BASE}",
            "--quiet",
        ]
        output_options = [
            "--language",
            "eng-Latn",
            "--domain",
            "covid",
            "--output",
            str(folder / output),
        ]
        subprocess.run(
            ["posir", "compose", str(folder / f"{source}.json"), *output_options, *options],
            check=True,
        )


def make_model(study: Path, model: StudyModel) -> None:
    """Train a model unless it exists, and save it with each window."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling

    folders = [study / "models" / f"{model.weights}-{window}" for window in WINDOWS]
    if all(folder.exists() for folder in folders):
        return
    if model.training == UNTRAINED:
        encoder = SentenceTransformer(BASE, device="cpu")
        encoder[1] = Pooling(encoder.get_embedding_dimension(), pooling_mode=model.pooling)
    else:
        training_folder, data = study / "trained" / model.weights, study / "data" / "training"
        if not (training_folder / "modules.json").exists():
            shutil.rmtree(training_folder, ignore_errors=True)
            print(
                posir.train(
                    BASE,
                    data=data,
                    output=training_folder,
                    positions=model.training,
                    pooling=model.pooling,
                    **TRAINING,
                )
            )
        encoder = SentenceTransformer(str(training_folder), device="cpu")
    for folder, window in zip(folders, WINDOWS, strict=True):
        encoder.max_seq_length = window
        encoder.save(str(folder))


def measure(study: Path, model: StudyModel) -> None:
    """Evaluate and probe a model on the three datasets. Skip existing results."""
    reference = str(study / "models" / model.reference)
    for name in ("posir-mini.json", "xquad.json", "covid-windows"):
        data = study / "data" / name
        posir.evaluate(reference, open_data_task(open_data(data)), output_folder=study / "results")
        for probes, documents in DOCUMENTS_BY_PROBES.items():
            folder = study / "results"
            posir.probe(
                reference,
                data=data,
                probe=probes,
                documents=documents,
                split_at_periods=True,
                output=folder,
            )
        print(model.reference, name, flush=True)


def write_families(study: Path) -> None:
    """Write the file for `posir study correlate --families`."""
    with (study / "families.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("model", "family"))
        for model in list_models():
            writer.writerow((model.reference, model.weights))


if __name__ == "__main__":
    study, covid_qa, xquad, *part = map(Path, sys.argv[1:])
    number, parts = map(int, str(part[0]).split("/")) if part else (1, 1)
    if not (study / "families.csv").exists():
        make_data(study, covid_qa, xquad)
        write_families(study)
    for index, model in enumerate(list_models()):
        if number and index % parts == number - 1:
            make_model(study, model)
            measure(study, model)
