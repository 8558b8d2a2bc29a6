"""The values that probes of a model measured: tables, records and figures, and the page that begins with the verdict."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from posir_probe.answers import AnswerRow, draw_text, list_answers
from posir_probe.probe import UNITS, IndexRow, Probe, build_index_rows
from posir_probe.probing import all_probes
from posir_probe.results import ProbeResult, read_probe_results
from posir_probe.verdict import (
    ANSWERS,
    DIFFERENCE,
    SIGNED,
    UNDECIDED,
    agrees_inside,
    describe_model,
    describe_published,
    describe_thirds,
    find_favored,
    find_leads,
    find_state,
    list_facts,
    list_others,
    list_published,
    list_steps,
    summarize_rest,
    title_search,
)
from posir_published.probes import read_published_curves
from posir_report.summary import short_labels
from posir_significance.position_effect import FEWEST_DOCUMENTS
from posir_significance.sentences import describe_few
from posir_tasks.display.numbers import FORMATS, MISSING, format_estimate
from posir_tasks.display.presentation import Presentable
from posir_tasks.display.strip import Strip, describe_marks
from posir_tasks.display.tables import DisplaySection, Table, build_columns
from posir_tasks.display.wording import PAPER, pluralize
from posir_tasks.models.command_reference import NO_REFERENCE, CommandReference
from posir_tasks.scores import Estimate
from posir_tasks.sources.formats.passages import SkippedText, describe_skipped
from posir_tasks.tasks.catalog import find_task

if TYPE_CHECKING:
    from rich.console import Console

    from posir_tasks.display.figures import Figure

#: Most positions that the terminal shows one by one; CSV and JSON have all.
MAX_ROWS = 45
#: Most probes whose values a terminal shows without being asked.
MOST_SECTIONS = 3
PUBLISHED = "Published values"
ANSWERED, WITHIN, WHOLE = "Answers", "Within what it reads", "Whole texts"
#: Headings of a page, in order.
GROUPS = (WITHIN, WHOLE, "Questions and whole texts", "Other measurements")


def build_differences(results: Iterable[ProbeResult], probes: Mapping[str, Probe]) -> Table:
    """Return a table with the differences of start and end of embeddings that have an interval, and the published range.

    First come those of texts that are read as a whole.
    """
    groups: dict[str, list[tuple[str, ...]]] = {WITHIN: [], WHOLE: []}
    for result in results:
        probe, estimate, favored = probes[result.probe], *find_favored(result, probes[result.probe])
        if favored and probe.compares_ends and not probe.predicts_retrieval:
            value, (published, count) = format_estimate(estimate, SIGNED[probe.first_summary.unit]), describe_published(probe)
            known = f"{published} ({count})" if published else ""
            groups[WITHIN if probe.in_window else WHOLE].append((probe.title, value, known))
    lines = [line for title, group in groups.items() for line in ((title, "", ""), *group) if group]
    table = _build_table(("What is compared", DIFFERENCE, PUBLISHED), lines, (DIFFERENCE,))
    note = f"{PUBLISHED}: the range over (so many) other models, on other data."
    return replace(table, notes=(note,) * (PUBLISHED in table.headings))


def _draw_interval(estimate: Estimate | None, probe: Probe) -> tuple[float, ...]:
    """Return a difference, the ends of its interval, and the published values; larger favors the start."""
    published = [value for value, _ in list_published(probe)]
    values = (estimate.value, *(estimate.interval or ()), *published) if estimate else ()
    return tuple(probe.preference_sign * value for value in values)


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
    said = (
        f"{finding.rpartition(': ')[0]}{describe_thirds(result, probe)}" if finding else "Which end is favored cannot be said"
    )
    published, count = describe_published(probe)
    if count:
        published += f" (n = {count})".replace(" = ", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}")
    else:
        published = "see the figure" if read_published_curves(probe.name) else "none"
    thirds = result.sums.estimate(probe.summaries["thirds"]) if "thirds" in probe.summaries else None
    outer = f"; outer thirds {format_estimate(thirds, SIGNED[probe.first_summary.unit])}" if thirds else ""
    return f"{said} · {probe.title}{outer}; published: {published}"


def _begin_with(section: DisplaySection, answer: AnswerRow) -> DisplaySection:
    """Return a section as one of the first rows of a page."""
    chip = answer.chip.replace(UNDECIDED, "not clear")
    title = f"{answer.said} · {answer.note}"
    return replace(section, title=title, group=ANSWERED, chip=chip, picture=answer.picture)


def _list_lengths(result: ProbeResult) -> tuple[tuple[str, int, float], ...]:
    """Return length and share not read of each document, the longest first."""
    window = result.window or 0
    lengths = sorted(result.lengths, reverse=True)
    return tuple((f"document {at}", length, max(0, length - window) / max(1, length)) for at, length in enumerate(lengths, 1))


def _choose_group(probe: Probe) -> str:
    return WITHIN if probe.in_window else GROUPS[1 + probe.needs_questions]


def build_probe_tables(rows: Sequence[IndexRow], probe: Probe) -> list[Table]:
    """Return the tables of one probe: summaries that are no single value, and a matrix of its values if they are few."""
    placed = [row for row in rows if row.kind == "position" and row.value is not None]
    single = [row.value for row in rows if row.kind == "position"] * bool(placed)
    chosen = [(probe.summaries[row.name], row.value) for row in rows if row.kind == "summary" and row.value not in single]
    chosen.sort(key=lambda pair: pair[0] is not probe.summaries[probe.stated])
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


@dataclass(frozen=True, repr=False)
class ProbeMeasurements(Presentable):
    """The values that probes of a model measured."""

    results: tuple[ProbeResult, ...]
    """One for each probe."""
    folder: Path
    """Folder of results, in which other models' results on the same data are drawn beside these."""
    skipped: tuple[SkippedText, ...] = ()
    """Texts and questions that cannot be used."""
    reference: CommandReference = NO_REFERENCE
    """The model and the data as a command names them."""

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
        if searched := title_search(self.results, all_probes()):
            if leads[0][0].share_read:
                return f"{name} reads only the first {leads[0][0].window:,} tokens; search {searched}"
            return f"Search with {name} {searched}"
        favored, *inside = (find_favored(*lead)[1] for lead in leads)
        if not leads[0][1].compares_ends or favored not in ANSWERS:
            return self.title
        if favored == "start" and leads[0][0].share_read:
            is_agreed = favored in inside and agrees_inside(self.results, all_probes(), favored)
            start = ", and weighs their start more" if is_agreed else " of a text"
            return f"{name} reads only the first {leads[0][0].window:,} tokens{start}"
        return f"{name} weighs the {favored} of a text more"

    def strips(self) -> list[Strip]:
        """Return the picture of the verdict with what the head of the page does not say."""
        shown = [fact for fact in list_facts(self.results, all_probes()) if fact[0] != "Documents"]
        return [replace(strip, facts=lambda: shown) for strip in super().strips()]

    def sections(self) -> tuple[DisplaySection, ...]:
        """Return the verdict with its picture, what to do, and the differences; then each probe, folded."""
        probes = all_probes()
        leads, strip = find_leads(self.results, probes), draw_text(self.results, probes)
        shown = leads[:1] if leads[0][0].sums.documents >= FEWEST_DOCUMENTS and not strip else []
        known = [fact for fact in list_facts(self.results, probes) if fact[0] != "What to do"]
        facts = [": ".join(fact).replace("\n", " ") for fact in known]
        steps, verdict = list_steps(leads, self.reference), describe_model(self.results, probes)
        facts += ["What to do:"] * bool(steps)
        differences = build_differences(self.results, probes)
        said: dict[str, Any] = {"finding": verdict, "facts": partial(list_facts, self.results, probes)}
        said["code"] = "\n".join(command for _, command in steps if command)
        commands = "\n".join(f"# {step}\n{command}" for step, command in steps)
        sections = [
            DisplaySection(self.title, (verdict,), strips=(replace(strip, **said),) if strip else ()),
            DisplaySection(sentences=("\n".join(facts),), draw=partial(self._draw, shown), code=commands),
            *[DisplaySection(tables=(differences,))] * bool(differences.rows),
        ]
        answers = list_answers(self.results, probes) if strip else []
        measured = {"": DisplaySection(lengths=_list_lengths(self.results[0]), folded=True)}
        for result in self.results:
            probe, (estimate, favored) = probes[result.probe], find_favored(result, probes[result.probe])
            thirds = result.sums.estimate(probe.summaries["thirds"]) if "thirds" in probe.summaries else None
            quantity = "cosine" if "osine" in probe.value_title else probe.value_title.partition(" of ")[0].partition(" (")[0]
            tables = build_probe_tables(build_index_rows([result], probes), probe)
            skipped, omitted = result.sums.describe_skipped(), result.drawn - result.sums.documents * probe.joined
            # Documents that were skipped are told with their reasons.
            told = omitted <= 0 or omitted == sum(result.sums.skipped.values())
            left_out = "" if told else f"Documents left out: {omitted:,} of {result.drawn:,}."
            alone = f"To measure this alone: `--probe {probe.name}`." if len(self.results) > MOST_SECTIONS else ""
            trained = list_others(probe)
            others = [f"{model} {SIGNED[probe.first_summary.unit](value)}" for value, model in list_published(probe)]
            others[2:-2] = [f"{len(others) - 4} others"] if others[5:] else others[2:-2]
            others = list(map(" ".join, trained)) if trained[1:] else others
            listed = f"Published, {probe.source.partition(',')[0]}: {', '.join(others)}." if others and favored else ""
            notes = tuple(filter(None, (*probe.notes[1:], listed, skipped and f"Skipped: {skipped}.", left_out, alone)))
            tables[-1:] = [replace(table, notes=notes) for table in tables[-1:]]
            is_drawn = result.sums.documents >= FEWEST_DOCUMENTS and (result, probe) not in shown
            section = DisplaySection(
                *(_describe_result(result, probe), probe.notes[:1], tuple(tables)),
                draw=partial(self._draw, [(result, probe)]) if is_drawn else None,
                folded=True,
                group=_choose_group(probe) if favored else GROUPS[-1],
                chip=find_state(result, probe).replace(UNDECIDED, "not clear") if favored else "",
                drawn=_draw_interval(estimate, probe) if favored else (),
                also_drawn=_draw_interval(thirds, probe)[:3] if favored else (),
                unit=UNITS.get(probe.summaries[probe.stated].unit, quantity) if favored else "",
            )
            measured[probe.name] = section
        first = [_begin_with(measured.pop(answer.probe), answer) for answer in answers]
        rest = [section for name, section in measured.items() if name]
        # What is known comes first.
        rest.sort(key=lambda section: (GROUPS.index(section.group), section.folded and not section.draw))
        return (*sections, *first, *rest)

    def page_sections(self) -> tuple[DisplaySection, ...]:
        """Return what follows the question and the card with its answer, or without a card the answer, too.

        Each difference is drawn with its finding, and not in a table.
        """
        verdict, facts, *others = self.sections()
        sample = dict(list_facts(self.results, all_probes())).get("Documents", "")
        rest = summarize_rest(self.results, all_probes()) if any(section.picture for section in others) else ""
        said = tuple(filter(None, (rest, sample)))
        answer = (DisplaySection(sentences=said),) if verdict.strips else (replace(verdict, title=""), facts)
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
        return ["Intervals: 95 %, by bootstrap over documents; they are too narrow where documents are few."]

    def closing(self) -> list[str]:
        """Return where all values are."""
        return ["--html draws the values at every position."] if len(self.results) > MOST_SECTIONS else []

    def explanation(self) -> list[str]:
        """Return what must be known to read all values."""
        return [
            "nDCG@10: 100 if the right document is always ranked first, 0 if it is never among the first ten.",
            "Start minus end: plus favors the start. Of Pearson's r of position and weight of sentences, the sign is reversed.",
            "Favor: the difference is in that direction, and its interval does not include 0. In search, an interval within "
            "5 points on both sides of 0 is no bias that matters, as in every verdict.",
            "Not clear: the interval includes 0.",
            "Mixed: the tenths and the thirds of gradients do not agree.",
            "Reversing: the order of five parts of a text is reversed, so that its evidence is near the other end. Questions "
            "on the middle part are left out. For a model for which order does not matter, the difference is 0. What it reads "
            "has fewer questions than whole documents, so that scores of the two cannot be compared, and differences can.",
            "Joined texts: they are on different subjects and cut to fit what is read, and do not read like one natural text. "
            "Only their order changes.",
            "Gradient: how much the similarity to a question changes with a token; 1 is the 99th percentile in a document. It "
            "depends on the words, too.",
            "The embedding alone: joined texts and gradients do not measure search. An embedding that leans to the start may "
            "still find what is near the end.",
            "Cosine: of the embeddings of two texts, 1 if they point the same way. Those of unrelated texts are seldom "
            "at 0: compare cosines with each other.",
            *[f"Picture: {describe_marks([strip])}" for strip in self.strips()],
            *[f"{task.metadata.name}: {task.metadata.description}" for task in [find_task(self.results[0].data)] if task],
            "No interval: there are fewer than ten documents, or no value in some bootstrap samples.",
            "Range: the highest minus the lowest value. Chance alone makes it larger than 0.",
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
