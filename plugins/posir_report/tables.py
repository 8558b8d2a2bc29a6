"""The tables of a report: rows of lengths and of position bins as text, and notes on truncation."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np

from posir_published.rows import NOTABLE_BIAS, START_TO_END_UNWEIGHTED
from posir_report.recall import recall_gain
from posir_report.summary import (
    MOST_SENTENCES,
    ReportRow,
    TaskSummary,
    build_rows,
    full_labels,
    list_overall,
    partial_suffix,
    short_labels,
)
from posir_significance.decision import Decision, Reason
from posir_significance.intervals import LEVEL
from posir_significance.sentences import (
    advise,
    describe_decision,
    describe_finding,
    describe_not_read,
    describe_questions,
    describe_shape,
    format_level,
    iterate_answer,
    label_state,
    name_command,
    phrase_reading,
)
from posir_tasks.display.numbers import (
    MISSING,
    format_count,
    format_estimate,
    format_number,
    format_percent,
    format_points,
    format_score,
)
from posir_tasks.display.presentation import to_paragraphs
from posir_tasks.display.tables import Column, DisplaySection, Table, build_columns
from posir_tasks.display.wording import pluralize, suggest_name
from posir_tasks.errors import UsageError
from posir_tasks.place_ranks import MOST_PLACES, PLACES
from posir_tasks.plugin_api import declared_scores
from posir_tasks.read_part import CountedWith, ReadKind
from posir_tasks.scores import ALL, BINS_KEY, GROUPS_KEY, Score, ScoreInfo, Unit, scores_to_json

#: Columns that a report computes from several rows.
REPORT_COLUMNS = (START_TO_END_UNWEIGHTED, NOTABLE_BIAS)
#: Keys of the columns of the answer: how well, what is lost from start to end, what is not read, the state within what is read.
ANSWER = ("queries", "ndcg_at_10", "start_to_end", "not_read", "bias_within_read", "state")
#: Heading of the pictures of the answer.
SKETCH = "Over position"
#: Heading of the states, which are of what is read alone.
STATE = "State: bias in\nwhat it reads"
#: Heading of lengths of documents.
LENGTH = "Length in tokens"
#: Keys of the columns that are shown if all is asked for.
FURTHER = ("documents", "start_to_end_plain", "psi", "psi_as_published", "psi_chance", "p_value", "held_fixed")


def known_columns() -> list[ScoreInfo]:
    """Return every column that a report can show, those of the answer first and those of the report last."""
    declared = {score.key: score for score in declared_scores()}
    first = [declared[key] for key in (*ANSWER, *FURTHER) if key in declared]
    return [*first, *(score for score in declared.values() if score not in first), *REPORT_COLUMNS]


def default_columns(*, full: bool = False) -> list[ScoreInfo]:
    """Return the columns that a report shows by itself: those of the answer, and those that further packages declare."""
    shown = {
        *ANSWER,
        *(FURTHER if full else ()),
        *(column.key for column in (*added_columns(), *REPORT_COLUMNS) if column.column),
    }
    return [column for column in known_columns() if column.key in shown]


def added_columns() -> list[ScoreInfo]:
    """Return the columns that a report shows because a further package declares them: those that its texts do not explain."""
    explained = {*ANSWER, *FURTHER, *(column.key for column in REPORT_COLUMNS)}
    return [column for column in known_columns() if column.column and column.key not in explained]


def choose_columns(keys: Sequence[str], *, full: bool = False) -> list[ScoreInfo]:
    """Return the columns with these keys, in their order; the default ones, or all that explain them, if there is none.

    Raises:
        PosirError: There is no such column.
    """
    known = {column.key: column for column in known_columns()}
    for key in keys:
        if key not in known:
            usual = ", ".join(column.key for column in default_columns())
            near = suggest_name(key, known)
            raise UsageError(f"--columns {key}: no such column.{near} Usual ones: {usual}. All: `posir report --columns help`.")
    return [known[key] for key in keys] if keys else default_columns(full=full)


#: Scores of published results, by the key of the score that they stand beside.
PUBLISHED = {"ndcg_at_10": "ndcg_at_10_as_published", "start_to_end": "start_to_end_unweighted"}


def with_published_scores(columns: Sequence[ScoreInfo], rows: Sequence[ReportRow]) -> list[ScoreInfo]:
    """Return columns with those scores of published results that some rows have, beside the like of one's own."""
    known = {column.key: column for column in known_columns()}
    shown = list(columns)
    for own, published in PUBLISHED.items():
        if published in known and known[published] not in shown and any(row.scores.get(published) is not None for row in rows):
            shown.insert(next((place for place, column in enumerate(shown, start=1) if column.key == own), 0), known[published])
    return shown


def select_columns(row: ReportRow, columns: Iterable[ScoreInfo]) -> dict[str, Any]:
    """Return what a row is about and the cells of some columns, unformatted."""
    keys = {column.key for column in columns}

    def is_chosen(name: str) -> bool:
        key = name.removeprefix("scores.")
        return not keys.isdisjoint((key, key.removesuffix("_low"), key.removesuffix("_high")))

    chosen = {name: cell for name, cell in row.columns().items() if is_chosen(name)}
    return {**row.identity(), **chosen}


def format_cell(row: ReportRow, column: ScoreInfo) -> str:
    """Return the text of a row in a column."""
    if column.key == "state":
        return label_state(row.decision) if row.decision else MISSING
    text = format_score(column.unit, row.scores.get(column.key))
    return f"{text} %" if column.key == "not_read" and text != MISSING else text


def build_legend(columns: Iterable[ScoreInfo]) -> str:
    """Return what the columns mean, a sentence each."""
    described = [(column.title, column.description) for column in columns]
    # After a colon a sentence begins with a small letter, unless its first word is an acronym.
    return "\n".join(f"{title}: {text if text[1:2].isupper() else text[:1].lower() + text[1:]}" for title, text in described)


def describe_places(summary: TaskSummary) -> dict[str, Any] | None:
    """Return what is known of the queries with several places of evidence, each place at 1/n; None if there are none."""
    places = summary.values.places
    if places is None:
        return None
    columns, weights, shares = places.ranks.columns, places.weights, places.thirds().tolist()
    thirds = [columns.thirds == third for third in range(3 if shares else 0)]
    means = [np.average(columns.gains[rows], weights=weights[rows]) if rows.any() else None for rows in thirds]
    recall = {f"place_recall_at_{depth}": recall_gain(depth) for depth in (10, 100)}
    return {
        "queries": places.queries,
        "places": len(weights),
        "left_out": places.left_out,
        **{key: places.mean(gain) if len(weights) else None for key, gain in recall.items()},
        "shares": shares or None,
        "ndcg_at_10_by_third": means or None,
        **(summary.place_decision.to_json() if summary.place_decision else {}),
    }


def place_notes(summaries: Sequence[TaskSummary]) -> Iterator[str]:
    """Yield how many places the queries with several of them have, where these are, and how many are found."""
    for label, summary in zip(full_labels(summaries), summaries, strict=True):
        if (place := describe_places(summary)) is None:
            continue
        shares, gains = (" / ".join(map(format_percent, place[key] or [None])) for key in ("shares", "ndcg_at_10_by_third"))
        yield (
            f"{label}, {summary.task}{PLACES}: {pluralize(place['places'], 'place')} of "
            f"{pluralize(place['queries'], 'query', 'queries')}, each with the rank of its own document and the weight 1/n of "
            f"n places; {place['left_out']:,} with more than {MOST_PLACES} left out. In thirds of the document: {shares} % of "
            f"the evidence, nDCG@10 {gains}. Share of a query's places whose document is among the first 10: "
            f"{format_percent(place['place_recall_at_10'])} %, 100: {format_percent(place['place_recall_at_100'])} %."
        )


def describe_findings(rows: Iterable[ReportRow]) -> Iterator[str]:
    """Yield the answer for each model and task over all lengths, best nDCG@10 first; counts of states if there are many."""
    overall = list_overall(rows)
    if len(overall) > MOST_SENTENCES:
        yield f"{describe_cut(overall)}Bias in what it reads, {pluralize(len(overall), 'result')}: {count_states(overall)}."
        # Without a known window, or with few documents, no state follows from an interval.
        decided = sum(row.decision is not None and row.decision.reason in (None, Reason.WIDE_INTERVAL) for row in overall)
        by_chance = format_number(decided * (1 - LEVEL), ".1f").removesuffix(".0")
        if decided:
            yield f"If none of {decided:,} had any bias, about {by_chance} would be expected to be called biased by chance."
        return
    several = len({row.task for row in overall}) > 1
    for label, row in zip(full_labels(overall), overall, strict=True):
        yield f"{f'{label}, {row.task}' if several else label}: {describe_answer(row.decision)}"


def describe_answer(decision: Decision | None) -> str:
    """Return the finding, of what is not read with its intervals; on a line of its own what to do."""
    if decision is None:
        return "The effect of position is not known."
    known = f"{describe_finding(decision)} {describe_shape(decision)}".rstrip()
    return f"{describe_decision(decision) if decision.not_read else known}\nWhat to do: {advise(decision)}"


def describe_cut(rows: Sequence[ReportRow]) -> str:
    """Return how many results do not read all of the evidence, and how much of it; empty if there are none."""
    shares = sorted(share for row in rows if row.decision and (share := row.decision.not_read))
    if not shares:
        return ""
    percent = " to ".join(dict.fromkeys(map(format_percent, (shares[0], shares[-1]))))
    return f"{len(shares):,} of {len(rows):,} do not read to the end: {percent} % of the evidence. "


def describe_reading(rows: Sequence[ReportRow]) -> str:
    """Return which models do not read to the end, of one its finding, of many or of several tasks how many there are."""
    models, tasks = len({row.model for row in rows}), list(dict.fromkeys(row.task for row in rows))
    shares = [row.decision.not_read if row.decision else None for row in rows]
    unread = sum(map(bool, shares))
    if len(rows) == 1 and rows[0].decision and not unread:
        clause = re.split(r"; |\. |\.$", describe_finding(rows[0].decision))[0]
        return f"{short_labels(rows)[0]}: {clause[0].lower()}{clause[1:]}"
    if len(tasks) > 1 or not unread:
        return f"{pluralize(models, 'model')} on {pluralize(len(tasks), 'task') if tasks[1:] else tasks[0]}"
    if models > 3:
        return f"{unread} of {models} models {'does' if unread == 1 else 'do'} not read to the end"
    return "".join(phrase_reading(list(zip(short_labels(rows), shares, strict=True))))


def describe_data(rows: Sequence[ReportRow]) -> str:
    """Return the size of the data of a task, and what is known of it; empty of several tasks."""
    if len({row.task for row in rows}) > 1:
        return ""
    return describe_questions(rows[0].task, max(row.queries or 0 for row in rows), rows[0].get("documents", int) or 0)


def describe_ranking(rows: Sequence[ReportRow]) -> str:
    """Return which model of a task finds evidence best, and which worst; empty of one model, and of several tasks."""
    if len({row.model for row in rows}) < 2 or len({row.task for row in rows}) > 1:
        return ""
    labels = short_labels(rows)
    best, worst = (format_percent(row.ndcg_at_10.value if row.ndcg_at_10 else None) for row in (rows[0], rows[-1]))
    if rows[2:]:
        return f"{labels[0]} finds it best (nDCG@10 {best}), {labels[-1]} worst ({worst})."
    return f"{labels[0]} finds it better (nDCG@10 {best}) than {labels[-1]} ({worst})."


def count_states(rows: Iterable[ReportRow]) -> str:
    """Return how many results have each state: `12 biased to the start, 3 cannot be said`."""
    counts = Counter(label_state(row.decision) if row.decision else "not published" for row in rows)
    return ", ".join(f"{count:,} {state}" for state, count in counts.most_common())


def title_effect(row: ReportRow) -> str:
    """Return the finding as the title of a chart; without one, what the chart shows."""
    return describe_finding(row.decision).removesuffix(".") if row.decision else "nDCG@10 by position of the evidence"


def title_lengths(rows: Sequence[ReportRow]) -> str:
    """Return nDCG@10 of the shortest and the longest documents as the title of a chart, or the state.

    The row of all lengths is the first.
    """
    scored = [row for row in rows[1:] if row.ndcg_at_10]
    if scored[1:] == []:
        return title_effect(rows[0])
    first, last = (format_percent(row.ndcg_at_10.value) for row in (scored[0], scored[-1]) if row.ndcg_at_10)
    return f"nDCG@10 is {first} in the shortest documents, {last} in the longest"


#: Design effects from here on are worth a note.
LARGE_DESIGN_EFFECT = 1.2
#: How the places of evidence were counted, where it was not with the model's own tokenizer.
COUNTED = {
    CountedWith.ESTIMATE: "That is estimated from the token counts in the data, not counted with the model's own tokenizer.",
    CountedWith.ROUGH_ESTIMATE: (
        "That is roughly estimated from the token counts in the data; for languages other than English, the model's own "
        "tokenizer may find several times as many."
    ),
}


def pooled_scores(summary: TaskSummary, rows: Iterable[ReportRow]) -> dict[str, Any]:
    """Return everything known of a model on a task for JSON, not rounded: decisions, pooled scores, the position profile."""
    declared = summary.scores.declared
    return {
        "model": summary.model,
        "revision": summary.revision,
        "task": summary.task,
        "data_revision": summary.data_revision,
        "subsets": summary.subsets,
        "missing_subsets": summary.missing,
        GROUPS_KEY: {
            row.length.lower(): {
                **(row.decision.to_json() if row.decision else {}),
                "answer": dict(iterate_answer(row.decision)) if row.decision else None,
                "scores": scores_to_json(row.scores, (*declared, NOTABLE_BIAS)),
            }
            for row in rows
        },
        BINS_KEY: [
            {"position": name, "scores": scores_to_json(scores, declared)}
            for name, scores in zip(summary.profile.positions, summary.scores.bins, strict=True)
        ],
        "position_profile": summary.profile.to_json(),
        **({"places": places} if (places := describe_places(summary)) else {}),
    }


def length_table(rows: Iterable[ReportRow], columns: Sequence[ScoreInfo], *, curves: bool = False) -> Table:
    """Return a table with a line for all lengths and for each length bucket, with the curves over position if wanted."""
    rows = list(rows)
    names = {
        "Model": full_labels(rows),
        "Task": list(map(_name_task, rows)),
        "Length": [row.length for row in rows],
    }
    table = _build_table(rows, columns, names, "{Model} · {Task}", curves=curves)
    return replace(table, notes=tuple(filter(None, (level_note(rows),))))


def answer_sections(rows: Sequence[ReportRow]) -> Iterator[DisplaySection]:
    """Yield a table of the models of each task, or of the tasks of the only model, each followed by its answers.

    Of a task with one model, its lengths follow. With many results there are counts of states in place of answers and lengths.
    """
    # Where each query has several places, there is nothing else to show.
    overall = [row for row in list_overall(rows) if row.queries != 0] or list_overall(rows)
    labels = dict(zip(map(_identify, overall), full_labels(overall), strict=True))
    many = len(overall) > MOST_SENTENCES
    if many:
        yield from to_paragraphs(describe_findings(rows))
    one_model, tasks = len(set(labels.values())) == 1, {row.task for row in overall}
    of_model = one_model and len(tasks) > 1
    for task, grouped in groupby(overall, key=lambda row: "" if of_model else _name_task(row)):
        group = list(grouped)
        names = [_name_task(row) if of_model else labels[_identify(row)] for row in group]
        queries, documents = pluralize(group[0].queries or 0, "query", "queries"), group[0].get("documents", int)
        size = f"{queries} on {pluralize(documents, 'document')}" if documents else queries
        title = labels[_identify(group[0])] if of_model else f"{task} · {size}"
        table = _answer_table("Task" if of_model else "Model", names, group, title)
        yield DisplaySection(tables=(replace(table, is_narrow=True),))
        if many:
            continue
        for name, row in zip(names, group, strict=True):
            command = name_command(row.decision, row.reference) if row.decision else ""
            title = f"{name:{max(map(len, names))}}  {row.sketch}"
            yield DisplaySection(title, (describe_answer(row.decision),), code=command)
        for row in group if of_model or len(group) == 1 else ():
            lengths = [other for other in rows if _identify(other) == _identify(row) and other.length != ALL]
            yield from _length_section(lengths, f"{row.task}, " if of_model else "")


def _length_section(rows: Sequence[ReportRow], task: str) -> Iterator[DisplaySection]:
    """Yield a table of lengths, if there are any, and which are not in it, since nothing can be said of them."""
    intervals = [row.decision and row.decision.interval(row.decision.start_to_end) for row in rows]
    shown = [row for row, interval in zip(rows, intervals, strict=True) if interval not in (None, (-1.0, 1.0))]
    folded = [f"{row.length} ({pluralize(row.queries or 0, 'query', 'queries')})" for row in rows if row not in shown]
    if shown:
        sizes = {pluralize(row.queries or 0, "query", "queries") for row in shown}
        title = f"{task}by length of the document{f' · {sizes.pop()} each' if len(sizes) == 1 else ''}"
        names = [row.length_title or row.length for row in shown]
        table = _answer_table(LENGTH, names, shown, title[0].upper() + title[1:])
        yield DisplaySection(tables=(table,))
        yield from to_paragraphs([" ".join([level_note(shown), *([f"Not estimated: {', '.join(folded)}."] if folded else [])])])


def _answer_table(heading: str, names: Sequence[str], rows: Sequence[ReportRow], title: str) -> Table:
    """Return a table of what matters most, of models, tasks or lengths; of lengths with their queries if these differ.

    Rows that are not followed by an answer have the sketch that it begins with.
    """
    queries = ["Queries"] if heading == LENGTH and len({row.queries for row in rows}) > 1 else []
    sketch = [SKETCH] if heading == LENGTH or len(rows) > MOST_SENTENCES else []
    numbers = [*queries, "nDCG@10", "Start to end", "Not read"]
    added = added_columns()
    cells = (
        (
            name,
            *[format_count(row.queries) for _ in queries],
            format_percent(row.ndcg_at_10.value if row.ndcg_at_10 else None),
            format_estimate(row.start_to_end, format_points),
            MISSING if not row.decision or row.decision.not_read is None else f"{format_percent(row.decision.not_read)} %",
            *[row.sketch for _ in sketch],
            label_state(row.decision).replace(" than ", " than\n") if row.decision else MISSING,
            *(format_cell(row, column) for column in added),
        )
        for name, row in zip(names, rows, strict=True)
    )
    headings = (heading, *numbers, *sketch, STATE, *(column.title for column in added))
    right = [*numbers, *(column.title for column in added if column.unit is not Unit.TEXT)]
    return Table(build_columns(headings, right, pictures=[SKETCH]), tuple(cells), title)


def _identify(row: ReportRow) -> tuple[str, str, str]:
    return row.model, row.revision, row.task


def summary_table(rows: Iterable[ReportRow], columns: Sequence[ScoreInfo]) -> Table:
    """Return a table with a line for each model and task, all lengths together, best nDCG@10 of a task first."""
    overall = list_overall(rows)
    chosen = [column for column in columns if column.key in ANSWER[1:]]
    several = len({row.task for row in overall}) > 1
    names = {"Task": list(map(_name_task, overall))} if several else {}
    return _build_table(overall, chosen, {**names, "Model": short_labels(overall)})


def bin_table(rows: Iterable[ReportRow], columns: Sequence[ScoreInfo]) -> Table:
    """Return a table with a line for each position bin."""
    rows = list(rows)
    names = {"Model": full_labels(rows), "Task": [row.task for row in rows]}
    names |= {"Length": [row.length for row in rows]} if any(row.length != ALL for row in rows) else {}
    names["Position"] = [row.position or "" for row in rows]
    return _build_table(rows, columns, names, "{Model} · {Task}")


def _build_table(
    rows: Sequence[ReportRow],
    columns: Sequence[ScoreInfo],
    names: Mapping[str, Sequence[str]],
    split_by: str = "",
    *,
    curves: bool = False,
) -> Table:
    if curves:
        names = {**names, SKETCH: [row.sketch for row in rows]}
    lines = zip(*names.values(), strict=True)
    aligned = (Column(column.title, "left" if column.unit is Unit.TEXT else "right") for column in columns)
    return Table(
        (*build_columns(names), *aligned),
        tuple((*line, *(format_cell(row, column) for column in columns)) for line, row in zip(lines, rows, strict=True)),
        split_by=split_by,
    )


def _name_task(row: ReportRow) -> str:
    return row.task + partial_suffix(row.subsets, row.missing_subsets)


def bin_columns() -> list[Score]:
    """Return the scores that are declared for position bins."""
    return [score for score in declared_scores() if score.by_position]


def not_read_notes(labels: Sequence[str], summaries: Sequence[TaskSummary]) -> Iterator[str]:
    """Yield what each model reads and how much evidence is not read, then the models of which it is unknown."""
    unknown = []
    for label, summary in zip(labels, summaries, strict=True):
        if summary.values.read.kind is ReadKind.UNKNOWN:
            unknown.append(label)
        elif summary.profile.queries and (sentence := describe_not_read(summary.decisions[0])):
            counted = COUNTED.get(summary.ranks.counted_with) if summary.ranks.counted_with else None
            yield f"{label}: {sentence}{f' {counted}' if counted else ''}"
    if unknown:
        yield f"It is unknown what {', '.join(unknown)} reads; `posir window MODEL` tells it."


def level_note(rows: Iterable[ReportRow]) -> str:
    """Return how the intervals of length rows hold; empty without such rows."""
    levels = sorted({row.decision.level for row in rows if row.decision and row.decision.level != LEVEL})
    if not levels:
        return ""
    shown = " or ".join(map(format_level, levels))
    return f"Intervals of differences in the rows of lengths hold at the same time, each at {shown}."


def document_notes(labels: Sequence[str], summaries: Sequence[TaskSummary]) -> Iterator[str]:
    """Yield what the position effect was estimated within, and where intervals assume independent questions."""
    overall = [(label, summary, build_rows(summary)[0]) for label, summary in zip(labels, summaries, strict=True)]
    fixed = ((summary.task, row.get("held_fixed", str)) for _, summary, row in overall)
    for task, held_fixed in dict.fromkeys(pair for pair in fixed if pair[1]):
        yield f"{task}: start to end, PSI and p are estimated with the {held_fixed} held fixed."
    for label, summary, row in overall:
        effect = row.get("design_effect", float)
        if effect is not None and effect > LARGE_DESIGN_EFFECT:
            yield (
                f"{summary.task}, {label}: {row.queries:,} queries on {row.get('documents', int):,} documents; the variance of "
                f"nDCG@10 is {effect:.1f} times that of independent queries (design effect)."
            )
