"""Studies over models and datasets: samples against complete data, similarity of domains, probes by
group of models.

- Does a small sample of a dataset show the same position profile as the whole? Zeng et al. 2025
  (arXiv 2505.13950, A.3, Fig. 3) show nDCG@10 by position bucket of the Tiny samples and of the
  complete data side by side, without a number. Here: the difference of each bucket and the largest
  absolute one, with bootstrap intervals over the queries of the sample, beside what random samples
  of this size would show.
- How similar are the domains of a dataset? PosIR (Zeng et al. 2026, arXiv 2601.08363, A.2, Fig. 6):
  S_AB = cos(c_A, c_B), where c_A is the mean of the embeddings of all documents of domain A. The
  paper does not say whether embeddings have unit length before they are averaged; here they do.
- Probes by group: Tables 2 and 3 of Bias Learning (OpenReview 4GD7a9Bo9A) are means of probes over
  two models of each positional encoding.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import polars as pl
from mteb.types import PromptType

from posir_probe.data import ProbeSource
from posir_probe.probe import Probe
from posir_probe.results import ProbeResult, ProbeSums, at, estimate_index
from posir_published.probes import Architecture, Kind, read_published_curves, short_name
from posir_report.cells import pool_curve_cells
from posir_report.summary import TaskSummary
from posir_tasks.base.arrays import Floats, Integers
from posir_tasks.base.errors import PosirError, summarize_error
from posir_tasks.base.files import write_text
from posir_tasks.base.progress import progress
from posir_tasks.base.untrusted import read_json
from posir_tasks.base.wording import pluralize
from posir_tasks.display.charts import (
    add_frame,
    build_chart,
    build_positions,
    curve,
    describe_scores,
    tell_apart,
)
from posir_tasks.display.figures import Figure
from posir_tasks.display.numbers import (
    FORMATS,
    MISSING,
    format_count,
    format_estimate,
    format_number,
    format_percent,
    format_points,
)
from posir_tasks.display.tables import Table, build_columns
from posir_tasks.models.embeddings.encoding import Encoder, unit_vectors
from posir_tasks.values.profile import NDCG_AT_10, mean_gain, reading_json
from posir_tasks.values.scores import Estimate, Unit

SUFFIX = "-Tiny"
DRAWS, SEED = 2_000, 20250519
LEVEL = 0.95
#: Position of the row that holds the largest difference over the buckets.
LARGEST = "largest difference"
#: Documents of a domain encoded at a time.
BLOCK = 1_000
#: Version of the files of sums of domains. A reader refuses a newer one.
SCHEMA = 1
UNKNOWN = "unknown"
#: Beginning of the names of published curves that are means over models of a positional encoding.
PUBLISHED_GROUP = "models with "


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
    """Sample minus complete data; absolute for the largest difference."""
    chance: float | None = None
    """The difference that random samples do not exceed in 95% of draws; None for a bucket."""


def find_samples(summaries: Iterable[TaskSummary]) -> list[tuple[TaskSummary, TaskSummary]]:
    """Return every `<task>-Tiny` with its task, for each model that has both."""
    by_task = {(summary.model, summary.revision, summary.task): summary for summary in summaries}
    return [
        (tiny, full)
        for (model, revision, task), tiny in by_task.items()
        if task.endswith(SUFFIX)
        and (full := by_task.get((model, revision, task.removesuffix(SUFFIX))))
    ]


def compare_tiny(summaries: Iterable[TaskSummary]) -> list[ValidityRow]:
    """Compare samples with their tasks; raise ProfileError if their schemes differ."""
    return [row for pair in find_samples(summaries) for row in _compare(*pair)]


def _compare(tiny: TaskSummary, full: TaskSummary) -> list[ValidityRow]:
    """Return the largest difference, then that of each bucket with queries in both.

    The interval of a bucket is its difference +- the 95th percentile of the absolute deviations of
    bootstrap samples. That of the largest difference uses the largest deviation over the buckets,
    so that it holds for all buckets at once. A percentile interval of the largest difference would
    not hold it: resampling adds noise, which an absolute value turns upwards.
    """
    build_row = partial(
        ValidityRow, model=tiny.model, revision=tiny.revision, sample=tiny.task, complete=full.task
    )
    sample, complete = tiny.profile, full.profile
    sample.axes.check_same(complete.axes)
    counts, whole = sample.counts.sum(axis=0), complete.counts.sum(axis=0)
    means, expected = mean_gain(counts, NDCG_AT_10), mean_gain(whole, NDCG_AT_10)
    kept = np.flatnonzero(~np.isnan(means - expected))
    counts, whole, means, expected = counts[kept], whole[kept], means[kept], expected[kept]
    sizes, differences = counts.sum(axis=1), means - expected
    rng = np.random.default_rng(SEED)
    deviations = np.abs(mean_gain(_draw(rng, counts, sizes), NDCG_AT_10) - means)
    random = np.abs(mean_gain(_draw(rng, whole, sizes), NDCG_AT_10) - expected).max(axis=1)
    largest, margin = (
        float(np.abs(differences).max()),
        float(np.quantile(deviations.max(axis=1), LEVEL)),
    )
    chance = float(np.quantile(random, LEVEL))
    margins = np.quantile(deviations, LEVEL, axis=0)
    buckets = zip(
        kept,
        *(array.tolist() for array in (sizes, means, expected, differences, margins)),
        strict=True,
    )
    return [
        build_row(
            position=LARGEST,
            queries=sample.queries,
            difference=Estimate(largest, (max(0.0, largest - margin), largest + margin)),
            chance=chance,
        ),
        *(
            build_row(
                position=sample.positions[index],
                queries=size,
                ndcg_at_10_of_sample=mean,
                ndcg_at_10_of_complete=full,
                difference=Estimate(value, (value - half, value + half)),
            )
            for index, size, mean, full, value, half in buckets
        ),
    ]


def _draw(rng: np.random.Generator, counts: Integers, sizes: Integers) -> Floats:
    """Return counts of random samples of each bucket's queries, shape (DRAWS, P, ranks)."""
    shares = counts / counts.sum(axis=1, keepdims=True)
    drawn = [rng.multinomial(size, share, DRAWS) for size, share in zip(sizes, shares, strict=True)]
    return np.stack(drawn, axis=1).astype(np.float64)


def describe_validity(rows: Iterable[ValidityRow]) -> Iterator[str]:
    """Yield for each model and sample how far it differs from the complete data, beside what is
    expected by chance.
    """
    for row in rows:
        if row.position == LARGEST:
            yield (
                f"{row.model}, {row.sample}: the largest difference to the complete data is "
                f"{format_estimate(row.difference, format_percent)} points, by chance up to "
                f"{format_percent(row.chance)}."
            )


def build_validity_tables(rows: Sequence[ValidityRow]) -> list[Table]:
    """Return a table with a line per model and sample, and one with a line per position bucket."""
    headings = ("Model", "Sample", "Queries", "Largest difference", "By chance up to")
    overall = [
        (
            *(
                row.model,
                row.sample,
                format_count(row.queries),
                format_estimate(row.difference, format_percent),
            ),
            format_percent(row.chance),
        )
        for row in rows
        if row.position == LARGEST
    ]
    bucket_headings = (
        "Model",
        "Sample",
        "Position",
        "Queries",
        "Complete",
        "Sample's",
        "Difference",
    )
    buckets = [
        (
            *(
                row.model,
                row.sample,
                row.position,
                format_count(row.queries),
                format_percent(row.ndcg_at_10_of_complete),
            ),
            *(
                format_percent(row.ndcg_at_10_of_sample),
                format_estimate(row.difference, format_points),
            ),
        )
        for row in rows
        if row.position != LARGEST
    ]
    note = (
        "nDCG@10 x 100; queries of the sample; 95% intervals by bootstrap over them, for the "
        "largest difference over all "
        "buckets together. By chance: 95% of random samples of this size differ less."
    )
    return [
        Table(build_columns(headings, ("Queries", "By chance up to")), tuple(overall)),
        Table(
            build_columns(bucket_headings, ("Queries", "Complete", "Sample's")),
            tuple(buckets),
            notes=(note,),
            split_by="{Model} · {Sample}",
        ),
    ]


def draw_samples(summaries: Iterable[TaskSummary]) -> list[Figure]:
    """Return a figure for each model and sample: nDCG@10 of each position bucket in the sample and
    in the complete data.
    """
    figures = []
    for pair in find_samples(summaries):
        names, model = [summary.task for summary in pair], pair[0].model
        curves = dict(zip(names, pool_curve_cells(pair), strict=True))
        rows = build_chart(
            [{**cell.columns(), "data": name} for name, cells in curves.items() for cell in cells]
        )
        color, shape, dash = tell_apart("data", names, alt.Legend(orient="bottom"))
        own: dict[str, Any] = {"line": {"strokeDash": dash}, "point": {"shape": shape}}
        chart = alt.layer(
            *curve(rows, build_positions(pair[0].profile.axes), color, "area", **own),
            width=640,
            height=300,
        )
        explanation = (
            "As Fig. 3 of arXiv 2505.13950: nDCG@10 by position of the evidence, all lengths "
            "together. Shaded: 95%."
        )
        scores = (
            [cell.ndcg_at_10.value if cell.ndcg_at_10 else None for cell in cells]
            for cells in curves.values()
        )
        seen = " ".join(map(describe_scores, names, scores))
        texts = explanation, f"Source: {' and '.join(names)}.", seen
        figures.append(
            Figure(
                "subset-validity",
                names[0],
                model,
                add_frame(chart, "Sample and complete data", model, *texts),
            )
        )
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
        blocks = (texts[start : start + BLOCK] for start in range(0, len(texts), BLOCK))
        sums = [
            unit_vectors(encoder(block, PromptType.document)).sum(axis=0, dtype=np.float64)
            for block in blocks
        ]
        return cls(len(texts), np.sum(sums, axis=0), data_revision)


def compare_domains(sums: Mapping[str, DomainSum]) -> Floats:
    """Return the cosine of the centroids of D domains, shape (D, D), in the order of the
    mapping.
    """
    centroids = np.array([domain.vector / domain.documents for domain in sums.values()])
    centroids /= np.linalg.norm(centroids, axis=1, keepdims=True)
    similarities: Floats = centroids @ centroids.T
    return similarities


def measure_domains(encoder: Encoder, source: ProbeSource, file: Path) -> dict[str, DomainSum]:
    """Return the sum of each subset of a source, read one at a time; those that are in a file
    already are not measured again.

    Raise PosirError if there is only one, or the file is damaged.
    """
    if len(source.subsets) < 2:
        raise PosirError(
            f"{source.name}: only one domain; nothing to compare. Give a task or a folder with "
            "several."
        )
    known = load_sums(file) if file.exists() else {}
    sums: dict[str, DomainSum] = {}
    for subset, read in progress(list(source.subsets.items()), "Domains"):
        data = read()
        done = known.get(subset)
        if done is None or done.data_revision != data.revision:
            done = DomainSum.from_texts(encoder, list(data.documents.values()), data.revision)
        sums[subset] = done
        content = {
            # In single precision.
            name: {
                "data_revision": domain.data_revision,
                "documents": domain.documents,
                "vector": base64.b64encode(domain.vector.astype(np.float32).tobytes()).decode(),
            }
            for name, domain in (known | sums).items()
        }
        write_text(file, json.dumps({"schema": SCHEMA, "domains": content}))
    return sums


def load_sums(file: Path) -> dict[str, DomainSum]:
    """Read sums; raise PosirError if the file is damaged or of a newer schema."""
    try:
        data = read_json(file)
        with reading_json(data, SCHEMA, "similarity of domains"):
            return {
                str(name): DomainSum(
                    int(stored["documents"]),
                    np.frombuffer(base64.b64decode(stored["vector"]), np.float32).astype(
                        np.float64
                    ),
                    str(stored["data_revision"]),
                )
                for name, stored in data["domains"].items()
            }
    except (OSError, ValueError, PosirError) as error:
        raise PosirError(
            f"{file}: not sums of domains ({summarize_error(error)}). Remove it, and run again."
        ) from error


def check_shared_domains(sources: Sequence[ProbeSource]) -> None:
    """Raise PosirError unless two sources have different names, one language each, and at least two
    domains in common.
    """
    names = [source.name for source in sources]
    if len(set(names)) < len(names):
        raise PosirError(f"{names[0]}: the same dataset twice. Give another one with --above.")
    domains = [[subset.rpartition("/")[2] for subset in source.subsets] for source in sources]
    for name, of_dataset in zip(names, domains, strict=True):
        if len(sources) > 1 and len(set(of_dataset)) < len(of_dataset):
            raise PosirError(
                f"{name}: a domain in several languages. With --above, give data in one language "
                "each."
            )
    if len(sources) > 1 and len(set.intersection(*map(set, domains))) < 2:
        raise PosirError(
            f"{' and '.join(names)}: fewer than two domains in common, so one heat map cannot "
            "show both."
        )


def list_pairs(sums: Mapping[str, DomainSum], data: str) -> list[dict[str, Any]]:
    """Return each pair of domains of a dataset once, with their documents and similarity, the most
    similar first.
    """
    similarities, names = compare_domains(sums), list(sums)
    pairs = [
        {
            "data": data,
            "first": name,
            "second": other,
            "documents_of_first": sums[name].documents,
            "documents_of_second": sums[other].documents,
            "similarity": float(similarities[row, column]),
        }
        for row, name in enumerate(names)
        for column, other in enumerate(names[:row])
    ]
    return sorted(pairs, key=lambda pair: -pair["similarity"])


def build_domain_table(sums: Mapping[str, DomainSum], data: str) -> Table:
    """Return the matrix of similarities of a dataset's domains as a table."""
    names = list(sums)
    cells = [
        (name, f"{sums[name].documents:,}", *(format_number(value, ".3f") for value in row))
        for name, row in zip(names, compare_domains(sums).tolist(), strict=True)
    ]
    note = (
        "Cosine of the mean embeddings of all documents (arXiv 2601.08363, A.2); embeddings have "
        "unit length before the mean."
    )
    return Table(
        build_columns(("Domain", "Documents", *names), ("Documents", *names)),
        tuple(cells),
        title=data,
        notes=(note,),
    )


def draw_domains(sums: Mapping[str, Mapping[str, DomainSum]], model: str) -> Figure:
    """Return a heat map of the similarities of a dataset's domains; of two datasets', one below and
    one above the diagonal.
    """
    above = len(sums) > 1
    renamed = [
        {name.rpartition("/")[2] if above else name: part for name, part in domains.items()}
        for domains in sums.values()
    ]
    names = [name for name in renamed[0] if name in renamed[-1]]
    values = [compare_domains({name: domains[name] for name in names}) for domains in renamed]
    matrix = np.where(np.tri(len(names), dtype=bool), values[0], values[-1])
    rows = [
        {"first": name, "second": other, "similarity": float(matrix[row, column])}
        for row, name in enumerate(names)
        for column, other in enumerate(names)
    ]
    encoded = (
        build_chart(rows)
        .mark_rect()
        .encode(
            x=alt.X("second:N", sort=names, title=None, axis=alt.Axis(labelAngle=-90)),
            y=alt.Y("first:N", sort=names, title=None),
            color=alt.Color("similarity:Q", title="Cosine", scale=alt.Scale(scheme="viridis")),
            tooltip=["first:N", "second:N", alt.Tooltip("similarity:Q", format=".4f")],
        )
    )
    chart = alt.vconcat(encoded.properties(width=alt.Step(18), height=alt.Step(18)))
    triangles = f" {' below the diagonal, '.join(sums)} above it." if above else ""
    explanation = f"Cosine of the domains' mean embeddings (arXiv 2601.08363, A.2).{triangles}"
    counts = ", ".join(
        f"{name}: {sum(part.documents for part in domains.values()):,} documents"
        for name, domains in sums.items()
    )
    framed = add_frame(chart, "Similarity of domains", model, explanation, f"Source: {counts}.")
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


def group_results(
    results: Iterable[ProbeResult],
    probes: Mapping[str, Probe],
    architectures: Mapping[str, Architecture],
    kind: Kind,
) -> list[GroupRow]:
    """Return the values of every probe and dataset: of each model, and the unweighted mean over
    each group of models.

    If models have results on several datasets, their mean over the datasets follows, of the models
    that have all of them. Of a probe that has averages over conditions, these are the values.
    """
    by_probe: dict[str, dict[str, dict[str, list[ProbeSums]]]] = {}
    for result in results:
        if result.experiment is None:
            by_probe.setdefault(result.probe, {}).setdefault(result.data, {})[result.model] = [
                result.sums
            ]
    rows: list[GroupRow] = []
    for name, by_data in by_probe.items():
        probe = probes.get(name)
        shared = set.intersection(*map(set, by_data.values()))
        if len(by_data) > 1 and shared:
            together = {
                model: [sums for models in by_data.values() for sums in models[model]]
                for model in sorted(shared)
            }
            by_data[f"mean of {pluralize(len(by_data), 'dataset')}"] = together
        for data, by_model in by_data.items():
            kinds = {
                model: getattr(architectures.get(short_name(model)), kind, "") or UNKNOWN
                for model in sorted(by_model)
            }
            for group in sorted(set(kinds.values())):
                members = [model for model in kinds if kinds[model] == group]
                for model, averaged in [
                    *((model, [model]) for model in members),
                    *[("", members)] * (group != UNKNOWN),
                ]:
                    sums = [of_data for member in averaged for of_data in by_model[member]]
                    values = {
                        position: at(place) for place, position in enumerate(sums[0].positions)
                    }
                    averages = (probe.averages if probe else None) or values
                    rows += [
                        GroupRow(
                            name,
                            data,
                            group,
                            model,
                            len(averaged),
                            position,
                            value,
                            probe.source if probe else "",
                        )
                        for position, compute in averages.items()
                        if (value := estimate_index(sums, compute))
                    ]
    return rows


def published_groups(probes: Iterable[str]) -> list[GroupRow]:
    """Return the published means over models of each positional encoding; the papers give two
    models of each.
    """
    return [
        GroupRow(
            probe,
            "the paper's data",
            curve.model.removeprefix(PUBLISHED_GROUP),
            "",
            2,
            position,
            Estimate(value),
            curve.source,
        )
        for probe in probes
        for curve in read_published_curves(probe)
        if curve.model.startswith(PUBLISHED_GROUP)
        for position, value in zip(curve.positions, curve.values, strict=True)
    ]


def build_group_tables(rows: Sequence[GroupRow]) -> list[Table]:
    """Return a table for each probe and dataset: a line per model and group, a column per
    position.
    """
    cells = [
        (
            *(
                f"{row.probe} · {row.data}",
                row.group,
                row.model or f"mean of {pluralize(row.models, 'model')}",
                row.position,
            ),
            format_estimate(row.value, FORMATS[Unit.INDEX]),
        )
        for row in rows
    ]
    frame = pl.DataFrame(cells, ["title", "Group", "Model", "position", "value"], orient="row")
    built = []
    for table in frame.partition_by("title", maintain_order=True):
        matrix = table.pivot("position", index=["Group", "Model"], values="value").fill_null(
            MISSING
        )
        built.append(
            Table(build_columns(matrix.columns), tuple(matrix.rows()), title=table["title"][0])
        )
    return built
