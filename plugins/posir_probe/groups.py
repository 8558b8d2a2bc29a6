"""Probes of each model, and averaged over models of a kind of architecture.

Tables 2 and 3 of Bias Learning (OpenReview 4GD7a9Bo9A) are means over two models of each positional encoding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from posir_probe.probe import AveragedProbe, ModelProbe, Summary, TextProbe
from posir_probe.results import ProbeResult
from posir_probe.sums import ProbeSums, estimate_mean
from posir_published.architectures import Architecture, Kind, short_name
from posir_published.probes import read_published_curves
from posir_tasks.display.numbers import format_estimate, format_number
from posir_tasks.display.tables import Table, build_columns
from posir_tasks.display.wording import pluralize
from posir_tasks.estimates import Estimate

#: Beginning of the names of published curves that are means over models of a positional encoding.
PUBLISHED_GROUP = "models with "
#: Name of the data that they are on.
PUBLISHED_DATA = "the paper's data"
UNKNOWN = "unknown"
#: Sums of a model's results on each dataset, by the model's name.
SumsByModel = dict[str, list[ProbeSums]]


@dataclass(frozen=True)
class GroupRow:
    """The value of a probe at one position, of a model or of the mean over a group of models."""

    probe: str
    data: str
    group: str
    """`APE`, `RoPE`, `causal` and so on; `unknown` for models that are not in the table of architectures."""
    model: str
    """Its name; empty for the mean over the models of the group."""
    models: int
    position: str
    value: Estimate
    """Its 95 % interval is by bootstrap over documents, with the models held fixed; published values have none."""
    source: str


def group_results(
    results: Iterable[ProbeResult],
    probes: Mapping[str, TextProbe | ModelProbe],
    architectures: Mapping[str, Architecture],
    kind: Kind,
) -> list[GroupRow]:
    """Return the values of every probe and dataset: of each model, and the unweighted mean over each group of models.

    If models have results on several datasets, their mean over the datasets follows, of the models that have all of them.
    """
    by_probe: dict[str, dict[str, SumsByModel]] = {}
    for result in results:
        if result.experiment is None:
            by_probe.setdefault(result.probe, {}).setdefault(result.data, {})[result.model] = [result.sums]
    rows: list[GroupRow] = []
    for probe, by_data in by_probe.items():
        for data, by_model in _with_mean(by_data).items():
            rows += _group(probe, data, by_model, probes.get(probe), architectures, kind)
    return rows


def _with_mean(by_data: Mapping[str, SumsByModel]) -> dict[str, SumsByModel]:
    """Return sums by dataset, followed by all datasets together if there are several and models have all."""
    shared = set.intersection(*map(set, by_data.values()))
    if len(by_data) < 2 or not shared:
        return dict(by_data)
    together = {model: [sums for models in by_data.values() for sums in models[model]] for model in sorted(shared)}
    return {**by_data, f"mean of {pluralize(len(by_data), 'dataset')}": together}


def _group(
    probe: str,
    data: str,
    by_model: SumsByModel,
    known: TextProbe | ModelProbe | None,
    architectures: Mapping[str, Architecture],
    kind: Kind,
) -> Iterator[GroupRow]:
    groups: dict[str, list[str]] = {}
    for model in sorted(by_model):
        architecture = architectures.get(short_name(model))
        groups.setdefault((getattr(architecture, kind) if architecture else "") or UNKNOWN, []).append(model)
    source = known.source if known else ""
    for group, models in sorted(groups.items()):
        means = [(model, [model]) for model in models] + [("", models)] * (group != UNKNOWN)
        for name, members in means:
            sums = [sums_of_model for model in members for sums_of_model in by_model[model]]
            for position, index in name_values(sums[0], known):
                estimate = estimate_mean(sums, index)
                if estimate is not None:
                    yield GroupRow(probe, data, group, name, len(members), position, estimate, source)


def name_values(sums: ProbeSums, probe: TextProbe | ModelProbe | None) -> list[tuple[str, Summary]]:
    """Return what is shown of a probe by the name of its position: averages over conditions if it has any, else every value."""
    if isinstance(probe, AveragedProbe):
        return list(probe.averages.items())
    return [(name, lambda values, at=place: values[..., at]) for place, name in enumerate(sums.positions)]  # type: ignore[misc]


def published_groups(probes: Iterable[str]) -> list[GroupRow]:
    """Return the published means over models of each positional encoding; the papers give two models of each."""
    rows = []
    for curve in (curve for probe in probes for curve in read_published_curves(probe)):
        if curve.model.startswith(PUBLISHED_GROUP):
            group = curve.model.removeprefix(PUBLISHED_GROUP)
            for position, value in zip(curve.positions, curve.values, strict=True):
                rows.append(GroupRow(curve.probe, PUBLISHED_DATA, group, "", 2, position, Estimate(value), curve.source))
    return rows


def build_tables(rows: Sequence[GroupRow]) -> list[Table]:
    """Return a table for each probe and dataset: a line per model and group, a column per position."""
    blocks: dict[tuple[str, str], dict[tuple[str, str, int], dict[str, Estimate]]] = {}
    for row in rows:
        lines = blocks.setdefault((row.probe, row.data), {})
        lines.setdefault((row.group, row.model, row.models), {})[row.position] = row.value
    return [_build_table(f"{probe} · {data}", lines) for (probe, data), lines in blocks.items()]


def _build_table(title: str, lines: Mapping[tuple[str, str, int], Mapping[str, Estimate]]) -> Table:
    positions = list(dict.fromkeys(position for values in lines.values() for position in values))
    cells = tuple(
        (group, model or f"mean of {pluralize(models, 'model')}", *(_format(values.get(position)) for position in positions))
        for (group, model, models), values in lines.items()
    )
    return Table(build_columns(("Group", "Model", *positions)), cells, title=title)


def _format(estimate: Estimate | None) -> str:
    return format_estimate(estimate, lambda value: format_number(value, ".3f"))
