"""The site: all its files, rendered from records alone; equal records give equal bytes."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert
from jinja2 import Environment, PackageLoader, StrictUndefined

from posir_leaderboard.board.charts import build_specifications
from posir_leaderboard.board.folder import INDEX, Site
from posir_leaderboard.board.groups import Group, add_other_tasks
from posir_leaderboard.board.models import BoardModel
from posir_leaderboard.board.records import (
    BoardRecord,
    BoardRow,
    board_columns,
    page_key,
    positions_csv,
    row_columns,
    scores_csv,
)
from posir_leaderboard.board.views import (
    TableRow,
    View,
    build_average_view,
    build_task_view,
    domain_matrix,
    length_matrix,
    task_matrix,
)
from posir_report.summary import shorten_middle
from posir_significance.decision import DEFAULT_MARGINS, State
from posir_significance.sentences import name_state
from posir_tasks.digests import digest
from posir_tasks.display.charts import COLORS, FAINT, INK, PERCENT, SCORE, SHAPES, build_chart, cycle_scale
from posir_tasks.display.page import bundle_chart_library
from posir_tasks.display.progress import progress
from posir_tasks.errors import PosirError
from posir_tasks.files import atomic_write
from posir_tasks.schemes import RelativePositions
from posir_tasks.tasks.posir import POSIR
from posir_tasks.tasks.posq import POSQ

#: The page's own scripts, in execution order.
SCRIPTS = (
    "core", "state", "sparklines", "filters", "pages", "table", "finding", "answers", "tooltips", "charts", "scores",
    "drawings", "models", "matrix", "downloads", "controls", "main",
)  # fmt: skip
#: Shown in a command if the repository that takes submissions is unknown.
PLACEHOLDER_REPOSITORY = "ORG/RESULTS"
#: The picture of link previews.
PREVIEW = "preview.png"
#: Fields of a score's declaration, from which the page makes its columns.
COLUMN = ("key", "title", "description", "unit", "better", "citation", "interval", "column")
#: Fields of a model that the page shows.
MODEL = (
    "name", "revision", "published", "origin",
    "kind", "parameters", "window", "dimensions", "open_weights", "license", "reference",
)  # fmt: skip


def render_site(
    records: Iterable[BoardRecord],
    groups: Sequence[Group],
    libraries: Mapping[str, str],
    repository: str | None = None,
    url: str = "",
) -> Site:
    """Return every file of the site by its path.

    There is at most one record for each model and task, and tasks in no group get their own. The repository takes submissions;
    `url` is where the site will be, which link previews need.
    """
    ordered = sorted(
        records, key=lambda record: (record.model.name.casefold(), record.model.revision, record.model.id, record.task)
    )
    site = {f"lib/{name}.js": text.encode() for name, text in sorted(libraries.items())}
    site |= {name: _static(name) for name in ("board.css", *(f"js/{name}.js" for name in SCRIPTS))}
    data = dict(build_data(ordered, groups))
    site |= {f"data/{name}.js": data_file(name, value) for name, value in data.items()}
    site |= {"scores.csv.gz": scores_csv(ordered), "positions.csv.gz": positions_csv(ordered)}
    build = hashlib.sha256(b"".join(hashlib.sha256(path.encode() + body).digest() for path, body in sorted(site.items())))
    site["index.html"] = _page(
        build.hexdigest()[:12], repository or PLACEHOLDER_REPOSITORY, url, _scripts(find_opening_view(data["board"]))
    )
    site["README.md"] = _static("space.md")
    return site


def _static(name: str) -> bytes:
    return (files("posir_leaderboard.board") / "static" / name).read_bytes()


def find_opening_view(index: Mapping[str, Any]) -> str | None:
    """Return the name of the file of the view that the page opens with; None if there is none."""
    groups = {group["name"]: group for group in index["groups"]}
    opening = groups.get(index["opening"])
    return next((view["file"] for view in opening["views"] if view["name"] == opening["opening"]), None) if opening else None


def _scripts(view: str | None) -> list[str]:
    """Return the scripts that the page loads at once, in execution order, with the view that it opens with."""
    core, *others = (f"js/{name}.js" for name in SCRIPTS)
    return ["lib/datatables.js", core, INDEX, *([f"data/views/{view}.js"] if view else []), *others]


def _page(build: str, repository: str, url: str, scripts: Sequence[str]) -> bytes:
    environment = Environment(
        loader=PackageLoader("posir_leaderboard.board", "static"), autoescape=True, undefined=StrictUndefined
    )
    page = environment.get_template("index.html")
    return page.render(
        build=build,
        scripts=scripts,
        version=version("posir"),
        repository=repository,
        preview=(f"{url.rstrip('/')}/" if url else "") + PREVIEW,
        citations=(POSIR, POSQ),
    ).encode()


def data_file(name: str, value: Any) -> bytes:
    """Return data as a script that passes it to the page: unlike JSON, a page opened as a file can load it.

    It is ASCII without `<`, so that it cannot contain markup. The data is JSON in a string, which a browser parses faster than
    a JavaScript object, and in which no name, such as `__proto__`, has a special meaning.
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    quoted = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"board.receive({json.dumps(name)},JSON.parse('{quoted}'));\n".encode("ascii")


@dataclass(frozen=True)
class ViewChoice:
    """A view as it is offered to visitors."""

    view: View
    label: str
    average: bool
    averaged: bool
    """Whether it is a task in its group's average."""

    @property
    def id(self) -> str:
        """Name of its file, a hash, so that a task's name cannot choose it."""
        kind = "average" if self.average else "task"
        return digest(kind, self.view.name, size=6).hex()

    def matrix(self, group: Group, records: Sequence[BoardRecord], indices: Mapping[str, int]) -> dict[str, Any] | None:
        """Return models by the tasks of an average; of a task by its domains, its lengths, or the tasks of its group."""
        own = None
        if not self.average:
            own = domain_matrix(self.view.name, records, indices) or length_matrix(self.view, indices)
        labels = {choice.task: choice.label for choice in group.choices}
        return own or task_matrix(group.dimension, labels, records, indices)


def build_data(records: Sequence[BoardRecord], groups: Sequence[Group]) -> Iterator[tuple[str, Any]]:
    """Yield the name and content of every data file, from records that are grouped by model."""
    groups = add_other_tasks(groups, (record.task for record in records))
    by_model = {name: list(of_model) for name, of_model in groupby(records, key=lambda record: record.model.id)}
    indices = {name: index for index, name in enumerate(by_model)}
    # If a model's files describe it differently, the first description is used.
    models = [of_model[0].model for of_model in by_model.values()]
    choices = {group.name: list(view_choices(group, records)) for group in groups}
    yield "board", build_index(models, groups, choices)
    yield "charts", build_specifications()
    averages: dict[str, dict[str, Any]] = {}
    for group in groups:
        for choice in choices[group.name]:
            yield f"views/{choice.id}", choice.view.to_json(indices)
            for place, length in enumerate(choice.view.lengths):
                if length != choice.view.opening_length:
                    yield f"lengths/{choice.id}-{place}", choice.view.columns(length)
            yield f"matrix/{choice.id}", choice.matrix(group, records, indices)
            yield f"differences/{choice.id}", choice.view.differences_json(indices)
            if choice.average:
                for row in choice.view.rows:
                    curves = row.curves.to_detail(list(row.scored)) if row.curves.panels else {}
                    average = {"rows": length_columns(row.scored), **curves}
                    averages.setdefault(row.model.id, {})[group.name] = average
    for model, of_model in progress(list(by_model.items()), "Rendering"):
        tasks = {record.task: {"rows": length_columns(record.rows_by_length), **record.detail} for record in of_model}
        yield f"models/{model}", {"tasks": tasks, "averages": averages.get(model, {})}


def view_choices(group: Group, records: Sequence[BoardRecord]) -> Iterator[ViewChoice]:
    """Yield the views of a group that contain any model, the average first."""
    label = f"Average of {len(group.averaged_tasks)} {group.dimension.lower()}s"
    every = [
        ViewChoice(build_average_view(group, records), label, average=True, averaged=False),
        *(
            ViewChoice(build_task_view(choice.task, records), choice.label, average=False, averaged=choice.averaged)
            for choice in group.choices
        ),
    ]
    return (choice for choice in every if choice.view.rows)


def build_index(
    models: Sequence[BoardModel], groups: Sequence[Group], choices: Mapping[str, Sequence[ViewChoice]]
) -> dict[str, Any]:
    """Return what the page needs first: the declared columns, the models and the choices."""
    posir = RelativePositions().axes
    openings = {name: find_opening([choice.view for choice in of_group]) for name, of_group in choices.items()}
    filled = {name: view for name, view in openings.items() if view}
    return {
        "opening": next((name for name, view in filled.items() if view.own), next(iter(filled), None)),
        "columns": [{name: getattr(column, name) for name in COLUMN} | {"key": page_key(column)} for column in board_columns()],
        "states": {state.value: name_state(state, DEFAULT_MARGINS.start_to_end) for state in State},
        "lengths": dict(zip(posir.lengths, posir.length_titles, strict=True)),
        "models": {
            "id": [model.id for model in models],
            "label": label_models(models),
            **{name: [getattr(model, name) for model in models] for name in MODEL},
        },
        "groups": [
            {
                "name": group.name,
                "dimension": group.dimension,
                "opening": view.name if (view := openings[group.name]) else None,
                "description": group.description,
                "views": [
                    {
                        "name": choice.view.name,
                        "label": choice.label,
                        "file": choice.id,
                        "models": len(choice.view.rows),
                        "average": choice.average,
                        "averaged": choice.averaged,
                    }
                    for choice in choices[group.name]
                ],
            }
            for group in groups
        ],
    }


def find_opening(views: Sequence[View]) -> View | None:
    """Return the view that a group opens with: the first with a result that is not published, or else the first."""
    return next((view for view in views if view.own), views[0] if views else None)


def label_models(models: Sequence[BoardModel]) -> list[str]:
    """Return a label for each model, with its revision if there are results of several revisions."""
    times = Counter(model.name for model in models if not model.published)
    ambiguous = {name for name, number in times.items() if number > 1}
    return [f"{model.name} @ {model.revision[:12]}" if model.name in ambiguous else model.name for model in models]


def length_columns(scored: Mapping[str, BoardRow]) -> dict[str, Any]:
    """Return rows as columns, with their lengths."""
    return {"length": list(scored), **row_columns(list(scored.values()))}


EXPORTS = re.compile(r"export\{([^{}]*)\};")


def bundle_table_library() -> str:
    """Return a script that defines `DataTable` (DataTables and jQuery, MIT license); raise PosirError if it cannot."""
    text = (files("itables") / "html" / "dt_bundle.js").read_text(encoding="utf-8")
    exports = EXPORTS.search(text)
    names = dict(pair.split(" as ")[::-1] for pair in exports[1].split(",")) if exports else {}
    if exports is None or "default" not in names:
        raise PosirError("The installed itables has no JavaScript module that the leaderboard can use. Install itables 2.9.1.")
    return f'"use strict";(()=>{{{text[: exports.start()]}globalThis.DataTable={names["default"]};}})();{text[exports.end() :]}'


def cached_chart_library(folder: Path) -> str:
    """Return the script that defines `vegaEmbed` from a cache folder, since bundling takes seconds."""
    file = folder / f"vega-{version('vl-convert-python')}-{alt.SCHEMA_VERSION}.js"
    if not file.is_file():
        with atomic_write(file) as part:
            part.write_text(bundle_chart_library(), encoding="utf-8")
    return file.read_text(encoding="utf-8")


#: Most models in the picture, and most letters of a name.
MODELS, NAME = 5, 36
#: The size that link previews are shown at.
WIDTH, HEIGHT = 1200, 630


def draw_preview(groups: Sequence[Group], records: Sequence[BoardRecord]) -> bytes:
    """Return a PNG of the best models of the first benchmark that has results; of an empty leaderboard, a title alone."""
    first = next((choice.view for group in groups for choice in view_choices(group, records)), View("", ()))
    chart = _build_picture(first).to_dict()
    return vl_convert.vegalite_to_png(chart, vl_version=".".join(alt.SCHEMA_VERSION.split(".")[:2]))


def _build_picture(view: View) -> alt.Chart:
    scored = [row for row in view.rows if row.comparable and _score(row) > 0]
    best = sorted(scored, key=_score, reverse=True)[:MODELS]
    by_position = bool(best) and all("all" in row.curves.panels for row in best)
    values = [value for row in best for value in (_positions(row) if by_position else _lengths(row))]
    names = list(dict.fromkeys(value["model"] for value in values))
    what = "position of the evidence" if by_position else "document length"
    x = (
        alt.X("middle:Q", title="start of the document to its end", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format=".1f"))
        if by_position
        else alt.X("length:O", title="document length", axis=alt.Axis(labelAngle=0))
    )
    legend = alt.Legend(title=None, labelLimit=420)
    picture: alt.Chart = (
        build_chart(values)
        .mark_line(point=alt.OverlayMarkDef(size=90, opacity=1), strokeWidth=3)
        .encode(
            x=x,
            y=alt.Y("score:Q", title=SCORE, axis=PERCENT, scale=alt.Scale(domain=[0, 1])),
            color=alt.Color("model:N", scale=cycle_scale(names, COLORS), legend=legend),
            shape=alt.Shape("model:N", scale=cycle_scale(names, SHAPES)),
        )
        .properties(
            width=WIDTH,
            height=HEIGHT,
            autosize=alt.AutoSizeParams(type="fit", contains="padding"),
            title=alt.TitleParams("PosIR leaderboard", subtitle=f"{view.name}: nDCG@10 by {what}", anchor="start", offset=20),
        )
        .configure(font="DejaVu Sans, Verdana, sans-serif", padding=36, background="white")
        .configure_title(fontSize=40, subtitleFontSize=24, subtitleColor=FAINT, subtitlePadding=10, color=INK)
        .configure_axis(labelFontSize=20, titleFontSize=20, titleFontWeight="normal", gridColor="#eeeeee", titlePadding=12)
        .configure_legend(labelFontSize=20, symbolSize=200, symbolStrokeWidth=3, orient="right")
    )
    return picture


def _score(row: TableRow) -> float:
    scored = row.scored.get("all")
    return scored.score.value if scored and scored.score else 0.0


def _positions(row: TableRow) -> Iterator[dict[str, Any]]:
    scores = row.curves.panels["all"]["ndcg_at_10"]
    for place, score in enumerate(scores):
        yield {"model": _name(row), "middle": (place + 0.5) / len(scores), "score": score}


def _lengths(row: TableRow) -> Iterator[dict[str, Any]]:
    lengths = [length for length in row.scored if length != "all"] or ["all"]
    for length in lengths:
        yield {"model": _name(row), "length": length, "score": score.value if (score := row.scored[length].score) else None}


def _name(row: TableRow) -> str:
    return shorten_middle(row.model.name.split("/")[-1], NAME)
