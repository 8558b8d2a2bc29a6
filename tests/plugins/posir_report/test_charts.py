"""Test figures and reports against queries counted with pandas, and with hostile names."""

import json
import re
import shutil
import struct
import subprocess
from dataclasses import dataclass, replace
from html.parser import HTMLParser

import altair as alt
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import ValidationError

from posir_report.api import read_results as report_results
from posir_report.charts import MERGED_NOTE, _compile_curves, draw_curves, draw_heat_map
from posir_report.page import build_figure_sections, describe_result_file
from posir_report.summary import build_labels, summarize
from posir_report.tables import write_truncation_notes
from posir_significance.cells import (
    MIN_CELL_QUERIES,
    build_cells,
    build_curve_cells,
    pool_curve_cells,
)
from posir_significance.group_means import MIN_QUERIES
from posir_significance.messages.verdicts import describe_group
from posir_tasks.base.errors import PosirError
from posir_tasks.base.wording import shorten_middle
from posir_tasks.display.charts import FramedChart
from posir_tasks.display.figures import deduplicate, export, prepare_figures
from posir_tasks.display.position_charts import FigureStyle
from posir_tasks.results import read_results
from posir_tasks.values.evidence import Evidence
from posir_tasks.values.profile import RANKS, PositionProfile
from posir_tasks.values.read_part import ReadPart, TokenCountMethod, WindowSource
from posir_tasks.values.schemes import (
    AbsolutePositions,
    Axes,
    LabeledPositions,
    QueryCells,
    RelativePositions,
)
from posir_tasks.values.scores import ResultScores, ResultValues
from tests.support.charts import check_figures
from tests.support.cli import call_posir
from tests.support.results import write_result
from tests.support.simulation import separate_documents

LENGTHS = [
    "Q1: up to 512 tokens",
    "Q2: 513 to 1,024 tokens",
    "Q3: 1,025 to 1,536 tokens",
    "Q4: over 1,536 tokens",
]
HOSTILE = 'org/<script>alert("1")</script> & 100% $x_1$ ^~\\ {#} | [bold] 🤖'
CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)


def sample_queries(seed=3, queries=2600):
    """Sample queries with length bucket, position bin and rank.

    Later evidence ranks lower. Q3 has no queries, and Q4 has few.
    """
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "length": rng.choice([0, 1, 3], queries, p=[0.9, 0.08, 0.02]),
            "bin": rng.integers(0, 20, queries),
        }
    )
    rank = rng.geometric(0.5 - 0.02 * frame.bin)
    frame["rank"] = np.where(rank > 100, 0, rank)
    frame["ndcg"] = np.where(
        (frame["rank"] >= 1) & (frame["rank"] <= 10),
        1 / np.log2(1 + frame["rank"].clip(lower=1)),
        0.0,
    )
    return frame


def build_frame_profile(frame, scheme):
    counts = np.zeros((len(scheme.axes.lengths), len(scheme.axes.positions), len(RANKS)), np.int64)
    for length, position, rank in frame[["length", "bin", "rank"]].itertuples(index=False):
        counts[length, position, 11 if rank == 0 else min(rank, 11) - 1] += 1
    return PositionProfile(scheme.axes, counts, counts.sum(axis=1))


@pytest.fixture(scope="module")
def raw():
    return sample_queries()


@pytest.fixture(scope="module")
def folder(raw, tmp_path_factory):
    """Two models on a PosIR task, one with a hostile name, and one model on PosQ's tasks."""
    output = tmp_path_factory.mktemp("output")
    write_result(output, {"sports": build_frame_profile(raw, RelativePositions())})
    write_result(
        output,
        {"sports": build_frame_profile(sample_queries(4), RelativePositions())},
        model=HOSTILE,
    )
    six = raw.assign(length=0, bin=raw.bin % 6)
    write_result(
        output, {"default": build_frame_profile(six, AbsolutePositions())}, task="SQuAD-PosQ"
    )
    three = raw.assign(length=0, bin=raw.bin % 3)
    write_result(
        output, {"default": build_frame_profile(three, LabeledPositions())}, task="FineWeb-PosQ"
    )
    return output


@pytest.fixture(scope="module")
def summaries(folder):
    return summarize(read_results(folder))


@pytest.fixture(scope="module")
def summary(summaries):
    (summary,) = (
        item for item in summaries if (item.model, item.task) == ("org/model", "PosIR-English")
    )
    return summary


@pytest.fixture(scope="module")
def figures(folder):
    return report_results(folder).figures()


@pytest.fixture(scope="module")
def curves(summary):
    return read_chart_rows(draw_curves(summary, build_cells(summary.values)))


def find_figure(figures, kind, task="PosIR-English", model=None):
    (chart,) = (
        figure.chart
        for figure in figures
        if (figure.kind, figure.task, figure.model) == (kind, task, model)
    )
    return chart


@pytest.fixture(scope="module")
def page(folder):
    return report_results(folder).to_html()


def read_chart_rows(chart):
    """Read the rows of a chart's marks, without the one-row datasets of line names."""
    return pd.DataFrame(
        [row for rows in chart.to_dict()["datasets"].values() for row in rows if "queries" in row]
    )


def list_texts(chart):
    outer = chart.to_dict()
    inner = outer["vconcat"][0]
    lines = [*inner["title"]["text"], *inner["title"]["subtitle"], *outer["title"]["text"]]
    return " ".join(lines)


def assert_same(values, expected):
    np.testing.assert_allclose(
        np.array(values, float), np.array(expected, float), rtol=0, atol=1e-12
    )


def test_curves_show_the_mean_of_every_cell(raw, curves):
    cells = raw.groupby(["length", "bin"]).ndcg.agg(["mean", "size"])
    cells = cells.reindex(pd.MultiIndex.from_product([range(4), range(20)]))
    assert curves.length.tolist() == np.repeat(LENGTHS, 20).tolist()
    assert_same(curves.ndcg_at_10, cells["mean"])
    assert curves.queries.tolist() == cells["size"].fillna(0).tolist()
    assert curves.few.tolist() == (curves.queries < MIN_CELL_QUERIES).tolist()
    assert {True, False} == set(curves.few)
    assert_same(curves.middle, np.tile((np.arange(20) + 0.5) / 20, 4))
    queries = raw.length.value_counts().reindex(range(4), fill_value=0)
    assert [*curves.panel.unique()] == [
        f"{words} · {number:,} queries" for words, number in zip(LENGTHS, queries, strict=True)
    ]


def test_cell_intervals_contain_the_mean(curves):
    # A cell with one document has a mean, but no interval for new documents.
    filled = curves.ndcg_at_10_low.notna()
    assert filled.sum() > 20
    assert not filled[curves.queries == 0].any()
    assert (
        (curves.ndcg_at_10_low <= curves.ndcg_at_10) & (curves.ndcg_at_10 <= curves.ndcg_at_10_high)
    )[filled].all()
    unknown = ["ndcg_at_10", "ndcg_at_10_low", "ndcg_at_10_high", "null_low", "null_high"]
    assert curves.loc[curves.queries == 0, unknown].isna().all(axis=None)


def test_null_band_matches_shuffled_queries(raw, curves):
    bucket = raw[raw.length == 0]
    rng = np.random.default_rng(11)
    order = np.argsort(bucket.bin.to_numpy(), kind="stable")
    starts = np.searchsorted(np.sort(bucket.bin), np.arange(20))
    sizes = np.bincount(bucket.bin, minlength=20)
    drawn = rng.permuted(np.tile(bucket.ndcg.to_numpy()[order], (1000, 1)), axis=1)
    means = np.add.reduceat(drawn, starts, axis=1) / sizes
    low, high = np.quantile(means, [0.025, 0.975], axis=0)
    # The band may be wider than that of permutations, which remove the position effect.
    error = means.std(axis=0)
    assert (np.abs(curves.null_low[:20] - low) < error).all()
    assert (np.abs(curves.null_high[:20] - high) < error).all()


def test_heat_map_shows_the_cells_of_the_curves(figures):
    heat, curves = (
        read_chart_rows(find_figure(figures, kind, model="org/model"))
        for kind in ("heat-map", "curves")
    )
    assert heat.length.value_counts().to_dict() == {LENGTHS[0]: 20, LENGTHS[1]: 5, LENGTHS[3]: 5}
    shared = ["length", "position", "queries", "few", "ndcg_at_10"]
    pd.testing.assert_frame_equal(curves[shared], heat[shared])
    assert heat.row.unique().tolist() == curves.panel.unique().tolist()


def test_sparse_bins_are_merged_and_empty_lengths_omitted(raw, summary, figures):
    cells = build_curve_cells(summary.values)
    lengths = [cell.length for cell in cells]
    assert lengths == [LENGTHS[0]] * 20 + [LENGTHS[1]] * 5 + [LENGTHS[3]] * 5
    assert min(raw[raw.length == 0].groupby("bin").size()) >= MIN_QUERIES
    merged = raw[raw.length == 1].assign(bin=lambda frame: frame.bin // 4).groupby("bin").ndcg
    second = [cell for cell in cells if cell.length == LENGTHS[1]]
    assert [cell.queries for cell in second] == merged.size().tolist()
    assert_same([cell.ndcg_at_10.value for cell in second], merged.mean())
    assert all(
        cell.ndcg_at_10.low <= cell.ndcg_at_10.value <= cell.ndcg_at_10.high for cell in second
    )
    assert all(cell.null_band[0] < cell.null_band[1] for cell in second)
    assert (second[0].position, second[-1].end) == ("[0.00, 0.05] to (0.15, 0.20]", 1.0)
    chart = find_figure(figures, "curves", model="org/model")
    assert MERGED_NOTE.strip() in list_texts(chart)
    assert LENGTHS[2] not in json.dumps(chart.to_dict()["datasets"])
    few = replace(
        summary,
        values=ResultValues(
            separate_documents(build_frame_profile(raw[raw.length == 1], RelativePositions()))
        ),
    )
    assert [len(cells) for cells in pool_curve_cells([few.values, few.values])] == [5, 5]


@pytest.mark.parametrize(
    ("task", "bins", "title"),
    [("SQuAD-PosQ", 6, "First character"), ("FineWeb-PosQ", 3, "Part of the")],
)
def test_posq_figures_keep_the_order_of_their_bins(raw, summaries, figures, task, bins, title):
    (summary,) = (item for item in summaries if item.task == task)
    means, names = raw.groupby(raw.bin % bins).ndcg.mean(), list(summary.profile.positions)
    drawn = [figure.chart for figure in figures if figure.task == task]
    for chart in drawn:
        data, specification = read_chart_rows(chart), json.dumps(chart.to_dict())
        assert_same(data.ndcg_at_10, means)
        assert data.position.tolist() == names
        assert f'"sort": {json.dumps(names)}' in specification
        assert title in specification


def drop_scores(summary):
    groups = {name: {} for name in summary.scores.groups}
    return replace(summary, scores=ResultScores((), groups, tuple({} for _ in summary.scores.bins)))


def list_figures(summaries):
    sections = [part for summary in summaries for part in build_figure_sections(summary, "m")]
    return [figure for section in sections for figure in section.figures()]


def test_curves_need_no_plugin(summary):
    figures = list_figures([drop_scores(summary)])
    assert [figure.kind for figure in figures] == ["curves", "heat-map"]


def test_a_task_without_queries_has_no_figures(summary):
    nothing = replace(
        summary.profile, counts=summary.profile.counts * 0, totals=summary.profile.totals * 0
    )
    empty = replace(summary, values=ResultValues(separate_documents(nothing)))
    assert list_figures([empty]) == []
    assert len(list_figures([summary])) == 2


@pytest.mark.slow
def test_every_figure_names_task_revisions_and_queries(figures, raw):
    assert {figure.kind for figure in figures} == {"curves", "heat-map", "models"}
    for figure in (figure for figure in figures if figure.kind != "models"):
        text = list_texts(figure.chart)
        assert f"{figure.task}, data revision local" in text
        assert "revision rev1" in text
        assert f"{len(raw):,} queries" in text + json.dumps(
            figure.chart.to_dict(), ensure_ascii=False
        )


def test_models_with_the_same_name_are_labeled_with_their_revision(summary):
    labels = build_labels([summary, replace(summary, revision="rev2")])
    assert labels == ["org/model @ rev1", "org/model @ rev2"]
    assert build_labels([summary, summary]) == ["org/model"] * 2


@given(st.text(min_size=1), st.integers(3, 80))
def test_shortened_names_keep_both_ends(name, width):
    line = " ".join(name.split())
    short = shorten_middle(name, width)
    assert len(short) <= width
    assert short == line or (
        "…" in short
        and line.startswith(short.split("…")[0])
        and (line.endswith(short[-1]) or "+" in line)
    )


def test_pictures_are_png_with_plausible_size_and_safe_names(figures, tmp_path):
    assert len(figures) == 9
    # One figure of each kind, if possible of the model with the hostile name.
    kinds = {
        figure.kind: figure
        for figure in sorted(figures, key=lambda figure: figure.model == HOSTILE)
    }
    paths = export(
        prepare_figures([], [*kinds.values()], tmp_path / "pictures", FigureStyle("png"))
    )
    assert len(set(paths)) == len(kinds) == 3
    assert sorted(paths) == sorted((tmp_path / "pictures").iterdir())
    for path in paths:
        assert re.fullmatch(r"[A-Za-z0-9._-]+\.png", path.name)
        content = path.read_bytes()
        width, height = struct.unpack(">II", content[16:24])
        assert content.startswith(b"\x89PNG")
        assert 900 <= width <= 2400
        assert 400 <= height <= 2400


def test_bare_figure_has_the_given_width_and_no_surrounding_text(figures, tmp_path):
    shown = ("heat-map", "PosIR-English", "org/model")
    (figure,) = (figure for figure in figures if (figure.kind, figure.task, figure.model) == shown)
    style = FigureStyle(bare=True, width=5.0, font_size=9.0, font="DejaVu Serif")
    (path,) = export(prepare_figures([], [figure], tmp_path, style))
    svg = path.read_text(encoding="utf-8")
    assert path.name == "PosIR-English.org_model.heat-map.svg"
    # An inch has 96 pixels or 72 points.
    assert re.search(r'<svg[^>]* width="480" ', svg)
    natural = float(re.search(r'viewBox="0 0 ([\d.]+)', svg)[1])
    (size,) = set(re.findall(r'font-size="([\d.]+)px"', svg))
    assert float(size) * 480 / natural == pytest.approx(12, rel=0.02)
    assert set(re.findall(r'font-family="([^"]+)"', svg)) == {"DejaVu Serif"}
    drawn = " ".join(re.findall(r"<text[^>]*>([^<]*)</text>", svg))
    assert "nDCG@10 (x 100)" in drawn
    assert not any(text in drawn for text in ("Source", "Stronger", "shortest", "org/model"))
    # Numbers fit into five merged cells, but not into twenty.
    assert 20 <= len(re.findall(r"<text[^>]*>\d+</text>", svg)) < 30


def test_labels_of_a_bare_color_bar_do_not_collide(figures, tmp_path):
    (figure,) = (figure for figure in figures if figure.slug.endswith("English.org_model.heat-map"))
    (path,) = export(prepare_figures([], [figure], tmp_path, FigureStyle(bare=True)))
    group = path.read_text(encoding="utf-8").partition("role-legend-label")[2].partition("</g>")[0]
    labels = re.findall(
        r'<text text-anchor="(\w+)" transform="translate\(([\d.]+),[^>]* '
        r'font-size="([\d.]+)px"[^>]*>(\d+)<',
        group,
    )
    assert [text for *_, text in labels] == ["0", "50", "100"]
    shares = {"start": 0.0, "middle": 0.5, "end": 1.0}
    ends = [float("-inf")]
    for anchor, x, size, text in labels:
        # A digit of this font is 0.64 times as wide as the font size.
        width = 0.64 * float(size) * len(text)
        start = float(x) - shares[anchor] * width
        assert start > ends[-1] + float(size)
        ends.append(start + width)


def test_picture_names_are_distinct_on_any_file_system():
    assert deduplicate(["a", "A", "b", "a"]) == ["a", "A-2", "b", "a-3"]


class Tags(HTMLParser):
    """Collect the addresses that a page would load, its elements, and its scripts."""

    def __init__(self, page):
        super().__init__()
        self.loads, self.tags, self.scripts = [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        loading = ("src", "href", "srcset", "data", "action")
        is_cited = tag == "a" and dict(attributes).get("href", "").startswith(
            ("https://arxiv.org/", "https://huggingface.co/")
        )
        self.loads += [value for name, value in attributes if name in loading and not is_cited]
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data):
        if self.tags and self.tags[-1] == "script":
            self.scripts[-1] += data


def test_page_loads_nothing_from_elsewhere(page):
    tags = Tags(page)
    assert tags.loads
    assert all(load.startswith("#") for load in tags.loads)
    assert "default-src 'none'" in page
    assert not re.search(r"@import|url\(", page.split("</style>")[0])


def test_figures_are_valid_vega_lite(figures):
    check_figures(figures)
    assert {figure.kind for figure in figures} == {"curves", "heat-map", "models"}
    wrong = figures[0].chart.to_dict()
    wrong["vconcat"][0]["vconcat"][0]["spec"]["layer"][0]["mark"]["type"] = "ruler"
    with pytest.raises(ValidationError):
        check_figures([replace(figures[0], chart=FramedChart(wrong))])
    check_figures(figures[:1])


@pytest.mark.parametrize("theme", ["none", "dark", "padded"])
def test_charts_do_not_depend_on_the_users_theme(summary, theme):
    if theme == "padded":
        alt.theme.register(theme, enable=False)(
            lambda: alt.theme.ThemeConfig(padding=40, usermeta={"dark": True})
        )
    cells = build_curve_cells(summary.values)
    charts = []
    for name in ("default", theme):
        _compile_curves.cache_clear()
        with alt.theme.enable(name):
            charts.append(draw_curves(summary, cells).to_dict())
    assert charts[0] == charts[1]


def test_a_figure_is_printed_without_its_specification(figures):
    assert all(len(repr(figure)) < 300 for figure in figures)


def test_models_of_a_task_share_marks_but_no_texts_or_rows(summary):
    other = replace(summary, model="org/other")
    charts = [draw_curves(item, build_curve_cells(item.values)) for item in (summary, other)]
    first, second = (chart.specification for chart in charts)
    assert first["vconcat"][0]["vconcat"][0] is second["vconcat"][0]["vconcat"][0]
    assert "org/other" not in json.dumps(first)
    assert "org/other" in json.dumps(second)
    assert first["datasets"]["rows"] is not second["datasets"]["rows"]
    # A copy shares nothing.
    charts[0].to_dict()["vconcat"][0]["vconcat"][0].clear()
    assert first["vconcat"][0]["vconcat"][0]


def test_page_contains_every_figure(page, figures):
    specifications = [json.loads(script) for script in Tags(page).scripts if script.startswith("{")]
    assert specifications == [figure.chart.to_dict() for figure in figures]


def test_page_opens_with_the_models_and_the_answers(page, figures):
    cards, rest = page.split('<table class="blocks"', 1)
    assert cards.count('<article class="card"') == 4
    assert rest.count('<div class="chart"') == len(figures) == 9


def test_names_link_to_the_section_of_each_model_and_tasks(page):
    linked = re.findall(r'<td[^>]*><a href="#(result-\d-\d)">', page)
    assert len(linked) == len(set(linked)) == 4, "a row for each model and task"
    (menu,) = re.findall(r"<nav>(.*?)</nav>", page)
    assert menu.count("<a ") == 3
    for anchor in (*linked, *re.findall(r'href="#(task-\d)"', menu)):
        assert page.count(f'id="{anchor}"') == 1


def test_hostile_names_stay_text(page, figures):
    tags = Tags(page)
    assert tags.tags.count("script") == len(figures) + 2
    assert "&lt;script&gt;alert(&#34;1&#34;)&lt;/script&gt; &amp; 100%" in page


def truncate_evidence(summary, counted_with):
    """Give a result a window of 256 tokens that contains the evidence of half of the queries."""
    sets = tuple(
        replace(
            part,
            twelfths=np.where(np.arange(len(part.ranks)) % 2, 3, 13),
            counted_with=counted_with,
        )
        for part in summary.ranks.sets
    )
    values = ResultValues(
        replace(summary.ranks, sets=sets), ReadPart.first(256, WindowSource.CLASS)
    )
    return replace(summary, values=values)


@pytest.mark.parametrize("counted_with", TokenCountMethod)
def test_notes_report_truncation_and_token_counts(summary, counted_with):
    first, second = write_truncation_notes(
        ["a", "b"], [summary, truncate_evidence(summary, counted_with)]
    )
    assert first.startswith("b: ")
    assert "256 tokens" in first
    assert "50%" in first
    assert ("estimated" in first) == (counted_with is not TokenCountMethod.TOKENIZER)
    assert "posir window" in second


@pytest.mark.slow
@pytest.mark.skipif(not CHROMIUM, reason="no Chromium on this machine")
def test_page_draws_its_figures_in_a_browser_without_network(page, figures, tmp_path):
    file = tmp_path / "page.html"
    file.write_text(page, encoding="utf-8")
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=30000"]
    options.append("--host-resolver-rules=MAP * ~NOTFOUND")
    done = subprocess.run(
        [
            CHROMIUM,
            *options,
            f"--user-data-dir={tmp_path / 'browser'}",
            "--dump-dom",
            file.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout.count("<svg") >= len(figures)
    assert done.stdout.count('class="marks"') >= len(figures)
    assert "Cannot draw this figure: " not in done.stdout.split("<script>")[0]


def parse_latex_rows(table):
    body = table.split("\\midrule")[1].split("\\bottomrule")[0]
    lines = [line for line in body.splitlines() if line.endswith("\\\\")]
    return [
        [cell.strip() for cell in re.split(r"(?<!\\)&", line.removesuffix("\\\\"))]
        for line in lines
    ]


def test_latex_has_models_in_rows_and_lengths_in_columns(folder, raw):
    text = report_results(folder).to_latex()
    tables = dict(
        zip(("FineWeb-PosQ", "PosIR-English", "SQuAD-PosQ"), text.split("\n\n")[1:], strict=True)
    )
    posir = tables["PosIR-English"]
    headings = next(line for line in posir.splitlines() if line.startswith("Model & "))
    lengths = headings.removesuffix(r" \\").split(" & ")[1:5]
    assert lengths == ["all", "Q1", "Q2", "Q4"], "no query is in a document of the third length"
    rows = parse_latex_rows(posir)
    index = [row[0] for row in rows].index("{model}")
    values, intervals = rows[index : index + 2]
    expected = [raw.ndcg.mean(), *raw.groupby("length").ndcg.mean()]
    shown = [re.sub(r"\\textbf\{(.*)\}", r"\1", cell) for cell in values[1:5]]
    assert shown == [f"{score * 100:.1f}" for score in expected]
    assert all(interval.startswith(r"\scriptsize [") for interval in intervals[1:5])


def test_latex_is_balanced_and_escapes_names(folder):
    text = report_results(folder).to_latex()
    for environment in ("table*", "tabular", "adjustbox"):
        assert text.count(f"\\begin{{{environment}}}") == text.count(f"\\end{{{environment}}}") == 3
    plain = re.sub(r"\\[{}\\]", "", text)
    assert plain.count("{") == plain.count("}")
    body = "\n".join(line for line in text.splitlines() if not line.startswith("%"))
    assert not re.search(r"(?<!\\)[%#$_~^]", body)
    assert r"\textless{}script\textgreater{}" in text


def invoke(*arguments):
    return call_posir(["report", *map(str, arguments)])


def test_the_command_writes_page_and_pictures_and_still_prints(raw, tmp_path):
    three = raw.assign(length=0, bin=raw.bin % 3)
    write_result(
        tmp_path / "output",
        {"default": build_frame_profile(three, LabeledPositions())},
        task="FineWeb-PosQ",
    )
    done = invoke(
        tmp_path / "output",
        "--html",
        tmp_path / "page.html",
        "--figures",
        tmp_path / "pictures",
        "--csv",
    )
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("model,revision,task,length,")
    assert (tmp_path / "page.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    pictures = list((tmp_path / "pictures").glob("*.svg"))
    assert pictures
    assert done.stderr.count("written: ") == 1 + len(pictures)


def test_a_saved_result_is_a_line_with_its_score_and_finding(raw, tmp_path):
    for task in ("PosIR-English", "PosIR-French"):
        write_result(
            tmp_path, {"default": build_frame_profile(raw, RelativePositions())}, task=task
        )
    (file,) = tmp_path.rglob("PosIR-French.json")
    (answer,) = describe_result_file(file)
    title, _, finding = answer.partition("\n")
    (summary,) = summarize(
        [result for result in read_results(tmp_path) if result.task == "PosIR-French"]
    )
    assert title.endswith(f" · PosIR-French, nDCG@10 {raw.ndcg.mean() * 100:.1f}")
    assert title.startswith(summary.model)
    assert finding == describe_group(summary.findings)


def test_short_flags_match_format(folder):
    short, whole = invoke(folder, "--markdown"), invoke(folder, "--format", "markdown")
    assert (short.exit_code, short.stdout) == (0, whole.stdout)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--csv", "--latex"), "Several output formats: csv, latex."),
        (("--markdown", "--format", "json"), "Several output formats: json, markdown."),
        (("--recall", "--bins"), "different tables"),
        (("--bare",), "Add --figures FOLDER"),
        (("--figures", "folder", "--font-size", "9"), "Add --bare"),
        (("--bins", "--figures", "folder"), "There is no chart"),
    ],
)
def test_conflicting_options_are_rejected(folder, options, message):
    done = invoke(folder, *options)
    assert isinstance(done.exception, PosirError)
    assert message in str(done.exception)


@pytest.mark.slow
def test_unwritable_path_is_named(folder, tmp_path):
    (tmp_path / "file").write_text("")
    for options in (("--figures", tmp_path / "file"), ("--html", tmp_path)):
        done = invoke(folder, *options)
        assert isinstance(done.exception, PosirError)
        assert str(tmp_path) in str(done.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_subsets_of_several_files_are_pooled_not_counted_twice(raw, tmp_path):
    for place, subset in (("first", "sports"), ("second", "game")):
        write_result(tmp_path / place, {subset: build_frame_profile(raw, RelativePositions())})
    (item,) = summarize(read_results(tmp_path))
    assert (item.subsets, item.profile.queries) == (("game", "sports"), 2 * len(raw))
    write_result(tmp_path / "third", {"sports": build_frame_profile(raw, RelativePositions())})
    with pytest.raises(PosirError, match=r"'sports' has several results.*first.*third"):
        summarize(read_results(tmp_path))


def test_name_with_markup_is_printed_unchanged(folder):
    assert "{#} | [bold] 🤖  " in invoke(folder).stdout


@dataclass(frozen=True)
class Thirds:
    """A third-party scheme: thirds of a letter, with two length buckets."""

    axes = Axes(
        "letters",
        ("note", "letter"),
        ("top", "middle", "end"),
        "Third of the letter",
        ("up to a page", "over a page"),
    )

    def length_buckets(self, evidence):
        return (evidence.characters > 2_000).astype(np.int64)

    def cells(self, evidence):
        return QueryCells(
            np.arange(len(evidence)),
            self.length_buckets(evidence),
            evidence.starts * 3 // evidence.characters,
        )


def test_a_third_partys_scheme_titles_its_own_charts(tmp_path):
    characters = np.where(np.arange(60) % 2, 1_000, 3_000)
    starts = characters * (np.arange(60) % 3) // 3 + 1
    evidence = Evidence([f"q{k}" for k in range(60)], ["d"] * 60, starts, starts + 5, characters)
    write_result(
        tmp_path,
        {"default": PositionProfile.from_ranks(Thirds(), evidence, np.ones(60, np.int64))},
        task="Letters",
    )
    (summary,) = summarize(read_results(tmp_path))
    for draw in (draw_curves, draw_heat_map):
        text = json.dumps(draw(summary, build_cells(summary.values)).to_dict(), ensure_ascii=False)
        assert '"title": "Third of the letter"' in text
        assert "up to a page · 30 queries" in text
        assert "First character" not in text


def test_models_of_a_task_share_a_figure(raw, summaries, figures):
    of_task = [summary for summary in summaries if summary.task == "PosIR-English"]
    (shared,) = (figure for figure in figures if figure.kind == "models")
    assert (shared.task, shared.slug) == ("PosIR-English", "PosIR-English.models")
    drawn = read_chart_rows(shared.chart)
    assert drawn.series.nunique() == len(of_task) == 2
    expected = raw.groupby("bin").ndcg.mean()
    own = drawn[drawn.series == "model"].sort_values("middle")
    assert_same(own.ndcg_at_10, expected)
    assert (drawn.ndcg_at_10_low <= drawn.ndcg_at_10).all()
    assert (drawn.ndcg_at_10 <= drawn.ndcg_at_10_high).all()
