"""Scores of rated translations: means by scale, and how well a judge agrees with people (PosIR, arXiv 2601.08363, appendix B).

Counts of ratings add over samples of different documents. Intervals are for new documents: the ratings of a document's
translations, by several people or into several languages, are not independent, and count as one cluster.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import altair as alt
import numpy as np

from posir_build.translation_ratings import RATINGS, SCALES, RatedTranslation, Translation
from posir_significance.intervals import estimate_mean
from posir_tasks.display.charts.figures import Figure
from posir_tasks.display.charts.theme import COLORS, INK, add_frame, build_chart, cycle_scale
from posir_tasks.display.numbers import format_count, format_estimate, format_number, format_percent
from posir_tasks.display.tables import Table, build_columns
from posir_tasks.estimates import Estimate
from posir_tasks.scores import flatten

OVERALL, ALL_SCALES, ALL_LANGUAGES = "overall", "all", "all"
#: Difference of two ratings up to which they agree (PosIR, table 9).
TOLERANCE = 1
LOWEST, HIGHEST = RATINGS[0], RATINGS[-1]


@dataclass(frozen=True)
class ScaleScore:
    """The ratings of a system's translations into one language, or all, on one scale; a row of PosIR's tables 7 and 8."""

    rater: str
    """`judge` or `people`."""
    system: str
    language: str
    scale: str
    """One of the four, or `overall`: the mean of the four of a translation."""
    counts: dict[float, int]
    """Number of translations by rating; they add."""
    mean: Estimate
    """A number from 1 to 5; for all languages, the mean of the languages' means."""


@dataclass(frozen=True)
class ScaleAgreement:
    """The agreement of the judge with people; a row of PosIR's table 9, with the counts of its figure 9."""

    system: str
    language: str
    scale: str
    """One of the four, or `all`."""
    confusion: tuple[tuple[int, ...], ...]
    """Number of pairs by the person's rating and then the judge's, shape (5, 5); they add."""
    within_one: Estimate
    """Share of pairs that differ by at most 1, in [0, 1]."""
    mean_absolute_error: Estimate
    """Mean absolute difference, from 0 to 4."""
    mean_difference: float
    """Mean of the judge's rating minus the person's, from -4 to 4."""

    @property
    def pairs(self) -> int:
        """Number of pairs."""
        return sum(map(sum, self.confusion))


def _estimate(values: Sequence[tuple[Translation, float]], low: float, high: float) -> Estimate:
    """Estimate the mean over languages of the means of values from low to high; the interval is that of `estimate_mean`."""
    sizes = Counter(translation.language for translation, _ in values)
    weights = np.array([1 / (len(sizes) * sizes[translation.language]) for translation, _ in values])
    clusters: dict[tuple[str, str], int] = {}
    numbers = [clusters.setdefault((row.domain, row.document), len(clusters)) for row, _ in values]
    shares = (np.array([value for _, value in values], np.float64) - low) / (high - low)
    estimate = estimate_mean(shares, np.array(numbers), weights)
    assert estimate is not None
    value, *ends = (low + share * (high - low) for share in (estimate.value, *(estimate.interval or ())))
    return Estimate(value, (ends[0], ends[1]) if ends else None)


def score_ratings(rater: str, rated: Sequence[RatedTranslation]) -> list[ScaleScore]:
    """Return the scores of ratings: by system, language and scale, and of all languages if there are several."""
    groups: dict[tuple[str, str], list[RatedTranslation]] = defaultdict(list)
    for row in rated:
        groups[row.translation.system, row.translation.language].append(row)
    for system in dict.fromkeys(system for system, _ in groups):
        members = [row for (name, _), rows in groups.items() if name == system for row in rows]
        if len({row.translation.language for row in members}) > 1:
            groups[system, ALL_LANGUAGES] = members
    return [
        ScaleScore(
            rater,
            system,
            language,
            scale,
            dict(sorted(Counter(rating for _, rating in values).items())),
            _estimate(values, LOWEST, HIGHEST),
        )
        for (system, language), rows in groups.items()
        for scale in (*SCALES, OVERALL)
        if (values := [(row.translation, rating) for row in rows for rating in _read_scale(row, scale)])
    ]


def _read_scale(row: RatedTranslation, scale: str) -> Iterator[float]:
    """Yield the rating on a scale, if there is one; the overall one takes all four."""
    if scale != OVERALL:
        yield from (row.ratings[name] for name in (scale,) if name in row.ratings)
    elif len(row.ratings) == len(SCALES):
        yield fmean(row.ratings.values())


def compare_ratings(people: Sequence[RatedTranslation], judge: Sequence[RatedTranslation]) -> list[ScaleAgreement]:
    """Return how well the judge agrees with people, by system, language and scale, and over languages and scales."""
    judged = {row.translation.id: row.ratings for row in judge}
    pairs: dict[tuple[str, str, str], list[tuple[Translation, int, int]]] = defaultdict(list)
    for row in people:
        translation = row.translation
        for scale, rating in row.ratings.items():
            if translation.id in judged:
                for language in (translation.language, ALL_LANGUAGES):
                    for name in (scale, ALL_SCALES):
                        pairs[translation.system, language, name].append((translation, rating, judged[translation.id][scale]))
    scales = [*SCALES, ALL_SCALES]
    order = sorted(pairs, key=lambda key: (key[0], key[1] == ALL_LANGUAGES, key[1], scales.index(key[2])))
    return [_compare(*key, pairs[key]) for key in order]


def _compare(system: str, language: str, scale: str, pairs: Sequence[tuple[Translation, int, int]]) -> ScaleAgreement:
    counts = Counter((person, judge) for _, person, judge in pairs)
    distances = [(translation, abs(judge - person)) for translation, person, judge in pairs]
    return ScaleAgreement(
        system,
        language,
        scale,
        tuple(tuple(counts[person, judge] for judge in RATINGS) for person in RATINGS),
        _estimate([(translation, distance <= TOLERANCE) for translation, distance in distances], 0, 1),
        _estimate(distances, 0, HIGHEST - LOWEST),
        fmean(judge - person for _, person, judge in pairs),
    )


def build_rating_tables(scores: Sequence[ScaleScore], agreement: Sequence[ScaleAgreement], notes: Sequence[str]) -> list[Table]:
    """Return the tables: means of the judge and of people, agreement, and the confusion of ratings over all scales."""
    raters = dict.fromkeys(score.rater for score in scores)
    tables = [_build_score_table(rater, [score for score in scores if score.rater == rater], notes) for rater in raters]
    pooled = [row for row in agreement if row.scale == ALL_SCALES and row.language == ALL_LANGUAGES]
    return [*tables, *([_build_agreement_table(agreement)] if agreement else []), *map(_build_confusion_table, pooled)]


def _build_score_table(rater: str, scores: Sequence[ScaleScore], notes: Sequence[str]) -> Table:
    cells = {(score.system, score.language, score.scale): score for score in scores}
    numbers = ("Rated", *SCALES.values(), "Overall")
    rows = []
    for system, language in dict.fromkeys((score.system, score.language) for score in scores):
        scores_of_row = [cells.get((system, language, scale)) for scale in (*SCALES, OVERALL)]
        rated = max(sum(score.counts.values()) for score in scores_of_row if score)
        means = (format_estimate(score.mean if score else None, _format_rating) for score in scores_of_row)
        rows.append((system, language, format_count(rated), *means))
    return Table(
        columns=build_columns(("System", "Language", *numbers), numbers),
        rows=tuple(rows),
        title=f"Ratings by {'the judge' if rater == 'judge' else 'people'}",
        notes=("From 1, poor, to 5, excellent, with 95 % intervals for new documents. All languages count as much.", *notes),
        keys=2,
    )


def _format_rating(value: float | None) -> str:
    return format_number(value, ".2f")


def _build_agreement_table(agreement: Sequence[ScaleAgreement]) -> Table:
    numbers = ("Pairs", "Within 1 %", "Mean absolute error", "Judge minus people")
    return Table(
        columns=build_columns(("System", "Language", "Scale", *numbers), numbers),
        rows=tuple(
            (
                row.system,
                row.language,
                row.scale,
                format_count(row.pairs),
                format_estimate(row.within_one, format_percent),
                format_estimate(row.mean_absolute_error, _format_rating),
                format_number(row.mean_difference, "+.2f"),
            )
            for row in agreement
        ),
        title="Agreement of the judge with people",
        keys=3,
    )


def _build_confusion_table(row: ScaleAgreement) -> Table:
    return Table(
        columns=build_columns(
            ("People", *(f"Judge {rating}" for rating in RATINGS)), [f"Judge {rating}" for rating in RATINGS]
        ),
        rows=tuple((str(rating), *map(format_count, counts)) for rating, counts in zip(RATINGS, row.confusion, strict=True)),
        title=f"Pairs of ratings, all scales · {row.system}",
    )


WIDTH, HEIGHT, CELL, PANELS_PER_ROW = 240, 150, 48, 3
Panels = alt.LayerChart | alt.FacetChart
#: Ratings that axes and colors show.
SHOWN = alt.Scale(domain=[RATINGS[0], RATINGS[-1]])
INTERVALS = "Points: mean ratings from 1, poor, to 5, excellent. Lines: 95 % intervals for new documents."


def build_rating_figures(scores: Sequence[ScaleScore], agreement: Sequence[ScaleAgreement]) -> list[Figure]:
    """Return the overall ratings by system and language, those of each system by scale, and the pairs of ratings of each."""
    systems = dict.fromkeys(score.system for score in scores)
    figures = [_frame("overall", None, _draw_overall(scores), "Colors: the judge's mean over the four scales.", scores)]
    figures += [
        _frame("scales", system, _draw_scales([score for score in scores if score.system == system]), INTERVALS, scores)
        for system in systems
    ]
    pooled = [row for row in agreement if row.scale == ALL_SCALES and row.language == ALL_LANGUAGES]
    text = "Pairs of ratings of a translation on a scale."
    return figures + [_frame("pairs", row.system, _draw_pairs(row), text, scores) for row in pooled]


def _frame(kind: str, system: str | None, chart: Panels, explanation: str, scores: Sequence[ScaleScore]) -> Figure:
    rated = max(sum(score.counts.values()) for score in scores)
    titles = {"overall": "Overall rating", "scales": "Ratings by scale", "pairs": "Ratings by people and the judge"}
    source = f"Source: up to {rated:,} ratings of a system; scales of arXiv 2601.08363."
    framed = add_frame(alt.vconcat(chart), titles[kind], system or "all systems", explanation, source)
    return Figure(f"ratings-{kind}", None, system, framed)


def _draw_overall(scores: Sequence[ScaleScore]) -> Panels:
    rows = [
        {"system": score.system, "language": score.language, "value": score.mean.value}
        for score in scores
        if score.rater == "judge" and score.scale == OVERALL and score.language != ALL_LANGUAGES
    ]
    color = alt.Color("value:Q", title="Mean rating", scale=alt.Scale(scheme="viridis"))
    return _draw_cells(rows, alt.X("language:N", title=None), alt.Y("system:N", title=None), color, ".2f")


def _draw_cells(rows: Sequence[Mapping[str, Any]], x: alt.X, y: alt.Y, color: alt.Color, form: str) -> Panels:
    """Return a cell for each row with its value as color and as text."""
    base = build_chart(rows).encode(x=x, y=y)
    text = base.encode(text=alt.Text("value:Q", format=form))
    outlined = text.mark_text(color=INK, stroke="white", strokeWidth=2.5, strokeOpacity=0.7)
    layers = alt.layer(base.mark_rect().encode(color=color), outlined, text.mark_text(color=INK))
    panels: Panels = layers.properties(width=alt.Step(CELL), height=alt.Step(CELL * 0.7))
    return panels


def _draw_scales(scores: Sequence[ScaleScore]) -> alt.FacetChart:
    titles = {**SCALES, OVERALL: "Overall"}
    rows = [
        {"rater": row.rater, "language": row.language, "scale": titles[row.scale], **flatten("value", row.mean)}
        for row in scores
    ]
    raters = list(dict.fromkeys(score.rater for score in scores))
    base = build_chart(rows).encode(
        x=alt.X("scale:N", title=None, sort=list(titles.values())),
        xOffset=alt.XOffset("rater:N", sort=raters),
        color=alt.Color("rater:N", title=None, scale=cycle_scale(raters, COLORS)),
    )
    intervals = base.mark_rule().encode(y=alt.Y("value_low:Q", title="Rating", scale=SHOWN), y2="value_high:Q")
    layers = alt.layer(intervals, base.mark_point(filled=True, size=50).encode(y=alt.Y("value:Q", title="Rating", scale=SHOWN)))
    chart: alt.FacetChart = layers.properties(width=WIDTH, height=HEIGHT).facet(
        facet=alt.Facet("language:N", title=None), columns=PANELS_PER_ROW
    )
    return chart


def _draw_pairs(agreement: ScaleAgreement) -> Panels:
    rows = [
        {"people": person, "judge": judge, "value": pairs}
        for person, counts in zip(RATINGS, agreement.confusion, strict=True)
        for judge, pairs in zip(RATINGS, counts, strict=True)
    ]
    color = alt.Color("value:Q", title="Pairs", scale=alt.Scale(scheme="blues"))
    y = alt.Y("people:O", title="Rating by a person", sort="descending")
    return _draw_cells(rows, alt.X("judge:O", title="Rating by the judge"), y, color, ",d")
