"""The similarity of the domains of a dataset: PosIR (Zeng et al. 2026, arXiv 2601.08363, A.2, Fig. 6).

S_AB = cos(c_A, c_B), where c_A is the mean of the embeddings of all documents of domain A. The paper does not say whether
embeddings have unit length before they are averaged; here they do. Sums of embeddings add, so shards can be measured apart.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import altair as alt
import numpy as np
from mteb.types import PromptType

from posir_probe.data import ProbeSource
from posir_probe.results import result_folder
from posir_tasks.cells import Floats, reading_json
from posir_tasks.display.charts import add_frame
from posir_tasks.display.figures import Figure
from posir_tasks.display.numbers import format_number
from posir_tasks.display.progress import progress
from posir_tasks.display.tables import Table, build_columns
from posir_tasks.embeddings.encoding import Encoder, unit_vectors
from posir_tasks.errors import PosirError, summarize_error
from posir_tasks.files import atomic_write
from posir_tasks.gate import read_json

if TYPE_CHECKING:
    from mteb.models import ModelMeta

#: Documents encoded at a time.
BLOCK = 1_000
#: Version of the files. A reader refuses a newer one.
SCHEMA = 1
FOLDER = "domains"


@dataclass(frozen=True, eq=False)
class DomainSum:
    """The sum of the embeddings of a domain's documents. Sums add."""

    documents: int
    vector: Floats
    """Shape (dimensions,)."""
    data_revision: str = ""

    @classmethod
    def from_texts(cls, encoder: Encoder, texts: Sequence[str], data_revision: str = "") -> DomainSum:
        """Embed and sum at least one document, in bounded memory."""
        blocks = (texts[start : start + BLOCK] for start in range(0, len(texts), BLOCK))
        sums = [unit_vectors(encoder(block, PromptType.document)).sum(axis=0, dtype=np.float64) for block in blocks]
        return cls(len(texts), np.sum(sums, axis=0), data_revision)

    def __add__(self, other: DomainSum) -> DomainSum:
        revisions = " + ".join(dict.fromkeys(filter(None, (self.data_revision, other.data_revision))))
        return DomainSum(self.documents + other.documents, self.vector + other.vector, revisions)

    def to_json(self) -> dict[str, Any]:
        """Return the sum as plain JSON, in single precision."""
        packed = base64.b64encode(self.vector.astype(np.float32).tobytes()).decode()
        return {"data_revision": self.data_revision, "documents": self.documents, "vector": packed}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> DomainSum:
        """Read a sum; raise KeyError, TypeError or ValueError if it is damaged."""
        vector = np.frombuffer(base64.b64decode(data["vector"]), np.float32).astype(np.float64)
        return cls(int(data["documents"]), vector, str(data["data_revision"]))


def compare_domains(sums: Mapping[str, DomainSum]) -> Floats:
    """Return the cosine of the centroids of D domains, shape (D, D), in the order of the mapping."""
    centroids = np.array([domain.vector / domain.documents for domain in sums.values()])
    centroids /= np.linalg.norm(centroids, axis=1, keepdims=True)
    similarities: Floats = centroids @ centroids.T
    return similarities


def inter_domain_similarity(encoder: Encoder, domains: Mapping[str, Sequence[str]]) -> Floats:
    """Return the similarity of domains, shape (D, D), from the documents of each; embeddings in the cache are reused."""
    return compare_domains({name: DomainSum.from_texts(encoder, texts) for name, texts in domains.items()})


def measure_domains(encoder: Encoder, source: ProbeSource, file: Path) -> dict[str, DomainSum]:
    """Return the sum of each subset of a source, read one at a time; those that are in a file already are not measured again.

    Raises:
        PosirError: There is only one subset, or the file is damaged.
        DataError: A subset cannot be read.
    """
    if len(source.subsets) < 2:
        raise PosirError(f"{source.name}: only one domain; nothing to compare. Give a task or a folder with several.")
    known = load_sums(file) if file.exists() else {}
    sums: dict[str, DomainSum] = {}
    for subset in progress(source.subsets, "Domains"):
        texts = subset.read()
        done = known.get(subset.name)
        if done is None or done.data_revision != texts.revision:
            done = DomainSum.from_texts(encoder, list(texts.data.documents.values()), texts.revision)
        sums[subset.name] = done
        save_sums(file, {**known, **sums})
    return sums


def strip_language(subset: str) -> str:
    """Return the domain of a subset `language/domain`."""
    return subset.rpartition("/")[2]


def check_shared_domains(sources: Sequence[ProbeSource]) -> None:
    """Raise PosirError unless two sources have different names, one language each, and at least two domains in common."""
    names = [source.name for source in sources]
    if len(set(names)) < len(names):
        raise PosirError(f"{names[0]}: the same dataset twice. Give another one with --above.")
    domains = [[strip_language(subset.name) for subset in source.subsets] for source in sources]
    for name, of_dataset in zip(names, domains, strict=True):
        if len(sources) > 1 and len(set(of_dataset)) < len(of_dataset):
            raise PosirError(f"{name}: a domain in several languages. With --above, give data in one language each.")
    if len(sources) > 1 and len(set.intersection(*map(set, domains))) < 2:
        raise PosirError(f"{' and '.join(names)}: fewer than two domains in common, so one heat map cannot show both.")


def locate_sums(output: Path, meta: ModelMeta, data: str) -> Path:
    """Return the file of a model's sums on a dataset below an `--output`."""
    return result_folder(output, meta).parent / FOLDER / f"{data}.json"


def save_sums(file: Path, sums: Mapping[str, DomainSum]) -> None:
    """Write sums atomically; raise PosirError if the folder is not writable or the disk is full."""
    content = {"schema": SCHEMA, "domains": {name: domain.to_json() for name, domain in sums.items()}}
    with atomic_write(file) as part:
        part.write_text(json.dumps(content), encoding="utf-8")


def load_sums(file: Path) -> dict[str, DomainSum]:
    """Read sums; raise PosirError if the file is damaged or of a newer schema."""
    try:
        data = read_json(file)
        with reading_json(data, SCHEMA, "similarity of domains"):
            return {str(name): DomainSum.from_json(stored) for name, stored in data["domains"].items()}
    except (OSError, ValueError, PosirError) as error:
        raise PosirError(f"{file}: not sums of domains ({summarize_error(error)}). Remove it, and run again.") from error


@dataclass(frozen=True)
class DomainPair:
    """The similarity of two domains."""

    data: str
    first: str
    second: str
    documents_of_first: int
    documents_of_second: int
    similarity: float


def list_pairs(sums: Mapping[str, DomainSum], data: str) -> list[DomainPair]:
    """Return each pair of domains of a dataset once, the most similar first."""
    similarities, names = compare_domains(sums), list(sums)
    pairs = [
        DomainPair(data, name, other, sums[name].documents, sums[other].documents, float(similarities[row, column]))
        for row, name in enumerate(names)
        for column, other in enumerate(names[:row])
    ]
    return sorted(pairs, key=lambda pair: -pair.similarity)


def build_domain_table(sums: Mapping[str, DomainSum], data: str) -> Table:
    """Return the matrix of similarities of a dataset's domains as a table."""
    names = list(sums)
    cells = [
        (name, f"{sums[name].documents:,}", *(format_number(value, ".3f") for value in row))
        for name, row in zip(names, compare_domains(sums).tolist(), strict=True)
    ]
    note = (
        "Cosine of the mean embeddings of all documents (arXiv 2601.08363, A.2); embeddings have unit length before the mean."
    )
    return Table(build_columns(("Domain", "Documents", *names), ("Documents", *names)), tuple(cells), title=data, notes=(note,))


def draw_domains(sums: Mapping[str, Mapping[str, DomainSum]], model: str) -> Figure:
    """Return a heat map of the similarities of domains; of two datasets, one below and one above the diagonal.

    Args:
        sums: Of each domain, by dataset: one, or two with at least two domains in common, which are shown.
        model: Name of the model.
    """
    above = len(sums) > 1
    renamed = [{strip_language(name) if above else name: part for name, part in domains.items()} for domains in sums.values()]
    names = [name for name in renamed[0] if name in renamed[-1]]
    values = [compare_domains({name: domains[name] for name in names}) for domains in renamed]
    matrix = np.where(np.tri(len(names), dtype=bool), values[0], values[-1])
    rows = [
        {"first": name, "second": other, "similarity": float(matrix[row, column])}
        for row, name in enumerate(names)
        for column, other in enumerate(names)
    ]
    chart = (
        alt.Chart(alt.InlineData(values=rows))
        .mark_rect()
        .encode(
            x=alt.X("second:N", sort=names, title=None, axis=alt.Axis(labelAngle=-90)),
            y=alt.Y("first:N", sort=names, title=None),
            color=alt.Color("similarity:Q", title="Cosine", scale=alt.Scale(scheme="viridis")),
            tooltip=["first:N", "second:N", alt.Tooltip("similarity:Q", format=".4f")],
        )
        .properties(width=alt.Step(18), height=alt.Step(18))
    )
    data = " and ".join(sums)
    triangles = f" {' below the diagonal, '.join(sums)} above it." if above else ""
    explanation = f"Cosine of the domains' mean embeddings (arXiv 2601.08363, A.2).{triangles}"
    counts = ", ".join(
        f"{name}: {sum(part.documents for part in domains.values()):,} documents" for name, domains in sums.items()
    )
    return Figure(
        "inter_domain_similarity",
        data,
        model,
        add_frame(alt.vconcat(chart), "Similarity of domains", model, explanation, f"Source: {counts}."),
    )
