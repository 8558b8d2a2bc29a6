"""The site: every file of it, made from records alone, the same bytes for the same records."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.resources import files
from itertools import groupby
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from posir_leaderboard.board.charts import specifications
from posir_leaderboard.board.folder import INDEX, Site
from posir_leaderboard.board.groups import Group, with_others
from posir_leaderboard.board.models import Model
from posir_leaderboard.board.records import Line, Record, row_columns
from posir_leaderboard.board.views import View, average_view, task_view
from posir_tasks.display.progress import progress
from posir_tasks.schemes import RelativePositions

#: The page's own scripts, in the order in which they run.
SCRIPTS = ("core", "state", "sparklines", "table", "charts", "scores", "drawings", "models", "downloads", "controls", "main")
#: In a command, where the repository that takes submissions is not known.
SUBMIT_TO = "ORG/RESULTS"
#: What the page shows of a model, besides its id.
MODEL = (
    "name",
    "revision",
    "published",
    "kind",
    "parameters",
    "window",
    "dimensions",
    "open_weights",
    "license",
    "reference",
)


def site_of(
    records: Iterable[Record], groups: Sequence[Group], libraries: Mapping[str, str], repository: str | None = None
) -> Site:
    """Return every file of the site by its path.

    Args:
        records: At most one a model and task.
        groups: What visitors choose from; tasks that are in none get one of their own.
        libraries: Scripts `datatables` and `vega`.
        repository: Dataset repository that takes submissions; None where it is not known.
    """
    ordered = sorted(records, key=lambda one: (*_order(one.model), one.task))
    site = {f"lib/{name}.js": text.encode() for name, text in sorted(libraries.items())}
    site |= {name: _static(name) for name in ("board.css", *(f"js/{name}.js" for name in SCRIPTS))}
    site |= {f"data/{name}.js": data_file(name, value) for name, value in data_of(ordered, groups)}
    build = hashlib.sha256(b"".join(hashlib.sha256(path.encode() + body).digest() for path, body in sorted(site.items())))
    site["index.html"] = _page(build.hexdigest()[:12], repository or SUBMIT_TO, _scripts(site))
    site["README.md"] = _static("space.md")
    return site


def _order(model: Model) -> tuple[str, ...]:
    return model.name.casefold(), model.name, model.revision, model.id


def _static(name: str) -> bytes:
    return (files("posir_leaderboard.board") / "static" / name).read_bytes()


def _scripts(site: Site) -> list[str]:
    """Return what the page loads at once, in the order in which it runs: the first view with it."""
    core, *others = (f"js/{name}.js" for name in SCRIPTS)
    view = next((path for path in site if path.startswith("data/views/")), None)
    return ["lib/datatables.js", core, INDEX, *([view] if view else []), *others]


def _page(build: str, repository: str, scripts: Sequence[str]) -> bytes:
    environment = Environment(
        loader=PackageLoader("posir_leaderboard.board", "static"), autoescape=True, undefined=StrictUndefined
    )
    page = environment.get_template("index.html")
    return page.render(build=build, scripts=scripts, version=version("posir"), repository=repository).encode()


def data_file(name: str, value: Any) -> bytes:
    """Return data as a script that hands it to the page: unlike JSON, it may be loaded where the page is a file.

    It is ASCII, and without `<`, so that nothing in it is markup wherever it may be put. It is JSON in a string, which a
    browser reads sooner than an object of JavaScript, and in which no name has a meaning of its own.
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    quoted = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"board.receive({json.dumps(name)},JSON.parse('{quoted}'));\n".encode("ascii")


@dataclass(frozen=True)
class Shown:
    """A view as a visitor chooses it."""

    view: View
    label: str
    average: bool
    averaged: bool
    """Whether it is a task of its group's average."""

    @property
    def id(self) -> str:
        """Name of its file: no task can choose it."""
        kind = "average" if self.average else "task"
        return hashlib.sha256(f"{kind}\0{self.view.name}".encode("utf-8", "surrogatepass")).hexdigest()[:12]


def data_of(records: Sequence[Record], groups: Sequence[Group]) -> Iterator[tuple[str, Any]]:
    """Yield the name and content of every data file.

    Args:
        records: In order of models.
        groups: What visitors choose from.
    """
    groups = with_others(groups, (record.task for record in records))
    by_model = {name: list(own) for name, own in groupby(records, key=lambda record: record.model.id)}
    places = {name: place for place, name in enumerate(by_model)}
    # Of a model that is described in two ways the first is taken: it has one row all the same.
    models = [own[0].model for own in by_model.values()]
    shown = {group.name: list(shown_in(group, records)) for group in groups}
    yield "board", index_of(models, groups, shown)
    yield "charts", specifications()
    averages: dict[str, dict[str, Any]] = {}
    for group in groups:
        for one in shown[group.name]:
            yield f"views/{one.id}", one.view.to_json(places)
            if one.average:
                for standing in one.view.standings:
                    averages.setdefault(standing.model.id, {})[group.name] = rows_of(standing.lines)
    for model, own in progress(list(by_model.items()), "Making pages"):
        tasks = {record.task: task_of(record) for record in own}
        yield f"models/{model}", {"tasks": tasks, "averages": averages.get(model, {})}


def shown_in(group: Group, records: Sequence[Record]) -> Iterator[Shown]:
    """Yield the views of a group that have any model, its average first."""
    label = f"Average of {len(group.averaged)} {group.choose.lower()}s"
    every = [
        Shown(average_view(group, records), label, average=True, averaged=False),
        *(Shown(task_view(one.task, records), one.label, average=False, averaged=one.averaged) for one in group.choices),
    ]
    return (one for one in every if one.view.standings)


def index_of(models: Sequence[Model], groups: Sequence[Group], shown: Mapping[str, Sequence[Shown]]) -> dict[str, Any]:
    """Return what the page needs first: the models, and what can be chosen."""
    posir = RelativePositions().axes
    return {
        "lengths": dict(zip(posir.lengths, posir.length_titles, strict=True)),
        "models": {
            "id": [model.id for model in models],
            "label": labels_of(models),
            **{name: [getattr(model, name) for model in models] for name in MODEL},
        },
        "groups": [
            {
                "name": group.name,
                "choose": group.choose,
                "about": group.about,
                "views": [
                    {
                        "name": one.view.name,
                        "label": one.label,
                        "file": one.id,
                        "models": len(one.view.standings),
                        "average": one.average,
                        "averaged": one.averaged,
                    }
                    for one in shown[group.name]
                ],
            }
            for group in groups
        ],
    }


def labels_of(models: Sequence[Model]) -> list[str]:
    """Return a name for each model, with its revision where results of several revisions are shown."""
    times = Counter(model.name for model in models if not model.published)
    several = {name for name, number in times.items() if number > 1}
    return [f"{model.name} @ {model.revision[:12]}" if model.name in several else model.name for model in models]


def task_of(record: Record) -> dict[str, Any]:
    """Return what a model's own page shows of a task."""
    return {"rows": rows_of(record.lines), "part": record.part, **record.detail}


def rows_of(lines: Mapping[str, Line]) -> dict[str, Any]:
    """Return lines as columns, with their lengths."""
    return {"length": list(lines), **row_columns(list(lines.values()))}
