"""Render all files of the site from records; the same records give the same bytes."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import distribution, version
from importlib.resources import files
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from posir_leaderboard.board.folder import BOARD_FILE, Site
from posir_leaderboard.board.groups import Group, add_other_tasks
from posir_leaderboard.board.published import UNTESTED_NOTE
from posir_leaderboard.board.records import (
    BoardModel,
    BoardRecord,
    build_row_columns,
    get_page_key,
    list_board_columns,
    write_positions_csv,
    write_scores_csv,
)
from posir_leaderboard.board.views import (
    View,
    build_views,
    find_initial_view,
    list_length_bounds,
    read_position_chart,
)
from posir_significance.decision import DEFAULT_MARGINS
from posir_significance.findings import ChangeState, Quantity, State
from posir_significance.messages.board import HEADINGS, caption_model
from posir_significance.messages.comparisons import name_change
from posir_significance.messages.verdicts import name_state
from posir_tasks.base.errors import PosirError
from posir_tasks.base.progress import track_items
from posir_tasks.base.records import Record
from posir_tasks.data.declared import POSIR, POSQ
from posir_tasks.display.numbers import format_percent, format_points
from posir_tasks.display.position_charts import draw_card, render_png

#: The scripts of the page, in execution order.
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
PREVIEW_FILE = "preview.png"
#: Number of rows in `index.html`, which are visible without JavaScript: one page of the table.
STATIC_ROWS = 20
#: Maximum number of models in the preview.
PREVIEW_MODELS = 3
#: Fields of a score's declaration in the page's data.
COLUMN_FIELDS = ("key", "title", "description", "unit", "better", "citation", "interval", "column")
#: Fields of a model in the page's data.
MODEL_FIELDS = (
    "revision", "published", "origin",
    "kind", "parameters", "window", "dimensions", "open_weights", "license", "reference",
)  # fmt: skip


def render_site(
    records: Iterable[BoardRecord],
    groups: Sequence[Group],
    libraries: Mapping[str, str],
    repository: str | None = None,
    url: str = "",
) -> Site:
    """Render every file of the site.

    Args:
        records: At least one record in all, and at most one per model and task.
        groups: Groups of tasks; another group is added for the remaining tasks.
        libraries: Source of each JavaScript library by name.
        repository: The dataset repository for submissions.
        url: Future address of the site, for link previews.

    Returns:
        The content of each file by path.
    """
    sorted_records = sorted(
        records, key=lambda record: (record.model.label.casefold(), record.model.id, record.task)
    )
    groups = add_other_tasks(groups, (record.task for record in sorted_records))
    views = {group.name: list(build_views(group, sorted_records)) for group in groups}
    initial_view = find_initial_view(chain(*views.values()))
    site = {f"lib/{name}.js": text.encode() for name, text in sorted(libraries.items())}
    scripts = [f"js/{name}.js" for name in SCRIPTS]
    for name in ("board.css", *scripts):
        site[name] = _read_static(name)
    file = f"views/{initial_view.id}"
    # Keep only the data that `index.html` also contains.
    data = {}
    for name, value in build_data(sorted_records, groups, views):
        site[f"data/{name}.js"] = render_data_file(name, value)
        if name in ("board", file):
            data[name] = value
    site["scores.csv.gz"] = write_scores_csv(sorted_records)
    site["positions.csv.gz"] = write_positions_csv(sorted_records)
    site[PREVIEW_FILE] = draw_preview(initial_view)
    view = data[file]
    models = data["board"]["models"]
    columns = view["columns"]
    # Sort by descending score, unranked models last.
    rows = zip(view["partial"], columns["other_data"], columns["score"], strict=True)
    sort_keys = [(bool(partial or other), -(score or 0)) for partial, other, score in rows]
    digest = hashlib.sha256()
    for path, body in sorted(site.items()):
        digest.update(hashlib.sha256(path.encode() + body).digest())
    environment = Environment(
        loader=PackageLoader("posir_leaderboard.board", "static"),
        autoescape=True,
        undefined=StrictUndefined,
    )
    page = environment.get_template("index.html").render(
        build=digest.hexdigest()[:12],
        # In execution order.
        scripts=["lib/datatables.js", scripts[0], BOARD_FILE, f"data/{file}.js", *scripts[1:]],
        version=version("posir"),
        repository=repository or "ORG/RESULTS",
        preview=f"{url.rstrip('/')}/{PREVIEW_FILE}" if url else PREVIEW_FILE,
        citations=(POSIR, POSQ),
        models=models,
        view=view,
        order=sorted(range(len(sort_keys)), key=sort_keys.__getitem__)[:STATIC_ROWS],
        published=any(models["published"][index] for index in view["models"]),
        untested=UNTESTED_NOTE,
        percent=format_percent,
        points=format_points,
    )
    # Model names may contain lone surrogates.
    site["index.html"] = page.encode(errors="replace")
    site["README.md"] = _read_static("space.md")
    return site


def _read_static(name: str) -> bytes:
    return (files("posir_leaderboard.board") / "static" / name).read_bytes()


def render_data_file(name: str, value: Any) -> bytes:
    """Render data as a script, so that a page opened from the disk can load them.

    The script is ASCII without `<`, so that it cannot contain markup. It parses JSON from a string,
    which is faster than a JavaScript object and gives names such as `__proto__` no special meaning.
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    quoted_text = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"board.receive({json.dumps(name)},JSON.parse('{quoted_text}'));\n".encode("ascii")


def build_data(
    records: Sequence[BoardRecord], groups: Sequence[Group], views: Mapping[str, Sequence[View]]
) -> Iterator[tuple[str, Any]]:
    """Yield the name and content of every data file.

    Args:
        records: Sorted by model.
        groups: All groups.
        views: The views of each group by the group's name.
    """
    by_model: dict[str, list[BoardRecord]] = {}
    for record in records:
        by_model.setdefault(record.model.id, []).append(record)
    indices = {name: index for index, name in enumerate(by_model)}
    # Use the first description of a model.
    models = [results[0].model for results in by_model.values()]
    yield "board", _build_index(models, groups, views)
    yield "charts", json.loads(_read_static("charts.json"))["charts"]
    averages: dict[str, Record] = {name: {} for name in by_model}
    for group, group_views in views.items():
        for view in group_views:
            yield from _build_view(view, indices)
            if view.is_average:
                for average in view.rows:
                    averages[average.model.id][group] = _describe_record(average)
    for model, results in track_items(list(by_model.items()), "Rendering"):
        tasks = {record.task: _describe_record(record) for record in results}
        yield f"models/{model}", {"tasks": tasks, "averages": averages[model]}


def _build_view(view: View, indices: Mapping[str, int]) -> Iterator[tuple[str, Any]]:
    differences = view.compute_differences()
    yield f"views/{view.id}", view.to_json(indices, differences)
    for index, length in enumerate(view.lengths):
        if length != view.initial_length:
            yield f"lengths/{view.id}-{index}", view.build_columns(length, differences)
    yield f"differences/{view.id}", view.build_differences(indices, differences)


def _describe_record(record: BoardRecord) -> Record:
    rows = {"length": list(record.rows_by_length), **build_row_columns(record.rows)}
    return {"rows": rows, **record.detail}


def _build_index(
    models: Sequence[BoardModel], groups: Sequence[Group], views: Mapping[str, Sequence[View]]
) -> Record:
    names = [model.label for model in models]
    revisions = Counter(model.label for model in models if not model.published)
    labels = []
    for model in models:
        is_repeated = not model.published and revisions[model.label] > 1
        labels.append(f"{model.label} @ {model.revision[:12]}" if is_repeated else model.label)
    initial_view = find_initial_view(chain(*views.values()))
    margins = DEFAULT_MARGINS
    return {
        "opening": next(group.name for group in groups if initial_view in views[group.name]),
        "columns": [
            {name: getattr(column, name) for name in COLUMN_FIELDS} | {"key": get_page_key(column)}
            for column in list_board_columns()
        ],
        "states": {state: name_state(state, margins.position_effect) for state in State},
        "changes": {state[0]: name_change(state, margins.ndcg_at_10) for state in ChangeState},
        "messages": HEADINGS,
        "lengths": list_length_bounds(),
        "models": {
            "id": [model.id for model in models],
            "name": names,
            "label": labels,
            **{name: [getattr(model, name) for model in models] for name in MODEL_FIELDS},
        },
        "groups": [_describe_group(group, views[group.name]) for group in groups],
    }


def _describe_group(group: Group, views: Sequence[View]) -> Record:
    return {
        "name": group.name,
        "dimension": group.dimension,
        "opening": find_initial_view(views).name if views else None,
        "description": group.description,
        "views": [
            {
                "name": view.name,
                "label": view.label if view.data == view.name else f"{view.label}, local data",
                "data": view.data,
                "file": view.id,
                "models": len(view.rows),
                "average": view.is_average,
                "averaged": view.is_averaged,
            }
            for view in views
        ],
    }


EXPORTS = re.compile(r"export\{([^{}]*)\};")


def bundle_table_library() -> str:
    """Build a script that defines `DataTable` (DataTables and jQuery, MIT license).

    Raises:
        PosirError: The installed itables has no usable module.
    """
    # Locate the file without importing itables, which is slow.
    file = Path(str(distribution("itables").locate_file("itables/html/dt_bundle.js")))
    text = file.read_text(encoding="utf-8")
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


def draw_preview(view: View) -> bytes:
    """Draw the three best models of a view as PNG."""
    length = view.initial_length
    charts = []
    for record, row in zip(view.rows, view.get_ranked_rows(length), strict=True):
        if row and row.score:
            label = row.state_label if row.findings or row.task_states else ""
            effect = Quantity.POSITION_EFFECT if row.position_effect else Quantity.START_MINUS_END
            shift = row.position_effect or row.difference
            estimates = {Quantity.NDCG_AT_10: row.score, effect: shift}
            if chart := read_position_chart(record, length, caption_model(estimates, label)):
                charts.append((row.score.value, chart))
    best = sorted(charts, key=itemgetter(0), reverse=True)[:PREVIEW_MODELS]
    source = f"{view.data}, {view.describe_documents(length)}." if best else ""
    return render_png(draw_card([chart for _, chart in best], "PosIR leaderboard", source))
