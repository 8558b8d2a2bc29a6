"""How similar the domains of a dataset are: PosIR (Zeng et al. 2026, arXiv 2601.08363, A.2, Fig. 6).

S_AB = cos(c_A, c_B), where c_A is the mean of the embeddings of all documents of domain A. The paper does not say whether
embeddings have unit length before they are averaged; here they do. Sums of embeddings add, so shards can be measured apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from mteb.types import PromptType

from posir_probes.encoding import Encoder, unit_vectors
from posir_stats.dataset import Dataset
from posir_tasks.cells import Floats
from posir_tasks.display.numbers import format_number
from posir_tasks.display.progress import progress
from posir_tasks.display.tables import Table, build_columns

#: Documents encoded at a time.
BLOCK = 1_000


@dataclass(frozen=True, eq=False)
class DomainSum:
    """The sum of the embeddings of a domain's documents. Sums add."""

    documents: int
    vector: Floats
    """Shape (dimensions,)."""

    @classmethod
    def from_texts(cls, encoder: Encoder, texts: Sequence[str]) -> DomainSum:
        """Embed and sum at least one document, in bounded memory."""
        blocks = (texts[start : start + BLOCK] for start in range(0, len(texts), BLOCK))
        sums = [unit_vectors(encoder(block, PromptType.document)).sum(axis=0, dtype=np.float64) for block in blocks]
        return cls(len(texts), np.sum(sums, axis=0))

    def __add__(self, other: DomainSum) -> DomainSum:
        return DomainSum(self.documents + other.documents, self.vector + other.vector)


def compare_domains(sums: Mapping[str, DomainSum]) -> Floats:
    """Return the cosine of the centroids of D domains, shape (D, D), in the order of the mapping."""
    centroids = np.array([one.vector / one.documents for one in sums.values()])
    centroids /= np.linalg.norm(centroids, axis=1, keepdims=True)
    similarities: Floats = centroids @ centroids.T
    return similarities


def inter_domain_similarity(encoder: Encoder, domains: Mapping[str, Sequence[str]]) -> Floats:
    """Return the similarity of domains, shape (D, D), from the documents of each; embeddings in the cache are reused."""
    return compare_domains({name: DomainSum.from_texts(encoder, texts) for name, texts in domains.items()})


def measure_domains(encoder: Encoder, dataset: Dataset) -> dict[str, DomainSum]:
    """Return the sum of each subset of a dataset, read one at a time; raise DataError if one cannot be read."""
    subsets = progress(dataset.subsets, "Domains")
    return {f"{one.language}/{one.domain}": DomainSum.from_texts(encoder, one.read().corpus["text"][:]) for one in subsets}


@dataclass(frozen=True)
class DomainPair:
    """The similarity of two domains."""

    one: str
    other: str
    documents_of_one: int
    documents_of_other: int
    similarity: float


def list_pairs(sums: Mapping[str, DomainSum]) -> list[DomainPair]:
    """Return each pair of domains once, the most similar first."""
    similarities, names = compare_domains(sums), list(sums)
    pairs = [
        DomainPair(one, other, sums[one].documents, sums[other].documents, float(similarities[row, column]))
        for row, one in enumerate(names)
        for column, other in enumerate(names[:row])
    ]
    return sorted(pairs, key=lambda pair: -pair.similarity)


def build_table(sums: Mapping[str, DomainSum]) -> Table:
    """Return the matrix of similarities as a table."""
    names = list(sums)
    cells = [
        (name, f"{sums[name].documents:,}", *(format_number(value, ".3f") for value in row))
        for name, row in zip(names, compare_domains(sums).tolist(), strict=True)
    ]
    note = (
        "Cosine of the mean embeddings of all documents (arXiv 2601.08363, A.2); embeddings have unit length before the mean."
    )
    return Table(build_columns(("Domain", "Documents", *names), ("Documents", *names)), tuple(cells), notes=(note,))
