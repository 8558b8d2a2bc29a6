"""Position charts: heights, widths and the truncated share."""

import dataclasses
import re
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

from posir_significance.analysis import GroupAnalysis
from posir_significance.decision import decide
from posir_significance.findings import Reason
from posir_significance.observations import Observations
from posir_significance.position_charts import build_position_chart
from posir_tasks.display.figures import export, prepare_figures
from posir_tasks.display.position_charts import (
    CARD_SIZE,
    FigureStyle,
    PositionChart,
    draw_card,
    draw_glyph,
    draw_position_charts,
    render_png,
    sketch_chart,
)
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.evidence import TWELFTHS, Unread
from posir_tasks.values.layouts import QueryLayout
from posir_tasks.values.read_part import UNKNOWN, Part, ReadKind, ReadPart, WindowSource

FOUND = tuple(Estimate(value, (value - 0.1, value + 0.1)) for value in (0.8, 0.6, 0.4))
STRIP = PositionChart(
    "<b>a & b</b>",
    ("Reads the first 256 tokens", "Favors the start"),
    FOUND,
    0.25,
    Estimate(0.2, (0.1, 0.3)),
)
SVG = "{http://www.w3.org/2000/svg}"


def find_paths(svg, kind):
    (path,) = (
        path.get("d")
        for path in ElementTree.fromstring(svg).iter(f"{SVG}path")
        if path.get("class") == kind
    )
    return path


def test_heights_are_scores_and_hatched_widths_are_shares():
    glyph = draw_glyph(
        STRIP, 120, 103
    )  # 100 pixels for scores from 0 to 1, below a margin of 2 pixels
    bars = re.findall(r"M([\d.]+) 102H([\d.]+)V([\d.]+)H", find_paths(glyph, "bars"))
    assert [tuple(map(float, bar)) for bar in bars] == [(0, 30, 22), (30, 60, 42), (60, 90, 62)]
    # A gap separates the truncated part.
    assert find_paths(glyph, "mean").endswith("M91.7 82h28.3")
    assert find_paths(glyph, "band").startswith("M0 32H30V12H0z")
    ends = np.array(
        [
            tuple(map(float, pair))
            for pair in re.findall(r"([\d.]+) ([\d.]+)", find_paths(glyph, "hatch"))
        ]
    )
    assert ends[:, 0].min() >= 90
    assert ends[:, 0].max() <= 120
    assert ends[:, 1].min() >= 2
    assert ends[:, 1].max() <= 102
    assert np.ptp(ends[:, 0]) > 25


def test_parts_with_names_are_described_by_name():
    named = dataclasses.replace(STRIP, part_names=("first", "second", "third"))
    assert "first 50; second" in named.description.replace(
        STRIP.scale.format(STRIP.ndcg_by_part[0].value), "50", 1
    )


@pytest.mark.parametrize(
    ("before", "edges", "sketch"),
    [
        (None, [0, 0.25, 0.5, 0.75, 1], "▇▇▆▅▅▄▄▄┊░░░"),
        (0, [0, 0.25, 0.5, 0.75, 1], "░░░┊▇▇▆▅▅▄▄▄"),
        (1, [0, 0.25, 0.5, 0.75, 1], "▇▇┊░░░┊▆▅▅▄▄"),
    ],
)
def test_the_truncated_part_is_outside_the_window(before, edges, sketch):
    strip = dataclasses.replace(STRIP, before=before)
    assert strip.edges == pytest.approx(edges)
    assert sketch_chart(strip) == sketch
    assert [is_read for _, is_read in strip.scores].index(False) == (
        3 if before is None else before
    )


def test_parts_without_evidence_are_empty_but_not_hatched():
    strip = PositionChart("a", (), (FOUND[0], None, FOUND[2]))
    assert 'class="hatch"' not in draw_position_charts([strip])
    assert not strip.share
    assert "Hatched" not in draw_position_charts([strip])
    assert sketch_chart(strip) == "▇▇▇▇····▄▄▄▄"
    assert dataclasses.replace(STRIP, truncated=0.001).share == "under 1% of the evidence truncated"


def test_an_image_is_self_contained_and_escapes_names():
    for svg in (
        draw_position_charts([STRIP, STRIP]),
        draw_position_charts([STRIP], width=350),
        draw_card([STRIP] * 9, "<i>", "local"),
    ):
        tree = ElementTree.fromstring(svg)
        texts = " ".join(text.text for text in tree.iter(f"{SVG}text"))
        assert STRIP.name in texts
        assert "25% of the evidence truncated" in texts
        assert "256 tokens" in texts
        assert not re.search(r"<script|url\(|href| id=", svg)
        assert svg.count("http") == 1
        bottom = float(tree.get("viewBox").split()[3])
        assert all(float(text.get("y")) < bottom for text in tree.iter(f"{SVG}text"))
    png = render_png(draw_card([STRIP], "A card", "local"))
    assert tuple(int.from_bytes(png[at : at + 4], "big") for at in (16, 20)) == CARD_SIZE


@pytest.mark.parametrize("format_", ["svg", "pdf", "png"])
def test_a_bare_image_has_the_same_width_in_every_format(format_, tmp_path):
    (path,) = export(prepare_figures([STRIP], [], tmp_path, FigureStyle(format_, bare=True)))
    content = path.read_bytes()
    assert path.name == f"answer.{format_}"
    # 3 inches of 96 pixels, 72 points or 600 dots.
    if format_ == "pdf":
        assert float(re.search(rb"/MediaBox ?\[ ?0 0 ([\d.]+)", content)[1]) == pytest.approx(
            216, abs=1
        )
    elif format_ == "png":
        assert int.from_bytes(content[16:20], "big") == pytest.approx(1800, abs=6)
    else:
        tree = ElementTree.fromstring(content)
        assert tree.get("width") == "288"
        texts = " ".join(text.text for text in tree.iter(f"{SVG}text"))
        assert STRIP.name in texts
        assert not any(part in texts for part in ("256 tokens", "Band"))


@pytest.mark.parametrize("part", [Part.FIRST, Part.LAST, None])
def test_the_value_is_the_mean_of_each_part(part):
    rng, size = np.random.default_rng(3), 600
    twelfths = np.where(
        rng.random(size) < 0.3, rng.choice([*Unread], size), rng.integers(0, TWELFTHS, size)
    )
    gains, bins, documents = rng.random(size), rng.integers(0, 20, size), rng.integers(0, 60, size)
    read = ReadPart(ReadKind.PART, part, 256, known_by=WindowSource.CLASS) if part else UNKNOWN
    known = {"twelfths": twelfths} if part else {}
    thirds = {"thirds": bins * 3 // 20} if part else {}
    zeros = np.zeros(size, np.int64)
    layout = QueryLayout(zeros, documents, np.arange(size), bins, 20, **thirds)
    observations = Observations(gains, layout, **known, read=read)
    group = GroupAnalysis(observations, Reason.NOT_STORED)
    strip = build_position_chart(decide(group), group, "m")
    frame = pd.DataFrame({"gain": gains, "twelfth": twelfths, "bin": bins})
    parse_integers = frame[frame.twelfth < TWELFTHS]
    # Some of twelve parts with 420 queries, or of twenty bins with 600, have fewer than 30.
    means = (
        parse_integers.gain.groupby(parse_integers.twelfth // 2).mean()
        if part
        else frame.gain.groupby(frame.bin // 2).mean()
    )
    assert [part.value for part in strip.ndcg_by_part] == pytest.approx(means.tolist())
    assert strip.truncated == pytest.approx((frame.twelfth >= TWELFTHS).mean() if part else 0)
    assert strip.before == (0 if part is Part.LAST else None)
    if part:
        assert strip.ndcg_truncated.value == pytest.approx(
            frame.gain[frame.twelfth >= TWELFTHS].mean()
        )
    else:
        assert strip.ndcg_truncated is None
