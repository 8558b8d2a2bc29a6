"""The sections of an inspection: verdicts and the numbers behind them."""

from __future__ import annotations

from collections.abc import Iterator

from posir_inspect.budget import WorkEstimate
from posir_inspect.inspection import ChunkRow, Fading, ModelInspection, OtherWords, Scores
from posir_inspect.pseudo_questions import Wording
from posir_inspect.shared_words import WordBaseline
from posir_inspect.verdicts import ChunkVerdict, Finding, name_size
from posir_significance.intervals import ALPHA
from posir_tasks.display.numbers import (
    MISSING,
    format_count,
    format_estimate,
    format_interval,
    format_p_value,
    format_percent,
    format_points,
    format_score,
)
from posir_tasks.display.progress import format_seconds
from posir_tasks.display.sections import DisplaySection
from posir_tasks.display.tables import Table, build_columns
from posir_tasks.display.wording import pluralize
from posir_tasks.scores import Unit
from posir_tasks.sources.formats.passages import describe_skipped

READING, FADING = "How far the model reads", "Where evidence fades"
OTHER = "The same in other words"
CHUNKS, CHUNKERS = "Which chunk size serves these texts", "Which chunker serves these texts"
LEGEND = (
    "Queries: sentences of the texts, kept in them, by default their rarest words, which favors small chunks. Start to end: "
    "first minus last third; 95 % intervals."
)
#: What the finding on all sentences of a text says.
FADES = {
    Finding.LOWER: "evidence fades toward the end",
    Finding.HIGHER: "evidence fades toward the start",
    Finding.UNEVEN: "position matters, but start and end hardly differ",
    Finding.NONE: "evidence does not fade",
    Finding.UNKNOWN: "not enough texts to say whether evidence fades",
}
WORDINGS = {Wording.VERBATIM: "verbatim", Wording.RAREST_WORDS: "rarest words", Wording.OTHER_WORDS: "other words"}


def build_sections(inspection: ModelInspection) -> Iterator[DisplaySection]:
    """Yield the texts, then the verdicts and tables of each answer that is known; under 48 lines of 80 columns."""
    skipped = describe_skipped(inspection.skipped, examples=1)
    texts = f"Inspected: {describe_texts(inspection)}."
    yield DisplaySection(sentences=tuple(filter(None, (state_verdict(inspection), texts, skipped))))
    yield DisplaySection(READING, (inspection.window.sentence, describe_unread(inspection)))
    if inspection.work:
        yield DisplaySection(sentences=(describe_work(inspection.work),))
    if inspection.fading is None:
        return
    if not inspection.fading:
        yield DisplaySection(FADING, ("Not enough texts to say: no sentence of 5 to 80 words occurs only once.",))
        return
    rarest = inspection.fading[-1]
    sampled = describe_sample(inspection.fading_texts, inspection)
    sentences = (rarest.verdict.sentence, *describe_window(rarest), describe_positions(rarest), *sampled)
    yield DisplaySection(FADING, sentences, (wording_table(inspection.fading),))
    if inspection.chunk_verdict:
        sampled = describe_sample(inspection.chunk_texts, inspection)
        command = describe_command(inspection)
        choice = (inspection.chunk_verdict.sentence, *command, *describe_chunks(inspection), *sampled)
        title = CHUNKERS if any(row.chunker for row in inspection.chunks) else CHUNKS
        yield DisplaySection(title, choice, (chunk_table(inspection.chunks),))
        if inspection.other_words:
            yield build_other_words(inspection, inspection.other_words)


def state_verdict(inspection: ModelInspection) -> str:
    """Return in a sentence how much of the texts the model reads, and whether evidence fades in what it reads."""
    name, cut = inspection.model.rpartition("/")[2], inspection.unread.texts_cut > 0
    median, read = f"{inspection.median_tokens:,.0f}", f"{inspection.window.tokens.high:,}"
    reads = f"{read} of {median} tokens (median text)" if cut else "these texts to the end"
    fading = inspection.fading[-1] if inspection.fading else None
    clause = "" if fading is None else f"; {_describe_within(fading) if cut else FADES[fading.verdict.finding]}"
    return f"{name} reads {reads}{clause}."


def _describe_within(fading: Fading) -> str:
    """Return in a clause whether evidence fades within what the model reads."""
    if fading.verdict.finding is Finding.UNKNOWN:
        return FADES[Finding.UNKNOWN]
    if fading.p_value_within is None:
        return "whether evidence fades within them could not be tested"
    p_value = f"(p {format_p_value(fading.p_value_within)})"
    if fading.p_value_within >= ALPHA:
        return f"within them evidence does not fade significantly {p_value}"
    change = fading.start_to_end_within.value if fading.start_to_end_within else 0.0
    return f"within them {'evidence fades, too' if change > 0 else 'position matters, too'} {p_value}"


def title_positions(fading: Fading) -> str:
    """Return how nDCG@10 depends on the position of the sentence, as the title of a chart."""
    change = fading.scores.start_to_end
    points = format_percent(abs(change.value)) if change else None
    match fading.verdict.finding:
        case Finding.LOWER:
            return f"nDCG@10 is {points} points lower in the last third of a text than in the first"
        case Finding.HIGHER:
            return f"nDCG@10 is {points} points higher in the last third of a text than in the first"
        case finding:
            return f"{FADES[finding][:1].upper()}{FADES[finding][1:]}"


def title_chunks(inspection: ModelInspection) -> str:
    """Return which chunks serve best, as the title of a chart; what it shows if that cannot be said."""
    verdict = inspection.chunk_verdict
    if verdict is None or verdict.finding is Finding.UNKNOWN:
        return "Not enough texts to say which chunks serve best"
    return verdict.sentence.partition(":")[0].rstrip(".")


def build_other_words(inspection: ModelInspection, other: OtherWords) -> DisplaySection:
    """Return who wrote the questions in other words, what words alone find, and which chunk size they advise."""
    chunks, baseline = other.chunks, other.words_alone
    unwritten = f"; about {pluralize(other.unwritten, 'sentence')} there is none" if other.unwritten else ""
    sentences = [f"{pluralize(other.questions, 'question')} that {other.writer} wrote{unwritten}."]
    if other.by_itself:
        sentences.append("That is the inspected model: they favor it, and small chunks. Name another if you have one.")
    if baseline:
        shared, chance = format_percent(baseline.shared_words), format_percent(baseline.chance)
        sentences.append(f"BM25 finds their texts with nDCG@10 {shared}, a random order with {chance}.")
    if not chunks or not inspection.chunk_verdict:
        return DisplaySection(OTHER, tuple(sentences))
    sentences += [chunks.verdict.sentence, *describe_advice(inspection.chunk_verdict, chunks.verdict)]
    return DisplaySection(OTHER, tuple(sentences), (chunk_table(chunks.rows),))


def describe_advice(rarest: ChunkVerdict, other: ChunkVerdict) -> Iterator[str]:
    """Yield whether questions in their rarest words and in other words advise the same size, where both do."""
    if Finding.UNKNOWN in (rarest.finding, other.finding):
        return
    if rarest.size == other.size:
        yield "The advice is that of questions in their rarest words."
    else:
        yield f"The advice differs: questions in their rarest words have {name_size(rarest.size)}."


def describe_work(work: WorkEstimate) -> str:
    """Return how long the rest takes."""
    planned = f"The rest takes at most about {format_seconds(work.seconds)}: {work.tokens:,} tokens to encode (--budget)"
    return planned + (
        f"; all {work.all_tokens:,} would take {format_seconds(work.all_seconds)} (--all)."
        if work.all_tokens > work.tokens
        else "."
    )


def describe_sample(texts: int, inspection: ModelInspection) -> Iterator[str]:
    """Yield of which texts an answer is, unless it is of all."""
    excerpts = f" in excerpts of at most {inspection.excerpt_tokens:,} tokens" if inspection.excerpt_tokens else ""
    if texts < inspection.texts:
        yield f"This is of {texts:,} of the texts{excerpts if texts == inspection.chunk_texts else ''}, drawn at random."
    elif excerpts and texts == inspection.chunk_texts and inspection.chunk_verdict:
        yield f"This is of the texts{excerpts}."


def describe_command(inspection: ModelInspection) -> Iterator[str]:
    """Yield how to run the model with the chosen size of chunks, unless whole texts are chosen."""
    if inspection.chunked_model:
        yield f"Run them with -m '{inspection.chunked_model}'."


def describe_texts(inspection: ModelInspection) -> str:
    """Return how many texts of which source and length are inspected."""
    examined = inspection.texts + len(inspection.skipped)
    sample = f", a sample of {inspection.texts_found:,}" if inspection.texts_found > examined else ""
    estimated = ", estimated" if inspection.tokens_estimated else ""
    counts = inspection.languages
    languages = ", ".join(f"{count:,} {code}" for code, count in counts.items()) if len(counts) > 1 else next(iter(counts))
    return (
        f"{pluralize(inspection.texts, 'text')} of {inspection.source}{sample} ({languages}), median "
        f"{inspection.median_tokens:,.0f} tokens{estimated}"
    )


def describe_unread(inspection: ModelInspection) -> str:
    """Return in a sentence how much of the texts is never read."""
    unread = inspection.unread
    if not unread.texts_cut:
        return "All of these texts are read to the end."
    share = f"{format_percent(unread.share.value)} % {format_interval(unread.share, format_percent)}".rstrip()
    return f"{share} of these texts is never read: {unread.texts_cut:,} of {inspection.texts:,} are longer."


def describe_window(fading: Fading) -> Iterator[str]:
    """Yield the score of questions about what is read, and about what is not, in a sentence, if any is not read."""
    if fading.questions_beyond:
        yield (
            f"nDCG@10 is {format_percent(fading.within)} for sentences that the model reads, and "
            f"{format_percent(fading.beyond)} for the {format_count(fading.questions_beyond)} that it does not"
            + _explain_unread(fading.beyond_baseline)
        )


def _explain_unread(baseline: WordBaseline | None) -> str:
    if baseline is None:
        return "."
    return (
        ": unread sentences share topic and words with what is read of their text, in which BM25 finds them with "
        f"{format_percent(baseline.shared_words)}, and a random order with {format_percent(baseline.chance)}."
    )


def wording_table(fading: tuple[Fading, ...]) -> Table:
    """Return a row for each wording of the questions; below the last, one for each length of texts."""
    headings = ("Wording; tokens", "Queries", "nDCG@10", "Start to end", "PSI", "PSI under the null")
    rarest = fading[-1]
    rows = [_score_row(WORDINGS[wording.wording], wording.scores) for wording in fading]
    if len(rarest.by_length) > 1:
        rows += [
            _score_row(f"  {name.partition(': ')[2].removesuffix(' tokens')}", scores)
            for name, scores in rarest.by_length.items()
        ]
    return Table(build_columns(headings, headings[1:]), tuple(rows))


def _score_row(name: str, scores: Scores) -> tuple[str, ...]:
    return (
        name,
        format_count(scores.questions),
        format_percent(scores.ndcg_at_10.value if scores.ndcg_at_10 else None),
        format_score(Unit.POINTS, scores.start_to_end),
        format_score(Unit.INDEX, scores.psi),
        format_score(Unit.INDEX, scores.psi_null),
    )


def describe_positions(fading: Fading) -> str:
    """Return nDCG@10 by tenth of the text, from the first to the last."""
    scores = (format_percent(score.value if score else None, ".0f") for score in fading.by_position)
    return f"By tenth of the text: {' '.join(scores)}."


def chunk_table(chunks: tuple[ChunkRow, ...]) -> Table:
    """Return a row for whole texts and each chunk size, or each splitter with the tokens that it makes to encode."""
    tokens = any(row.chunker for row in chunks)
    headings = ("Chunks", "Vectors", *(["Tokens"] if tokens else []), "nDCG@10", "Gain", "Start to end")
    rows = tuple(
        (
            name_chunks(row),
            format_count(row.vectors),
            *([format_count(row.counts.tokens)] if tokens else []),
            format_estimate(row.ndcg_at_10, format_percent),
            MISSING if row is chunks[0] else format_estimate(row.gain, format_points),
            format_estimate(row.start_to_end, format_points),
        )
        for row in chunks
    )
    return Table(build_columns(headings, headings[1:]), rows)


def name_chunks(row: ChunkRow) -> str:
    """Return the name of a row of chunks."""
    return row.chunker or ("whole texts" if row.size is None else f"{row.size:,} tokens")


def describe_chunks(inspection: ModelInspection) -> Iterator[str]:
    """Yield which chunks of splitters are longer than the model reads, or not in their text."""
    for row in inspection.chunks:
        chunks = f"of {pluralize(row.vectors, 'chunk')}"
        if row.counts.cut:
            yield f"{row.chunker}: {row.counts.cut:,} {chunks} are longer than the model reads."
        if row.counts.lost:
            yield f"{row.chunker}: {row.counts.lost:,} {chunks} are not in their text, and are encoded as they are."
