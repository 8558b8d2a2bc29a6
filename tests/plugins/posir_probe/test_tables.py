"""Output of every probe: values with intervals and titles, without identifiers or verdicts."""

from __future__ import annotations

import io
import re
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from posir_probe.evidence_moving import EvidenceMoving
from posir_probe.figures import build_figure
from posir_probe.probe import Probe, Summary
from posir_probe.probing import build_builtin_probes
from posir_probe.results import ProbeResult, ProbeSums, SubsetSums
from posir_probe.tables import (
    build_difference_table,
    build_measurements,
    choose_main_result,
    describe_texts,
    list_published,
    write_commands,
)
from posir_tasks.base.wording import format_ordinal
from posir_tasks.command.shell_lines import check_call
from posir_tasks.display.tables import print_tables
from posir_tasks.models.command_reference import CommandReference
from tests.support.charts import check_figures

PROBES = {probe.name: probe for probe in build_builtin_probes()}
#: Probes whose values are shares of counts.
SHARES = {
    "evidence_location",
    "evidence_location_start",
    "query_types",
    "sentence_regression_scatter",
}
IDENTIFIER = re.compile(r"\b[a-z0-9]+_[a-z0-9_]+\b")
#: Words of verdicts, which must not appear.
VERDICTS = re.compile(
    r"favors? the|no bias|biased|inconclusive|cannot be said|too small to "
    r"matter|^(Yes|No):|needed to decide|What to do",
    re.M,
)
#: Front, middle and end questions before and after reversal. Near start: 45, near end: 25.
REVERSAL = (0.5, 0.2, 0.1, 0.1, 0.3, 0.4)


def measure(
    name, values=None, *, documents=10, model="org/mine", window=256, length=512, noise=0.01
):
    """Make a probe result. By default, values fall from the first to the last position."""
    positions, names = PROBES[name].positions, [f"d{at}" for at in range(documents)]
    row = np.linspace(0.9, 0.1, len(positions)) if values is None else np.array(values, float)
    errors = np.random.default_rng(1).normal(0, noise, (documents, len(positions)))
    if name in SHARES or name == "sentence_regression":
        statistic, columns = (
            ("share", np.ones((errors.size, 1)))
            if name in SHARES
            else ("pearson", measure_moments(errors.size))
        )
        rows, document_ids = (
            np.tile(np.arange(len(positions)), documents),
            np.repeat(names, len(positions)).tolist(),
        )
        sums = ProbeSums.from_columns(statistic, positions, document_ids, rows, columns)
    else:
        sums = ProbeSums.from_means(positions, names, row + errors)
    subset = SubsetSums("1", "", documents, documents, sums, (length,) * documents)
    return ProbeResult(model, "1", None, "words", name, {"default": subset}, window)


def measure_moments(points):
    x = np.linspace(0, 1, points)
    y = 1 - x + np.random.default_rng(3).random(points)
    return np.stack([np.ones(points), x, y, x * x, y * y, x * y], axis=1)


@pytest.mark.parametrize("name", PROBES)
def test_output_shows_titles_instead_of_identifiers(name):
    probe, result = PROBES[name], measure(name)
    labels = [summary.title for summary in probe.summaries.values()]
    description = probe.describe(result.sums)
    all_texts = [probe.title, description, *labels]
    assert all(all_texts)
    assert [text for text in [*all_texts, *probe.notes] if IDENTIFIER.search(text)] == []
    assert not VERDICTS.search("\n".join([description, *probe.notes]))
    assert len(probe.first_summary.title) <= 40
    assert [other.title for other in PROBES.values()].count(probe.title) == 1


@pytest.mark.parametrize("name", PROBES)
def test_the_headline_has_one_interval(name):
    probe, sums = PROBES[name], measure(name).sums
    estimate = sums.estimate(probe.headline_summaries[0])
    description = probe.describe(sums)
    form = probe.find_format(probe.headline_summaries[0])
    assert f"{form(estimate.value)} [{form(estimate.low)}, {form(estimate.high)}]" in description
    assert description.count("[") == 1
    assert set(probe.headline) <= set(probe.summaries)


#: A probe of each chart kind, and probes with a control, several panels, separate scales, and a
#: standard deviation.
DRAWN = (
    *(
        "segment_similarity_3",
        "needle_insertion",
        "controlled_pairs",
        "evidence_location",
        "sentence_regression_scatter",
    ),
    *("sentence_regression_fit", "gradient_saliency"),
)


@pytest.mark.parametrize("name", DRAWN)
def test_the_title_of_a_figure_is_its_description(name):
    result = measure(name)
    figure = build_figure([result, replace(result, model="org/other")], PROBES[name])
    check_figures([figure])
    description = PROBES[name].describe(result.sums)
    text = figure.chart.texts
    assert description in text["title"]
    assert name not in figure.label
    assert description in figure.label
    bands = [
        mark
        for mark in find_marks(figure.chart.to_dict())
        if mark.get("type") == "area" and mark["opacity"] == 0.16
    ]
    assert bool(re.search("band: 95", text["explanation"], re.IGNORECASE)) == bool(bands)


def find_marks(spec):
    marks = [spec["mark"]] if "mark" in spec else []
    inner_specs = [
        *spec.get("vconcat", ()),
        *spec.get("layer", ()),
        *([spec["spec"]] if "spec" in spec else []),
    ]
    return [*marks, *(mark for part in inner_specs for mark in find_marks(part))]


def test_a_difference_has_its_sign_and_both_values():
    describe = EvidenceMoving().describe
    falling, rising, level = np.linspace(0.9, 0.5, 10), np.linspace(0.5, 0.9, 10), np.full(10, 0.5)
    for values, number in ((falling, r"\+0\.40\d"), (rising, r"-0\.39\d"), (level, r"[-+]0\.00\d")):
        description = describe(measure("evidence_moving", values).sums)
        pattern = (
            rf"{EvidenceMoving.title}: .* {number} \[.*\]; evidence first 0\.\d+; evidence last "
            r"0\.\d+"
        )
        assert re.fullmatch(pattern, description)


FALLING, LEVEL, RISING = (0.9, 0.6, 0.5), (0.505, 0.5, 0.5), (0.5, 0.6, 0.9)


def test_search_results_come_first_then_comparisons_with_an_interval():
    search, cosines, data = (
        measure("mirror_reversal", REVERSAL),
        measure("permutation"),
        measure("query_types"),
    )
    small_result = measure("mirror_reversal", REVERSAL, documents=9)
    assert choose_main_result([data, cosines, search], PROBES) is search
    assert choose_main_result([small_result, data, cosines], PROBES) is cosines
    assert choose_main_result([data], PROBES) is data


def test_mirror_reversal_is_shown_with_its_value(tmp_path):
    results = (measure("segment_similarity_3", LEVEL), measure("mirror_reversal", REVERSAL))
    output = build_measurements(results, tmp_path)
    number = r"nDCG@10 near start minus near end \+20\.\d \[\+\d+\.\d, \+\d+\.\d\] points"
    assert re.fullmatch(f"mine · Mirror reversal: {number}", output.page_title)
    assert output.title == "Probes of mine on 10 documents of words"
    first = output.sections()[0].sentences[0]
    assert re.fullmatch(
        rf"Mirror reversal: {number}; nDCG@10 near start 45\.\d; nDCG@10 near end 2[45]\.\d\.",
        first,
    )


def test_the_sample_description_includes_truncation():
    description = describe_texts(measure("permutation"))
    tail = (
        r"median 512 tokens\. 50 ?% of the tokens are truncated: the window is 256 tokens, and 0 "
        r"of 10 documents fit\."
    )
    assert re.search(f"{tail}$", description)
    whole = describe_texts(measure("permutation", window=1024))
    assert whole.endswith("median 512 tokens.")
    result = measure("permutation")
    subset = replace(result.subsets["default"], available=72)
    sampled_result = replace(result, subsets={"default": subset})
    assert describe_texts(sampled_result).startswith("10 of 72 documents of words")


def test_commands_for_a_verdict_are_valid(tmp_path):
    """Each command is parsed by its application, so its options exist."""
    task = write_commands(CommandReference("./my model", "PosIR-Mini"), Path("my results"))
    texts = write_commands(
        CommandReference("all-MiniLM-L6-v2@http://localhost:1", "my texts"), Path("results")
    )
    command = ["posir", "run", "-t", "PosIR-Mini", "-m", "./my model"]
    assert [shlex.split(line) for line in task] == [
        [*command, "--output", "my results"],
        ["posir", "report", "my results"],
    ]
    assert [shlex.split(line) for line in texts] == [
        ["posir", "inspect", "all-MiniLM-L6-v2@http://localhost:1", "my texts"]
    ]
    for line in (*task, *texts):
        assert check_call(shlex.split(line)) is None
    results = [measure("permutation")]
    measurements = build_measurements(results, tmp_path, reference=CommandReference("m", "d"))
    assert measurements.sections()[1].commands == ("posir inspect m d",)
    assert build_measurements(results, tmp_path).sections()[1].commands == ()


def test_published_values_are_for_the_main_summary():
    """Half of Delta_diff in Table 12 of arXiv 2605.26578."""
    values = list_published(PROBES["mirror_reversal"])
    assert (len(values), values[0], values[-1]) == (
        12,
        pytest.approx(-0.239, abs=1e-3),
        pytest.approx(0.179, abs=1e-3),
    )
    assert list_published(PROBES["needle_insertion"]), "means over sizes stand for each size"
    assert list_published(PROBES["evidence_location"]) == []


def test_all_output_formats_show_values_but_no_verdict(tmp_path):
    results = (measure("segment_similarity_3"), measure("needle_insertion"))
    output = build_measurements(results, tmp_path, reference=CommandReference("mine", "words"))
    first = output.sections()[0]
    assert str(output).startswith(f"{output.title}\n")
    lines = " ".join(repr(output).split())
    assert lines.startswith(f"ProbeMeasurements: {output.title} {first.sentences[0]}")
    assert "?." not in output.to_latex()
    page = output.to_html()
    visible_text = re.sub("(?s)<style.*?</style>|<script.*?</script>", "", page)
    for text in (str(output), output.to_markdown(explain=True), visible_text):
        assert not VERDICTS.search(re.sub("<[^>]+>", "\n", text))
        assert "posir inspect mine words" in re.sub("<[^>]+>", "", text)
    start, folded = page.split("<details", 1)
    assert "<table" not in start, "each difference is drawn with its values"
    all_results = (*results, measure("permutation"), measure("query_types"))
    long_page = build_measurements(all_results, tmp_path).to_html()
    inside = re.sub("<[^>]+>", "", long_page.split("<summary>Values</summary>", 2)[2])
    assert "--probe needle_insertion" in inside, "identifiers are inside"
    assert (start.count("<figure>"), page.count("<figure>")) == (1, 2), (
        "the first figure is not drawn twice"
    )
    assert folded.count('class="range"') == 2


def test_differences_are_shown_below_their_heading():
    results = [
        measure("segment_similarity_3", FALLING),
        measure("permutation", RISING),
        measure("mirror_reversal", REVERSAL),
    ]
    mixed, single_table = (
        build_difference_table(shown_results, PROBES) for shown_results in (results, results[:1])
    )
    # Each heading precedes its differences: search, within the window, whole texts.
    assert [row[1][:5] for row in mixed.rows] == ["", "+20.1", "", "-0.40", "", "+0.39"]
    assert (single_table.headings, len(single_table.rows)) == (
        ("What is compared", "Difference", "Published values"),
        2,
    )
    assert single_table.rows[1][2] == "+0.036 to +0.144 (12)"
    empty_table = build_difference_table(
        [measure("sentence_regression"), measure("permutation", documents=9)], PROBES
    )
    assert not empty_table.rows


def test_few_documents_have_no_intervals_and_figures(tmp_path):
    output = build_measurements([measure(name, documents=8) for name in PROBES], tmp_path)
    page = output.to_html()
    assert "<figure>" not in page
    assert 'class="range"' not in page
    titles = "\n".join(section.title for section in output.sections())
    units = re.findall(
        "no interval: 8 (documents|sets) are too few, at least 10 are needed", titles
    )
    assert [len(units), units.count("sets")] == [len(PROBES), 1]


def test_no_table_is_wider_than_80_columns(tmp_path):
    output = build_measurements([measure(name) for name in PROBES], tmp_path)
    for is_terminal in (True, False):
        console = Console(
            file=io.StringIO(), width=80, force_terminal=is_terminal, no_color=True, highlight=False
        )
        for section in output.sections():
            print_tables(console, [replace(table, notes=()) for table in section.tables])
        printed = re.sub(r"\x1b\[[\d;]*m", "", console.file.getvalue())
        assert max(map(len, printed.splitlines())) <= (80 if is_terminal else 96)
        summaries = [
            table
            for section in output.sections()
            for table in section.tables
            if table.headings[0] == "Summary"
        ]
        assert printed.count("Summary  ") == len(summaries), "no table is divided"
        assert printed.count("What is compared") == 1


def test_results_without_a_window_can_be_read():
    result = measure("segment_similarity_3")
    assert ProbeResult.from_json(result.to_json()).share_read == 0.5
    stored = result.to_json()
    del stored["window"]
    assert ProbeResult.from_json(stored).share_read is None


def test_the_headline_is_the_first_summary_by_default():
    class Plain(Probe):
        name, title, source = "plain", "Plain", "mine"
        positions = ("a", "b")
        summaries = {"biggest_value": Summary("Biggest", lambda values: values.max(axis=-1))}  # noqa: RUF012

    nine, ten = (
        ProbeSums.from_means(("a", "b"), [f"d{at}" for at in range(n)], np.array([[0.25, 0.5]] * n))
        for n in (9, 10)
    )
    assert Plain().describe(ten) == "Plain: biggest 0.500 [0.500, 0.500]"
    assert Plain().describe(nine) == "Plain: biggest 0.500"


def test_ordinals_are_formatted():
    expected = ["first", "third", "tenth", "11th", "12th", "21st", "102nd", "111th"]
    assert [format_ordinal(number) for number in (1, 3, 10, 11, 12, 21, 102, 111)] == expected


@pytest.mark.parametrize(("documents", "has_finding"), [(4, False), (10, True)])
def test_values_without_an_interval_are_not_a_headline(documents, has_finding):
    output = build_measurements([measure("mirror_reversal", documents=documents)], Path())
    assert (" · " in output.page_title) == has_finding
    assert f"{documents} documents" in output.title
