"""The tables of a report: rows of lengths and of position bins as text, and notes on truncation."""

from __future__ import annotations

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
from posir_significance import messages
from posir_significance.advice import build_commands
from posir_significance.findings import GroupFindings, Quantity, Reason
from posir_significance.intervals import LEVEL
from posir_significance.messages import format_finding, format_level, label_state
from posir_tasks.base.errors import UsageError
from posir_tasks.base.wording import pluralize, suggest_name
from posir_tasks.display.numbers import (
    MISSING,
    format_count,
    format_percent,
    format_score,
)
from posir_tasks.display.presentation import to_paragraphs
from posir_tasks.display.tables import Column, DisplaySection, Table, build_columns
from posir_tasks.plugin_api import declared_scores
from posir_tasks.values.place_ranks import (
    MAX_PLACES,
    PLACES,
    average_places,
    count_queries,
    share_thirds,
)
from posir_tasks.values.read_part import CountedWith, ReadKind
from posir_tasks.values.scores import (
    ALL,
    BINS_KEY,
    GROUPS_KEY,
    Score,
    ScoreInfo,
    Unit,
    scores_to_json,
)

#: Columns that a report computes from several rows.
REPORT_COLUMNS = (START_TO_END_UNWEIGHTED, NOTABLE_BIAS)
#: Keys of the columns of the answer: how well, the position effect, what is truncated, the state
#: within the window.
ANSWER = (
    "queries",
    "ndcg_at_10",
    "position_effect",
    "unread_share",
    "position_effect_in_window",
    "state",
)
#: Heading of the pictures of the answer.
SKETCH = "Over position"
#: Heading of the states, which are of the window alone.
STATE = "Bias within\nthe window"
#: Heading of lengths of documents.
LENGTH = "Length in tokens"
#: Keys of the columns that are shown if all is asked for.
FURTHER = (
    *("documents", "tested_questions", "truncation_loss", "controlled_psi"),
    *("start_minus_end", "psi_as_published", "psi_by_chance"),
)


def known_columns() -> list[ScoreInfo]:
    """Return every column that a report can show, those of the answer first and those of the report
    last.
    """
    declared = {score.key: score for score in declared_scores()}
    first = [declared[key] for key in (*ANSWER, *FURTHER) if key in declared]
    return [*first, *(score for score in declared.values() if score not in first), *REPORT_COLUMNS]


def default_columns(*, full: bool = False) -> list[ScoreInfo]:
    """Return the columns that a report shows by itself: those of the answer, and those that further
    packages declare.
    """
    shown = {
        *ANSWER,
        *(FURTHER if full else ()),
        *(column.key for column in (*added_columns(), *REPORT_COLUMNS) if column.column),
    }
    return [column for column in known_columns() if column.key in shown]


def added_columns() -> list[ScoreInfo]:
    """Return the columns that a report shows because a further package declares them: those that
    its texts do not explain.
    """
    explained = {*ANSWER, *FURTHER, *(column.key for column in REPORT_COLUMNS)}
    return [column for column in known_columns() if column.column and column.key not in explained]


def choose_columns(keys: Sequence[str], *, full: bool = False) -> list[ScoreInfo]:
    """Return the columns with these keys, in their order; the default ones, or all that explain
    them, if there is none.

    Raises:
        PosirError: There is no such column.
    """
    known = {column.key: column for column in known_columns()}
    for key in keys:
        if key not in known:
            usual = ", ".join(column.key for column in default_columns())
            near = suggest_name(key, known)
            raise UsageError(
                f"--columns {key}: no such column.{near} Usual ones: {usual}. All: `posir report "
                "--columns help`."
            )
    return [known[key] for key in keys] if keys else default_columns(full=full)


#: Scores of published results, by the key of the score that they stand beside.
PUBLISHED = {"ndcg_at_10": "ndcg_at_10_as_published", "position_effect": "start_to_end_unweighted"}


def with_published_scores(
    columns: Sequence[ScoreInfo], rows: Sequence[ReportRow]
) -> list[ScoreInfo]:
    """Return columns with those scores of published results that some rows have, beside the like of
    one's own.
    """
    known = {column.key: column for column in known_columns()}
    shown = list(columns)
    for own, published in PUBLISHED.items():
        if (
            published in known
            and known[published] not in shown
            and any(row.scores.get(published) is not None for row in rows)
        ):
            shown.insert(
                next(
                    (place for place, column in enumerate(shown, start=1) if column.key == own), 0
                ),
                known[published],
            )
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
        return label_state(row.findings) if row.findings else MISSING
    text = format_score(column.unit, row.scores.get(column.key))
    return f"{text}%" if column.key == "unread_share" and text != MISSING else text


def build_legend(columns: Iterable[ScoreInfo]) -> str:
    """Return what the columns mean, a sentence each."""
    described = [(column.title, column.description) for column in columns]
    # After a colon a sentence begins with a small letter, unless its first word is an acronym.
    return "\n".join(
        f"{title}: {text if text[1:2].isupper() else text[:1].lower() + text[1:]}"
        for title, text in described
    )


def describe_places(summary: TaskSummary) -> dict[str, Any] | None:
    """Return what is known of the queries with several places of evidence, each place at 1/n; None
    if there are none.
    """
    places = summary.values.places
    if places is None:
        return None
    columns = places.columns
    weights = columns.shares
    shares = share_thirds(places).tolist()
    thirds = [columns.thirds == third for third in range(3 if shares else 0)]
    means = [
        np.average(columns.gains[rows], weights=weights[rows]) if rows.any() else None
        for rows in thirds
    ]
    recall = {f"place_recall_at_{depth}": recall_gain(depth) for depth in (10, 100)}
    return {
        "queries": count_queries(places),
        "places": len(weights),
        "left_out": places.left_out,
        **{
            key: average_places(places, gain) if len(weights) else None
            for key, gain in recall.items()
        },
        "shares": shares or None,
        "ndcg_at_10_by_third": means or None,
        **(summary.place_findings.to_json() if summary.place_findings else {}),
    }


def place_notes(summaries: Sequence[TaskSummary]) -> Iterator[str]:
    """Yield how many places the queries with several of them have, where these are, and how many
    are found.
    """
    for label, summary in zip(full_labels(summaries), summaries, strict=True):
        if (place := describe_places(summary)) is None:
            continue
        shares, gains = (
            " / ".join(map(format_percent, place[key] or [None]))
            for key in ("shares", "ndcg_at_10_by_third")
        )
        yield (
            f"{label}, {summary.task}{PLACES}: {pluralize(place['places'], 'place')} of "
            f"{pluralize(place['queries'], 'query', 'queries')}, each with the rank of its own "
            "document and the weight 1/n of "
            f"n places; {place['left_out']:,} with more than {MAX_PLACES} left out. In thirds of "
            f"the document: {shares}% of "
            f"the evidence, nDCG@10 {gains}. Share of a query's places whose document is among "
            "the first 10: "
            f"{format_percent(place['place_recall_at_10'])}%, 100: "
            f"{format_percent(place['place_recall_at_100'])}%."
        )


def describe_findings(rows: Iterable[ReportRow]) -> Iterator[str]:
    """Yield the answer for each model and task over all lengths, best nDCG@10 first; counts of
    states if there are many.
    """
    overall = list_overall(rows)
    if len(overall) > MOST_SENTENCES:
        yield messages.count_truncation(_list_shares(overall), len(overall))
        yield messages.count_states(
            Counter(label_state(row.findings) for row in overall if row.findings)
        )
        # No state follows from an interval without a test, or with few documents.
        decided = sum(
            row.findings is not None and row.findings.reason in (None, Reason.WIDE_INTERVAL)
            for row in overall
        )
        if decided:
            yield messages.describe_false_alarms(decided)
        return
    several = len({row.task for row in overall}) > 1
    for label, row in zip(full_labels(overall), overall, strict=True):
        yield (
            f"{f'{label}, {row.task}' if several else label}: "
            f"{describe_answer(row.findings, row.task)}"
        )


def _list_shares(rows: Iterable[ReportRow]) -> list[float]:
    """Return the shares of truncated evidence above 0, sorted."""
    shares = [row.findings.value(Quantity.UNREAD_SHARE) for row in rows if row.findings]
    return sorted(share for share in shares if share)


def describe_answer(findings: GroupFindings | None, task: str = "") -> str:
    """Return the findings, and on a line of its own the next step."""
    if findings is None:
        return messages.NOT_KNOWN
    return f"{messages.describe_group(findings)}\n{messages.describe_advice(findings, task)}"


def title_models(rows: Sequence[ReportRow]) -> str:
    """Return the title of rows of all lengths: the findings on at most two models of a task, or how
    many there are.
    """
    tasks = list(dict.fromkeys(row.task for row in rows))
    models = len({row.model for row in rows})
    named = [
        (label, row.findings)
        for label, row in zip(short_labels(rows), rows, strict=True)
        if row.findings
    ]
    if len(tasks) > 1 or len(named) < len(rows) or not named:
        return (
            f"{pluralize(models, 'model')} on "
            f"{pluralize(len(tasks), 'task') if tasks[1:] else tasks[0]}"
        )
    if models > 3:
        return messages.count_truncating(len(_list_shares(rows)), models)
    return "".join(messages.describe_models(named))


def describe_data(rows: Sequence[ReportRow]) -> str:
    """Return the size of the data of a task, and what is known of it; empty of several tasks."""
    if len({row.task for row in rows}) > 1:
        return ""
    size = max(row.queries or 0 for row in rows), rows[0].get("documents", int) or 0
    return messages.describe_questions(rows[0].task, *size)


def describe_ranking(rows: Sequence[ReportRow]) -> str:
    """Return which model of a task finds evidence best, and which worst; empty of one model, and of
    several tasks.
    """
    if len({row.model for row in rows}) < 2 or len({row.task for row in rows}) > 1:
        return ""
    labels = short_labels(rows)
    best = (labels[0], rows[0].ndcg_at_10)
    worst = (labels[-1], rows[-1].ndcg_at_10)
    return messages.describe_ranking(best, worst, len(rows))


def title_effect(row: ReportRow) -> str:
    """Return the finding as the title of a chart; without one, what the chart shows."""
    return messages.title_finding(row.findings) if row.findings else messages.CURVE_TITLE


def title_lengths(rows: Sequence[ReportRow]) -> str:
    """Return nDCG@10 of the shortest and the longest documents as the title of a chart, or the
    state.

    The row of all lengths is the first.
    """
    scored = [row.ndcg_at_10 for row in rows[1:] if row.ndcg_at_10]
    return messages.title_lengths(scored[0], scored[-1]) if scored[1:] else title_effect(rows[0])


#: Design effects from here on are worth a note.
LARGE_DESIGN_EFFECT = 1.2
#: How the places of evidence were counted, where it was not with the model's own tokenizer.
COUNTED = {
    CountedWith.ESTIMATE: "That is estimated from the token counts in the data, not counted with "
    "the model's own "
    "tokenizer.",
    CountedWith.ROUGH_ESTIMATE: (
        "That is roughly estimated from the token counts in the data; for languages other than "
        "English, the model's own "
        "tokenizer may find several times as many."
    ),
}


def pooled_scores(summary: TaskSummary, rows: Iterable[ReportRow]) -> dict[str, Any]:
    """Return everything known of a model on a task for JSON, not rounded: decisions, pooled scores,
    the position profile.
    """
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
                **(row.findings.to_json() if row.findings else {}),
                "answer": dict(messages.iterate_answer(row.findings, row.task))
                if row.findings
                else None,
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


def length_table(
    rows: Iterable[ReportRow], columns: Sequence[ScoreInfo], *, curves: bool = False
) -> Table:
    """Return a table with a line for all lengths and for each length bucket, with the curves over
    position if wanted.
    """
    rows = list(rows)
    names = {
        "Model": full_labels(rows),
        "Task": list(map(_name_task, rows)),
        "Length": [row.length for row in rows],
    }
    table = _build_table(rows, columns, names, "{Model} · {Task}", curves=curves)
    return replace(table, notes=tuple(filter(None, (level_note(rows),))))


def answer_sections(rows: Sequence[ReportRow]) -> Iterator[DisplaySection]:
    """Yield a table of the models of each task, or of the tasks of the only model, each followed by
    its answers.

    A task with one model also gets a table by length. With many results, counts of states replace
    answers and lengths.
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
        title = labels[_identify(group[0])] if of_model else _describe_size(task, group)
        table = _answer_table("Task" if of_model else "Model", names, group, title)
        yield DisplaySection(tables=(replace(table, is_narrow=True),))
        if many:
            continue
        for name, row in zip(names, group, strict=True):
            commands = build_commands(row.findings, row.reference) if row.findings else ()
            title = f"{name:{max(map(len, names))}}  {row.sketch}"
            yield DisplaySection(
                title, (describe_answer(row.findings, row.task),), code="\n".join(commands)
            )
        for row in group if of_model or len(group) == 1 else ():
            lengths = [
                other
                for other in rows
                if _identify(other) == _identify(row) and other.length != ALL
            ]
            yield from _length_section(lengths, f"{row.task}, " if of_model else "")


def _describe_size(task: str, rows: Sequence[ReportRow]) -> str:
    """Return the size of the data of a task, and of the largest test of a model on it."""
    findings = [row.findings for row in rows if row.findings]
    if not findings:
        return task
    return messages.describe_sample(max(findings, key=lambda result: result.tested_documents), task)


def _length_section(rows: Sequence[ReportRow], task: str) -> Iterator[DisplaySection]:
    """Yield a table of lengths, if there are any, and which are not in it, since nothing can be
    said of them.
    """
    shown = [
        row for row in rows if row.findings and row.findings[Quantity.POSITION_EFFECT].estimate
    ]
    folded = [
        f"{row.length} ({pluralize(row.queries or 0, 'query', 'queries')})"
        for row in rows
        if row not in shown
    ]
    if shown:
        sizes = {pluralize(row.queries or 0, "query", "queries") for row in shown}
        title = (
            f"{task}by length of the document{f' · {sizes.pop()} each' if len(sizes) == 1 else ''}"
        )
        names = [row.length_title or row.length for row in shown]
        table = _answer_table(LENGTH, names, shown, title[0].upper() + title[1:])
        yield DisplaySection(tables=(table,))
        yield from to_paragraphs(
            [
                " ".join(
                    [
                        level_note(shown),
                        *([f"Not estimated: {', '.join(folded)}."] if folded else []),
                    ]
                )
            ]
        )


def _answer_table(
    heading: str, names: Sequence[str], rows: Sequence[ReportRow], title: str
) -> Table:
    """Return a table of what matters most, of models, tasks or lengths; of lengths with their
    queries if these differ.

    Rows that are not followed by an answer have the sketch that it begins with.
    """
    queries = ["Queries"] if heading == LENGTH and len({row.queries for row in rows}) > 1 else []
    sketch = [SKETCH] if heading == LENGTH or len(rows) > MOST_SENTENCES else []
    numbers = [*queries, "nDCG@10", "Position effect", "Truncated"]
    added = added_columns()
    cells = (
        (
            name,
            *[format_count(row.queries) for _ in queries],
            format_percent(row.ndcg_at_10.value if row.ndcg_at_10 else None),
            format_finding(row.findings[Quantity.POSITION_EFFECT], with_level=False)
            if row.findings
            else MISSING,
            _format_unread(row),
            *[row.sketch for _ in sketch],
            label_state(row.findings) if row.findings else MISSING,
            *(format_cell(row, column) for column in added),
        )
        for name, row in zip(names, rows, strict=True)
    )
    headings = (heading, *numbers, *sketch, STATE, *(column.title for column in added))
    right = [*numbers, *(column.title for column in added if column.unit is not Unit.TEXT)]
    return Table(build_columns(headings, right, pictures=[SKETCH]), tuple(cells), title)


def _format_unread(row: ReportRow) -> str:
    share = row.findings.value(Quantity.UNREAD_SHARE) if row.findings else None
    return MISSING if share is None else f"{format_percent(share)}%"


def _identify(row: ReportRow) -> tuple[str, str, str]:
    return row.model, row.revision, row.task


def summary_table(rows: Iterable[ReportRow], columns: Sequence[ScoreInfo]) -> Table:
    """Return a table with a line for each model and task, all lengths together, best nDCG@10 of a
    task first.
    """
    overall = list_overall(rows)
    chosen = [column for column in columns if column.key in ANSWER[1:]]
    several = len({row.task for row in overall}) > 1
    names = {"Task": list(map(_name_task, overall))} if several else {}
    return _build_table(overall, chosen, {**names, "Model": short_labels(overall)})


def bin_table(rows: Iterable[ReportRow], columns: Sequence[ScoreInfo]) -> Table:
    """Return a table with a line for each position bin."""
    rows = list(rows)
    names = {"Model": full_labels(rows), "Task": [row.task for row in rows]}
    names |= (
        {"Length": [row.length for row in rows]} if any(row.length != ALL for row in rows) else {}
    )
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
    aligned = (
        Column(column.title, "left" if column.unit is Unit.TEXT else "right") for column in columns
    )
    return Table(
        (*build_columns(names), *aligned),
        tuple(
            (*line, *(format_cell(row, column) for column in columns))
            for line, row in zip(lines, rows, strict=True)
        ),
        split_by=split_by,
    )


def _name_task(row: ReportRow) -> str:
    return row.task + partial_suffix(row.subsets, row.missing_subsets)


def bin_columns() -> list[Score]:
    """Return the scores that are declared for position bins."""
    return [score for score in declared_scores() if score.by_position]


def truncation_notes(labels: Sequence[str], summaries: Sequence[TaskSummary]) -> Iterator[str]:
    """Yield the window of each model and what is truncated, then the models whose window is
    unknown.
    """
    unknown = []
    for label, summary in zip(labels, summaries, strict=True):
        if summary.values.read.kind is ReadKind.UNKNOWN:
            unknown.append(label)
        elif summary.profile.queries and (
            sentence := messages.describe_truncation(summary.findings[0])
        ):
            counted = (
                COUNTED.get(summary.ranks.counted_with) if summary.ranks.counted_with else None
            )
            yield f"{label}: {sentence}{f' {counted}' if counted else ''}"
    if unknown:
        yield f"The window of {', '.join(unknown)} is unknown; `posir window MODEL` measures it."


def level_note(rows: Iterable[ReportRow]) -> str:
    """Return how the intervals of length rows hold; empty without such rows."""
    levels = sorted({row.findings.verdict.level for row in rows if row.findings} - {LEVEL})
    if not levels:
        return ""
    shown = " or ".join(map(format_level, levels))
    return f"Intervals of effects in the rows of lengths hold at the same time, each at {shown}."


def document_notes(labels: Sequence[str], summaries: Sequence[TaskSummary]) -> Iterator[str]:
    """Yield where intervals assume independent questions."""
    overall = [
        (label, summary, build_rows(summary)[0])
        for label, summary in zip(labels, summaries, strict=True)
    ]
    for label, summary, row in overall:
        effect = row.get("design_effect", float)
        if effect is not None and effect > LARGE_DESIGN_EFFECT:
            yield (
                f"{summary.task}, {label}: {row.queries:,} queries on "
                f"{row.get('documents', int):,} documents; the variance of "
                f"nDCG@10 is {effect:.1f} times that of independent queries (design effect)."
            )
