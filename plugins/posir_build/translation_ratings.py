"""Translations rated by a judge and by people: a stratified sample, the judge's answers, and sheets
for people.

PosIR (arXiv 2601.08363, appendix B) chooses its translator so: 12 English documents of each of 31
domains, over four length buckets, are translated by each system into eight languages; GPT-4o rates
each translation without a reference, and people rate one system's in three languages. The body of
its prompt (appendix C.5) is lost; ours has the same four scales.

Counts of ratings add over samples of different documents. Intervals are for new documents: the
ratings of a document's translations, by several people or into several languages, are not
independent, and count as one cluster.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, field_validator

from posir_build.dataset_files import read_sheet, write_sheet_rows
from posir_build.records import seeded_order
from posir_significance.intervals import estimate_mean
from posir_tasks.base.digests import digest
from posir_tasks.base.errors import DataError, PosirError
from posir_tasks.base.settings_file import Section
from posir_tasks.data.formats.passages import Passage
from posir_tasks.datasets.dataset import Subset
from posir_tasks.datasets.opening import open_data
from posir_tasks.display.numbers import format_count, format_estimate, format_number, format_percent
from posir_tasks.display.tables import Table, build_columns
from posir_tasks.language_models.asking import LanguageModel
from posir_tasks.language_models.chat_client import ModelAnswer, load_prompt
from posir_tasks.language_models.settings import Count, LanguageModelSettings
from posir_tasks.text.languages import english_name
from posir_tasks.values.scores import Estimate

Rating = Literal[1, 2, 3, 4, 5]


class TranslationRating(ModelAnswer):
    """A rating of a translation on the four scales of PosIR (arXiv 2601.08363, appendix B.1), from
    1, poor, to 5, excellent.
    """

    reasoning: str
    fluency: Rating
    accuracy: Rating
    completeness: Rating
    style: Rating


RATE_TRANSLATION = load_prompt("rate_translation", TranslationRating)
#: The four scales, in the paper's order, and their titles.
SCALES = {
    "fluency": "Fluency",
    "accuracy": "Accuracy",
    "completeness": "Completeness",
    "style": "Style",
}
RATINGS = (1, 2, 3, 4, 5)
SHEET_COLUMNS = ("id", "language", "original", "translation", *SCALES, "comment")
#: What a sample is drawn with, beside the seed.
PURPOSE = "rate translations"
OVERALL, ALL_SCALES, ALL_LANGUAGES = "overall", "all", "all"
LOWEST, HIGHEST = RATINGS[0], RATINGS[-1]


class RatingSettings(Section):
    """Everything that a rating of translations is asked for."""

    source: Annotated[str, Field(min_length=1)]
    """Data with the originals: folder in the PosIR layout, or dataset on the Hub."""
    translations: Annotated[Mapping[str, str], Field(min_length=1)]
    """The data of each translation system by its name, such as {Qwen3-30B-A3B:
    data/PosIR-Benchmark-v1}: documents with the ids of their originals. It may be the data of the
    originals, in other languages.
    """
    language: str = "eng-Latn"
    """Language of the originals."""
    languages: tuple[str, ...] = ()
    """Languages of the translations; empty for all that every system has."""
    domains: tuple[str, ...] = ()
    """Empty for all that the originals and every system have."""
    edges: tuple[int, ...] = (0, 512, 1024, 1536, 2048)
    """Edges of the length buckets in tokens of the original; the upper one is included. PosIR,
    appendix B.
    """
    per_bucket: Count = 3
    """Documents of each bucket and domain; the paper has 12 of a domain."""
    tokenizer: str | None = None
    """Hugging Face tokenizer for lengths; null for one token per four bytes of UTF-8."""
    seed: int = 42
    work: Path = Path("translation-ratings")
    """Folder of the calls."""
    llm: LanguageModelSettings
    """The judge; GPT-4o in the paper."""

    @field_validator("edges")
    @classmethod
    def _increasing(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if len(value) < 2 or sorted(set(value)) != list(value):
            raise ValueError("at least two edges, each greater than the one before, are needed")
        return value


@dataclass(frozen=True)
class Translation:
    """A document of the sample in another language."""

    system: str
    language: str
    domain: str
    document: str
    """Id of the document."""
    original: str
    text: str

    @cached_property
    def id(self) -> str:
        """Id in the sheets, from which the system can't be told: 16 hexadecimal digits."""
        return digest(self.system, self.language, self.domain, self.document).hex()


#: A translation with its ratings by scale; a person may leave one out.
Rated = tuple[Translation, dict[str, int]]


def sample_translations(
    settings: RatingSettings, count_tokens: Callable[[str], int]
) -> tuple[list[Translation], list[str]]:
    """Draw as many documents of each domain and length bucket, of those that every system has in
    every language.

    Returns the translations, of the same documents for every system and language, and a note on
    each bucket that is short.
    """
    source = {
        subset.domain: subset
        for subset in open_data(settings.source).subsets
        if _has(subset, settings.language)
    }
    systems = {name: open_data(reference) for name, reference in settings.translations.items()}
    known = [
        {subset.corpus_language for subset in data.subsets} - {settings.language}
        for data in systems.values()
    ]
    languages = list(settings.languages) or sorted(set.intersection(*known))
    if not languages:
        raise DataError(
            f"translations: {', '.join(systems)}: have no language in common other than "
            f"{settings.language}."
        )
    if not source:
        raise DataError(
            f"{settings.source}: has no {settings.language} data. Set `language` to that of the "
            "originals."
        )
    shared = sorted(
        set(source).intersection(
            *({subset.domain for subset in data.subsets} for data in systems.values())
        )
    )
    missing = [domain for domain in settings.domains if domain not in shared]
    if missing or not shared:
        raise DataError(
            f"domains: the originals and all translations have {', '.join(shared) or 'none'} in "
            "common, "
            f"not {', '.join(missing or sorted(source))}."
        )
    translations, notes = list[Translation](), list[str]()
    for domain in settings.domains or shared:
        texts = {
            (system, subset.corpus_language): _read(subset)
            for system, data in systems.items()
            for subset in data.subsets
            if subset.domain == domain
            and subset.corpus_language in languages
            and _has(subset, subset.corpus_language)
        }
        absent = [
            f"{system} in {code}"
            for system in systems
            for code in languages
            if (system, code) not in texts
        ]
        if absent:
            raise DataError(
                f"domain {domain}: no translations by {', '.join(absent)}. Set `languages` or "
                "`domains`."
            )
        common = set.intersection(*map(set, texts.values()))
        originals = {name: text for name, text in _read(source[domain]).items() if name in common}
        chosen, short = _choose_documents(domain, originals, settings, count_tokens)
        notes += short
        for (system, code), translated in texts.items():
            translations += [
                Translation(system, code, domain, name, originals[name], text)
                for name, text in translated.items()
                if name in chosen
            ]
    if not translations:
        raise DataError(
            f"{settings.source}: no document of these lengths has translations by every system. "
            f"{' '.join(notes)}"
        )
    return translations, notes


def _has(subset: Subset, language: str) -> bool:
    return subset.find_languages() == (language, language)


def _read(subset: Subset) -> dict[str, str]:
    return {
        item.id or item.place: item.text
        for item in subset.read_texts()
        if isinstance(item, Passage)
    }


def _choose_documents(
    domain: str,
    texts: Mapping[str, str],
    settings: RatingSettings,
    count_tokens: Callable[[str], int],
) -> tuple[set[str], list[str]]:
    buckets: dict[int, list[str]] = {bucket: [] for bucket in range(1, len(settings.edges))}
    for name in sorted(texts, key=lambda name: seeded_order(settings.seed, PURPOSE, domain, name)):
        if all(len(drawn) == settings.per_bucket for drawn in buckets.values()):
            break
        drawn = buckets.get(int(np.searchsorted(settings.edges, count_tokens(texts[name]))), [])
        drawn += [name] if len(drawn) < settings.per_bucket else []
    short = [
        f"{domain}: {len(drawn)} of {settings.per_bucket} documents of "
        f"{settings.edges[bucket - 1] + 1:,} to "
        f"{settings.edges[bucket]:,} tokens."
        for bucket, drawn in buckets.items()
        if len(drawn) < settings.per_bucket
    ]
    return {name for drawn in buckets.values() for name in drawn}, short


def ask_judge(
    translations: Sequence[Translation], settings: RatingSettings, model: LanguageModel
) -> tuple[list[Rated], dict[str, int]]:
    """Return the judge's ratings, and the number of translations without one by the reason;
    PosirError if it rates nothing.
    """
    source = english_name(settings.language)

    def build(row: Translation) -> dict[str, str]:
        return {
            "source": source,
            "target": english_name(row.language),
            "original": row.original,
            "translation": row.text,
        }

    replies = model.ask(RATE_TRANSLATION, translations, build, "Rate translations")
    rated = [
        (translation, {scale: getattr(reply.answer, scale) for scale in SCALES})
        for translation, reply in zip(translations, replies, strict=True)
        if reply.answer is not None
    ]
    problems = dict(
        Counter(reply.problem for reply in replies if reply.answer is None).most_common()
    )
    if not rated:
        raise PosirError(f"{model.name}: has rated no translation: {'; '.join(problems)}.")
    return rated, problems


def write_rating_sheets(folder: Path, translations: Sequence[Translation], seed: int) -> list[Path]:
    """Write a sheet for each language, with empty columns for ratings, in random order and without
    the system's name.
    """
    sheets: dict[Path, list[tuple[str, ...]]] = defaultdict(list)
    for row in sorted(
        translations, key=lambda translation: seeded_order(seed, PURPOSE, translation.id)
    ):
        sheets[folder / f"{row.language}.csv"].append(
            (row.id, row.language, row.original, row.text)
        )
    existing = [str(file) for file in sheets if file.exists()]
    if existing:
        raise PosirError(
            f"{', '.join(existing)}: already exists, and may have ratings. Remove it, or name "
            "another folder."
        )
    for file, rows in sheets.items():
        write_sheet_rows(file, SHEET_COLUMNS, rows)
    return sorted(sheets)


def read_rating_sheet(file: Path, translations: Sequence[Translation]) -> tuple[list[Rated], int]:
    """Return the ratings of a person, empty cells left out, and the number of rows that are of no
    translation of the sample.
    """
    known = {translation.id: translation for translation in translations}
    values = {str(rating): rating for rating in RATINGS}
    rows = read_sheet(
        file,
        SCALES,
        values,
        "is no whole number from 1 to 5",
        "posir study rate-translations --sheets",
    )
    rated = [(known[name], given) for name, given in rows if name in known and given]
    if not rated:
        raise DataError(
            f"{file}: has no rating of these translations. Fill in {', '.join(SCALES)}, and use "
            "the settings that the sheet "
            "was written with."
        )
    return rated, sum(name not in known for name, _ in rows)


@dataclass(frozen=True)
class ScaleScore:
    """The ratings of a system's translations into one language, or all, on one scale; a row of
    PosIR's tables 7 and 8.
    """

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
    """The agreement of the judge with people; a row of PosIR's table 9, with the counts of its
    figure 9.
    """

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


def _estimate(values: Sequence[tuple[Translation, float]], low: float, high: float) -> Estimate:
    """Estimate the mean over languages of the means of values from low to high; the interval is
    that of `estimate_mean`.
    """
    sizes = Counter(translation.language for translation, _ in values)
    weights = np.array(
        [1 / (len(sizes) * sizes[translation.language]) for translation, _ in values]
    )
    clusters: dict[tuple[str, str], int] = {}
    numbers = [clusters.setdefault((row.domain, row.document), len(clusters)) for row, _ in values]
    shares = (np.array([value for _, value in values], np.float64) - low) / (high - low)
    estimate = estimate_mean(shares, np.array(numbers), weights)
    assert estimate is not None
    value, *ends = (
        low + share * (high - low) for share in (estimate.value, *(estimate.interval or ()))
    )
    return Estimate(value, (ends[0], ends[1]) if ends else None)


def score_ratings(rater: str, rated: Sequence[Rated]) -> list[ScaleScore]:
    """Return the scores of ratings: by system, language and scale, and of all languages if there
    are several.
    """
    values: dict[tuple[str, str], dict[str, list[tuple[Translation, float]]]] = {}
    for translation, given in rated:
        overall = {OVERALL: fmean(given.values())} if len(given) == len(SCALES) else {}
        for language in (translation.language, ALL_LANGUAGES):
            own = values.setdefault(
                (translation.system, language), {scale: [] for scale in (*SCALES, OVERALL)}
            )
            for scale, rating in {**given, **overall}.items():
                own[scale].append((translation, rating))
    several = {system for system, _ in values if sum(system == name for name, _ in values) > 2}
    groups = [group for group in values if group[1] != ALL_LANGUAGES]
    groups += [group for group in values if group[1] == ALL_LANGUAGES and group[0] in several]
    return [
        ScaleScore(
            rater,
            *group,
            scale,
            dict(sorted(Counter(rating for _, rating in rows).items())),
            _estimate(rows, LOWEST, HIGHEST),
        )
        for group in groups
        for scale, rows in values[group].items()
        if rows
    ]


def compare_ratings(people: Sequence[Rated], judge: Sequence[Rated]) -> list[ScaleAgreement]:
    """Return how well the judge agrees with people, by system, language and scale, and over
    languages and scales.
    """
    judged = {translation.id: ratings for translation, ratings in judge}
    pairs: dict[tuple[str, str, str], list[tuple[Translation, int, int]]] = defaultdict(list)
    for translation, ratings in people:
        for scale, rating in ratings.items() if translation.id in judged else ():
            for language, name in product(
                (translation.language, ALL_LANGUAGES), (scale, ALL_SCALES)
            ):
                pairs[translation.system, language, name].append(
                    (translation, rating, judged[translation.id][scale])
                )
    scales = [*SCALES, ALL_SCALES]
    rows = []
    for key in sorted(
        pairs, key=lambda key: (key[0], key[1] == ALL_LANGUAGES, key[1], scales.index(key[2]))
    ):
        counts = Counter((person, judge) for _, person, judge in pairs[key])
        confusion = tuple(tuple(counts[person, judge] for judge in RATINGS) for person in RATINGS)
        distances = [
            (translation, abs(judge - person)) for translation, person, judge in pairs[key]
        ]
        # PosIR, table 9: a difference of 1 is agreement.
        within = _estimate(
            [(translation, distance <= 1) for translation, distance in distances], 0, 1
        )
        error = _estimate(distances, 0, HIGHEST - LOWEST)
        difference = fmean(judge - person for _, person, judge in pairs[key])
        rows.append(ScaleAgreement(*key, confusion, within, error, difference))
    return rows


def build_rating_tables(
    scores: Sequence[ScaleScore], agreement: Sequence[ScaleAgreement], notes: Sequence[str]
) -> list[Table]:
    """Return the tables: means of the judge and of people, agreement, and the confusion of ratings
    over all scales.
    """
    raters = dict.fromkeys(score.rater for score in scores)
    tables = [
        _build_score_table(rater, [score for score in scores if score.rater == rater], notes)
        for rater in raters
    ]
    judged = [f"Judge {rating}" for rating in RATINGS]
    confusions = [
        Table(
            columns=build_columns(("People", *judged), judged),
            rows=tuple(
                (str(rating), *map(format_count, pairs))
                for rating, pairs in zip(RATINGS, row.confusion, strict=True)
            ),
            title=f"Pairs of ratings, all scales · {row.system}",
        )
        for row in select_pooled(agreement)
    ]
    numbers = ("Pairs", "Within 1%", "Mean absolute error", "Judge minus people")
    rows = []
    for row in agreement:
        estimates = (
            format_estimate(row.within_one, format_percent),
            format_estimate(row.mean_absolute_error, _format_rating),
        )
        names, difference = (
            (row.system, row.language, row.scale),
            format_number(row.mean_difference, "+.2f"),
        )
        rows.append((*names, format_count(sum(map(sum, row.confusion))), *estimates, difference))
    columns = build_columns(("System", "Language", "Scale", *numbers), numbers)
    agreed = Table(columns, tuple(rows), title="Agreement of the judge with people", keys=3)
    return [*tables, *([agreed] if agreement else []), *confusions]


def select_pooled(agreement: Sequence[ScaleAgreement]) -> list[ScaleAgreement]:
    """Return the agreement over all scales and languages, of each system."""
    return [row for row in agreement if row.scale == ALL_SCALES and row.language == ALL_LANGUAGES]


def _build_score_table(rater: str, scores: Sequence[ScaleScore], notes: Sequence[str]) -> Table:
    cells = {(score.system, score.language, score.scale): score for score in scores}
    numbers = ("Rated", *SCALES.values(), "Overall")
    rows = []
    for system, language in dict.fromkeys((score.system, score.language) for score in scores):
        own = [cells.get((system, language, scale)) for scale in (*SCALES, OVERALL)]
        rated = max(sum(score.counts.values()) for score in own if score)
        means = (format_estimate(score.mean if score else None, _format_rating) for score in own)
        rows.append((system, language, format_count(rated), *means))
    title = f"Ratings by {'the judge' if rater == 'judge' else 'people'}"
    note = (
        "From 1, poor, to 5, excellent, with 95% intervals for new documents. All languages count "
        "as much."
    )
    columns = build_columns(("System", "Language", *numbers), numbers)
    return Table(columns, tuple(rows), title=title, notes=(note, *notes), keys=2)


def _format_rating(value: float | None) -> str:
    return format_number(value, ".2f")
