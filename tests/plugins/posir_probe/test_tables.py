"""What people see of every probe: titles, findings and verdicts without identifiers; figures titled by their finding."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from posir_probe.evidence_moving import EvidenceMoving
from posir_probe.figures import build_figure
from posir_probe.probe import Probe, Statement, Summary
from posir_probe.probing import builtin_probes
from posir_probe.results import ProbeResult, ProbeSums, SubsetSums
from posir_probe.tables import ProbeMeasurements, advise_next, describe_model
from posir_tasks.display.tables import print_tables
from posir_tasks.display.wording import ordinal

PROBES = {probe.name: probe for probe in builtin_probes()}
#: Probes whose values are shares of counts.
SHARES = {"evidence_location", "evidence_location_start", "query_types", "sentence_regression_scatter"}
IDENTIFIER = re.compile(r"\b[a-z0-9]+_[a-z0-9_]+\b")


def measure(name, values=None, *, documents=10, model="org/mine", window=256, tokens=512):
    """A result of a probe, by default with values that fall from the first position to the last."""
    positions, names = PROBES[name].positions, [f"d{at}" for at in range(documents)]
    row = np.linspace(0.9, 0.1, len(positions)) if values is None else np.array(values, float)
    noise = np.random.default_rng(1).normal(0, 0.01, (documents, len(positions)))
    if name in SHARES or name == "sentence_regression":
        statistic, columns = ("share", np.ones((noise.size, 1))) if name in SHARES else ("pearson", measure_moments(noise.size))
        rows, of = np.tile(np.arange(len(positions)), documents), np.repeat(names, len(positions)).tolist()
        sums = ProbeSums.from_columns(statistic, positions, of, rows, columns)
    else:
        sums = ProbeSums.from_means(positions, names, row + noise)
    subset = SubsetSums("1", "", documents, documents, sums, tokens)
    return ProbeResult(model, "1", None, "words", name, {"default": subset}, window)


def measure_moments(points):
    x = np.linspace(0, 1, points)
    y = 1 - x + np.random.default_rng(3).random(points)
    return np.stack([np.ones(points), x, y, x * x, y * y, x * y], axis=1)


@pytest.mark.parametrize("name", PROBES)
def test_people_read_titles_and_findings_instead_of_identifiers(name):
    probe, result = PROBES[name], measure(name)
    labels = [summary.title for summary in probe.summaries.values()]
    shown = [probe.title, probe.find(result.sums), *labels]
    assert all(shown)
    assert [text for text in [*shown, *probe.notes] if IDENTIFIER.search(text)] == []
    assert len(probe.first_summary.title) <= 40
    assert [other.title for other in PROBES.values()].count(probe.title) == 1


#: A probe of each form, and those with a control, several panels, scales of their own, and a standard deviation.
DRAWN = (
    *("segment_similarity_3", "needle_insertion", "controlled_pairs", "evidence_location", "sentence_regression_scatter"),
    *("sentence_regression_fit", "gradient_saliency"),
)


@pytest.mark.parametrize("name", DRAWN)
def test_the_title_of_a_figure_is_its_finding(name):
    result = measure(name)
    figure = build_figure([result, replace(result, model="org/other")], PROBES[name])
    finding = PROBES[name].find(result.sums)
    text = figure.chart.usermeta
    assert finding in text["title"]
    assert name not in figure.label
    assert finding in figure.label
    bands = [mark for mark in find_marks(figure.chart.to_dict()) if mark.get("type") == "area" and mark["opacity"] == 0.16]
    assert ("Shaded" in text["explanation"]) == bool(bands)


def find_marks(spec):
    own = [spec["mark"]] if "mark" in spec else []
    inner = [*spec.get("vconcat", ()), *spec.get("layer", ()), *([spec["spec"]] if "spec" in spec else [])]
    return [*own, *(mark for part in inner for mark in find_marks(part))]


def test_a_finding_is_the_sign_of_a_difference_whose_interval_excludes_0():
    find = EvidenceMoving().find
    falling, rising = np.linspace(0.9, 0.5, 10), np.linspace(0.5, 0.9, 10)
    assert find(measure("evidence_moving", falling).sums).startswith("Moving the evidence from start to end takes 0.")
    assert find(measure("evidence_moving", rising).sums).startswith("Moving the evidence from start to end adds 0.")
    assert "cannot be said: " in find(measure("evidence_moving", np.full(10, 0.5)).sums)


def test_the_verdict_names_the_end_that_weighs_more_with_its_interval_and_the_window():
    results = [measure("segment_similarity_3", (0.9, 0.6, 0.5)), measure("permutation", (0.5, 0.6, 0.9))]
    verdict = describe_model(results, PROBES)
    assert verdict.startswith("mine gives the start of a text more weight than its end: the first third of a text is 0.")
    assert re.search(r"is 0\.\d+ \[0\.\d+, 0\.\d+\] closer", verdict)
    assert "Within its 256 tokens: in all orders of 3 joined texts, the last is 0." in verdict
    assert "It reads 256 tokens, 50 % of a median document." in verdict
    assert "docs/predicts.md" in " ".join(advise_next(results, PROBES))
    assert "posir inspect" in " ".join(advise_next(results, PROBES)), "half of a median document is not read"
    assert "--documents" not in " ".join(advise_next(results, PROBES))
    assert "--documents" in " ".join(advise_next([measure("permutation", documents=9)], PROBES))
    assert "docs/predicts.md" not in " ".join(advise_next([measure("mirror_reversal")], PROBES))
    assert advise_next([measure("evidence_location")], PROBES) == ()
    pairs = describe_model([measure("controlled_pairs")], PROBES)
    assert pairs.startswith("mine: the document with the evidence first scores ")


def test_no_verdict_without_an_interval_or_with_0_in_it():
    few = describe_model([measure("permutation", (0.5, 0.6, 0.9), documents=9)], PROBES)
    assert few.startswith("mine: cannot be said, 9 documents ")
    level = describe_model([measure("segment_similarity_3", (0.505, 0.5, 0.5))], PROBES)
    assert level.startswith("mine: whether the first or the last third of a text is closer to the whole text cannot be said: ")


def test_page_terminal_and_notebook_begin_with_the_verdict(tmp_path):
    shown = ProbeMeasurements((measure("segment_similarity_3"), measure("needle_insertion")), tmp_path)
    verdict = shown.sections()[0].sentences[0]
    assert str(shown).startswith(verdict)
    assert verdict in shown._repr_html_()
    page = shown.to_html()
    first, folded = page.split("<details", 1)
    assert first.index(verdict) < first.index("<figure") < first.index("<table")
    assert (first.count("<figure>"), folded.count("<figure>")) == (1, 1), "the figure of the verdict is not drawn twice"
    assert '<th colspan="4">Cosine, from -1 to 1</th>' in first
    headings = re.findall(r"<h[123]>(.*?)</h", page)
    assert headings[0] == "Probes of mine on 10 documents of words"
    assert "Whole text and its thirds · segment_similarity_3" in headings


def test_no_table_is_wider_than_80_columns(tmp_path):
    shown = ProbeMeasurements(tuple(measure(name) for name in PROBES), tmp_path)
    for is_terminal in (True, False):
        console = Console(file=io.StringIO(), width=80, force_terminal=is_terminal, no_color=True, highlight=False)
        for section in shown.sections():
            print_tables(console, [replace(table, notes=()) for table in section.tables])
        printed = re.sub(r"\x1b\[[\d;]*m", "", console.file.getvalue())
        assert max(map(len, printed.splitlines())) <= 80
        assert printed.count("Summary  ") == 1 + len(PROBES), "no table is divided"


def test_a_result_keeps_its_window_and_one_without_is_read():
    result = measure("segment_similarity_3")
    assert ProbeResult.from_json(result.to_json()).share_read == 0.5
    old = result.to_json()
    del old["window"]
    assert ProbeResult.from_json(old).share_read is None


def test_a_probe_without_a_finding_states_its_first_summary_and_without_an_interval_nothing():
    class Plain(Probe):
        name, title, source = "plain", "Plain", "mine"
        positions = ("a", "b")
        summaries = {"biggest_value": Summary("Biggest", lambda values: values.max(axis=-1))}  # noqa: RUF012

    nine, ten = (ProbeSums.from_means(("a", "b"), [f"d{at}" for at in range(n)], np.array([[0.25, 0.5]] * n)) for n in (9, 10))
    assert Plain().find(ten) == "Plain: biggest value 0.500 [0.500, 0.500]"
    assert Plain().find(nine) is None
    assert Statement("{} of {}", ("biggest_value", "biggest_value")).state(Plain(), ten).count("0.500 [0.500, 0.500]") == 2


def test_ordinals():
    expected = ["first", "third", "tenth", "11th", "12th", "21st", "102nd", "111th"]
    assert [ordinal(number) for number in (1, 3, 10, 11, 12, 21, 102, 111)] == expected
