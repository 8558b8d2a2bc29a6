"""Studies over models and datasets: sample validity, domain similarity, model groups.

- Sample validity: Zeng et al. 2025 (arXiv 2505.13950v5, A.3, Fig. 3) plot nDCG@10 by position
  bucket for the Tiny samples next to the complete data, but report no numbers. Here, the difference
  of each bucket is reported, and the largest absolute difference is compared with random samples of
  the same size. Intervals are by bootstrap over the sample's queries.
- Domain similarity: PosIR (Zeng et al. 2026, arXiv 2601.08363v1, A.2, Fig. 6) defines S_AB =
  cos(c_A, c_B), where c_A is the mean embedding of all documents in domain A. The paper does not
  say whether embeddings are normalized before averaging; here they are.
- Model groups: Tables 2 and 3 of Bias Learning (OpenReview 4GD7a9Bo9A) average probes over two
  models per positional encoding.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, groupby, product
from pathlib import Path
from typing import TypeAlias

import altair as alt
import numpy as np
import polars as pl
from mteb.types import PromptType

from posir_probe.data import ProbeSource
from posir_probe.probe import Probe
from posir_probe.results import Compute, ProbeResult, ProbeSums, estimate_parts, select
from posir_published.probes import (
    Architecture,
    ArchitectureProperty,
    normalize_model_name,
    read_published_curves,
)
from posir_report.summary import TaskSummary
from posir_significance.curves import draw_overlay
from posir_significance.messages.probes import describe_sample_difference
from posir_tasks.base.arrays import Floats, Integers
from posir_tasks.base.batches import split_batches
from posir_tasks.base.errors import PosirError, summarize_error
from posir_tasks.base.files import write_text
from posir_tasks.base.progress import track_items
from posir_tasks.base.records import Record
from posir_tasks.base.untrusted import read_json
from posir_tasks.base.wording import pluralize
from posir_tasks.display.charts import add_frame, build_chart, compile_marks
from posir_tasks.display.figures import Figure
from posir_tasks.display.labels import Title
from posir_tasks.display.numbers import (
    MISSING,
    format_count,
    format_estimate,
    format_percent,
    format_points,
    format_psi,
)
from posir_tasks.display.tables import Role, Table, build_columns
from posir_tasks.models.embeddings.encoding import Encoder, normalize_vectors
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.profile import NDCG_AT_10, average_gains, validate_json

SUFFIX = "-Tiny"
RANDOM_SAMPLES, SEED = 2_000, 20250519
CONFIDENCE_LEVEL = 0.95
#: Number of documents to encode and sum at a time.
BLOCK_SIZE = 1_000
#: Schema version of domain sum files. Newer versions are rejected.
SCHEMA = 1
UNKNOWN = "unknown"
VALIDITY_NOTE = (
    "nDCG@10 x 100. Queries: number of queries in the sample. 95% intervals: bootstrap over these "
    "queries; for the largest difference, over all buckets jointly. By chance: 95% of random "
    "samples of this size differ less."
)
DOMAIN_NOTE = (
    "Cosine of the mean embeddings of all documents (arXiv 2601.08363v1, A.2). Embeddings are "
    "normalized before averaging."
)


@dataclass(frozen=True, kw_only=True)
class ValidityRow:
    """nDCG@10 of a bucket in a sample and in the complete data, or their largest difference."""

    model: str
    revision: str
    sample: str
    complete: str
    position: str
    """A position bucket, or `largest difference`."""
    queries: int
    """Number of queries in the sample."""
    ndcg_at_10_of_sample: float | None = None
    """Mean in [0, 1]; None for the largest difference."""
    ndcg_at_10_of_complete: float | None = None
    """Mean in [0, 1]; None for the largest difference."""
    difference: Estimate
    """Sample minus complete data. The largest difference is an absolute value."""
    chance: float | None = None
    """95th percentile of the largest difference of random samples; None for buckets."""


def find_samples(summaries: Iterable[TaskSummary]) -> list[tuple[TaskSummary, TaskSummary]]:
    """Pair each sample, `<task>-Tiny`, with its task if the same model has results on both."""
    by_task = {(summary.model, summary.revision, summary.task): summary for summary in summaries}
    pairs = []
    for (model, revision, task), full in by_task.items():
        if tiny := by_task.get((model, revision, f"{task}{SUFFIX}")):
            pairs.append((tiny, full))
    return pairs


def compare_tiny(tiny: TaskSummary, full: TaskSummary) -> list[ValidityRow]:
    """Compare a sample with its task.

    A bucket's interval is its difference +- the 95th percentile of the absolute deviations of
    bootstrap samples. The interval of the largest difference uses the largest deviation over the
    buckets, so that it covers all buckets jointly. A percentile interval would not cover the
    largest difference, since resampling noise always increases an absolute value.

    Returns:
        The largest difference, then a row per bucket with queries in both.

    Raises:
        ProfileError: The schemes differ.
    """
    build_row = partial(
        ValidityRow, model=tiny.model, revision=tiny.revision, sample=tiny.task, complete=full.task
    )
    axes = tiny.profile.axes
    axes.check_same(full.profile.axes)
    tiny_counts = tiny.profile.counts.sum(axis=0)
    full_counts = full.profile.counts.sum(axis=0)
    tiny_means = average_gains(tiny_counts, NDCG_AT_10)
    full_means = average_gains(full_counts, NDCG_AT_10)
    differences = tiny_means - full_means
    buckets = np.flatnonzero(~np.isnan(differences))
    sizes = tiny_counts.sum(axis=1)
    rng = np.random.default_rng(SEED)
    deviations = _sample_deviations(rng, tiny_counts[buckets], sizes[buckets])
    chance_deviations = _sample_deviations(rng, full_counts[buckets], sizes[buckets])
    margins = np.quantile(deviations, CONFIDENCE_LEVEL, axis=0)
    largest = float(np.abs(differences[buckets]).max())
    margin = float(np.quantile(deviations.max(axis=1), CONFIDENCE_LEVEL))
    rows = [
        build_row(
            position="largest difference",
            queries=tiny.profile.queries,
            difference=Estimate(largest, (max(0.0, largest - margin), largest + margin)),
            chance=float(np.quantile(chance_deviations.max(axis=1), CONFIDENCE_LEVEL)),
        )
    ]
    for index, margin in zip(buckets, margins, strict=True):
        difference = float(differences[index])
        rows.append(
            build_row(
                position=axes.positions[index],
                queries=int(sizes[index]),
                ndcg_at_10_of_sample=float(tiny_means[index]),
                ndcg_at_10_of_complete=float(full_means[index]),
                difference=Estimate(difference, (difference - margin, difference + margin)),
            )
        )
    return rows


def _sample_deviations(rng: np.random.Generator, counts: Integers, sizes: Integers) -> Floats:
    """Simulate absolute deviations of bucket means in samples, shape (RANDOM_SAMPLES, P)."""
    shares = counts / counts.sum(axis=1, keepdims=True)
    samples = [
        rng.multinomial(size, share, RANDOM_SAMPLES)
        for size, share in zip(sizes, shares, strict=True)
    ]
    means = average_gains(np.stack(samples, axis=1), NDCG_AT_10)
    return np.abs(means - average_gains(counts, NDCG_AT_10))


def describe_validity(rows: Iterable[ValidityRow]) -> Iterator[str]:
    """Describe the largest difference of each model and sample, and the difference by chance."""
    for row in rows:
        if row.chance is not None:
            yield describe_sample_difference(row.model, row.sample, row.difference, row.chance)


def build_validity_table(rows: Iterable[ValidityRow]) -> Table:
    """Build a table with a row per model, sample and position bucket."""
    numbers = ("Queries", "Complete", "Sample's", "Difference", "By chance up to")
    cells = [
        (
            row.model,
            row.sample,
            row.position,
            format_count(row.queries),
            format_percent(row.ndcg_at_10_of_complete),
            format_percent(row.ndcg_at_10_of_sample),
            format_estimate(row.difference, format_points),
            format_percent(row.chance),
        )
        for row in rows
    ]
    return Table(
        build_columns(
            ("Model", "Sample", "Position", *numbers),
            numbers,
            roles={"Model": Role.NAME, "Difference": Role.DIFFERENCE},
        ),
        tuple(cells),
        notes=(VALIDITY_NOTE,),
        split_by=Title("{Model}", "{Sample}"),
    )


def draw_samples(summaries: Iterable[TaskSummary]) -> list[Figure]:
    """Plot nDCG@10 by position on each sample and its complete data, one figure per model."""
    figures = []
    for pair in find_samples(summaries):
        names = [summary.task for summary in pair]
        chart = add_frame(
            compile_marks(draw_overlay({summary.task: summary.values for summary in pair})),
            "Sample and complete data",
            pair[0].model,
            "nDCG@10 by position of the evidence over all lengths, as in Fig. 3 of arXiv "
            "2505.13950v5. Shaded: 95% intervals.",
            f"Source: {' and '.join(names)}.",
        )
        figures.append(Figure("subset-validity", names[0], pair[0].model, chart))
    return figures


@dataclass(frozen=True, eq=False)
class DomainSum:
    """Sum of the normalized embeddings of a domain's documents."""

    documents: int
    vector: Floats
    """The sum, shape (dimensions,)."""
    data_revision: str = ""

    @classmethod
    def from_texts(
        cls, encoder: Encoder, texts: Sequence[str], data_revision: str = ""
    ) -> DomainSum:
        """Embed and sum documents in blocks. `texts` must not be empty."""
        sums = []
        for block in split_batches(texts, BLOCK_SIZE):
            vectors = normalize_vectors(encoder(block, PromptType.document))
            sums.append(vectors.sum(axis=0, dtype=float))
        return cls(len(texts), np.sum(sums, axis=0), data_revision)


#: Sums of a dataset by subset.
DomainSums = Mapping[str, DomainSum]


def compare_domains(sums: DomainSums) -> Floats:
    """Compute the cosines between the centroids of D domains, shape (D, D)."""
    centroids = np.array([domain.vector for domain in sums.values()])
    centroids /= np.linalg.norm(centroids, axis=1, keepdims=True)
    similarities: Floats = centroids @ centroids.T
    return similarities


def measure_domains(encoder: Encoder, source: ProbeSource, file: Path) -> dict[str, DomainSum]:
    """Sum the embeddings of each subset. Subsets that are already in the file are skipped.

    The file is saved after each subset.

    Raises:
        PosirError: There is only one subset, or the file is damaged.
    """
    if len(source.subsets) < 2:
        raise PosirError(
            f"{source.name}: only one domain, so there is nothing to compare. Give a task or a "
            "folder with several domains."
        )
    sums = load_sums(file) if file.exists() else {}
    for subset, read_subset in track_items(list(source.subsets.items()), "Domains"):
        data = read_subset()
        if subset not in sums or sums[subset].data_revision != data.revision:
            texts = list(data.documents.values())
            sums[subset] = DomainSum.from_texts(encoder, texts, data.revision)
        domains = {
            name: {**vars(domain), "vector": domain.vector.tolist()}
            for name, domain in sums.items()
        }
        write_text(file, json.dumps({"schema": SCHEMA, "domains": domains}))
    return {subset: sums[subset] for subset in source.subsets}


def load_sums(file: Path) -> dict[str, DomainSum]:
    """Read domain sums. Raise PosirError if the file is damaged or has a newer schema."""
    try:
        data = read_json(file)
        with validate_json(data, SCHEMA, "domain sums"):
            return {
                name: DomainSum(**fields | {"vector": np.array(fields["vector"], float)})
                for name, fields in data["domains"].items()
            }
    except (OSError, ValueError, PosirError) as error:
        raise PosirError(
            f"{file}: not domain sums ({summarize_error(error)}). Remove it, and run again."
        ) from error


def find_shared_domains(datasets: Iterable[Iterable[str]]) -> list[str]:
    """Find the domains that occur exactly once in every dataset.

    The domain of a subset such as `eng-Latn/sports` is `sports`.

    Raises:
        PosirError: There are fewer than two shared domains.
    """
    domains = [[subset.rpartition("/")[2] for subset in subsets] for subsets in datasets]
    shared_domains = [
        name for name in domains[0] if all(names.count(name) == 1 for names in domains)
    ]
    if len(shared_domains) < 2:
        raise PosirError(
            "fewer than two domains in common, so a heat map cannot show both datasets. With "
            "--above, give two datasets in one language each."
        )
    return shared_domains


def list_pairs(sums: DomainSums, data: str) -> list[Record]:
    """List all pairs of a dataset's domains, the most similar pair first."""
    similarities = compare_domains(sums)
    pairs = [
        {
            "data": data,
            "first": first,
            "second": second,
            "documents_of_first": sums[first].documents,
            "documents_of_second": sums[second].documents,
            "similarity": similarities.item(row, column),
        }
        for (column, second), (row, first) in combinations(enumerate(sums), 2)
    ]
    return sorted(pairs, key=lambda pair: -pair["similarity"])


def build_domain_table(sums: DomainSums, data: str) -> Table:
    """Build the similarity matrix of a dataset's domains."""
    cells = []
    for (name, domain), row in zip(sums.items(), compare_domains(sums).tolist(), strict=True):
        cells.append((name, format_count(domain.documents), *map(format_psi, row)))
    columns = build_columns(("Domain", "Documents", *sums), ("Documents", *sums))
    return Table(columns, tuple(cells), title=data, notes=(DOMAIN_NOTE,))


def draw_domains(sums: Mapping[str, DomainSums], model: str) -> Figure:
    """Plot a heat map of domain similarities.

    A second dataset fills the triangle above the diagonal.
    """
    names = list(next(iter(sums.values())))
    triangles = ""
    datasets = list(sums.values())
    if len(sums) > 1:
        names = find_shared_domains(datasets)
        triangles = f" {' below the diagonal, '.join(sums)} above it."
        datasets = [
            {subset.rpartition("/")[2]: domain for subset, domain in dataset.items()}
            for dataset in datasets
        ]
    values = [compare_domains({name: dataset[name] for name in names}) for dataset in datasets]
    matrix = np.where(np.tri(len(names), dtype=bool), values[0], values[-1])
    rows = [
        {"first": first, "second": second, "similarity": value}
        for (first, second), value in zip(product(names, names), matrix.flat, strict=True)
    ]
    cells = build_chart(rows).encode(
        x=alt.X("second:N", sort=names, title=None, axis=alt.Axis(labelAngle=-90)),
        y=alt.Y("first:N", sort=names, title=None),
        color=alt.Color("similarity:Q", title="Cosine", scale=alt.Scale(scheme="viridis")),
        tooltip=["first:N", "second:N", "similarity:Q"],
    )
    chart = add_frame(
        compile_marks(cells.mark_rect().properties(width=alt.Step(18), height=alt.Step(18))),
        "Similarity of domains",
        model,
        f"Cosine of the domains' mean embeddings (arXiv 2601.08363v1, A.2).{triangles}",
        f"Source: {', '.join(sums)}.",
    )
    return Figure("inter_domain_similarity", " and ".join(sums), model, chart)


@dataclass(frozen=True)
class GroupRow:
    """The value of a probe at one position, for a model or the mean of a group."""

    probe: str
    data: str
    group: str
    """Group name, such as `RoPE` or `causal`; `unknown` if the model's architecture is unknown."""
    model: str
    """Name of the model; empty for the mean of the group."""
    models: int
    position: str
    value: Estimate
    """Value with a 95% interval for these models, by bootstrap over documents. Published values
    have no interval.
    """
    source: str


#: Sums of a result, and functions that compute the value at each position.
SumsAndValues: TypeAlias = tuple[ProbeSums, Mapping[str, Compute]]
#: Parts to average, by model.
PartsByModel: TypeAlias = dict[str, list[SumsAndValues]]


def group_results(
    results: Iterable[ProbeResult],
    probes: Mapping[str, Probe],
    architectures: Mapping[str, Architecture],
    kind: ArchitectureProperty,
) -> list[GroupRow]:
    """Average probe values over groups of models, by probe and dataset.

    Each model has a row per position, and each group has a row with the unweighted mean. For models
    with results on all datasets, the mean over the datasets is added. Probes with averages over
    conditions have a row per average instead of a row per position. For models with results for all
    probes of this kind, the mean over the probes is added. Results with different settings, such as
    a paper's protocol, are never averaged together.
    """
    rows: list[GroupRow] = []
    sources = {name: probe.source for name, probe in probes.items()}

    def find_group(model: str) -> str:
        return getattr(architectures.get(normalize_model_name(model)), kind, "") or UNKNOWN

    for by_probe in _collect_parts(results, probes):
        # Averages over conditions are comparable between probes.
        names = [name for name in by_probe if probes[name].averages and not probes[name].is_variant]
        if len(names) > 1:
            mean_name = f"mean of {' and '.join(names)}"
            sources[mean_name] = sources[names[0]]
            models_by_data = {
                data: _join_models([by_probe[name].get(data, {}) for name in names])
                for data in by_probe[names[0]]
            }
            by_probe[mean_name] = {data: parts for data, parts in models_by_data.items() if parts}
        for name, by_data in by_probe.items():
            if len(by_data) > 1:
                by_data[f"mean of {len(by_data)} datasets"] = _join_models(list(by_data.values()))
            for data, parts_by_model in by_data.items():
                models = sorted(parts_by_model, key=lambda model: (find_group(model), model))
                for group, members in groupby(models, find_group):
                    parts = {model: parts_by_model[model] for model in members}
                    build_row = partial(GroupRow, name, data, group, source=sources[name])
                    rows += _average_group(parts, build_row)
    return rows


def _collect_parts(
    results: Iterable[ProbeResult], probes: Mapping[str, Probe]
) -> Iterable[dict[str, dict[str, PartsByModel]]]:
    """Collect the parts of each experiment by probe, dataset and model."""
    by_experiment: dict[str | None, dict[str, dict[str, PartsByModel]]] = {}
    for result in results:
        functions = probes[result.probe].averages or {
            position: select(index) for index, position in enumerate(result.sums.positions)
        }
        data = f"{result.data} ({result.experiment})" if result.experiment else result.data
        by_probe = by_experiment.setdefault(result.experiment, {})
        parts = by_probe.setdefault(result.probe, {}).setdefault(data, {})
        parts[result.model] = [(result.sums, functions)]
    return by_experiment.values()


def _join_models(groups: Sequence[PartsByModel]) -> PartsByModel:
    """Join the parts of each model that all groups contain."""
    models = set.intersection(*map(set, groups))
    return {model: [part for group in groups for part in group[model]] for model in models}


def _average_group(members: PartsByModel, build_row: Callable[..., GroupRow]) -> Iterator[GroupRow]:
    """Yield the values of each model in a group and, unless the group is unknown, their mean."""
    all_parts = [part for parts in members.values() for part in parts]
    for model, parts in {**members, "": all_parts}.items():
        for position in parts[0][1]:
            value = estimate_parts([(sums, functions[position]) for sums, functions in parts])
            row = build_row(model, 1 if model else len(members), position, value)
            if value and (model or row.group != UNKNOWN):
                yield row


def list_published_groups(probes: Iterable[str]) -> list[GroupRow]:
    """List the published means for each positional encoding. Each mean is over two models."""
    rows = []
    for probe in probes:
        for curve in read_published_curves(probe):
            if not curve.encoding:
                continue
            for position, value in zip(curve.positions, curve.values, strict=True):
                group = (probe, "the paper's data", curve.encoding, "", 2)
                rows.append(GroupRow(*group, position, Estimate(value), curve.source))
    return rows


def build_group_tables(rows: Sequence[GroupRow]) -> list[Table]:
    """Build a table per probe and dataset, with a row per model and a column per position."""
    cells = [
        (
            row.probe,
            row.data,
            row.group,
            row.model or f"mean of {pluralize(row.models, 'model')}",
            row.position,
            format_estimate(row.value, format_psi),
        )
        for row in rows
    ]
    keys = ["probe", "data"]
    frame = pl.DataFrame(cells, [*keys, "Group", "Model", "position", "value"], orient="row")
    tables = []
    for group in frame.partition_by(keys, maintain_order=True):
        title = Title(*group.row(0)[:2])
        matrix = group.drop(keys).pivot("position", values="value").fill_null(MISSING)
        columns = build_columns(matrix.columns, roles={"Model": Role.NAME})
        tables.append(Table(columns, tuple(matrix.rows()), title=title))
    return tables
