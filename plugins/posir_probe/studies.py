"""Studies over models and datasets: samples against complete data, similarity of domains, probes by
group of models.

- Does a small sample of a dataset show the same position profile as the whole? Zeng et al. 2025
  (arXiv 2505.13950v5, A.3, Fig. 3) show nDCG@10 by position bucket of the Tiny samples and of the
  complete data side by side, without a number. Here: the difference of each bucket and the largest
  absolute one, with bootstrap intervals over the queries of the sample, beside what random samples
  of this size would show.
- How similar are the domains of a dataset? PosIR (Zeng et al. 2026, arXiv 2601.08363v1, A.2, Fig.
  6): S_AB = cos(c_A, c_B), where c_A is the mean of the embeddings of all documents of domain A.
  The paper does not say whether embeddings have unit length before they are averaged; here they do.
- Probes by group: Tables 2 and 3 of Bias Learning (OpenReview 4GD7a9Bo9A) are means of probes over
  two models of each positional encoding.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, product
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeAlias

import altair as alt
import numpy as np
import polars as pl
from mteb.types import PromptType

from posir_probe.data import ProbeSource
from posir_probe.probe import Probe
from posir_probe.results import Compute, ProbeResult, ProbeSums, at, estimate_parts
from posir_published.probes import Architecture, Kind, read_published_curves, short_name
from posir_report.summary import TaskSummary
from posir_significance.curves import overlay_curves
from posir_significance.messages.probes import describe_sample_difference
from posir_tasks.base.arrays import Floats, Integers
from posir_tasks.base.batches import split_batches
from posir_tasks.base.errors import PosirError, summarize_error
from posir_tasks.base.files import write_text
from posir_tasks.base.progress import progress
from posir_tasks.base.untrusted import read_json
from posir_tasks.base.wording import pluralize
from posir_tasks.display.charts import add_frame, build_chart
from posir_tasks.display.figures import Figure
from posir_tasks.display.numbers import (
    MISSING,
    format_count,
    format_estimate,
    format_percent,
    format_points,
    format_psi,
)
from posir_tasks.display.tables import Table, build_columns
from posir_tasks.models.embeddings.encoding import Encoder, unit_vectors
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.profile import NDCG_AT_10, mean_gain, reading_json

SUFFIX = "-Tiny"
DRAWS, SEED = 2_000, 20250519
LEVEL = 0.95
#: Documents of a domain encoded at a time.
BLOCK = 1_000
#: Version of the files of sums of domains. A reader refuses a newer one.
SCHEMA = 1
UNKNOWN = "unknown"
VALIDITY_NOTE = (
    "nDCG@10 x 100; queries of the sample; 95% intervals by bootstrap over them, for the largest "
    "difference over all buckets together. By chance: 95% of random samples of this size differ "
    "less."
)
DOMAIN_NOTE = (
    "Cosine of the mean embeddings of all documents (arXiv 2601.08363v1, A.2); embeddings have "
    "unit length before the mean."
)


@dataclass(frozen=True, kw_only=True)
class ValidityRow:
    """A model's nDCG@10 in a sample and in the complete data: in a position bucket, or the largest
    difference over all.
    """

    model: str
    revision: str
    sample: str
    complete: str
    position: str
    """The bucket, or `largest difference`."""
    queries: int
    """Queries of the sample."""
    ndcg_at_10_of_sample: float | None = None
    ndcg_at_10_of_complete: float | None = None
    """Mean in [0, 1]; None for the largest difference."""
    difference: Estimate
    """Sample minus complete data; its size for the largest difference."""
    chance: float | None = None
    """The difference that random samples do not exceed in 95% of draws; None for a bucket."""


def find_samples(summaries: Iterable[TaskSummary]) -> list[tuple[TaskSummary, TaskSummary]]:
    """Find every `<task>-Tiny` with its task, for each model that has both."""
    by_task = {(summary.model, summary.revision, summary.task): summary for summary in summaries}
    pairs = []
    for (model, revision, task), full in by_task.items():
        if tiny := by_task.get((model, revision, f"{task}{SUFFIX}")):
            pairs.append((tiny, full))
    return pairs


def compare_tiny(tiny: TaskSummary, full: TaskSummary) -> list[ValidityRow]:
    """Compare a sample with its task: the largest difference, then each bucket with queries in
    both; raise ProfileError if their schemes differ.

    The interval of a bucket is its difference +- the 95th percentile of the absolute deviations of
    bootstrap samples. That of the largest difference uses the largest deviation over the buckets,
    so that it holds for all buckets at once. A percentile interval of the largest difference would
    not hold it: resampling adds noise, which an absolute value turns upwards.
    """
    build_row = partial(
        ValidityRow, model=tiny.model, revision=tiny.revision, sample=tiny.task, complete=full.task
    )
    axes = tiny.profile.axes
    axes.check_same(full.profile.axes)
    drawn = tiny.profile.counts.sum(axis=0)
    whole = full.profile.counts.sum(axis=0)
    means = mean_gain(drawn, NDCG_AT_10)
    expected = mean_gain(whole, NDCG_AT_10)
    differences = means - expected
    kept = np.flatnonzero(~np.isnan(differences))
    sizes = drawn.sum(axis=1)
    rng = np.random.default_rng(SEED)
    deviations = _deviate(rng, drawn[kept], sizes[kept])
    random = _deviate(rng, whole[kept], sizes[kept])
    margins = np.quantile(deviations, LEVEL, axis=0)
    largest = float(np.abs(differences[kept]).max())
    margin = float(np.quantile(deviations.max(axis=1), LEVEL))
    rows = [
        build_row(
            position="largest difference",
            queries=tiny.profile.queries,
            difference=Estimate(largest, (max(0.0, largest - margin), largest + margin)),
            chance=float(np.quantile(random.max(axis=1), LEVEL)),
        )
    ]
    for index, half in zip(kept, margins, strict=True):
        ends = differences[index] - half, differences[index] + half
        rows.append(
            build_row(
                position=axes.positions[index],
                queries=int(sizes[index]),
                ndcg_at_10_of_sample=float(means[index]),
                ndcg_at_10_of_complete=float(expected[index]),
                difference=Estimate(float(differences[index]), ends),
            )
        )
    return rows


def _deviate(rng: np.random.Generator, counts: Integers, sizes: Integers) -> Floats:
    """Draw how far means of random samples of each bucket's queries are from its mean, shape
    (DRAWS, P).
    """
    shares = counts / counts.sum(axis=1, keepdims=True)
    drawn = [rng.multinomial(size, share, DRAWS) for size, share in zip(sizes, shares, strict=True)]
    return np.abs(mean_gain(np.stack(drawn, axis=1), NDCG_AT_10) - mean_gain(counts, NDCG_AT_10))


def describe_validity(rows: Iterable[ValidityRow]) -> Iterator[str]:
    """Describe for each model and sample how far it differs from the complete data, and what is
    expected by chance.
    """
    for row in rows:
        if row.chance is not None:
            yield describe_sample_difference(row.model, row.sample, row.difference, row.chance)


def build_validity_table(rows: Iterable[ValidityRow]) -> Table:
    """Build a table with a line per model, sample and position bucket."""
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
        build_columns(("Model", "Sample", "Position", *numbers), numbers),
        tuple(cells),
        notes=(VALIDITY_NOTE,),
        split_by="{Model} · {Sample}",
    )


def draw_samples(summaries: Iterable[TaskSummary]) -> list[Figure]:
    """Draw nDCG@10 of each position bucket in each sample and in the complete data, for each
    model.
    """
    figures = []
    for pair in find_samples(summaries):
        names = [summary.task for summary in pair]
        chart = add_frame(
            overlay_curves({summary.task: summary.values for summary in pair}),
            "Sample and complete data",
            pair[0].model,
            "As Fig. 3 of arXiv 2505.13950v5: nDCG@10 by position of the evidence, all lengths "
            "together. Shaded: 95%.",
            f"Source: {' and '.join(names)}.",
        )
        figures.append(Figure("subset-validity", names[0], pair[0].model, chart))
    return figures


@dataclass(frozen=True, eq=False)
class DomainSum:
    """The sum of the embeddings of a domain's documents."""

    documents: int
    vector: Floats
    """Shape (dimensions,)."""
    data_revision: str = ""

    @classmethod
    def from_texts(
        cls, encoder: Encoder, texts: Sequence[str], data_revision: str = ""
    ) -> DomainSum:
        """Embed and sum at least one document, in bounded memory."""
        sums = []
        for block in split_batches(texts, BLOCK):
            vectors = unit_vectors(encoder(block, PromptType.document))
            sums.append(vectors.sum(axis=0, dtype=float))
        return cls(len(texts), np.sum(sums, axis=0), data_revision)


#: The sum of each domain of a dataset, by subset.
Domains = Mapping[str, DomainSum]


def compare_domains(sums: Domains) -> Floats:
    """Compute the cosine of the centroids of D domains, shape (D, D), in the order of the
    mapping.
    """
    centroids = np.array([domain.vector for domain in sums.values()])
    centroids /= np.linalg.norm(centroids, axis=1, keepdims=True)
    similarities: Floats = centroids @ centroids.T
    return similarities


def measure_domains(encoder: Encoder, source: ProbeSource, file: Path) -> dict[str, DomainSum]:
    """Sum each subset of a source, read one at a time, unless the file has its sum already.

    Raise PosirError if there is only one subset, or the file is damaged.
    """
    if len(source.subsets) < 2:
        raise PosirError(
            f"{source.name}: only one domain; nothing to compare. Give a task or a folder with "
            "several."
        )
    stored = load_sums(file) if file.exists() else {}
    for subset, read in progress(list(source.subsets.items()), "Domains"):
        data = read()
        if subset not in stored or stored[subset].data_revision != data.revision:
            texts = list(data.documents.values())
            stored[subset] = DomainSum.from_texts(encoder, texts, data.revision)
        domains = {
            name: {**vars(domain), "vector": domain.vector.tolist()}
            for name, domain in stored.items()
        }
        write_text(file, json.dumps({"schema": SCHEMA, "domains": domains}))
    return {subset: stored[subset] for subset in source.subsets}


def load_sums(file: Path) -> dict[str, DomainSum]:
    """Read sums; raise PosirError if the file is damaged or of a newer schema."""
    try:
        data = read_json(file)
        with reading_json(data, SCHEMA, "similarity of domains"):
            return {
                name: DomainSum(**{**stored, "vector": np.array(stored["vector"], float)})
                for name, stored in data["domains"].items()
            }
    except (OSError, ValueError, PosirError) as error:
        raise PosirError(
            f"{file}: not sums of domains ({summarize_error(error)}). Remove it, and run again."
        ) from error


def find_shared_domains(datasets: Iterable[Iterable[str]]) -> list[str]:
    """Find the domains, such as `sports`, of subsets such as `eng-Latn/sports` that all datasets
    have; raise PosirError if there are fewer than two, or one has a domain twice.
    """
    named = [[subset.rpartition("/")[2] for subset in subsets] for subsets in datasets]
    shared = [name for name in named[0] if all(names.count(name) == 1 for names in named)]
    if len(shared) < 2:
        raise PosirError(
            "fewer than two domains in common, so one heat map cannot show both datasets. With "
            "--above, give data in one language each."
        )
    return shared


def list_pairs(sums: Domains, data: str) -> list[dict[str, Any]]:
    """List each pair of domains of a dataset once, with their documents and similarity, the most
    similar first.
    """
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


def build_domain_table(sums: Domains, data: str) -> Table:
    """Build the matrix of similarities of a dataset's domains."""
    cells = []
    for (name, domain), row in zip(sums.items(), compare_domains(sums).tolist(), strict=True):
        cells.append((name, format_count(domain.documents), *map(format_psi, row)))
    columns = build_columns(("Domain", "Documents", *sums), ("Documents", *sums))
    return Table(columns, tuple(cells), title=data, notes=(DOMAIN_NOTE,))


def draw_domains(sums: Mapping[str, Domains], model: str) -> Figure:
    """Draw a heat map of the similarities of a dataset's domains; of two datasets', one below and
    one above the diagonal.
    """
    names = list(next(iter(sums.values())))
    triangles = ""
    datasets = list(sums.values())
    if len(sums) > 1:
        names = find_shared_domains(datasets)
        triangles = f" {' below the diagonal, '.join(sums)} above it."
        datasets = [
            {subset.rpartition("/")[2]: domain for subset, domain in of.items()} for of in datasets
        ]
    values = [compare_domains({name: of[name] for name in names}) for of in datasets]
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
    framed = add_frame(
        alt.vconcat(cells.mark_rect().properties(width=alt.Step(18), height=alt.Step(18))),
        "Similarity of domains",
        model,
        f"Cosine of the domains' mean embeddings (arXiv 2601.08363v1, A.2).{triangles}",
        f"Source: {', '.join(sums)}.",
    )
    return Figure("inter_domain_similarity", " and ".join(sums), model, framed)


@dataclass(frozen=True)
class GroupRow:
    """The value of a probe at one position, of a model or of the mean over a group of models."""

    probe: str
    data: str
    group: str
    """`APE`, `RoPE`, `causal` and so on; `unknown` for models that are not in the table of
    architectures.
    """
    model: str
    """Its name; empty for the mean over the models of the group."""
    models: int
    position: str
    value: Estimate
    """Its 95% interval is by bootstrap over documents, with the models held fixed; published values
    have none.
    """
    source: str


#: Sums of a result, and how the value of each position follows from them.
Part: TypeAlias = tuple[ProbeSums, Mapping[str, Compute]]
#: Parts whose mean is wanted, by data and model.
Parts: TypeAlias = dict[str, dict[str, list[Part]]]


def group_results(
    results: Iterable[ProbeResult],
    probes: Mapping[str, Probe],
    architectures: Mapping[str, Architecture],
    kind: Kind,
) -> list[GroupRow]:
    """Average the values of every probe and dataset: of each model, and unweighted over each group
    of models.

    If models have results on several datasets, their mean over the datasets follows, of the models
    that have all of them. A probe with averages over conditions has a row for each of these
    instead; the mean of such probes follows, of the models and datasets that have all. Results with
    settings, such as a paper's protocol, are apart from those without.
    """
    measured: dict[str | None, dict[str, Parts]] = {}
    for result in results:
        by_data = measured.setdefault(result.experiment, {}).setdefault(result.probe, {})
        suffix = f" ({result.experiment})" if result.experiment else ""
        computes = probes.get(result.probe, Probe()).averages or {
            position: at(index) for index, position in enumerate(result.sums.positions)
        }
        by_model = by_data.setdefault(f"{result.data}{suffix}", {})
        by_model[result.model] = [(result.sums, computes)]
    rows: list[GroupRow] = []
    known = dict(probes)
    for by_probe in measured.values():
        averaged = [name for name in by_probe if name in probes and _has_mean(probes[name])]
        if len(averaged) > 1:
            joined = f"mean of {' and '.join(averaged)}"
            by_probe[joined] = _join_probes(by_probe, averaged)
            known[joined] = probes[averaged[0]]
        for name, by_data in by_probe.items():
            source = known.get(name, Probe()).source
            _add_mean_of_datasets(by_data)
            for data, by_model in by_data.items():
                groups = defaultdict[str, dict[str, list[Part]]](dict)
                for model, parts in sorted(by_model.items(), key=itemgetter(0)):
                    group = getattr(architectures.get(short_name(model)), kind, "") or UNKNOWN
                    groups[group][model] = parts
                for group, members in sorted(groups.items()):
                    rows += _average_group(members, partial(GroupRow, name, data, group), source)
    return rows


def _has_mean(probe: Probe) -> bool:
    """Return whether a probe has averages over conditions that others have, too."""
    return bool(probe.averages) and not probe.is_variant


def _join_probes(by_probe: Mapping[str, Parts], names: Sequence[str]) -> Parts:
    """Join the parts of several probes on the data and models that have all of them."""
    joined: Parts = {}
    for data in by_probe[names[0]]:
        of_probes = [by_probe[name].get(data, {}) for name in names]
        models = set.intersection(*map(set, of_probes))
        if models:
            joined[data] = {
                model: [part for parts in of_probes for part in parts[model]] for model in models
            }
    return joined


def _add_mean_of_datasets(by_data: Parts) -> None:
    """Add the parts of all datasets together, of the models that have all."""
    if len(by_data) < 2:
        return
    shared = set.intersection(*map(set, by_data.values()))
    if shared:
        by_data[f"mean of {len(by_data)} datasets"] = {
            model: [part for models in by_data.values() for part in models[model]]
            for model in shared
        }


def _average_group(
    members: Mapping[str, list[Part]], build_row: Callable[..., GroupRow], source: str
) -> Iterator[GroupRow]:
    """Estimate the values of each model of a group, and their mean unless the group is unknown."""
    every = [part for parts in members.values() for part in parts]
    for model, parts in {**members, "": every}.items():
        for position in parts[0][1]:
            value = estimate_parts([(sums, computes[position]) for sums, computes in parts])
            row = build_row(model, 1 if model else len(members), position, value, source)
            if value and (model or row.group != UNKNOWN):
                yield row


def published_groups(probes: Iterable[str]) -> list[GroupRow]:
    """List the published means over models of each positional encoding; the papers give two models
    of each.
    """
    rows = []
    for probe in probes:
        for of in read_published_curves(probe):
            for position, value in zip(of.positions, of.values, strict=True):
                where = (probe, "the paper's data", of.encoding, "", 2, position)
                rows.append(GroupRow(*where, Estimate(value), of.source))
    return [row for row in rows if row.group]


def build_group_tables(rows: Sequence[GroupRow]) -> list[Table]:
    """Build a table for each probe and dataset: a line per model and group, a column per
    position.
    """
    cells = [
        (
            f"{row.probe} · {row.data}",
            row.group,
            row.model or f"mean of {pluralize(row.models, 'model')}",
            row.position,
            format_estimate(row.value, format_psi),
        )
        for row in rows
    ]
    frame = pl.DataFrame(cells, ["title", "Group", "Model", "position", "value"], orient="row")
    tables = []
    for part in frame.partition_by("title", maintain_order=True):
        matrix = part.drop("title").pivot("position", values="value").fill_null(MISSING)
        columns = build_columns(matrix.columns)
        tables.append(Table(columns, tuple(matrix.rows()), title=part["title"][0]))
    return tables
