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
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain, pairwise, product
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import polars as pl
from pydantic import Field, field_validator

from posir_build.dataset_files import read_sheet, write_sheet_rows
from posir_build.records import seeded_order
from posir_tasks.base.digests import digest
from posir_tasks.base.errors import DataError, PosirError
from posir_tasks.base.settings_file import Section
from posir_tasks.data.formats.passages import Passage
from posir_tasks.datasets.dataset import Subset
from posir_tasks.datasets.opening import open_data
from posir_tasks.display.numbers import (
    Format,
    format_count,
    format_estimate,
    format_number,
    format_percent,
)
from posir_tasks.display.tables import Table, build_columns
from posir_tasks.language_models.asking import LanguageModel
from posir_tasks.language_models.chat_client import ModelAnswer, load_prompt
from posir_tasks.language_models.settings import Count, LanguageModelSettings
from posir_tasks.text.languages import english_name
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.means import estimate_mean

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
LOWEST = 1
HIGHEST = 5
SHEET_COLUMNS = ("id", "language", "original", "translation", *SCALES, "comment")
#: What a sample is drawn with, next to the seed.
PURPOSE = "rate translations"
#: The mean of the four scales of a translation.
OVERALL = "overall"
#: All languages, or all scales, together.
ALL = "all"
#: The columns that a row of scores is of.
GROUP = ("system", "language", "scale")


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


#: Subsets by domain and language.
Subsets = Mapping[tuple[str, str], Subset]
#: Columns of a table of ratings.
RATING_SCHEMA = {
    **dict.fromkeys(("id", "system", "target", "document", "scale"), pl.String),
    "rating": pl.Float64,
}
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
        domain: subset
        for (domain, language), subset in _read_subsets(settings.source).items()
        if language == settings.language
    }
    if not source:
        raise DataError(
            f"{settings.source}: has no {settings.language} data. Set `language` to that of the "
            "originals."
        )
    systems = {name: _read_subsets(data) for name, data in settings.translations.items()}
    languages = list(settings.languages) or _find_languages(systems, settings.language)
    domains = _find_domains(systems, settings.domains, source)
    translations: list[Translation] = []
    notes: list[str] = []
    for domain in domains:
        texts = _read_translations(systems, domain, languages)
        originals = _read_texts(source[domain])
        common = set(originals).intersection(*texts.values())
        drawn, short = _draw_documents(
            domain, {name: originals[name] for name in common}, settings, count_tokens
        )
        notes += short
        translations += [
            Translation(system, language, domain, name, originals[name], translated[name])
            for (system, language), translated in texts.items()
            for name in drawn
        ]
    if not translations:
        raise DataError(
            f"{settings.source}: no document of these lengths has translations by every system. "
            f"{' '.join(notes)}"
        )
    return translations, notes


def _read_subsets(data: str) -> dict[tuple[str, str], Subset]:
    """Read the subsets of one language, by domain and language."""
    return {
        (subset.domain, subset.corpus_language): subset
        for subset in open_data(data).subsets
        if len(set(subset.find_languages())) == 1
    }


def _find_languages(systems: Mapping[str, Subsets], source: str) -> list[str]:
    """Find the languages that every system has; raise DataError without one."""
    every = [{language for _, language in subsets} for subsets in systems.values()]
    languages = set.intersection(*every) - {source}
    if not languages:
        raise DataError(
            f"translations: {', '.join(systems)}: have no language in common other than {source}."
        )
    return sorted(languages)


def _find_domains(
    systems: Mapping[str, Subsets], wanted: Sequence[str], source: Collection[str]
) -> Sequence[str]:
    """Find the domains to rate; raise DataError if originals and translations do not share them."""
    every = [{domain for domain, _ in subsets} for subsets in systems.values()]
    shared = sorted(set(source).intersection(*every))
    missing = [domain for domain in wanted if domain not in shared]
    if missing or not shared:
        raise DataError(
            f"domains: the originals and all translations have {', '.join(shared) or 'none'} in "
            f"common, not {', '.join(missing or sorted(source))}."
        )
    return wanted or shared


def _read_translations(
    systems: Mapping[str, Subsets], domain: str, languages: Sequence[str]
) -> dict[tuple[str, str], dict[str, str]]:
    """Read the translations of a domain by system and language; raise DataError if one is
    missing.
    """
    pairs = list(product(systems, languages))
    missing = [
        f"{system} in {language}"
        for system, language in pairs
        if (domain, language) not in systems[system]
    ]
    if missing:
        raise DataError(
            f"domain {domain}: no translations by {', '.join(missing)}. Set `languages` or "
            "`domains`."
        )
    return {
        (system, language): _read_texts(systems[system][domain, language])
        for system, language in pairs
    }


def _read_texts(subset: Subset) -> dict[str, str]:
    passages = (item for item in subset.read_texts() if isinstance(item, Passage))
    return {item.id or item.place: item.text for item in passages}


def _draw_documents(
    domain: str,
    texts: Mapping[str, str],
    settings: RatingSettings,
    count_tokens: Callable[[str], int],
) -> tuple[list[str], list[str]]:
    """Draw the ids of documents, as many of each length bucket; note the buckets that are short."""
    buckets: dict[tuple[int, int], list[str]] = {bucket: [] for bucket in pairwise(settings.edges)}
    for name in sorted(texts, key=lambda name: seeded_order(settings.seed, PURPOSE, domain, name)):
        if all(len(drawn) == settings.per_bucket for drawn in buckets.values()):
            break
        tokens = count_tokens(texts[name])
        for (low, high), drawn in buckets.items():
            if low < tokens <= high and len(drawn) < settings.per_bucket:
                drawn.append(name)
    notes = [
        f"{domain}: {len(drawn)} of {settings.per_bucket} documents of {low + 1:,} to {high:,} "
        "tokens."
        for (low, high), drawn in buckets.items()
        if len(drawn) < settings.per_bucket
    ]
    return list(chain(*buckets.values())), notes


def ask_judge(
    translations: Sequence[Translation], settings: RatingSettings, model: LanguageModel
) -> tuple[list[Rated], dict[str, int]]:
    """Ask the judge for ratings; count the translations without one by the reason.

    PosirError is raised if it rates nothing.
    """

    def build(row: Translation) -> dict[str, str]:
        return {
            "source": english_name(settings.language),
            "target": english_name(row.language),
            "original": row.original,
            "translation": row.text,
        }

    replies = model.ask(RATE_TRANSLATION, translations, build, "Rate translations")
    rated = [
        (translation, reply.answer.model_dump(include=set(SCALES)))
        for translation, reply in zip(translations, replies, strict=True)
        if reply.answer is not None
    ]
    faults = Counter(reply.fault for reply in replies if reply.answer is None)
    if not rated:
        raise PosirError(f"{model.name}: has rated no translation: {'; '.join(faults)}.")
    return rated, dict(faults.most_common())


def write_rating_sheets(folder: Path, translations: Sequence[Translation], seed: int) -> list[Path]:
    """Write a sheet for each language, with empty columns for ratings, in random order and without
    the system's name.
    """
    sheets: dict[Path, list[tuple[str, ...]]] = defaultdict(list)
    for row in sorted(translations, key=lambda row: seeded_order(seed, PURPOSE, row.id)):
        cells = (row.id, row.language, row.original, row.text)
        sheets[folder / f"{row.language}.csv"].append(cells)
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
    """Read the ratings of a person, empty cells left out; count the rows of other translations."""
    known = {translation.id: translation for translation in translations}
    values = {str(rating): rating for rating in RATINGS}
    command = "posir study rate-translations --sheets"
    rows = read_sheet(file, SCALES, values, "is not a whole number from 1 to 5", command)
    rated = [(known[name], ratings) for name, ratings in rows if name in known and ratings]
    if not rated:
        raise DataError(
            f"{file}: has no rating of these translations. Fill in {', '.join(SCALES)}, and use "
            "the settings that the sheet was written with."
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

    @property
    def is_pooled(self) -> bool:
        """Whether it is over all languages and scales."""
        return self.language == self.scale == ALL


def _tabulate(rated: Sequence[Rated]) -> pl.DataFrame:
    """Put each rating into a row, with its translation and the document that it is a cluster of."""
    rows = [
        {
            "id": translation.id,
            "system": translation.system,
            "target": translation.language,
            "document": f"{translation.domain}/{translation.document}",
            "scale": scale,
            "rating": float(rating),
        }
        for translation, ratings in rated
        for scale, rating in ratings.items()
    ]
    return pl.DataFrame(rows, RATING_SCHEMA)


def _pool_languages(rows: pl.DataFrame) -> pl.DataFrame:
    """Add a copy of the rows for all languages together."""
    single = rows.with_columns(language=pl.col("target"))
    return pl.concat([single, rows.with_columns(language=pl.lit(ALL))])


def _estimate(rows: pl.DataFrame, values: pl.Expr, low: float, high: float) -> Estimate:
    """Estimate the mean over languages of the means of values from low to high; the interval is
    that of `estimate_mean`.
    """
    shares = rows.select((values - low) / (high - low)).to_series().to_numpy()
    sizes = pl.len().over("target") * pl.col("target").n_unique()
    weights = rows.select(1 / sizes).to_series().to_numpy()
    clusters = rows["document"].rank("dense").to_numpy().astype(np.int64) - 1
    estimate = estimate_mean(shares, clusters, weights)
    assert estimate is not None
    ends = [low + end * (high - low) for end in estimate.interval or ()]
    value = low + estimate.value * (high - low)
    return Estimate(value, (ends[0], ends[1]) if ends else None)


def score_ratings(rater: str, rated: Sequence[Rated]) -> list[ScaleScore]:
    """Score ratings by system, language and scale, and over all languages if there are several."""
    scales = [*SCALES, OVERALL]
    rows = _tabulate(rated)
    complete = pl.len().over("id") == len(SCALES)
    overall = rows.filter(complete).with_columns(
        scale=pl.lit(OVERALL), rating=pl.col("rating").mean().over("id")
    )
    pooled = _pool_languages(pl.concat([rows, overall.unique("id", maintain_order=True)]))
    several = pl.col("target").n_unique().over("system") > 1
    groups = pooled.filter((pl.col("language") != ALL) | several).partition_by(
        GROUP, as_dict=True, maintain_order=True
    )
    return [
        ScaleScore(
            rater,
            system,
            language,
            scale,
            _count_ratings(groups[system, language, scale]),
            _estimate(groups[system, language, scale], pl.col("rating"), LOWEST, HIGHEST),
        )
        for system, language, scale in sorted(
            groups, key=lambda group: (group[1] == ALL, *group[:2], scales.index(group[2]))
        )
    ]


def _count_ratings(rows: pl.DataFrame) -> dict[float, int]:
    """Count ratings; those of a single scale are whole numbers."""
    is_whole = rows["scale"][0] != OVERALL
    ratings = rows["rating"].cast(pl.Int64 if is_whole else pl.Float64)
    return dict(sorted(Counter(ratings).items()))


def compare_ratings(people: Sequence[Rated], judge: Sequence[Rated]) -> list[ScaleAgreement]:
    """Compare the judge with people, by system, language and scale, and over languages and
    scales.
    """
    judged = _tabulate(judge).select("id", "scale", judged="rating")
    pairs = _pool_languages(_tabulate(people).join(judged, on=["id", "scale"]))
    pooled = pl.concat([pairs, pairs.with_columns(scale=pl.lit(ALL))])
    groups = pooled.partition_by(GROUP, as_dict=True)
    scales = [*SCALES, ALL]
    difference = pl.col("judged") - pl.col("rating")
    agreement = []
    for system, language, scale in sorted(
        groups, key=lambda group: (group[0], group[1] == ALL, group[1], scales.index(group[2]))
    ):
        rows = groups[system, language, scale]
        counts = Counter(zip(rows["rating"], rows["judged"], strict=True))
        agreement.append(
            ScaleAgreement(
                system,
                language,
                scale,
                tuple(tuple(counts[row, column] for column in RATINGS) for row in RATINGS),
                # PosIR, table 9: a difference of 1 is agreement.
                _estimate(rows, (difference.abs() <= 1).cast(pl.Float64), 0, 1),
                _estimate(rows, difference.abs(), 0, HIGHEST - LOWEST),
                rows.select(difference.mean()).item(),
            )
        )
    return agreement


def build_rating_tables(
    scores: Sequence[ScaleScore], agreement: Sequence[ScaleAgreement], notes: Sequence[str]
) -> list[Table]:
    """Build the tables: means of the judge and of people, agreement, and the confusion of ratings
    over all scales.
    """
    tables = [
        _build_score_table(rater, [score for score in scores if score.rater == rater], notes)
        for rater in dict.fromkeys(score.rater for score in scores)
    ]
    if agreement:
        tables.append(_build_agreement_table(agreement))
    judged = [f"Judge {rating}" for rating in RATINGS]
    columns = build_columns(("People", *judged), judged)
    for row in agreement:
        if row.is_pooled:
            cells = [
                (str(rating), *map(format_count, counts))
                for rating, counts in zip(RATINGS, row.confusion, strict=True)
            ]
            title = f"Pairs of ratings, all scales · {row.system}"
            tables.append(Table(columns, tuple(cells), title=title))
    return tables


def _build_agreement_table(agreement: Sequence[ScaleAgreement]) -> Table:
    numbers = ("Pairs", "Within 1%", "Mean absolute error", "Judge minus people")
    rows = [
        (
            row.system,
            row.language,
            row.scale,
            format_count(sum(map(sum, row.confusion))),
            format_estimate(row.within_one, format_percent),
            format_estimate(row.mean_absolute_error, format_rating),
            format_number(row.mean_difference, "+.2f"),
        )
        for row in agreement
    ]
    columns = build_columns(("System", "Language", "Scale", *numbers), numbers)
    return Table(columns, tuple(rows), title="Agreement of the judge with people", keys=3)


def _build_score_table(rater: str, scores: Sequence[ScaleScore], notes: Sequence[str]) -> Table:
    numbers = ("Rated", *SCALES.values(), "Overall")
    groups: dict[tuple[str, str], dict[str, ScaleScore]] = defaultdict(dict)
    for score in scores:
        groups[score.system, score.language][score.scale] = score
    rows = []
    for (system, language), by_scale in groups.items():
        rated = max(sum(score.counts.values()) for score in by_scale.values())
        means = (
            format_estimate(by_scale[scale].mean if scale in by_scale else None, format_rating)
            for scale in (*SCALES, OVERALL)
        )
        rows.append((system, language, format_count(rated), *means))
    title = f"Ratings by {'the judge' if rater == 'judge' else 'people'}"
    note = (
        "From 1, poor, to 5, excellent, with 95% intervals for new documents. All languages count "
        "as much."
    )
    columns = build_columns(("System", "Language", *numbers), numbers)
    return Table(columns, tuple(rows), title=title, notes=(note, *notes), keys=2)


#: Formats a mean rating with two decimals.
format_rating: Format = partial(format_number, spec=".2f")
