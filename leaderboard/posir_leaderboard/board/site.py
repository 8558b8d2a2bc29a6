"""The site: all its files, rendered from records alone; equal records give equal bytes."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from importlib.resources import files
from itertools import groupby
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any

import altair as alt
from jinja2 import Environment, PackageLoader, StrictUndefined

from posir_leaderboard.board.charts import build_specifications
from posir_leaderboard.board.folder import INDEX, Site
from posir_leaderboard.board.published import UNTESTED
from posir_leaderboard.board.records import (
    BoardModel,
    BoardRecord,
    board_columns,
    page_key,
    positions_csv,
    row_columns,
    scores_csv,
)
from posir_leaderboard.board.views import (
    CHANGES,
    Group,
    View,
    add_other_tasks,
    build_views,
    read_strip,
)
from posir_significance.decision import DEFAULT_MARGINS
from posir_significance.findings import State
from posir_significance.messages import name_state
from posir_tasks.base.errors import PosirError
from posir_tasks.base.files import write_text
from posir_tasks.base.progress import progress
from posir_tasks.display.figures import bundle_chart_library
from posir_tasks.display.numbers import format_estimate, format_percent, format_points
from posir_tasks.display.strip import draw_card, render_png
from posir_tasks.tasks.posir import POSIR
from posir_tasks.tasks.posq import POSQ
from posir_tasks.values.schemes import RelativePositions

#: The page's own scripts, in execution order.
SCRIPTS = (
    "core",
    "state",
    "sparklines",
    "filters",
    "pages",
    "table",
    "finding",
    "answers",
    "tooltips",
    "charts",
    "scores",
    "drawings",
    "models",
    "downloads",
    "controls",
    "main",
)
PREVIEW = "preview.png"
#: Rows that the page has without scripts, as many as a page of its table.
PAGE = 20
#: The view of a board without any.
EMPTY: dict[str, Any] = {
    "partial": [],
    "columns": {"score": [], "other_data": [], "headline": ["No results yet."], "lead": []},
}
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

    There is at most one record for each model and task, and tasks in no group get their own. The
    repository takes submissions; `url` is where the site will be, which link previews need.
    """
    ordered = sorted(
        records,
        key=lambda record: (
            record.model.name.casefold(),
            record.model.revision,
            record.model.id,
            record.task,
        ),
    )
    site = {f"lib/{name}.js": text.encode() for name, text in sorted(libraries.items())}
    site |= {name: _static(name) for name in ("board.css", *(f"js/{name}.js" for name in SCRIPTS))}
    data = dict(build_data(ordered, groups))
    site |= {f"data/{name}.js": data_file(name, value) for name, value in data.items()}
    site |= {"scores.csv.gz": scores_csv(ordered), "positions.csv.gz": positions_csv(ordered)}
    build = hashlib.sha256(
        b"".join(
            hashlib.sha256(path.encode() + body).digest() for path, body in sorted(site.items())
        )
    )
    core, *others = (f"js/{name}.js" for name in SCRIPTS)
    # In execution order, with the view that the page opens with.
    groups_shown = [
        group for group in data["board"]["groups"] if group["name"] == data["board"]["opening"]
    ]
    opened = [
        view
        for group in groups_shown
        for view in group["views"]
        if view["name"] == group["opening"]
    ]
    view = data[f"views/{opened[0]['file']}"] if opened else EMPTY
    unranked, scores = (
        list(map(bool, map(max, view["partial"], view["columns"]["other_data"]))),
        view["columns"]["score"],
    )
    order = sorted(range(len(scores)), key=lambda place: (unranked[place], -(scores[place] or 0)))
    environment = Environment(
        loader=PackageLoader("posir_leaderboard.board", "static"),
        autoescape=True,
        undefined=StrictUndefined,
    )
    page = environment.get_template("index.html").render(
        build=build.hexdigest()[:12],
        scripts=[
            "lib/datatables.js",
            core,
            INDEX,
            *(f"data/views/{shown['file']}.js" for shown in opened),
            *others,
        ],
        version=version("posir"),
        repository=repository or "ORG/RESULTS",
        preview=(f"{url.rstrip('/')}/" if url else "") + PREVIEW,
        citations=(POSIR, POSQ),
        models=data["board"]["models"],
        view=view,
        order=order[:PAGE],
        published=any(
            data["board"]["models"]["published"][place] for place in view.get("models", ())
        ),
        untested=UNTESTED,
        percent=format_percent,
        points=format_points,
    )
    # A name may be no valid Unicode.
    return site | {"index.html": page.encode(errors="replace"), "README.md": _static("space.md")}


def _static(name: str) -> bytes:
    return (files("posir_leaderboard.board") / "static" / name).read_bytes()


def data_file(name: str, value: Any) -> bytes:
    """Return data as a script that passes it to the page: unlike JSON, a page opened as a file can
    load it.

    It is ASCII without `<`, so that it cannot contain markup. The data is JSON in a string, which a
    browser parses faster than a JavaScript object, and in which no name, such as `__proto__`, has a
    special meaning.
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    quoted = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"board.receive({json.dumps(name)},JSON.parse('{quoted}'));\n".encode("ascii")


def build_data(
    records: Sequence[BoardRecord], groups: Sequence[Group]
) -> Iterator[tuple[str, Any]]:
    """Yield the name and content of every data file, from records that are grouped by model."""
    groups = add_other_tasks(groups, (record.task for record in records))
    by_model = {
        name: list(of_model)
        for name, of_model in groupby(records, key=lambda record: record.model.id)
    }
    indices = {name: index for index, name in enumerate(by_model)}
    views = {group.name: list(build_views(group, records)) for group in groups}
    # If a model's files describe it differently, the first description is used.
    yield (
        "board",
        _build_index([of_model[0].model for of_model in by_model.values()], groups, views),
    )
    yield "charts", build_specifications()
    averages: dict[str, dict[str, Any]] = {}
    for group in groups:
        for view in views[group.name]:
            yield f"views/{view.id}", view.to_json(indices)
            for place, length in enumerate(view.lengths):
                if length != view.opening_length:
                    yield f"lengths/{view.id}-{place}", view.columns(length)
            yield f"differences/{view.id}", view.differences_json(indices)
            for average in view.rows if view.average else ():
                averages.setdefault(average.model.id, {})[group.name] = _page_of(average)
    for model, of_model in progress(list(by_model.items()), "Rendering"):
        tasks = {record.task: _page_of(record) for record in of_model}
        yield f"models/{model}", {"tasks": tasks, "averages": averages.get(model, {})}


def _page_of(record: BoardRecord) -> dict[str, Any]:
    return {
        "rows": {"length": list(record.rows_by_length), **row_columns(record.rows)},
        **record.detail,
    }


def _build_index(
    models: Sequence[BoardModel], groups: Sequence[Group], views: Mapping[str, Sequence[View]]
) -> dict[str, Any]:
    """Return what the page needs first: the declared columns, the models and the choices."""
    posir = RelativePositions().axes
    openings = {
        name: min(of_group, key=attrgetter("opening_order"))
        for name, of_group in views.items()
        if of_group
    }
    times = Counter(model.name for model in models if not model.published)
    return {
        "opening": min(openings, key=lambda name: openings[name].opening_order, default=None),
        "columns": [
            {name: getattr(column, name) for name in COLUMN} | {"key": page_key(column)}
            for column in board_columns()
        ],
        "states": {
            state.value: name_state(state, DEFAULT_MARGINS.position_effect) for state in State
        },
        "changes": {state[:1]: label for state, label in CHANGES.items() if label},
        "lengths": dict(zip(posir.lengths, posir.length_titles, strict=True)),
        "models": {
            "id": [model.id for model in models],
            # With its revision if there are results of several revisions.
            "label": [
                f"{model.name} @ {model.revision[:12]}"
                if times[model.name] > 1 and not model.published
                else model.name
                for model in models
            ],
            **{name: [getattr(model, name) for model in models] for name in MODEL},
        },
        "groups": [
            {
                "name": group.name,
                "dimension": group.dimension,
                "opening": openings[group.name].name if group.name in openings else None,
                "description": group.description,
                "views": [
                    {
                        "name": view.name,
                        "label": view.label
                        if view.data == view.name
                        else f"{view.label}, local data",
                        "data": view.data,
                        "file": view.id,
                        "models": len(view.rows),
                        "average": view.average,
                        "averaged": view.averaged,
                    }
                    for view in views[group.name]
                ],
            }
            for group in groups
        ],
    }


EXPORTS = re.compile(r"export\{([^{}]*)\};")


def bundle_table_library() -> str:
    """Return a script that defines `DataTable` (DataTables and jQuery, MIT license); raise
    PosirError if it cannot.
    """
    text = (files("itables") / "html" / "dt_bundle.js").read_text(encoding="utf-8")
    exports = EXPORTS.search(text)
    names = dict(pair.split(" as ")[::-1] for pair in exports[1].split(",")) if exports else {}
    if exports is None or "default" not in names:
        raise PosirError(
            "The installed itables has no JavaScript module that the leaderboard can use. Install "
            "itables 2.9.1."
        )
    return (
        '"use '
        f'strict";(()=>{{{text[: exports.start()]}globalThis.DataTable={names["default"]};}})();{text[exports.end() :]}'  # noqa: E501
    )


def cached_chart_library(folder: Path) -> str:
    """Return the script that defines `vegaEmbed` from a cache folder, since bundling takes
    seconds.
    """
    file = folder / f"vega-{version('vl-convert-python')}-{alt.SCHEMA_VERSION}.js"
    if not file.is_file():
        write_text(file, bundle_chart_library())
    return file.read_text(encoding="utf-8")


def draw_preview(groups: Sequence[Group], records: Sequence[BoardRecord]) -> bytes:
    """Return a PNG of the three best models with known positions of the first view; of an empty
    leaderboard, a title alone.
    """
    views = [view for group in groups for view in build_views(group, records)]
    view = min(views, key=attrgetter("opening_order"), default=View("", ()))
    length, scored = view.opening_length, []
    for record, row in zip(view.rows, view.ranked_rows(length), strict=True):
        if row and row.score:
            words = [f"nDCG@10 {format_estimate(row.score, format_percent)}"]
            scored.append((row.score.value, read_strip(record, length, *words, *row.effect_words)))
    strips = [strip for _, strip in sorted(scored, key=itemgetter(0), reverse=True) if strip][:3]
    return render_png(
        draw_card(
            strips,
            "PosIR leaderboard",
            f"{view.data}, {view.describe_documents(length)}." if strips else "",
        )
    )
