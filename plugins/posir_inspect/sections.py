"""The sections of an inspection: the answer, and the numbers behind it."""

from __future__ import annotations

from collections.abc import Iterator

from posir_inspect.budget import WorkEstimate
from posir_inspect.inspection import ChunkComparison, Fading, GroupDecision, ModelInspection, OtherWords
from posir_inspect.questions import WordBaseline, Wording
from posir_inspect.splitting import ChunkAdvice, ChunkRow
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

    Args:
        inspection: What is known.
        full: Whether PSI, its values by chance and p-values are shown, too.
    """
    skipped = describe_skipped(inspection.skipped, examples=1)
    texts = f"Inspected: {describe_texts(inspection)}."
    yield DisplaySection(sentences=tuple(filter(None, (state_reading(inspection), texts, skipped))))
    yield DisplaySection(READING, (inspection.window.sentence, describe_unread(inspection)))
    if inspection.work:
        yield DisplaySection(sentences=(describe_work(inspection.work),))
    if inspection.fading is None:
        return
    if not inspection.fading:
        yield DisplaySection(FADING, ("Cannot be said: no sentence of 5 to 80 words occurs only once.",))
        return
    rarest = inspection.fading[-1]
    how_well, start_to_end, not_read, bias, _ = (sentence for _, sentence in iterate_answer(rarest.decision))
    sampled = describe_sample(inspection.fading_texts, inspection)
    parts = how_well, start_to_end, not_read, *describe_scores_read(rarest), bias
    sentences = (*parts, describe_positions(rarest), *sampled)
    yield DisplaySection(FADING, sentences, tuple(build_tables(inspection.fading, full=full)))
    if not inspection.chunks:
        return
    sampled = describe_sample(inspection.chunk_texts, inspection)
    choice = (*inspection.chunks.advice.sentences, *describe_chunks(inspection.chunks), *sampled)
    title = CHUNKERS if any(row.chunker for row in inspection.chunks.rows) else CHUNKS
    yield DisplaySection(title, choice, (chunk_table(inspection.chunks.rows),))
    if inspection.other_words:
        yield build_other_words(inspection.chunks, inspection.other_words)
    yield DisplaySection(ADVICE, (advise(rarest.decision), *describe_command(inspection.chunks)))


def state_reading(inspection: ModelInspection) -> str:
    """Return in a sentence how much of the texts the model reads."""
    name, cut = inspection.model.rpartition("/")[2], inspection.unread.texts_cut > 0
    median, read = f"{inspection.median_tokens:,.0f}", f"{inspection.window.tokens.high:,}"
    return f"{name} reads {f'{read} of {median} tokens (median text)' if cut else 'these texts as a whole'}."


def title_chunks(comparison: ChunkComparison) -> str:
    """Return how the chosen chunks change the score, as the title of a chart."""
    return comparison.advice.sentences[0].partition(":")[0].rstrip(".")


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
    sentences += [*chunks.advice.sentences, *describe_advice(rarest.advice, chunks.advice)]
    return DisplaySection(OTHER, tuple(sentences), (chunk_table(chunks.rows),))


def describe_advice(rarest: ChunkAdvice, other: ChunkAdvice) -> Iterator[str]:
    """Yield whether questions in their rarest words and in other words advise the same, where both do."""
    if rarest.decided and other.decided:
        same = rarest.chosen == other.chosen
        ending = (
            "is that of questions in their rarest words"
            if same
            else f"differs: questions in their rarest words have {rarest.chosen}"
        )
        yield f"The advice {ending}."


def describe_work(work: WorkEstimate) -> str:
    """Return how long the rest takes."""
    planned = f"The rest takes at most about {format_seconds(work.seconds)}: {work.tokens:,} tokens to encode (--budget)"
    return planned + (
        f"; all {work.all_tokens:,} would take {format_seconds(work.all_seconds)} (--all-texts)."
        if work.all_tokens > work.tokens
        else "."
    )


def describe_sample(texts: int, inspection: ModelInspection) -> Iterator[str]:
    """Yield of which texts an answer is, unless it is of all."""
    excerpts = f" in excerpts of at most {inspection.excerpt_tokens:,} tokens" if inspection.excerpt_tokens else ""
    if texts < inspection.texts:
        yield f"This is of {texts:,} of the texts{excerpts if texts == inspection.chunk_texts else ''}, drawn at random."
    elif excerpts and texts == inspection.chunk_texts and inspection.chunks:
        yield f"This is of the texts{excerpts}."


def describe_command(chunks: ChunkComparison) -> Iterator[str]:
    """Yield how to run the model with the chosen size of chunks, unless whole texts are chosen."""
    if chunks.chunked_model:
        yield f"Run it with {chunks.advice.chosen}: -m '{chunks.chunked_model}'."


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
        return "All of these texts are read as a whole."
    share = f"{format_percent(unread.share.value)} % {format_interval(unread.share, format_percent)}".rstrip()
    return f"{share} of these texts is never read: {unread.texts_cut:,} of {inspection.texts:,} are longer."


def describe_scores_read(fading: Fading) -> Iterator[str]:
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
    yield Table(build_columns(headings, headings[1:-1]), tuple(_decision_row(*group) for group in groups))
    if full:
        columns = ("Wording; tokens", "Bias within read", "PSI", "as published", "by chance", "any effect")
        yield Table(build_columns(columns, columns[1:]), tuple(_psi_row(*group) for group in groups))


def _decision_row(name: str, group: GroupDecision) -> tuple[str, ...]:
    decision = group.decision
    return (
        name,
        format_count(group.questions),
        format_percent(decision.ndcg_at_10.value if decision.ndcg_at_10 else None),
        format_contrast(decision, decision.start_to_end),
        label_state(decision),
    )


def _psi_row(name: str, group: GroupDecision) -> tuple[str, ...]:
    decision = group.decision
    return (
        name,
        format_contrast(decision, decision.bias_within_read),
        format_score(Unit.INDEX, decision.psi),
        format_score(Unit.INDEX, decision.psi_as_published),
        format_score(Unit.INDEX, decision.psi_chance),
        f"p {format_p_value(decision.shape.p_value)}" if decision.shape else MISSING,
    )


def describe_positions(fading: Fading) -> str:
    """Return nDCG@10 by tenth of the text, from the first to the last."""
    scores = (format_percent(score.value if score else None, ".0f") for score in fading.by_position)
    return f"By tenth of the text: {' '.join(scores)}."


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
            *_format_change(row),
        )
        for row in chunks
    )
    return Table(build_columns(headings, headings[1:-1]), rows)


def _format_change(row: ChunkRow) -> tuple[str, str]:
    """Return the change of nDCG@10 with its interval, and its state."""
    if row.change is None:
        return MISSING, ""
    metric = row.change.ndcg_at_10
    return format_difference(metric, row.change) or MISSING, label_change(metric)


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
