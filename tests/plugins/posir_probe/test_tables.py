"""What people see of every probe: titles, findings and verdicts without identifiers; figures titled by their finding."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from posir_probe.answers import draw_text, list_answers
from posir_probe.evidence_moving import EvidenceMoving
from posir_probe.figures import build_figure
from posir_probe.probe import Probe, Statement, Summary
from posir_probe.probing import builtin_probes
from posir_probe.results import ProbeResult, ProbeSums, SubsetSums
from posir_probe.tables import ProbeMeasurements, build_differences
from posir_probe.verdict import (
    agrees_inside,
    describe_model,
    describe_search,
    list_facts,
    list_steps,
    summarize_rest,
    title_search,
)
from posir_tasks.display.tables import print_tables
from posir_tasks.display.wording import ordinal

PROBES = {probe.name: probe for probe in builtin_probes()}
#: Probes whose values are shares of counts.
SHARES = {"evidence_location", "evidence_location_start", "query_types", "sentence_regression_scatter"}
IDENTIFIER = re.compile(r"\b[a-z0-9]+_[a-z0-9_]+\b")


def measure(name, values=None, *, documents=10, model="org/mine", window=256, length=512, noise=0.01):
    """A result of a probe, by default with values that fall from the first position to the last."""
    positions, names = PROBES[name].positions, [f"d{at}" for at in range(documents)]
    row = np.linspace(0.9, 0.1, len(positions)) if values is None else np.array(values, float)
    errors = np.random.default_rng(1).normal(0, noise, (documents, len(positions)))
    if name in SHARES or name == "sentence_regression":
        statistic, columns = (
            ("share", np.ones((errors.size, 1))) if name in SHARES else ("pearson", measure_moments(errors.size))
        )
        rows, of = np.tile(np.arange(len(positions)), documents), np.repeat(names, len(positions)).tolist()
        sums = ProbeSums.from_columns(statistic, positions, of, rows, columns)
    else:
        sums = ProbeSums.from_means(positions, names, row + errors)
    subset = SubsetSums("1", "", documents, documents, sums, (length,) * documents)
    return ProbeResult(model, "1", None, "words", name, {"default": subset}, window)


def measure_moments(points):
    x = np.linspace(0, 1, points)
    y = 1 - x + np.random.default_rng(3).random(points)
    return np.stack([np.ones(points), x, y, x * x, y * y, x * y], axis=1)


@pytest.mark.parametrize("name", PROBES)
def test_people_read_titles_and_findings_instead_of_identifiers(name):
    probe, result = PROBES[name], measure(name)
    labels = [summary.title for summary in probe.summaries.values()]
    shown = [probe.title, probe.find(result.sums) or probe.title, *labels]
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
    assert bool(re.search("band: 95", text["explanation"], re.IGNORECASE)) == bool(bands)


def find_marks(spec):
    own = [spec["mark"]] if "mark" in spec else []
    inner = [*spec.get("vconcat", ()), *spec.get("layer", ()), *([spec["spec"]] if "spec" in spec else [])]
    return [*own, *(mark for part in inner for mark in find_marks(part))]


def test_a_finding_is_the_sign_of_a_difference_whose_interval_excludes_0():
    find = EvidenceMoving().find
    falling, rising = np.linspace(0.9, 0.5, 10), np.linspace(0.5, 0.9, 10)
    assert " less similar: 0.40" in find(measure("evidence_moving", falling).sums)
    assert " more similar: 0.39" in find(measure("evidence_moving", rising).sums)
    level = measure("evidence_moving", np.full(10, 0.5))
    assert find(level.sums) is None
    assert build_figure([level], EvidenceMoving()).title == EvidenceMoving.title


FALLING, LEVEL, RISING = (0.9, 0.6, 0.5), (0.505, 0.5, 0.5), (0.5, 0.6, 0.9)
#: The beginning of a verdict, and its end, by the values of thirds and of texts in all orders, which fit the window.
READS = "Yes: it reads only the first 256 tokens of a text."
UNKNOWN = "No sign of it: whether the start or the end of a text weighs more cannot be said"
VERDICTS = {
    "start, also within": (FALLING, FALLING, f"{READS} Within these, joined texts favor the start."),
    "end within": (FALLING, RISING, f"{READS} Within these, joined texts favor the end."),
    "unknown within": (
        RISING,
        LEVEL,
        "No: the end of a text weighs more than its start. Within the 256 tokens that it reads, joined texts show no clear",
    ),
    "unknown": (LEVEL, LEVEL, f"{UNKNOWN}."),
    "only thirds": (FALLING, None, READS),
    "only within": (None, RISING, "No: the end of a text weighs more than its start, within the 256 tokens that it reads."),
}


@pytest.mark.parametrize(("whole", "inside", "expected"), VERDICTS.values(), ids=VERDICTS)
def test_the_verdict_answers_which_end_weighs_more_and_whether_it_does_within_the_window(whole, inside, expected):
    given = {"segment_similarity_3": whole, "permutation": inside}
    assert describe_model([measure(*pair) for pair in given.items() if pair[1]], PROBES).startswith(expected)


SEARCH = "In search"


def test_facts_are_what_is_read_what_is_not_known_and_what_to_do():
    facts = dict(list_facts([measure("segment_similarity_3", FALLING)], PROBES))
    assert facts["Documents"].endswith("median 512 tokens, 0 of 10 read whole.")
    assert facts["Reads"] == "The first 256 tokens: 50 % of all tokens."
    assert "Search in chunks" in facts["What to do"], "half of a median document is not read"
    assert "more documents" in dict(list_facts([measure("permutation", documents=9)], PROBES))["What to do"]
    given = [measure("segment_similarity_3"), measure("mirror_reversal", np.array([5, 2, 1, 1, 3, 4]) / 10)]
    assert "whole documents +20.1 [" in dict(list_facts(given, PROBES))[SEARCH], "the mean of 30 and 10"
    within = [*given, measure("window_reversal", np.array([5, 5, 1, 1, 5, 5]) / 10)]
    whole, inside = describe_search(within, PROBES)
    better = (
        r"In whole documents, search favors the start: start minus end is \+20\.\d \[\+19\.\d, \+20\.\d\] points\. "
        r"The model never reads 50 % of all tokens, which can make such a difference by itself"
    )
    assert re.fullmatch(better, whole)
    numbers = r"start minus end is [-+]\d\.\d \[-\d+\.\d, \+\d+\.\d\] points"
    assert re.fullmatch(f"In the first 256 tokens, search has no bias larger than 5 points: {numbers}", inside)
    assert (
        title_search(within, PROBES)
        == "favors the start in whole documents; in the first 256 tokens, it has no bias larger than 5 points"
    )
    noisy = [*given, measure("window_reversal", np.array([5, 5, 1, 1, 5, 5]) / 10, noise=0.2)]
    assert re.fullmatch(
        rf"In the first 256 tokens, whether search favors either end cannot be said: {numbers}",
        describe_search(noisy, PROBES)[1],
    )
    assert title_search(noisy, PROBES) == "favors the start in whole documents"
    same = [measure(name, np.array([5, 2, 1, 1, 3, 4]) / 10) for name in ("mirror_reversal", "window_reversal")]
    assert title_search(same, PROBES) == "favors the start in whole documents, also in the first 256 tokens"
    for given in (within, within[1:]):
        assert describe_model(given, PROBES) == f"{READS} {whole}. {inside}."
    spike = np.where(np.arange(100) < 10, 0.9, np.arange(100) / 200)
    for gradients, state, clause in (
        (np.linspace(0.9, 0.1, 100), " favor the start", "joined texts and gradients favor the start"),
        (np.linspace(0.1, 0.9, 100), " favor the end", "joined texts favor the start, but gradients favor the end"),
        (
            spike,
            ": the first tenth weighs more than the last, but the last third more than the first",
            "joined texts favor the start, but gradients are mixed",
        ),
        (
            1 - spike,
            ": the last tenth weighs more than the first, but the first third more than the last",
            "joined texts favor the start, but gradients are mixed",
        ),
        (
            np.full(100, 0.5),
            " show no clear difference",
            "joined texts favor the start, but gradients show no clear difference between start and end",
        ),
    ):
        inner = [measure("permutation", FALLING), measure("gradient_saliency", gradients)]
        given = [measure("segment_similarity_3", FALLING), *inner]
        inside = dict(list_facts(given, PROBES))["In what it reads"]
        assert inside.startswith(
            "Joined texts: the whole is closer to its first part (0.89) than to its last (0.50). Start minus end: "
        )
        assert f"Gradients{state}. Start minus end: outer tenths " in inside
        assert describe_model(given, PROBES).endswith(f" Within these, {clause}.")
        assert agrees_inside(inner, PROBES, "start") == (state == " favor the start")
    assert SEARCH not in dict(list_facts([measure("mirror_reversal")], PROBES))
    assert list_facts([measure("evidence_location")], PROBES) == []


def test_more_documents_are_advised_by_power_and_only_where_there_are_some():
    level = measure("window_reversal", np.array([5, 5, 1, 1, 5, 5]) / 10, documents=50, noise=0.2)

    def advise(data, available):
        subset = replace(level.subsets["default"], available=available)
        given = [measure("segment_similarity_3", documents=50), level]
        return list_steps([(replace(of, data=data, subsets={"default": subset}), PROBES[of.probe]) for of in given[1:]])[-1]

    # n (3.24 standard errors / 5 points)^2, as in every verdict, to two digits.
    low, high = level.sums.estimate(PROBES["window_reversal"].first_summary).interval
    needed = int(float(f"{50 * (3.24 * (high - low) / 2 / 1.96 / 0.05) ** 2:.2g}"))
    assert 72 < needed < 1000
    step, command = advise("PosIR-Mini", 72)
    assert f" it takes about {needed} documents to tell a bias of 5 points in search from none, and PosIR-Mini has 72." in step
    assert command.endswith(" PosIR-English-Nano")
    assert advise("PosIR-Mini", 1000)[1].endswith(f" --documents {needed}")
    assert advise("words", 50) == ("Measure other texts, too: all 50 documents of words are measured.", "")


def test_without_a_comparison_of_ends_or_an_interval_there_is_no_answer():
    assert describe_model([measure("controlled_pairs")], PROBES).startswith("With the evidence first, a document scores higher")
    few = describe_model([measure("permutation", RISING, documents=9)], PROBES)
    assert few == "Cannot be said: 9 sets are too few, at least 10 are needed."
    assert "1 set is too few" in describe_model([measure("permutation", RISING, documents=1)], PROBES)


def test_a_text_is_drawn_in_parts_of_what_is_read_and_the_mean_of_the_rest():
    tenths = np.array([0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0]) + 0.05
    strip = draw_text([measure("segment_similarity_3"), measure("segment_similarity_10", tenths, window=269)], PROBES)
    assert strip.not_read == pytest.approx(1 - 269 / 512)
    # Five parts of 0.525 of a text: the second has 0.095 of the second tenth and 0.010 of the third.
    assert strip.ndcg_by_part[1].value == pytest.approx((0.0949219 * 0.85 + 0.0101562 * 0.75) / 0.1050781, abs=0.01)
    assert strip.ndcg_not_read.value == pytest.approx(
        (0.0746094 * 0.45 + 0.1 * (0.35 + 0.25 + 0.15 + 0.05)) / 0.4746094, abs=0.01
    )
    assert draw_text([measure("segment_similarity_3", documents=9)], PROBES) is None
    gradients = measure("gradient_saliency", 0.2 + np.arange(100) / 200, window=269)
    drawn = draw_text([measure("segment_similarity_10", tenths), gradients], PROBES)
    assert [part.value for part in drawn.ndcg_by_part] == pytest.approx([0.2225 + tenth / 20 for tenth in range(10)], abs=0.01)
    assert (drawn.not_read, drawn.ndcg_not_read) == (pytest.approx(1 - 269 / 512), None)
    joined = draw_text([gradients, measure("permutation", FALLING, length=1024)], PROBES)
    assert [part.value for part in joined.ndcg_by_part] == pytest.approx(FALLING, abs=0.01), "the order alone comes first"
    assert (joined.not_read, joined.labels) == (0.75, ["first place", "second place", "last place"])
    assert draw_text([measure("segment_similarity_3", (0.5, 0.1, -0.5))], PROBES) is None


def test_a_page_begins_with_search_how_much_is_read_and_the_embedding_of_that():
    searched = measure("mirror_reversal", np.array([5, 2, 1, 1, 3, 4]) / 10)
    noisy = measure("window_reversal", np.array([5, 5, 1, 1, 5, 5]) / 10, noise=0.2)
    spike = measure("gradient_saliency", np.where(np.arange(100) < 10, 0.9, np.arange(100) / 200))
    given = [measure("segment_similarity_3"), spike, noisy, searched, measure("permutation", FALLING)]
    reading, whole, inside, joined, gradients = answers = list_answers(given, PROBES)
    assert [answer.chip for answer in answers] == ["50 %", "start", "cannot be said", "start", "mixed"]
    # Half of Delta_diff of Table 12 of arXiv 2605.26578: 0.326 to 0.359 of models trained on starts.
    assert whole.note == (
        "20 questions. Published: models trained on all places -1.0 to +4.4, models trained on the start +16.3 to +17.9"
    )
    assert joined.note.endswith(". Published: gte-multilingual-base on German Wikipedia +0.508")
    # Front and end questions near the start, 50 and 40, and near the end, 20 and 30.
    assert (whole.picture.near_start, whole.picture.near_end, whole.picture.margin) == pytest.approx(
        (0.45, 0.25, 0.05), abs=0.01
    )
    assert (reading.picture.read, reading.note) == (0.5, "0 of 10 documents are read whole")
    assert inside.picture.near_start == pytest.approx(0.5, abs=0.1)
    assert [part.value for part in joined.picture.ndcg_by_part] == pytest.approx(FALLING, abs=0.01)
    assert joined.said == "Joined texts: the whole is closer to its first part than to its last"
    assert len(gradients.picture.ndcg_by_part) == 10
    assert inside.said == "In the first 256 tokens, no end is clearly favored"
    assert whole.said == "In whole documents, search favors the start"
    low, high = (100 * end for end in noisy.sums.estimate(PROBES[noisy.probe].first_summary).interval)
    size, open_, unread, embedding = re.split(r"(?<=\D)\. | and (?=[-+]\d)", summarize_rest(given, PROBES))
    assert re.fullmatch(r"Start minus end is \+20\.\d points of nDCG@10 in whole documents", size)
    assert open_.endswith(f" in the first 256 tokens, where {low:+.1f} to {high:+.1f} are possible")
    assert unread == "The model never reads 50 % of all tokens, which can make such a difference by itself"
    assert embedding == "The embedding alone: joined texts favor the start, but gradients are mixed."
    assert list_answers([measure("segment_similarity_3")], PROBES) == []
    level = list_answers([measure("mirror_reversal", np.array([5, 5, 1, 1, 5, 5]) / 10, window=1024)], PROBES)
    assert [answer.chip for answer in level] == ["100 %", "neither"]


def test_page_terminal_and_notebook_answer_a_question(tmp_path):
    shown = ProbeMeasurements((measure("segment_similarity_3"), measure("needle_insertion")), tmp_path)
    question, verdict = "Does mine weigh the start of a text more than its end?", shown.sections()[0].sentences[0]
    assert str(shown).startswith(question)
    assert verdict in str(shown)
    assert repr(shown) == f"ProbeMeasurements: {question}\n{verdict}\n{shown.sections()[1].sentences[0]}"
    assert "?." not in shown.to_latex()
    page = shown.to_html()
    first, folded = page.split("<details", 1)
    assert "<table" not in first, "each difference is drawn with its finding alone"
    many = replace(shown, results=(*shown.results, measure("permutation"), measure("query_types"))).to_html()
    inside = re.sub("<[^>]+>", "", many.split("<summary>Values</summary>", 2)[2])
    assert "--probe needle_insertion" in inside, "identifiers are inside"
    assert re.findall(r"<h1>(.*?)</h1>", first) == ["mine reads only the first 256 tokens of a text"]
    assert first.index("<svg") < first.index(">Each comparison<")
    assert (first.count("<figure>"), folded.count("<figure>")) == (0, 2)
    assert folded.count('class="range"') == 2
    assert "Cosine of" not in first.split("<main>")[1]
    lead = ProbeMeasurements((measure("evidence_moving"), measure("needle_insertion")), tmp_path).to_html().split("<details")
    assert (lead[0].count("<figure>"), "".join(lead).count("<figure>")) == (1, 2), (
        "the figure of the verdict is not drawn twice"
    )


def test_differences_stand_below_their_heading_and_search_is_apart():
    given = [measure("segment_similarity_3", FALLING), measure("permutation", RISING), measure("mirror_reversal")]
    mixed, same = (build_differences(results, PROBES) for results in (given, given[::2]))
    # Each below its heading: what is read as a whole, then whole texts.
    assert [row[1][:4] for row in mixed.rows] == ["", "-0.4", "", "+0.3"]
    assert (same.headings, len(same.rows)) == (("What is compared", "Start minus end", "Published values"), 2)
    assert same.rows[1][2] == "+0.036 to +0.144 (12)"


def test_with_few_documents_all_figures_are_folded_and_say_so(tmp_path):
    page = ProbeMeasurements(tuple(measure(name, documents=8) for name in PROBES), tmp_path).to_html()
    first, folded = page.split("<details", 1)
    assert "Cannot be said: 8 documents are too few, at least 10 are needed." in first
    assert "<figure>" not in first
    assert "<table" not in first
    assert "<figure>" not in folded
    few = re.findall("8 (documents|sets) are too few, at least 10 are needed; <code>--documents 10</code>", folded)
    assert [len(few), few.count("sets")] == [len(PROBES), 1]


def test_no_table_is_wider_than_80_columns(tmp_path):
    shown = ProbeMeasurements(tuple(measure(name) for name in PROBES), tmp_path)
    for is_terminal in (True, False):
        console = Console(file=io.StringIO(), width=80, force_terminal=is_terminal, no_color=True, highlight=False)
        for section in shown.sections():
            print_tables(console, [replace(table, notes=()) for table in section.tables])
        printed = re.sub(r"\x1b\[[\d;]*m", "", console.file.getvalue())
        assert max(map(len, printed.splitlines())) <= (80 if is_terminal else 96)
        summaries = [table for section in shown.sections() for table in section.tables if table.headings[0] == "Summary"]
        assert printed.count("Summary  ") == len(summaries), "no table is divided"
        assert printed.count("What is compared") == 1


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
