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
from functools import cached_property, partial
from itertools import chain, pairwise, product
from pathlib import Path
from statistics import fmean
from typing import Annotated, Literal

import polars as pl
from pydantic import Field, field_validator

from posir_build.dataset_files import read_sheet, refuse_overwrite, write_sheet_rows
from posir_build.records import PromptValues, seeded_order
from posir_build.settings import Name
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
#: The four scales, in the paper's order.
SCALES = ("fluency", "accuracy", "completeness", "style")
RATINGS = (1, 2, 3, 4, 5)
#: What a sample is drawn with, next to the seed.
PURPOSE = "rate translations"
#: The mean of the four scales of a translation.
OVERALL = "overall"
#: All languages, or all scales, together.
ALL = "all"


class RatingSettings(Section):
    """Everything that a rating of translations is asked for."""

    source: Name
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
    source = _read_subsets(settings.source)
    systems = {name: _read_subsets(data) for name, data in settings.translations.items()}
    shared = set.intersection(*map(set, systems.values()))
    shared = {
        (domain, language)
        for domain, language in shared
        if (domain, settings.language) in source and language != settings.language
    }
    domains = settings.domains or sorted({domain for domain, _ in shared})
    languages = settings.languages or sorted({language for _, language in shared})
    missing = [
        f"{pair[0]} in {pair[1]}" for pair in product(domains, languages) if pair not in shared
    ]
    if missing or not shared:
        raise DataError(
            f"translations: {', '.join(systems)}: not all of them have "
            f"{', '.join(missing) or 'a domain and a language'} in common with the originals in "
            f"{settings.language}, {settings.source}. Set `language`, `languages` or `domains`."
        )
    translations: list[Translation] = []
    notes: list[str] = []
    for domain in domains:
        originals = _read_texts(source[domain, settings.language])
        texts = {
            (system, language): _read_texts(subsets[domain, language])
            for system, subsets in systems.items()
            for language in languages
        }
        common = originals.keys() & set.intersection(*map(set, texts.values()))
        candidates = {name: originals[name] for name in common}
        drawn, short = _draw_documents(domain, candidates, settings, count_tokens)
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
        if subset.query_language == subset.corpus_language
    }


def _read_texts(subset: Subset) -> dict[str, str]:
    passages = (item for item in subset.read_texts() if isinstance(item, Passage))
    return {item.id or item.location: item.text for item in passages}


def _draw_documents(
    domain: str,
    texts: Mapping[str, str],
    settings: RatingSettings,
    count_tokens: Callable[[str], int],
) -> tuple[list[str], list[str]]:
    """Draw the ids of documents, as many of each length bucket; note the buckets that are short."""
    limit = settings.per_bucket
    buckets: dict[tuple[int, int], list[str]] = {bucket: [] for bucket in pairwise(settings.edges)}
    for name in sorted(texts, key=lambda name: seeded_order(settings.seed, PURPOSE, domain, name)):
        if all(len(drawn) == limit for drawn in buckets.values()):
            break
        tokens = count_tokens(texts[name])
        for (low, high), drawn in buckets.items():
            if low < tokens <= high and len(drawn) < limit:
                drawn.append(name)
    notes = [
        f"{domain}: {len(drawn)} of {limit} documents of {low + 1:,} to {high:,} tokens."
        for (low, high), drawn in buckets.items()
        if len(drawn) < limit
    ]
    return list(chain(*buckets.values())), notes


def ask_judge(
    translations: Sequence[Translation], settings: RatingSettings, model: LanguageModel
) -> tuple[list[Rated], dict[str, int]]:
    """Ask the judge for ratings; count the translations without one by the reason.

    PosirError is raised if it rates nothing.
    """

    def build(row: Translation) -> PromptValues:
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
        if reply.answer
    ]
    faults = Counter(reply.fault for reply in replies if reply.fault)
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
    for file in sheets:
        refuse_overwrite(file)
    for file, rows in sheets.items():
        columns = ("id", "language", "original", "translation", *SCALES, "comment")
        write_sheet_rows(file, columns, rows)
    return sorted(sheets)


def read_rating_sheet(file: Path, translations: Sequence[Translation]) -> tuple[list[Rated], int]:
    """Read the ratings of a person, empty cells left out; count the rows of other translations."""
    by_id = {translation.id: translation for translation in translations}
    values = {str(rating): rating for rating in RATINGS}
    command = "posir study rate-translations --sheets"
    rows = read_sheet(file, SCALES, values, "is not a whole number from 1 to 5", command)
    rated = [(by_id[name], ratings) for name, ratings in rows if name in by_id and ratings]
    if not rated:
        raise DataError(
            f"{file}: has no rating of these translations. Fill in {', '.join(SCALES)}, and use "
            "the settings that the sheet was written with."
        )
    return rated, sum(name not in by_id for name, _ in rows)


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


def _tabulate(rated: Sequence[Rated]) -> pl.DataFrame:
    """Put each rating, and the mean of all four of a translation, into a row."""
    rows = []
    for translation, ratings in rated:
        scales = dict[str, float](ratings)
        if len(ratings) == len(SCALES):
            scales[OVERALL] = fmean(ratings.values())
        # The ratings of a document are one cluster.
        keys = {
            "id": translation.id,
            "system": translation.system,
            "language": translation.language,
            "document": f"{translation.domain}/{translation.document}",
        }
        rows += [keys | {"scale": scale, "rating": value} for scale, value in scales.items()]
    return pl.DataFrame(rows, schema_overrides={"rating": pl.Float64})


def _group(rows: pl.DataFrame, scales: Sequence[str]) -> dict[tuple[str, str, str], pl.DataFrame]:
    """Group rows by system, language and scale, and also over languages; the language of each row
    is in the column `target`.
    """
    single = rows.with_columns(target="language")
    pooled = pl.concat([single, single.with_columns(language=pl.lit(ALL))])
    groups = pooled.partition_by("system", "language", "scale", as_dict=True)
    order = sorted(groups, key=lambda key: (key[0], key[1] == ALL, key[1], scales.index(key[2])))
    return {(key[0], key[1], key[2]): groups[key] for key in order}


def _estimate(rows: pl.DataFrame, values: pl.Expr, low: float, high: float) -> Estimate:
    """Estimate the mean over languages of the means of values from low to high; the interval is
    that of `estimate_mean`.
    """
    sizes = pl.len().over("target") * pl.col("target").n_unique()
    columns = rows.select(
        share=(values - low) / (high - low),
        weight=1 / sizes,
        cluster=pl.col("document").rank("dense").cast(pl.Int64) - 1,
    )
    shares, weights, clusters = (column.to_numpy() for column in columns)
    estimate = estimate_mean(shares, clusters, weights)
    assert estimate is not None
    value, *ends = (
        low + share * (high - low) for share in (estimate.value, *(estimate.interval or ()))
    )
    return Estimate(value, (ends[0], ends[1]) if ends else None)


def score_ratings(rater: str, rated: Sequence[Rated]) -> list[ScaleScore]:
    """Score ratings by system, language and scale, and over all languages."""
    if not rated:
        return []
    scores = []
    for (system, language, scale), rows in _group(_tabulate(rated), (*SCALES, OVERALL)).items():
        ratings = rows["rating"] if scale == OVERALL else rows["rating"].cast(pl.Int64)
        counts = dict(sorted(Counter(ratings).items()))
        mean = _estimate(rows, pl.col("rating"), RATINGS[0], RATINGS[-1])
        scores.append(ScaleScore(rater, system, language, scale, counts, mean))
    return scores


def compare_ratings(people: Sequence[Rated], judge: Sequence[Rated]) -> list[ScaleAgreement]:
    """Compare the judge with people, by system, language and scale, and over languages and
    scales.
    """
    if not people:
        return []
    judged = _tabulate(judge).select("id", "scale", judged="rating")
    pairs = _tabulate(people).join(judged, on=["id", "scale"]).filter(pl.col("scale") != OVERALL)
    pairs = pl.concat([pairs, pairs.with_columns(scale=pl.lit(ALL))])
    difference = pl.col("judged") - pl.col("rating")
    agreement = []
    for (system, language, scale), rows in _group(pairs, (*SCALES, ALL)).items():
        counts = Counter(zip(rows["rating"], rows["judged"], strict=True))
        agreement.append(
            ScaleAgreement(
                system,
                language,
                scale,
                tuple(tuple(counts[row, column] for column in RATINGS) for row in RATINGS),
                # PosIR, table 9: a difference of 1 is agreement.
                _estimate(rows, (difference.abs() <= 1).cast(pl.Float64), 0, 1),
                _estimate(rows, difference.abs(), 0, RATINGS[-1] - RATINGS[0]),
                rows.select(difference.mean()).item(),
            )
        )
    return agreement


def build_rating_tables(
    scores: Sequence[ScaleScore], agreement: Sequence[ScaleAgreement], notes: Sequence[str]
) -> list[Table]:
    """Build the tables: means of the judge and of people, and their agreement."""
    groups: dict[tuple[str, str, str], dict[str, ScaleScore]] = defaultdict(dict)
    for score in scores:
        groups[score.rater, score.system, score.language][score.scale] = score
    means = []
    for keys, by_scale in groups.items():
        rated = max(sum(score.counts.values()) for score in by_scale.values())
        cells = []
        for scale in (*SCALES, OVERALL):
            mean = by_scale[scale].mean if scale in by_scale else None
            cells.append(format_estimate(mean, format_rating))
        means.append((*keys, format_count(rated), *cells))
    note = (
        "From 1, poor, to 5, excellent, with 95% intervals for new documents. All languages count "
        "as much."
    )
    numbers = ("Rated", *map(str.capitalize, (*SCALES, OVERALL)))
    columns = build_columns(("Rater", "System", "Language", *numbers), numbers)
    title = "Ratings of translations"
    tables = [Table(columns, tuple(means), title=title, notes=(note, *notes), keys=3)]
    if agreement:
        tables.append(_build_agreement_table(agreement))
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


#: Formats a mean rating with two decimals.
format_rating: Format = partial(format_number, spec=".2f")
