"""The values that probes of a model measured: the verdict in sentences, tables, records and figures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from posir_probe.bias_learning import MEAN
from posir_probe.picture import draw_text, rank_drawn
from posir_probe.probe import SEPARATOR, UNITS, IndexRow, Probe, build_index_rows, includes_zero
from posir_probe.probing import all_probes
from posir_probe.results import ProbeResult, read_probe_results
from posir_published.probes import read_published_curves
from posir_report.summary import short_labels
from posir_significance.position_effect import FEWEST_DOCUMENTS
from posir_significance.sentences import describe_few
from posir_tasks.display.numbers import FORMATS, MISSING, format_estimate, format_number
from posir_tasks.display.presentation import Presentable
from posir_tasks.display.strip import Strip, describe_marks
from posir_tasks.display.tables import DisplaySection, Table, build_columns
from posir_tasks.display.wording import PAPER, pluralize
from posir_tasks.scores import Estimate, Unit
from posir_tasks.sources.formats.passages import SkippedText, describe_skipped

if TYPE_CHECKING:
    from rich.console import Console

    from posir_tasks.display.figures import Figure

#: The verdict by the end of a text that weighs more.
ANSWERS = {
    "start": "Yes: the start of a text weighs more than its end",
    "end": "No: the end of a text weighs more than its start",
}
#: Column of differences; larger is in favor of the start.
DIFFERENCE = "Start minus end"
#: Most positions that the terminal shows one by one; CSV and JSON have all.
MAX_ROWS = 45
#: Most probes whose values a terminal shows without being asked.
MOST_SECTIONS = 3
PUBLISHED = "Published values"
#: How a page says how many they are.
COUNT = "(n\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}"
WITHIN, WHOLE = "Within what it reads", "Whole texts, read or not"
#: Headings of a page, in order.
GROUPS = ("", WITHIN, WHOLE, "Questions and search, on whole texts", "Other measurements")
#: How differences are printed: all have a sign.
SIGNED: dict[Unit, Any] = {
    **FORMATS,
    Unit.INDEX: partial(format_number, spec="+.3f"),
    Unit.NUMBER: partial(format_number, spec="+.2f"),
}


def build_differences(results: Iterable[ProbeResult], probes: Mapping[str, Probe]) -> Table:
    """Return a table with the differences of start and end of embeddings that have an interval, and the published range.

    First come those of texts that are read as a whole.
    """
    groups: dict[str, list[tuple[str, ...]]] = {WITHIN: [], WHOLE: []}
    for result in results:
        probe, estimate, favored = probes[result.probe], *_find_favored(result, probes[result.probe])
        if favored and probe.compares_ends and not probe.predicts_retrieval:
            value = format_estimate(estimate, SIGNED[probe.first_summary.unit])
            groups[WITHIN if probe.in_window else WHOLE].append((probe.title, value, _describe_published(probe)))
    lines = [line for title, group in groups.items() for line in ((title, "", ""), *group) if group]
    table = _build_table(("What is compared", DIFFERENCE, PUBLISHED), lines, (DIFFERENCE,))
    note = f"{PUBLISHED}: the range over (so many) other models, on other data."
    return replace(table, notes=(note,) * (PUBLISHED in table.headings))


def _list_published(probe: Probe) -> list[tuple[float, str]]:
    """Return what the finding states of published models, in ascending order; a mean over sizes stands for each size."""
    stated = probe.summaries[probe.stated]
    curves = [dict(zip(curve.positions, curve.values, strict=True)) for curve in read_published_curves(probe.name)]
    places = [(name, f"{MEAN}{SEPARATOR}{name.rpartition(SEPARATOR)[2]}") for name in probe.positions]
    known = [[curve.get(name, curve.get(mean, math.nan)) for name, mean in places] for curve in curves]
    named = [
        (float(stated(np.array(values))), of.model) for values, of in zip(known, read_published_curves(probe.name), strict=True)
    ]
    return sorted(pair for pair in named if math.isfinite(pair[0]))


def _draw_interval(estimate: Estimate | None, probe: Probe) -> tuple[float, ...]:
    """Return a difference, the ends of its interval, and the published values; larger favors the start."""
    published = [value for value, _ in _list_published(probe)]
    values = (estimate.value, *(estimate.interval or ()), *published) if estimate else ()
    return tuple(probe.preference_sign * value for value in values)


def _describe_published(probe: Probe) -> str:
    """Return the range of published values, and how many there are; empty without any."""
    published, form = [value for value, _ in _list_published(probe)], SIGNED[probe.summaries[probe.stated].unit]
    ends = " to ".join(dict.fromkeys(map(form, published[:1] + published[-1:])))
    return f"{ends} ({len(published)})" if published else ""


def _find_favored(result: ProbeResult, probe: Probe) -> tuple[Estimate | None, str]:
    """Return what a finding states, and which end of a text it favors; that is empty if it compares none or has no interval."""
    estimate = result.sums.estimate(probe.summaries[probe.stated]) if probe.preference_sign else None
    return estimate, _find_side(estimate, probe)


def _find_side(estimate: Estimate | None, probe: Probe) -> str:
    """Return which end of a text a difference favors, that this cannot be said, or nothing without an interval."""
    if estimate is None or estimate.interval is None:
        return ""
    if includes_zero(estimate.interval):
        return "cannot be said"
    return "start" if probe.preference_sign * estimate.value > 0 else "end"


def _describe_result(result: ProbeResult, probe: Probe) -> str:
    """Return the finding of a probe, then its title, or the title, then why there is none."""
    known = result.sums.documents
    if known < FEWEST_DOCUMENTS:
        enough = math.ceil(FEWEST_DOCUMENTS * result.drawn / known) if known else 0
        few = f"{probe.title}: {describe_few(FEWEST_DOCUMENTS, known, probe.counted)}"
        return f"{few}{f'; `--documents {enough}` may do' if enough else ''}"
    finding = probe.find(result.sums)
    if not probe.preference_sign:
        return f"{finding} · {probe.title}" if finding else probe.title
    # The difference stands beside it.
    said = finding.rpartition(": ")[0] if finding else "Which end weighs more cannot be said"
    none = "see the figure" if read_published_curves(probe.name) else "none"
    return f"{said} · {probe.title}; published: {_describe_published(probe).replace('(', COUNT) or none}"


def build_probe_tables(rows: Sequence[IndexRow], probe: Probe) -> list[Table]:
    """Return the tables of one probe: summaries that are no single value, and a matrix of its values if they are few."""
    placed = [row for row in rows if row.kind == "position" and row.value is not None]
    single = [row.value for row in rows if row.kind == "position"] * bool(placed)
    chosen = [(probe.summaries[row.name], row.value) for row in rows if row.kind == "summary" and row.value not in single]
    cells = [(summary.title, format_estimate(value, FORMATS[summary.unit])) for summary, value in chosen]
    tables = [Table(build_columns(("Summary", "Value"), ("Value",)), tuple(cells))] if cells else []
    if 0 < len(placed) <= MAX_ROWS:
        values = [(*probe.split(row.name), format_estimate(row.value, FORMATS[probe.unit])) for row in placed]
        frame = pl.DataFrame(values, ["Series", "Line", "Position", "value"], orient="row")
        distinct = {name: frame[name].n_unique() for name in frame.columns[:3]}
        fewest = min("Position", "Series", key=distinct.__getitem__)
        across = "Line" if distinct["Line"] > 1 or distinct[fewest] > 3 else fewest
        matrix = frame.pivot(across, values="value").fill_null(MISSING)
        matrix = matrix.rename({"": "model" if distinct["Line"] > 1 else "Value"}, strict=False)
        table = _build_table(matrix.columns, matrix.rows(), matrix.columns[2:])
        tables.append(replace(table, split_by="{Series}" if across == "Line" and distinct["Series"] > 1 else ""))
    return tables


def _build_table(headings: Sequence[str], rows: Sequence[tuple[str, ...]], right: Sequence[str]) -> Table:
    filled = [at for at in range(len(headings)) if any(row[at] not in ("", MISSING) for row in rows)]
    cells = tuple(tuple(row[at] for at in filled) for row in rows)
    return Table(build_columns([headings[at] for at in filled], right, drawn=[DIFFERENCE]), cells)


def find_leads(results: Sequence[ProbeResult], probes: Mapping[str, Probe]) -> list[tuple[ProbeResult, Probe]]:
    """Return what carries the verdict: the first result that compares start and end, and the first within the window.

    Those with an interval come first, then the one that is drawn. Where nothing compares start and end, it is the first result.
    """
    known = [(result, probes[result.probe]) for result in results]
    known.sort(key=lambda pair: (pair[1].in_window, pair[0].sums.documents < FEWEST_DOCUMENTS, rank_drawn(pair[0])))
    contrasts = [pair for pair in known if pair[1].compares_ends]
    inside = [pair for pair in contrasts[1:] if pair[1].in_window]
    return [*contrasts[:1], *inside[:1]] or known[:1]


def describe_model(results: Sequence[ProbeResult], probes: Mapping[str, Probe]) -> str:
    """Return the verdict on a model: which end of a text weighs more, also within its window, or that this cannot be said."""
    leads = find_leads(results, probes)
    result, probe = leads[0]
    if result.sums.documents < FEWEST_DOCUMENTS:
        return f"Cannot be said: {describe_few(FEWEST_DOCUMENTS, result.sums.documents, probe.counted)}."
    if not probe.compares_ends:
        return f"{probe.find(result.sums) or f'{probe.title}: whether there is a difference cannot be said'}."
    favored, *inside = (_find_favored(*lead)[1] for lead in leads)
    read = f"the {result.window:,} tokens that it reads" if result.window else "what it reads"
    answer = ANSWERS.get(favored, "No sign of it: whether the start or the end of a text weighs more cannot be said")
    if probe.in_window:
        answer += f", within {read}"
    elif inside and (inside[0] != favored or (favored in ANSWERS and result.share_read)):
        compared = _describe_ends(leads[-1][1], inside[0])
        answer += f"; of {read}, {compared}" if compared else f"; that cannot be said within {read}"
    return f"{answer}."


def _describe_ends(probe: Probe, favored: str) -> str:
    """Return which of the two places that a probe compares weighs more; empty if that cannot be said."""
    more, less = probe.ends if favored == "start" else probe.ends[::-1]
    # What stands at each place differs but where the order alone changes.
    likely = "" if probe.joined > 1 else "likely "
    return f"the {more} {likely}weighs more than the {less}" if favored in ANSWERS else ""


def list_facts(results: Sequence[ProbeResult], probes: Mapping[str, Probe]) -> list[tuple[str, str]]:
    """Return what the verdict is of and what is not known, by their names, then what to do; nothing on the data alone."""
    leads = find_leads(results, probes)
    result, probe = leads[0]
    if probe.is_of_data:
        return []
    length = f", median {result.median_tokens:,} tokens" if result.median_tokens else ""
    if result.share_read:
        length += (
            f", {sum(length <= (result.window or 0) for length in result.lengths):,} of {len(result.lengths):,} read whole"
        )
    drawn = f"drawn at random ({'; '.join(dict.fromkeys(subset.selection for subset in result.subsets.values()))})"
    size = ": a small sample" * (result.sums.documents < 5 * FEWEST_DOCUMENTS)
    facts = [("Documents", f"{result.sums.documents:,} of {result.data}{size}, {drawn}{length}.")]
    favored, sides = _find_favored(*leads[0])[1], list(filter(None, (_find_favored(of, probes[of.probe])[1] for of in results)))
    if favored in ANSWERS and not result.share_read and sides[1:]:
        facts.insert(0, ("How sure", f"{sides.count(favored)} of {len(sides)} comparisons of the same documents agree."))
    for inner, known in leads[1:] if result.share_read else ():
        favored = _find_favored(inner, known)[1]
        said = _describe_ends(known, favored).capitalize() or "Which end weighs more cannot be said"
        if known.joined > 1 and favored in ANSWERS:
            said += f" ({known.title.lower()}: {inner.sums.values[0]:.2f} to {inner.sums.values[-1]:.2f})"
        said += _describe_agreement(results, probes, known, favored) if favored in ANSWERS else ""
        published = _describe_published(known).replace("(", COUNT) or "none"
        cost = f"A model blind to order has 0; published: {published}. What that costs in search, `posir inspect` measures."
        facts.insert(0, ("In what it reads", f"{said}.\n{_describe_inside(results, probes)}\n{cost}"))
    if result.window and result.median_tokens:
        share = f"The first {result.window:,} tokens:\n{100 * result.tokens_read:.0f} % of all tokens."
        facts.insert(0, ("Reads", share if result.share_read else f"All of a median document: up to {result.window:,} tokens."))
    if not all(known.predicts_retrieval for _, known in leads):
        facts.append(("In search, on whole documents", _describe_search(results, probes)))
    steps = [step for step, _ in _list_steps(leads)]
    return [*facts, *(("What to do", "\n".join(steps)) for _ in steps[:1])]


def _list_steps(leads: Sequence[tuple[ProbeResult, Probe]]) -> list[tuple[str, str]]:
    """Return what to do, each step with its command."""
    steps, result, model = [], leads[0][0], leads[0][0].model
    favored, *inside = (_find_favored(*lead)[1] for lead in leads)
    more = f"posir probe {model} {result.data} --documents {max(50, 2 * result.drawn)}"
    if any(probe.find(of.sums) is None for of, probe in leads):
        steps.append(("Measure more documents.", more))
    if result.share_read:
        step = f"Search in chunks of fewer than {result.window:,} tokens: compare sizes on your own texts."
        steps.append((step, f"posir inspect {model} YOUR_FOLDER"))
    if inside and inside[0] in ANSWERS and result.sums.documents < 5 * FEWEST_DOCUMENTS:
        steps.append((f"Measure more documents: {result.sums.documents} are few, and joined texts need about 30.", more))
    elif "start" in (inside or [favored] * (not result.share_read)):
        step = "If that shows a bias in what is read: take smaller chunks, or train on evidence at all positions."
        steps.append((step, f"posir train {model} --data YOUR_QUESTIONS --output FOLDER"))
    return steps


def _describe_agreement(results: Iterable[ProbeResult], probes: Mapping[str, Probe], said: Probe, favored: str) -> str:
    """Return whether gradients agree with what a probe says of what is read, a clause; empty where they are not measured."""
    for result in results:
        probe = probes[result.probe]
        if "thirds" in probe.summaries and result.sums.documents >= FEWEST_DOCUMENTS:
            tenths, thirds = (result.sums.estimate(probe.summaries[name]) for name in (probe.stated, "thirds"))
            sides = [_find_side(estimate, probe) for estimate in (tenths, thirds)]
            if probe is said:
                return "" if sides[1] == favored else ". By thirds this is not seen"
            if sides[0] != favored:
                return ". Gradients do not show it"
            more, less = ("first", "last") if sides[1] == "start" else ("last", "first")
            but = f", but the {more} third weighs more than the {less}" * (sides[1] in ANSWERS)
            outer = probe.ends[favored == "end"]
            return ". Gradients agree" if sides[1] == favored else f". By gradients, the {outer} stands out{but}"
    return ""


def _describe_inside(results: Iterable[ProbeResult], probes: Mapping[str, Probe]) -> str:
    """Return a table of the differences of what is read, first that of the picture."""
    rows = []
    for result in sorted(results, key=rank_drawn):
        probe = probes[result.probe]
        if probe.in_window and probe.compares_ends and result.sums.documents >= FEWEST_DOCUMENTS:
            summaries = [probe.summaries[name] for name in (probe.stated, "thirds") if name in probe.summaries]
            rows += [f"{of.title}\t{format_estimate(result.sums.estimate(of), SIGNED[of.unit])}" for of in summaries]
    return "\n".join(["Start minus end\tdifference", *rows])


def _write(fact: str) -> str:
    """Return a fact of several lines, some with cells, as prose."""
    first, *rows = (line.split("\t") for line in fact.splitlines())
    head, *cells = [f"{name} {', '.join(rest)}" for name, *rest in rows if rest] or [""]
    table = f"{head}: {'; '.join(cells)}." if cells else ""
    return " ".join(filter(None, (*first, table, *(row[0] for row in rows if not row[1:]))))


def _describe_search(results: Iterable[ProbeResult], probes: Mapping[str, Probe]) -> str:
    """Return how the reversal of documents changes nDCG@10 of questions about both ends, and which place of evidence helps."""
    for result in results:
        probe, values = probes[result.probe], result.sums.values
        if "FB" in probe.summaries and result.sums.documents >= FEWEST_DOCUMENTS and np.isfinite(values).all():
            estimate, side = _find_favored(result, probe)
            helped = {"start": "Being near the start helps", "end": "Being near the end helps"}.get(side, "No effect is shown")
            unread = ", maybe since the rest is not read" if side == "start" and result.share_read else ""
            rows = (("as written", values[::2]), ("reversed", values[1::2]))
            cells = "\n".join("\t".join((name, *(f"{100 * value:.0f}" for value in row))) for name, row in rows)
            shift = format_estimate(estimate, SIGNED[probe.summaries[probe.stated].unit])
            table = f"nDCG@10, questions on\tfront\tmiddle\tend\n{cells}"
            return f"{helped}{unread}.\n{table}\nReversal moves end minus front by {shift} points."
    return "Not known: `posir inspect` measures it."


def _build_thirds(result: ProbeResult, probe: Probe) -> list[DisplaySection]:
    """Return the comparison of the outer thirds of what is read, where a probe has tenths of it."""
    if "thirds" not in probe.summaries or (estimate := result.sums.estimate(probe.summaries["thirds"])) is None:
        return []
    side = _find_side(estimate, probe)
    more, less = ("first", "last") if side == "start" else ("last", "first")
    said = f"The {more} third of the tokens read moves the similarity more than the {less}"
    said = said if side in ANSWERS else "Which third moves the similarity more cannot be said"
    return [
        DisplaySection(
            *(f"{said} · {probe.title}, by thirds", ("The same gradients as of tenths: their figure has all.",)),
            folded=True,
            group=WITHIN,
            chip=side.replace("cannot be said", "no sign"),
            drawn=(estimate.value, *(estimate.interval or ())),
            unit=probe.value_title.partition(" (")[0],
        )
    ]


@dataclass(frozen=True, repr=False)
class ProbeMeasurements(Presentable):
    """The values that probes of a model measured."""

    results: tuple[ProbeResult, ...]
    """One for each probe."""
    folder: Path
    """Folder of results, in which other models' results on the same data are drawn beside these."""
    skipped: tuple[SkippedText, ...] = ()
    """Texts and questions that cannot be used."""

    @property
    def title(self) -> str:
        """Subject in a few words."""
        model, probes = short_labels(self.results)[0], all_probes()
        if find_leads(self.results, probes)[0][1].compares_ends:
            return f"Does {model} weigh the start of a text more than its end?"
        documents = pluralize(max(result.sums.documents for result in self.results), "document")
        return f"Probes of {model} on {documents} of {self.results[0].data}"

    @property
    def page_title(self) -> str:
        """Heading of the page: the answer, if there is one, or else the question."""
        leads, name = find_leads(self.results, all_probes()), short_labels(self.results)[0]
        favored, *inside = (_find_favored(*lead)[1] for lead in leads)
        if not leads[0][1].compares_ends or favored not in ANSWERS:
            return self.title
        if favored == "start" and leads[0][0].share_read:
            agreed = _describe_agreement(self.results, all_probes(), leads[-1][1], favored) in ("", ". Gradients agree")
            start = ", and weighs their start more" if favored in inside and agreed else " of a text"
            return f"{name} reads only the first {leads[0][0].window:,} tokens{start}"
        return f"{name} weighs the {favored} of a text more"

    def strips(self) -> list[Strip]:
        """Return the picture of the verdict with what the head of the page does not say."""
        facts, title, strips = [], self.page_title, super().strips()
        drawn = ("Documents", *(("Reads",) if any(strip.not_read and strip.places for strip in strips) else ()))
        inside = ""
        for name, fact in list_facts(self.results, all_probes()):
            said, _, rest = fact.partition("\n")
            if name == "In what it reads" and title != self.title:
                inside = f"Within these {self.results[0].window:,} tokens, too, {said[0].lower()}{said[1:]}"
            if name not in drawn:
                is_said = rest and (said.rstrip(".:").lower() in title.lower() or said[1:] in inside)
                facts.append((name, f"\n{rest}" if is_said else fact))
        return [
            replace(strip, finding=inside if title != self.title else strip.finding, facts=lambda: facts) for strip in strips
        ]

    def sections(self) -> tuple[DisplaySection, ...]:
        """Return the verdict with its picture, what to do, and the differences; then each probe, folded."""
        probes = all_probes()
        leads, strip = find_leads(self.results, probes), draw_text(self.results, probes)
        shown = leads[:1] if leads[0][0].sums.documents >= FEWEST_DOCUMENTS and not strip else []
        facts = [f"{name}: {_write(fact)}" for name, fact in list_facts(self.results, probes) if name != "What to do"]
        steps, verdict = _list_steps(leads), describe_model(self.results, probes)
        facts += ["What to do:"] * bool(steps)
        differences = build_differences(self.results, probes)
        said: dict[str, Any] = {"finding": verdict, "facts": partial(list_facts, self.results, probes)}
        said["code"] = "\n".join(command for _, command in steps)
        commands = "\n".join(f"# {step}\n{command}" for step, command in steps)
        sections = [
            DisplaySection(self.title, (verdict,), strips=(replace(strip, **said),) if strip else ()),
            DisplaySection(sentences=("\n".join(facts),), draw=partial(self._draw, shown), code=commands),
            *[DisplaySection(tables=(differences,))] * bool(differences.rows),
        ]
        for result in self.results:
            probe, (estimate, favored) = probes[result.probe], _find_favored(result, probes[result.probe])
            quantity = "cosine" if "osine" in probe.value_title else probe.value_title.partition(" of ")[0].partition(" (")[0]
            tables = build_probe_tables(build_index_rows([result], probes), probe)
            skipped, omitted = result.sums.describe_skipped(), result.drawn - result.sums.documents * probe.joined
            left_out = f"Documents left out: {omitted:,} of {result.drawn:,}." if omitted > 0 else ""
            alone = f"To measure this alone: `--probe {probe.name}`." if len(self.results) > MOST_SECTIONS else ""
            others = [f"{model} {SIGNED[probe.first_summary.unit](value)}" for value, model in _list_published(probe)]
            others[2:-2] = [f"{len(others) - 4} others"] if others[5:] else others[2:-2]
            listed = f"Published, {probe.source.partition(',')[0]}: {', '.join(others)}." if others and favored else ""
            notes = tuple(filter(None, (*probe.notes[1:], listed, skipped and f"Skipped: {skipped}.", left_out, alone)))
            tables[-1:] = [replace(table, notes=notes) for table in tables[-1:]]
            is_drawn = result.sums.documents >= FEWEST_DOCUMENTS and (result, probe) not in shown
            sections.append(
                DisplaySection(
                    *(_describe_result(result, probe), probe.notes[:1], tuple(tables)),
                    draw=partial(self._draw, [(result, probe)]) if is_drawn else None,
                    folded=True,
                    group=GROUPS[-1 if not favored else 1 if probe.in_window else 2 + probe.needs_questions],
                    chip=favored.replace("cannot be said", "no sign"),
                    drawn=_draw_interval(estimate, probe) if favored else (),
                    unit=UNITS.get(probe.summaries[probe.stated].unit, quantity) if favored else "",
                )
            )
            sections += _build_thirds(result, probe) if favored else []
        # What is known comes first.
        return tuple(sorted(sections, key=lambda section: (GROUPS.index(section.group), section.folded and not section.draw)))

    def page_sections(self) -> tuple[DisplaySection, ...]:
        """Return what follows the question and the card with its answer, or without a card the answer, too.

        Each difference is drawn with its finding, and not in a table.
        """
        verdict, facts, *others = self.sections()
        sample = dict(list_facts(self.results, all_probes())).get("Documents", "").replace(" of ", " documents of ", 1)
        answer = (DisplaySection(sentences=(sample,)),) if verdict.strips else (replace(verdict, title=""), facts)
        return (*answer, *(section for section in others if section.group))

    def describe_data(self) -> str:
        """Return the model, the data and the methods, with their revisions and papers."""
        first, probes = self.results[0], all_probes()
        revisions = ", ".join(dict.fromkeys(subset.data_revision[:12] for subset in first.subsets.values()))
        papers = dict.fromkeys(paper for of in self.results for paper in PAPER.findall(probes[of.probe].source))
        return (
            f"Model: {first.model}, revision {first.revision[:12]}. Data: {first.data}, revision {revisions}. "
            f"Methods: {', '.join(map(' '.join, papers))}."
        )

    def print_on(self, console: Console, *, explain: bool = False) -> None:
        """Print the verdict and the overview; of many probes, the values of each only if asked to explain."""
        for section in self.sections():
            if explain or not section.folded or len(self.results) <= MOST_SECTIONS:
                section.print_on(console)
        self.print_legend(console, explain=explain)

    def records(self) -> list[IndexRow]:
        """Return a row for each summary and each position of every probe."""
        return build_index_rows(self.results, all_probes())

    def document(self) -> dict[str, Any]:
        """Return the rows, and the additive values that they are computed from."""
        return {"rows": self.records(), "results": [result.to_json() for result in self.results]}

    def legend(self) -> list[str]:
        """Return how to read the intervals."""
        return ["Intervals: 95 %, by bootstrap over documents."]

    def closing(self) -> list[str]:
        """Return where all values are."""
        return ["--html draws the values at every position."] if len(self.results) > MOST_SECTIONS else []

    def explanation(self) -> list[str]:
        """Return what must be known to read all values."""
        return [
            "Cosine: of the embeddings of two texts, 1 if they point the same way. Those of unrelated texts are seldom "
            "at 0: compare cosines with each other.",
            "nDCG@10: 100 if the right document is always ranked first, 0 if it is never among the first ten.",
            "Gradient: how much the similarity to a question changes with a token; 1 is the 99th percentile in a document.",
            *["Likely: what stands at each place differs, too, so the place may not be the cause."]
            * ("likely" in describe_model(self.results, all_probes())),
            "Joined texts: on different subjects, which are no natural text. A model blind to order has a difference of 0.",
            "Start minus end: plus favors the start. Of Pearson's r of position and weight of sentences, the sign is reversed.",
            *[f"Picture: {describe_marks([strip])}" for strip in self.strips()],
            "No interval: there is none of fewer than ten documents, or where a bootstrap sample may have no value.",
            "Range: the highest minus the lowest value, which chance makes larger.",
        ]

    def warnings(self) -> list[str]:
        """Return the texts and questions that cannot be used, in a line."""
        return list(filter(None, [describe_skipped(self.skipped)]))

    def _draw(self, pairs: Iterable[tuple[ProbeResult, Probe]]) -> list[Figure]:
        """Return the figures of results, in which other models' results on the same data are drawn after these."""
        from posir_probe.figures import build_figure

        figures = []
        for shown, probe in pairs:
            others = [result for result in self._others if (result.data, result.probe) == (shown.data, shown.probe)]
            distinct = {(result.model, result.revision, result.experiment): result for result in (shown, *others)}
            figures.append(build_figure([shown, *list(distinct.values())[1:]], probe))
        return figures

    @cached_property
    def _others(self) -> list[ProbeResult]:
        return list(read_probe_results(self.folder))
