"""Two models on the same queries, and their results on disk."""

import numpy as np

from posir_compare.pairing import Pair, build_pairs
from posir_compare.runs import ModelRun, collect_runs
from posir_tasks.results import read_all_results
from posir_tasks.values.document_ranks import DocumentRanks
from posir_tasks.values.evidence import Evidence
from posir_tasks.values.schemes import RelativePositions
from tests.support.results import write_result
from tests.support.rotations import READS_ALL

SCHEME = RelativePositions(bins=5)


def draw_evidence(queries, seed=0, document_size=5):
    """Evidence at random positions; `document_size` queries share a document."""
    rng = np.random.default_rng(seed)
    names = [f"{seed}-q{row}" for row in range(queries)]
    documents = [f"{seed}-d{row // document_size}" for row in range(queries)]
    starts = rng.integers(0, 4000, queries)
    tokens = rng.integers(100, 2500, queries // document_size + 1)[
        np.arange(queries) // document_size
    ]
    return Evidence(names, documents, starts, starts + 10, np.full(queries, 4010), tokens)


def draw_ranks(queries, seed):
    return np.random.default_rng(seed).geometric(0.5, queries) % 14


DOMAINS = {"game": draw_evidence(300, 1), "sports": draw_evidence(200, 2)}


def write_run(folder, model, seed, domains=DOMAINS, scheme=SCHEME, by_document=True, **options):
    """Write a model's result; unless by document, with a document for each query, which no other
    result has.
    """
    ranks = {
        subset: DocumentRanks.from_ranks(
            scheme, evidence, draw_ranks(len(evidence), seed + place), subset=subset
        )
        for place, (subset, evidence) in enumerate(domains.items())
    }
    values = ranks if by_document else {subset: value.profile for subset, value in ranks.items()}
    return write_result(folder, values, model=model, read=READS_ALL, **options)


def read_model_runs(folders) -> list[ModelRun]:
    """Return every run in the folders."""
    return collect_runs([read_all_results(folder) for folder in folders])


def pair_runs(*folders) -> list[Pair]:
    """Return the pairs of the first run in the folders with all others."""
    runs = read_model_runs(folders)
    return build_pairs(runs, runs[0])


def only_pair(*folders):
    (pair,) = pair_runs(*folders)
    return pair
