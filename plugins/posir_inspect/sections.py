"""The sections of an inspection: the answer, and the numbers behind it."""

from __future__ import annotations

from collections.abc import Iterator

from posir_inspect.inspection import Fading, ModelInspection, OtherWords
from posir_inspect.questions import Wording
from posir_inspect.splitting import ChunkComparison, ChunkRow
from posir_significance.decision import CHANGE_LEVEL
from posir_significance.sentences import (
    advise,
    format_contrast,
    format_difference,
    format_level,
    iterate_answer,
    label_change,
    label_state,
)
from posir_tasks.display.numbers import (
    MISSING,
    format_count,
    format_estimate,
    format_interval,
    format_p_value,
    format_percent,
    format_score,
)
from posir_tasks.display.progress import format_seconds
from posir_tasks.display.tables import DisplaySection, Table, build_columns
from posir_tasks.display.wording import pluralize
from posir_tasks.scores import ALL, Unit
from posir_tasks.sources.formats.passages import describe_skipped

READING, FADING, ADVICE = "How far the model reads", "How well it finds a sentence, by its position", "What to do"
OTHER = "The same in other words"
CHUNKS, CHUNKERS = "Which chunk size serves these texts", "Which chunker serves these texts"
LEGEND = (
    "Queries: sentences of the texts, kept in them, by default their rarest words, which favors small chunks. Start to end: "
    f"first minus last third. Intervals: 95 %; of lengths and of changes ({format_level(CHANGE_LEVEL)}) wider: all hold."
)
WORDINGS = {Wording.VERBATIM: "verbatim", Wording.RAREST_WORDS: "rarest words", Wording.OTHER_WORDS: "other words"}


def build_sections(inspection: ModelInspection, *, full: bool = False) -> Iterator[DisplaySection]:
    """Yield the texts, then what is known of the answer; under 48 lines of 80 columns.

    With `full`, PSI, its values by chance and p-values are shown, too.
    """
    name, cut, unread = inspection.model.rpartition("/")[2], inspection.unread.texts_cut, inspection.unread.share
    extent = f"{inspection.window.tokens.high:,} of {inspection.median_tokens:,.0f} tokens (median text)"
    reading = f"{name} reads {extent if cut else 'these texts as a whole'}."
    skipped = describe_skipped(inspection.skipped, examples=1)
    texts = f"Inspected: {describe_texts(inspection)}."
    yield DisplaySection(sentences=tuple(filter(None, (reading, texts, skipped))))
    share = f"{format_percent(unread.value)} % {format_interval(unread, format_percent)}".rstrip()
    never = f"{share} of these texts is never read: {cut:,} of {inspection.texts:,} are longer."
    yield DisplaySection(READING, (inspection.window.sentence, never if cut else "All of these texts are read as a whole."))
    if work := inspection.work:
        planned = f"The rest takes at most about {format_seconds(work.seconds)}: {work.tokens:,} tokens to encode (--budget)"
        every = f"; all {work.all_tokens:,} would take {format_seconds(work.all_seconds)} (--all-texts)"
        yield DisplaySection(sentences=(f"{planned}{every if work.all_tokens > work.tokens else ''}.",))
    if inspection.fading is None:
        return
    if not inspection.fading:
        yield DisplaySection(FADING, ("Cannot be said: no sentence of 5 to 80 words occurs only once.",))
        return
    rarest = inspection.fading[-1]
    how_well, start_to_end, not_read, bias, _ = (sentence for _, sentence in iterate_answer(rarest.decision))
    by_tenth = " ".join(format_percent(score.value if score else None, ".0f") for score in rarest.by_position)
    parts = how_well, start_to_end, not_read, *describe_scores_read(rarest), bias, f"By tenth of the text: {by_tenth}."
    sampled = describe_sample(inspection.fading_texts, inspection)
    yield DisplaySection(FADING, (*parts, *sampled), tuple(build_tables(inspection.fading, full=full)))
    if not (chunks := inspection.chunks):
        return
    sampled = describe_sample(inspection.chunk_texts, inspection)
    title = CHUNKERS if any(row.chunker for row in chunks.rows) else CHUNKS
    yield DisplaySection(title, (*chunks.sentences, *describe_chunks(chunks), *sampled), (chunk_table(chunks.rows),))
    if inspection.other_words:
        yield build_other_words(chunks, inspection.other_words)
    run = [f"Run it with {chunks.row.name}: -m '{chunks.chunked_model}'."] if chunks.chunked_model else []
    yield DisplaySection(ADVICE, (advise(rarest.decision), *run))


def title_chunks(comparison: ChunkComparison) -> str:
    """Return how the chosen chunks change the score, as the title of a chart."""
    return comparison.sentences[0].partition(":")[0].rstrip(".")


def build_other_words(rarest: ChunkComparison, other: OtherWords) -> DisplaySection:
    """Return who wrote the questions in other words, what words alone find, and which chunk size they advise."""
    chunks, baseline = other.chunks, other.words_alone
    unwritten = f"; about {pluralize(other.unwritten, 'sentence')} there is none" if other.unwritten else ""
    sentences = [f"{pluralize(other.questions, 'question')} that {other.writer} wrote{unwritten}."]
    if other.by_itself:
        sentences.append("That is the inspected model: they favor it, and small chunks. Name another if you have one.")
    if baseline:
        shared, chance = format_percent(baseline.shared_words), format_percent(baseline.chance)
        sentences.append(f"BM25 finds their texts with nDCG@10 {shared}, a random order with {chance}.")
    if not chunks:
        return DisplaySection(OTHER, tuple(sentences))
    sentences += chunks.sentences
    if rarest.decided and chunks.decided:
        same = rarest.row.name == chunks.row.name
        differs = f"differs: questions in their rarest words have {rarest.row.name}"
        sentences.append(f"The advice {'is that of questions in their rarest words' if same else differs}.")
    return DisplaySection(OTHER, tuple(sentences), (chunk_table(chunks.rows),))


def describe_sample(texts: int, inspection: ModelInspection) -> Iterator[str]:
    """Yield of which texts an answer is, unless it is of all."""
    excerpts = f" in excerpts of at most {inspection.excerpt_tokens:,} tokens" if inspection.excerpt_tokens else ""
    if texts < inspection.texts:
        yield f"This is of {texts:,} of the texts{excerpts if texts == inspection.chunk_texts else ''}, drawn at random."
    elif excerpts and texts == inspection.chunk_texts and inspection.chunks:
        yield f"This is of the texts{excerpts}."


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


def describe_scores_read(fading: Fading) -> Iterator[str]:
    """Yield the score of questions about what is read, and about what is not, in a sentence, if any is not read."""
    if fading.ndcg_at_10_not_read is not None:
        questions, decision = fading.groups[ALL]
        unread, baseline = round((decision.not_read or 0) * questions), fading.not_read_without_model
        by_words = (
            ": unread sentences share topic and words with what is read of their text, in which BM25 finds them with "
            f"{format_percent(baseline.shared_words)}, and a random order with {format_percent(baseline.chance)}"
            if baseline
            else ""
        )
        yield (
            f"nDCG@10 is {format_percent(fading.ndcg_at_10_read)} for sentences that the model reads, and "
            f"{format_percent(fading.ndcg_at_10_not_read)} for the {unread:,} that it does not{by_words}."
        )


def build_tables(fading: tuple[Fading, ...], *, full: bool) -> Iterator[Table]:
    """Yield a row for each wording of the questions; below the last, one for each length of texts."""
    rarest = fading[-1]
    groups = [(WORDINGS[wording.wording], wording.groups[ALL]) for wording in fading]
    if len(rarest.groups) > 2:
        groups += [
            (f"  {name.partition(': ')[2].removesuffix(' tokens')}", group)
            for name, group in rarest.groups.items()
            if name != ALL
        ]
    headings = ("Wording; tokens", "Queries", "nDCG@10", "Start to end", "State")
    rows = (
        (
            name,
            format_count(questions),
            format_percent(decision.ndcg_at_10.value if decision.ndcg_at_10 else None),
            format_contrast(decision, decision.start_to_end),
            label_state(decision),
        )
        for name, (questions, decision) in groups
    )
    yield Table(build_columns(headings, headings[1:-1]), tuple(rows))
    if full:
        columns = ("Wording; tokens", "Bias within read", "PSI", "as published", "by chance", "any effect")
        shares = (
            (
                name,
                format_contrast(decision, decision.bias_within_read),
                *(format_score(Unit.INDEX, psi) for psi in (decision.psi, decision.psi_as_published, decision.psi_chance)),
                MISSING if decision.p_value_within_read is None else f"p {format_p_value(decision.p_value_within_read)}",
            )
            for name, (_, decision) in groups
        )
        yield Table(build_columns(columns, columns[1:]), tuple(shares))


def chunk_table(chunks: tuple[ChunkRow, ...]) -> Table:
    """Return a row for whole texts and each chunk size, or each splitter with the tokens that it makes to encode."""
    tokens = any(row.chunker for row in chunks)
    headings = ("Chunks", "Vectors", *(["Tokens"] if tokens else []), "nDCG@10", "Change from whole texts", "")
    rows = tuple(
        (
            name_chunks(row),
            format_count(row.vectors),
            *([format_count(row.counts.tokens)] if tokens else []),
            format_estimate(row.ndcg_at_10, format_percent),
            (row.change and format_difference(row.change.ndcg_at_10, row.change)) or MISSING,
            label_change(row.change.ndcg_at_10) if row.change else "",
        )
        for row in chunks
    )
    return Table(build_columns(headings, headings[1:-1]), rows)


def name_chunks(row: ChunkRow) -> str:
    """Return the name of a row of chunks."""
    return row.chunker or ("whole texts" if row.size is None else f"{row.size:,} tokens")


def describe_chunks(comparison: ChunkComparison) -> Iterator[str]:
    """Yield which chunks of splitters are longer than the model reads, or not in their text."""
    for row in comparison.rows:
        chunks = f"of {pluralize(row.vectors, 'chunk')}"
        if row.counts.cut:
            yield f"{row.chunker}: {row.counts.cut:,} {chunks} are longer than the model reads."
        if row.counts.lost:
            yield f"{row.chunker}: {row.counts.lost:,} {chunks} are not in their text, and are encoded as they are."
