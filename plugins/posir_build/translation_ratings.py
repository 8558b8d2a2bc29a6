"""Rate a stratified sample of translations, with a language model as the judge and with sheets for
human raters.

PosIR (arXiv 2601.08363, appendix B) chooses its translator this way. Each system translates 12
English documents per domain (31 domains, four length buckets) into eight languages. GPT-4o rates
every translation without a reference, and people rate one system in three languages. The paper
omits the body of the prompt (appendix C.5); our prompt uses the same four scales.

Counts of ratings over disjoint samples of documents can be added. Intervals are for new documents:
all ratings of a document's translations form one cluster.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import groupby, islice, pairwise, product
from operator import attrgetter
from pathlib import Path
from statistics import fmean
from typing import Annotated, Literal, get_args

import polars as pl
from polars.dataframe.group_by import GroupBy
from pydantic import Field

from posir_build.dataset_files import raise_if_exists, read_sheet, write_sheet_rows
from posir_build.records import PromptValues, compute_sort_key, shuffle
from posir_build.settings import IncreasingNumbers, NonEmptyString
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
from posir_tasks.display.tables import Table, build_numeric_table
from posir_tasks.language_models.asking import LanguageModel
from posir_tasks.language_models.chat_client import ModelAnswer, load_prompt
from posir_tasks.language_models.settings import Count, LanguageModelSettings
from posir_tasks.text.languages import find_english_name
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
RATINGS: tuple[int, ...] = get_args(Rating)
#: Name to hash with the seed for the random order of documents and sheet rows.
PURPOSE = "rate translations"
#: Name of the mean over the four scales.
OVERALL = "overall"
#: Label for all languages or all scales, pooled.
ALL = "all"


class RatingSettings(Section):
    """Settings of `posir study rate-translations`."""

    source: NonEmptyString
    """Data with the original documents: a folder in the PosIR layout, or a dataset on the Hub."""
    translations: Annotated[Mapping[str, str], Field(min_length=1)]
    """Data with translations, by system name, such as {Qwen3-30B-A3B: data/PosIR-Benchmark-v1}.
    Translations have the ids of their originals, and may be in the same folder.
    """
    language: str = "eng-Latn"
    """Language of the originals."""
    languages: tuple[str, ...] = ()
    """Languages of the translations; empty for all languages that every system covers."""
    domains: tuple[str, ...] = ()
    """Domains; empty for all domains that the originals and every system cover."""
    edges: Annotated[IncreasingNumbers[int], Field(min_length=2)] = (0, 512, 1024, 1536, 2048)
    """Edges of the length buckets, in tokens of the original document; upper edges are inclusive
    (PosIR, appendix B).
    """
    per_bucket: Count = 3
    """Number of documents per bucket and domain. The default gives 12 per domain, as in the
    paper.
    """
    tokenizer: str | None = None
    """Hugging Face tokenizer for lengths; null for one token per four bytes of UTF-8."""
    seed: int = 42
    work: Path = Path("translation-ratings")
    """Folder for the call log."""
    llm: LanguageModelSettings
    """The judge; GPT-4o in the paper."""


@dataclass(frozen=True)
class Translation:
    """A sampled document in another language."""

    system: str
    language: str
    domain: str
    document: str
    """Document id."""
    original: str
    text: str

    @cached_property
    def id(self) -> str:
        """Id in the sheets, 16 hexadecimal digits, which does not reveal the system."""
        return digest(self.system, self.language, self.domain, self.document).hex()


#: A translation with its ratings by scale. Human raters may skip scales.
RatedTranslation = tuple[Translation, dict[str, int]]


def sample_translations(
    settings: RatingSettings, count_tokens: Callable[[str], int]
) -> tuple[list[Translation], list[str]]:
    """Sample the same number of documents per domain and length bucket, from the documents that
    every system has translated into every language.

    Returns:
        The translations of the sample by every system into every language, and notes about buckets
        with too few documents.

    Raises:
        DataError: The data cannot be read, or the systems and the originals share no documents.
    """
    source = _open_subsets(settings.source)
    systems = {name: _open_subsets(data) for name, data in settings.translations.items()}
    shared_subsets = [
        (domain, language)
        for domain, language in set.intersection(*map(set, systems.values()))
        if (domain, settings.language) in source and language != settings.language
    ]
    domains = settings.domains or sorted({domain for domain, _ in shared_subsets})
    languages = settings.languages or sorted({language for _, language in shared_subsets})
    missing = sorted({*product(domains, languages)} - {*shared_subsets})
    if missing or not shared_subsets:
        names = ", ".join(f"{domain} in {language}" for domain, language in missing)
        raise DataError(
            f"translations: {', '.join(systems)}: these systems and the originals in "
            f"{settings.language}, {settings.source}, do not share {names or 'any domain'}. Set "
            "`language`, `languages` or `domains`."
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
        shared_ids = originals.keys() & set.intersection(*map(set, texts.values()))
        candidates = {name: originals[name] for name in shared_ids}
        sample, sample_notes = _sample_documents(domain, candidates, settings, count_tokens)
        notes += sample_notes
        translations += [
            Translation(system, language, domain, name, originals[name], texts_by_id[name])
            for (system, language), texts_by_id in texts.items()
            for name in sample
        ]
    if not translations:
        raise DataError(
            f"{settings.source}: no document of these lengths is translated by every system. "
            f"{' '.join(notes)}"
        )
    return translations, notes


def _open_subsets(data: str) -> dict[tuple[str, str], Subset]:
    """Open the monolingual subsets, by domain and language."""
    return {
        (subset.domain, subset.corpus_language): subset
        for subset in open_data(data).subsets
        if subset.query_language == subset.corpus_language
    }


def _read_texts(subset: Subset) -> dict[str, str]:
    passages = (item for item in subset.read_texts() if isinstance(item, Passage))
    return {item.id or item.location: item.text for item in passages}


def _sample_documents(
    domain: str,
    texts: Mapping[str, str],
    settings: RatingSettings,
    count_tokens: Callable[[str], int],
) -> tuple[list[str], list[str]]:
    """Sample the same number of document ids from each length bucket. Also return notes about
    buckets with too few documents.
    """
    count = cache(count_tokens)
    sample: list[str] = []
    notes = []
    order = sorted(texts, key=lambda name: compute_sort_key(settings.seed, PURPOSE, domain, name))
    for low, high in pairwise(settings.edges):
        bucket = (name for name in order if low < count(texts[name]) <= high)
        names = list(islice(bucket, settings.per_bucket))
        sample += names
        if len(names) < settings.per_bucket:
            notes.append(
                f"{domain}: {len(names)} of {settings.per_bucket} documents of {low + 1:,} to "
                f"{high:,} tokens."
            )
    return sample, notes


def ask_judge(
    translations: Sequence[Translation], settings: RatingSettings, model: LanguageModel
) -> tuple[list[RatedTranslation], dict[str, int]]:
    """Request ratings from the judge. Also count the unrated translations by reason.

    Raises:
        PosirError: The judge rated none of the translations.
    """

    def build(row: Translation) -> PromptValues:
        return {
            "source": find_english_name(settings.language),
            "target": find_english_name(row.language),
            "original": row.original,
            "translation": row.text,
        }

    replies = model.ask(RATE_TRANSLATION, translations, build, "Rate translations")
    rated_rows = [
        (translation, reply.answer.model_dump(include=set(SCALES)))
        for translation, reply in replies
        if reply.answer
    ]
    faults = Counter(reply.fault for _, reply in replies if reply.fault)
    if not rated_rows:
        raise PosirError(f"{model.name}: rated none of the translations: {'; '.join(faults)}.")
    return rated_rows, dict(faults.most_common())


def write_rating_sheets(folder: Path, translations: Sequence[Translation], seed: int) -> list[Path]:
    """Write a sheet per language with empty rating columns. The rows are shuffled and do not name
    the system.
    """
    sheets = defaultdict(list)
    for row in shuffle(translations, seed, PURPOSE):
        cells = (row.id, row.language, row.original, row.text)
        sheets[folder / f"{row.language}.csv"].append(cells)
    for file in sheets:
        raise_if_exists(file)
    for file, rows in sheets.items():
        columns = ("id", "language", "original", "translation", *SCALES, "comment")
        write_sheet_rows(file, columns, rows)
    return sorted(sheets)


def read_rating_sheet(
    file: Path, translations: Sequence[Translation]
) -> tuple[list[RatedTranslation], int]:
    """Read a person's ratings, and count the rows for translations outside the sample."""
    by_id = {translation.id: translation for translation in translations}
    values = {str(rating): rating for rating in RATINGS}
    command = "posir study rate-translations --sheets"
    rows = read_sheet(file, SCALES, values, "is not a whole number from 1 to 5", command)
    rated_rows = [(by_id[name], ratings) for name, ratings in rows if name in by_id and ratings]
    if not rated_rows:
        raise DataError(
            f"{file}: contains no ratings of these translations. Fill in {', '.join(SCALES)}, and "
            "use the settings from when the sheet was written."
        )
    return rated_rows, sum(name not in by_id for name, _ in rows)


@dataclass(frozen=True)
class ScaleScore:
    """Ratings of a system on one scale, in one language or all languages; a row of PosIR's tables 7
    and 8.
    """

    rater: str
    """`judge` or `people`."""
    system: str
    language: str
    scale: str
    """One of `SCALES`, or `overall` for a translation's mean over the four scales."""
    counts: dict[float, int]
    """Number of translations by rating; additive."""
    mean: Estimate
    """Mean rating, from 1 to 5. All languages together have the mean of the languages' means."""


@dataclass(frozen=True)
class ScaleAgreement:
    """Agreement between the judge and people; a row of PosIR's table 9, with the counts behind its
    figure 9.
    """

    system: str
    language: str
    scale: str
    """One of `SCALES`, or `all`."""
    confusion: tuple[tuple[int, ...], ...]
    """Number of pairs by the person's and the judge's rating, shape (5, 5); additive."""
    within_one: Estimate
    """Share of pairs that differ by at most 1, in [0, 1]."""
    mean_absolute_error: Estimate
    """Mean absolute difference, from 0 to 4."""
    mean_difference: float
    """Mean of the judge's rating minus the person's, from -4 to 4."""


def _tabulate(rated_rows: Sequence[RatedTranslation]) -> pl.DataFrame:
    """Build a table with a row per rating, plus a row with the mean of each translation that is
    rated on all scales.
    """
    rows = []
    for translation, ratings in rated_rows:
        values_by_scale = dict[str, float](ratings)
        if len(ratings) == len(SCALES):
            values_by_scale[OVERALL] = fmean(ratings.values())
        keys = {
            "id": translation.id,
            "system": translation.system,
            "language": translation.language,
            "document": f"{translation.domain}/{translation.document}",
        }
        for scale, value in values_by_scale.items():
            rows.append(keys | {"scale": scale, "rating": value})
    return pl.DataFrame(rows, schema_overrides={"rating": pl.Float64})


def _group(rows: pl.DataFrame, scales: Sequence[str]) -> GroupBy:
    """Group rows by system, language and scale, and by system and scale over all languages. In each
    group, the column `target` contains the language of the row.
    """
    rows = rows.with_columns(target="language")
    all_rows = pl.concat([rows, rows.with_columns(language=pl.lit(ALL))])
    is_total = pl.col("language") == ALL
    scale = pl.col("scale").cast(pl.Enum(scales))
    all_rows = all_rows.sort("system", is_total, "language", scale, maintain_order=True)
    return all_rows.group_by("system", "language", "scale", maintain_order=True)


def _estimate(rows: pl.DataFrame, values: pl.Expr, low: float, high: float) -> Estimate:
    """Estimate the mean of the languages' means of values in [low, high], with documents as
    clusters.
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

    def rescale(share: float) -> float:
        return low + share * (high - low)

    if estimate.interval is None:
        return Estimate(rescale(estimate.value), None)
    lower, upper = map(rescale, estimate.interval)
    return Estimate(rescale(estimate.value), (lower, upper))


def score_ratings(rater: str, rated_rows: Sequence[RatedTranslation]) -> list[ScaleScore]:
    """Summarize ratings by system, language and scale, and over all languages."""
    if not rated_rows:
        return []
    scores = []
    for (system, language, scale), rows in _group(_tabulate(rated_rows), (*SCALES, OVERALL)):
        ratings = rows["rating"] if scale == OVERALL else rows["rating"].cast(pl.Int64)
        counts = dict(sorted(Counter(ratings).items()))
        mean = _estimate(rows, pl.col("rating"), 1, 5)
        scores.append(ScaleScore(rater, system, language, scale, counts, mean))
    return scores


def compare_ratings(
    people: Sequence[RatedTranslation], judge: Sequence[RatedTranslation]
) -> list[ScaleAgreement]:
    """Compare the judge's ratings with people's ratings by system, language and scale, and pooled
    over languages and scales.
    """
    if not people:
        return []
    judge_rows = _tabulate(judge).select("id", "scale", judge_rating="rating")
    pairs = _tabulate(people).join(judge_rows, on=["id", "scale"])
    pairs = pairs.filter(pl.col("scale") != OVERALL)
    pairs = pl.concat([pairs, pairs.with_columns(scale=pl.lit(ALL))])
    difference = pl.col("judge_rating") - pl.col("rating")
    agreement = []
    for (system, language, scale), rows in _group(pairs, (*SCALES, ALL)):
        counts = Counter(zip(rows["rating"], rows["judge_rating"], strict=True))
        agreement.append(
            ScaleAgreement(
                system,
                language,
                scale,
                tuple(tuple(counts[row, column] for column in RATINGS) for row in RATINGS),
                # PosIR, table 9: a difference of at most 1 counts as agreement.
                _estimate(rows, (difference.abs() <= 1).cast(pl.Float64), 0, 1),
                _estimate(rows, difference.abs(), 0, 4),
                rows.select(difference.mean()).item(),
            )
        )
    return agreement


def build_rating_tables(
    scores: Sequence[ScaleScore], agreement: Sequence[ScaleAgreement], notes: Sequence[str]
) -> list[Table]:
    """Build the table of mean ratings and, with human ratings, the table of agreement."""
    means = []
    for keys, group in groupby(scores, attrgetter("rater", "system", "language")):
        by_scale = {score.scale: score for score in group}
        number = max(sum(score.counts.values()) for score in by_scale.values())
        cells = []
        for scale in (*SCALES, OVERALL):
            mean = by_scale[scale].mean if scale in by_scale else None
            cells.append(format_estimate(mean, format_rating))
        means.append((*keys, format_count(number), *cells))
    note = (
        "Ratings range from 1, poor, to 5, excellent; 95% intervals are for new documents. All "
        "languages are weighted equally."
    )
    scales = map(str.capitalize, (*SCALES, OVERALL))
    headings = ("Rater", "System", "Language", "Rated", *scales)
    title = "Ratings of translations"
    tables = [build_numeric_table(headings, means, keys=3, title=title, notes=[note, *notes])]
    if agreement:
        tables.append(_build_agreement_table(agreement))
    return tables


def _build_agreement_table(agreement: Sequence[ScaleAgreement]) -> Table:
    numbers = ("Pairs", "Differ by at most 1, %", "Mean absolute error", "Judge minus people")
    headings = ("System", "Language", "Scale", *numbers)
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
    return build_numeric_table(headings, rows, keys=3, title="Agreement between judge and people")


format_rating: Format = partial(format_number, spec=".2f")
