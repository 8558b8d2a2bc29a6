"""The result of `posir inspect`, and its sections for display."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from posir_inspect.model_window import UnreadShare
from posir_inspect.questions import WordBaseline, Wording
from posir_inspect.snippets import Snippet
from posir_inspect.splitting import ChunkComparison
from posir_inspect.window import MINI, WindowReading
from posir_significance.advice import build_commands
from posir_significance.analysis import GroupAnalysis
from posir_significance.findings import (
    CHANGE_LEVEL,
    WITHOUT_INTERVAL,
    GroupFindings,
    Quantity,
    Reason,
)
from posir_significance.messages.texts import (
    NEVER_READS,
    OTHER_ADVICE,
    READS_ALL_TEXTS,
    SAME_ADVICE,
    TRUNCATED_SCORES,
    UNREAD_WORDS,
    WORD_BASELINE,
    advise_more_texts,
    describe_sentence_scores,
    format_percentage,
)
from posir_significance.messages.verdicts import (
    describe_advice,
    format_evidence_share,
    format_finding,
    format_level,
    label_state,
    list_effects,
)
from posir_significance.strips import build_position_chart
from posir_tasks.base.private_names import TASKS_REGISTRY
from posir_tasks.base.wording import drop_organization, pluralize
from posir_tasks.data.formats.passages import SkippedText, describe_skipped
from posir_tasks.display.numbers import (
    format_estimate,
    format_percent,
    format_points,
    format_score,
)
from posir_tasks.display.position_charts import NDCG, PositionChart
from posir_tasks.display.presentation import Result
from posir_tasks.display.tables import DisplaySection, Medium, Role, Table, build_columns
from posir_tasks.models.command_reference import NO_REFERENCE, CommandReference
from posir_tasks.values.read_part import Part
from posir_tasks.values.scores import ALL, Unit

#: Scale of the position charts, in which the evidence is a sentence.
SCALE = replace(
    NDCG,
    whole="the sentences",
    caption="texts to their end: how well a sentence there is found (nDCG@10, 0 to 100)",
)
WINDOW_HEADING = "How far the model reads"
SEARCH_HEADING = "How well it finds a sentence"
ADVICE_HEADING = "What to do"
PARAPHRASE_HEADING = "The same in other words"
NO_QUESTIONS = "Not measured: no sentence of 5 to 80 words occurs exactly once."
LEGEND = (
    "Brackets: 95% confidence intervals, widened where several are read together (rows by length; "
    f"changes: {format_level(CHANGE_LEVEL)})."
)
EXPLANATION = (
    "Each text has at most ten questions, so that long texts count less: the share of sentences "
    "beyond the window is below the share of words.",
    "The window was measured from embeddings: the ends of texts were changed, and a part is unread "
    "if changing it alters no embedding. The model's own limits were not used.",
    "The questions were generated, not written by people. Each is a sentence of one text, and the "
    "task is to find that text among the others (inverse cloze task, Lee et al. 2019, arXiv "
    "1906.00300); the sentence stays in the text, since its position is what is compared. People "
    "ask in other words, so scores are higher than on real questions: compare positions and sizes, "
    "not models. `posir report`, with a task's questions, may differ.",
)
#: Columns of a row. Each row covers whole texts of one length or chunks of one size, in one
#: wording. Findings keep their own names. `change` is nDCG@10 of chunks minus nDCG@10 of whole
#: texts, with a 98.33% interval.
COLUMNS = (
    "model",
    "chunk_size",
    "chunker",
    "vectors",
    "tokens",
    "wording",
    "length",
    "questions",
    "ndcg_at_10",
    "position_effect",
    "position_effect_in_window",
    "state",
    "reason",
    "margin",
    "level",
    "documents",
    "tested_questions",
    "questions_needed",
    "documents_needed",
    "unread_share",
    "truncation_loss",
    "start_minus_end",
    "psi_as_published",
    "psi_by_chance",
    "change",
    "change_state",
)


@dataclass(frozen=True)
class PositionScores:
    """nDCG@10 of pseudo-questions in one wording, by sentence position."""

    wording: Wording
    ndcg_at_10_not_read: float | None
    """nDCG@10 of questions about truncated sentences; None without such questions or if the window
    is unknown.
    """
    not_read_without_model: WordBaseline | None
    """nDCG@10 of BM25 on the same questions; None without such questions."""
    groups: Mapping[str, GroupFindings]
    """Findings by title of the length bucket; the first entry, `all`, covers all questions."""
    group: GroupAnalysis
    """Analysis of all questions."""

    @property
    def findings(self) -> GroupFindings:
        """Findings for all questions."""
        return self.groups[ALL]

    def to_json(self) -> dict[str, object]:
        """Convert to JSON, without the analysis."""
        values = dict(vars(self))
        del values["group"]
        values["groups"] = {name: group.to_json() for name, group in self.groups.items()}
        return values


@dataclass(frozen=True)
class OtherWords:
    """Results for the questions in other words."""

    writer: str
    writer_is_model: bool
    questions: int
    """Number of questions about whole texts."""
    unwritten: int
    """Number of sentences with a question in their rarest words but none in other words."""
    words_alone: WordBaseline | None
    """nDCG@10 of BM25 in whole texts; None without questions."""
    answers: str = ""
    """A sentence about a language model's answers: their cost and how many were rejected."""
    chunks: ChunkComparison | None = None
    """None before chunks are searched, or without questions."""


@dataclass(frozen=True)
class WorkEstimate:
    """Tokens to encode and the time to encode them, within the budget and without a budget."""

    tokens: int
    seconds: float
    all_tokens: int
    """Number of tokens in all texts, questions and chunks."""
    all_seconds: float


@dataclass(frozen=True, repr=False, kw_only=True)
class Inspection(Result):
    """The inspection of a model on texts: its window, nDCG@10 by position, and chunk sizes.

    There is one row for each wording and length of whole texts, and for each chunk size or
    splitter.
    """

    model: str
    revision: str | None
    source: str
    texts: int
    texts_found: int
    languages: Mapping[str, int]
    median_tokens: float
    tokens_estimated: bool
    """True if the tokenizer is unknown and tokens are estimated as four bytes each."""
    skipped: tuple[SkippedText, ...]
    window: WindowReading
    unread: UnreadShare
    reference: CommandReference = NO_REFERENCE
    """The model, texts and settings as used in commands; without texts if they are in memory."""
    lengths: tuple[tuple[str, int, float], ...] = ()
    """Name, tokens and unread share of each text, the longest first."""
    vectors_per_text: float | None = None
    """Mean number of chunks per text at the recommended size, with an overlap of half; None if no
    size is recommended.
    """
    unread_example: tuple[str, str] = ("", "")
    """An unread sentence and the name of its text; empty if no sentence is unread."""
    work: WorkEstimate | None = None
    """Estimated work after the window is measured; None before the estimate."""
    encoded_tokens: int | None = None
    """Number of tokens encoded after the window was measured; None before the end."""
    fading: tuple[PositionScores, ...] | None = None
    """Scores by position, one per wording; None before the search, empty without questions."""
    fading_texts: int = 0
    """Number of whole texts that were searched."""
    chunks: ChunkComparison | None = None
    """Comparison on questions reduced to their rarest words; None before the search, or without
    questions.
    """
    chunk_texts: int = 0
    """Number of texts on which chunks were compared."""
    excerpt_tokens: int | None = None
    """Maximum length of the excerpts on which chunks were compared; None for whole texts."""
    other_words: OtherWords | None = None
    """None without a writer, or before the search."""
    snippets: tuple[Snippet, ...] = ()
    """Code for the recommended chunks, one snippet per library."""
    snippet: Snippet | None = None
    """Code for the library that the user chose."""
    full: bool = False
    """If true, observed differences and the published PSI are also shown."""

    @property
    def name(self) -> str:
        """The model name without its organization."""
        return drop_organization(self.model)

    @property
    def is_task(self) -> bool:
        """True if the texts are the documents of a task."""
        return self.source in TASKS_REGISTRY.resolve()

    @property
    def chunk_sample(self) -> str:
        """The number of texts or excerpts on which chunks were compared, in words."""
        sample = pluralize(self.chunk_texts, "excerpt" if self.excerpt_tokens else "text")
        limit = f" of at most {self.excerpt_tokens:,} tokens" if self.excerpt_tokens else ""
        return f"{sample}{limit}"


def complete_inspection(inspection: Inspection) -> Inspection:
    """Add title, rows, values and sections to an inspection, even if it is incomplete."""
    title = _title(inspection)
    revision = (inspection.revision or "unknown")[:12]
    texts = pluralize(inspection.texts, "text")
    averages = map(_describe_averages, (inspection.fading or ())[-1:])
    return replace(
        inspection,
        title=title,
        data=f"{inspection.model}, revision {revision}; {texts} of {inspection.source}",
        rows=tuple(_build_rows(inspection)),
        values=partial(_build_document, inspection),
        extra_sections=tuple(_build_sections(inspection, title)),
        notes=(LEGEND, describe_skipped(inspection.skipped, examples=1)),
        details=(*averages, *EXPLANATION),
    )


def _build_rows(inspection: Inspection) -> Iterator[dict[str, object]]:
    empty: dict[str, object] = dict.fromkeys(COLUMNS)
    empty["model"] = inspection.model
    for scores in inspection.fading or ():
        for length, findings in scores.groups.items():
            row = {**findings.to_json(), "wording": scores.wording.value, "length": length}
            row["vectors"] = inspection.fading_texts if length == ALL else None
            for quantity, finding in findings.findings.items():
                if quantity not in WITHOUT_INTERVAL and finding.estimate:
                    row[quantity.value] = finding.estimate
            yield empty | {name: row[name] for name in COLUMNS if name in row}
    comparisons = {Wording.RAREST_WORDS: inspection.chunks}
    if inspection.other_words:
        comparisons[Wording.OTHER_WORDS] = inspection.other_words.chunks
    for wording, comparison in comparisons.items():
        for chunks in comparison.rows[1:] if comparison else ():
            yield empty | chunks.record() | {"wording": wording.value, "length": ALL}


def _build_document(inspection: Inspection) -> dict[str, object]:
    """Convert all fields to JSON; `window` has the same keys as `posir window`."""
    values = inspection.list_own_fields()
    del values["snippets"]
    other_words = dict(vars(inspection.other_words)) if inspection.other_words else {}
    chunks = other_words.pop("chunks", None)
    return values | {
        "window": inspection.window.document(),
        "read": inspection.window.read_part.to_json(),
        "fading": [scores.to_json() for scores in inspection.fading or ()],
        "chunks": inspection.chunks and inspection.chunks.document(),
        "other_words": other_words or None,
        "chunks_in_other_words": chunks and chunks.document(),
        "rows": tuple(_build_rows(inspection)),
    }


def _title(inspection: Inspection) -> str:
    texts = f"these {pluralize(inspection.texts, 'text')}"
    if not inspection.unread.texts_cut:
        return READS_ALL_TEXTS.format(model=inspection.name, texts=texts)
    share = format_evidence_share(inspection.unread.share.value)
    return NEVER_READS.format(model=inspection.name, share=share, texts=texts)


def _build_sections(inspection: Inspection, title: str) -> Iterator[DisplaySection]:
    """Build the sections available so far. In a terminal, they fit in 48 lines of 80 characters."""
    texts = (_describe_texts(inspection),)
    scores = inspection.fading
    strips = tuple(_build_strip(inspection, part) for part in scores or ())
    card = tuple(replace(strip, name=inspection.name) for strip in strips[-1:])
    yield DisplaySection(title, texts, only=Medium.TEXT)
    yield DisplaySection(sentences=texts, position_charts=card, only=Medium.PAGE)
    sentences = [inspection.window.sentence]
    cut_texts = inspection.unread.texts_cut
    if cut_texts:
        share = format_percentage(inspection.unread.share)
        sentences.append(UNREAD_WORDS.format(number=cut_texts, texts=inspection.texts, share=share))
    lengths = inspection.lengths if cut_texts else ()
    yield DisplaySection(WINDOW_HEADING, tuple(sentences), lengths=lengths)
    if scores is None:
        return
    if not scores:
        yield DisplaySection(SEARCH_HEADING, (NO_QUESTIONS,))
        return
    yield DisplaySection(
        SEARCH_HEADING, (strips[-1].finding,), position_charts=strips, only=Medium.TEXT
    )
    facts = (": ".join(fact) for fact in _list_facts(inspection, scores[-1]))
    paragraph = "\n".join(fact.replace("\n", ", ") for fact in facts)
    yield DisplaySection(sentences=(paragraph,), only=Medium.TEXT)
    if inspection.chunks:
        yield from _build_chunks(inspection, inspection.chunks)
        yield from _build_lengths(inspection, scores)
    if snippet := inspection.snippet:
        yield DisplaySection(
            f"The chunks for {snippet.kind}",
            (snippet.sentence,),
            code=snippet.code,
            is_command=False,
            only=Medium.TEXT,
        )


def _build_strip(inspection: Inspection, scores: PositionScores) -> PositionChart:
    findings = scores.findings
    strip = build_position_chart(findings, scores.group, scores.wording.words)
    if len(inspection.fading or ()) == 1:
        strip = replace(strip, name=inspection.name)
    unread = (findings.value(Quantity.UNREAD_SHARE) or 0) * findings.questions
    codes = tuple(
        (snippet.kind, snippet.sentence, snippet.code, snippet is inspection.snippet)
        for snippet in inspection.snippets
        if snippet.code
    )
    border = ""
    if findings.read.part is Part.FIRST and strip.truncated:
        border = f"{findings.read.tokens:,} tokens"
    sample = f"{inspection.fading_texts:,} of {inspection.texts:,} texts"
    return replace(
        strip,
        words=(sample, *strip.words),
        facts=lambda: [*_list_facts(inspection, scores), (ADVICE_HEADING, _advise(inspection))],
        scale=SCALE,
        code="" if codes else _build_next_commands(inspection),
        codes=codes,
        window_end=border,
        truncated_label=f"{unread:,.0f} of {pluralize(findings.questions, 'sentence')}",
    )


def _build_chunks(inspection: Inspection, chunks: ChunkComparison) -> Iterator[DisplaySection]:
    """Build the advice, then the chunk comparison that supports it."""
    evaluation = ""
    if chunks.chunked_model:
        task = inspection.reference.data if inspection.is_task else MINI
        run = inspection.reference.write("mteb", "run", "-t", task, "-m", chunks.chunked_model)
        evaluation = f"# to evaluate these chunks on a task\n{run}"
    yield DisplaySection(
        ADVICE_HEADING,
        (_advise(inspection),),
        code=_build_next_commands(inspection),
        only=Medium.TEXT,
    )
    is_compared = chunks.has_splitters or not chunks.has_few_texts
    if chunks.rows[1:] and (is_compared or inspection.full):
        sentences = [*chunks.sentences, *chunks.describe_counts()]
        if inspection.excerpt_tokens or inspection.chunk_texts < inspection.texts:
            sentences.append(_describe_sample(inspection.chunk_sample, inspection.texts))
        yield DisplaySection(chunks.title, tuple(sentences), (chunks.tabulate(),), code=evaluation)
    if inspection.other_words:
        yield _build_other_words(chunks, inspection.other_words)


def _build_lengths(
    inspection: Inspection, scores: Sequence[PositionScores]
) -> Iterator[DisplaySection]:
    """Build the table of verdicts by wording and length, unless all rows have too few texts."""
    overall, *lengths = scores[-1].groups.items()
    groups = {f"all, {item.wording.words}": item.findings for item in scores}
    if len(scores) == 1:
        groups = dict([overall])
    if len(lengths) > 1:
        groups |= lengths
    is_tested = any(group.reason is not Reason.FEW_DOCUMENTS for group in groups.values())
    if is_tested and (len(groups) > 1 or inspection.full):
        sentences: tuple[str, ...] = ()
        if inspection.fading_texts < inspection.texts:
            sample = pluralize(inspection.fading_texts, "text")
            sentences = (_describe_sample(sample, inspection.texts),)
        yield DisplaySection(
            f"{SEARCH_HEADING}, by length of the text",
            sentences,
            (_tabulate_groups(groups, full=inspection.full),),
        )


def _advise(inspection: Inspection) -> str:
    """Return the advice: better chunks, more texts, or the next step for the verdict."""
    chunks = inspection.chunks
    assert inspection.fading
    if chunks and chunks.is_advised:
        return chunks.advise(inspection.chunk_sample, inspection.vectors_per_text)
    if chunks and chunks.has_few_texts and inspection.fading_texts == inspection.texts:
        largest = max(row.size or 0 for row in chunks.rows) if inspection.unread.texts_cut else 0
        return advise_more_texts(inspection.texts, largest)
    task = inspection.source if inspection.is_task else ""
    return describe_advice(inspection.fading[-1].findings, task)


def _build_next_commands(inspection: Inspection) -> str:
    """Return the next commands, one per line.

    If chunks are recommended, the command writes code. Otherwise, a task gets the commands for its
    verdict.
    """
    reference = inspection.reference
    if inspection.chunks and inspection.chunks.chunked_model and reference.data:
        command = reference.write(
            "posir", "inspect", reference.model, reference.data, "--snippet", "langchain"
        )
        return f"# code for langchain, llamaindex, haystack, qdrant or elasticsearch\n{command}"
    if not inspection.is_task or not inspection.fading:
        return ""
    return "\n".join(build_commands(inspection.fading[-1].findings, reference))


def _list_facts(inspection: Inspection, scores: PositionScores) -> Iterator[tuple[str, str]]:
    sentences = pluralize(scores.findings.questions, "sentence")
    yield (
        "Queries",
        f"{sentences} from your texts, reduced to their rarest words. 100 = its text always ranks "
        "first.",
    )
    yield from list_effects(scores.findings)
    example, name = inspection.unread_example
    if example:
        yield "Never read, for example", f'"{example}" ({name.rpartition("/")[2]})'


def _build_other_words(rarest: ChunkComparison, paraphrased: OtherWords) -> DisplaySection:
    sentences = [f"{pluralize(paraphrased.questions, 'question')} that {paraphrased.writer} wrote."]
    sentences += filter(None, [paraphrased.answers])
    if paraphrased.writer_is_model:
        sentences.append(
            "This is the inspected model, so its questions favor the model itself and small "
            "chunks. Use another model if you have one."
        )
    if paraphrased.words_alone:
        shared_words = format_percent(paraphrased.words_alone.shared_words)
        chance = format_percent(paraphrased.words_alone.chance)
        sentences.append(WORD_BASELINE.format(shared=shared_words, chance=chance))
    chunks = paraphrased.chunks
    if not chunks:
        return DisplaySection(PARAPHRASE_HEADING, tuple(sentences))
    sentences += chunks.sentences
    if rarest.is_decided and chunks.is_decided:
        name = rarest.row.name
        template = SAME_ADVICE if name == chunks.row.name else OTHER_ADVICE
        sentences.append(template.format(chunks=name))
    return DisplaySection(PARAPHRASE_HEADING, tuple(sentences), (chunks.tabulate(),))


def _describe_sample(sample: str, total: int) -> str:
    return f"Measured on {sample}, drawn at random from {total:,} texts."


def _describe_texts(inspection: Inspection) -> str:
    """Describe the length of the texts, and the languages if there are several."""
    about = "about " if inspection.tokens_estimated else ""
    description = (
        f"The texts, from {inspection.source}, have {about}{inspection.median_tokens:,.0f} tokens "
        "at the median"
    )
    if inspection.texts_found > inspection.texts + len(inspection.skipped):
        description += f"; they are a sample of {inspection.texts_found:,}"
    if len(inspection.languages) > 1:
        languages = ", ".join(f"{count:,} {code}" for code, count in inspection.languages.items())
        description += f"; languages: {languages}"
    return f"{description}."


def _describe_averages(scores: PositionScores) -> str:
    findings = scores.findings
    description = describe_sentence_scores(findings)
    baseline = scores.not_read_without_model
    if not baseline or scores.ndcg_at_10_not_read is None:
        return description
    truncated_scores = TRUNCATED_SCORES.format(
        score=format_percent(scores.ndcg_at_10_not_read),
        read=findings.read.phrase,
        shared=format_percent(baseline.shared_words),
        chance=format_percent(baseline.chance),
    )
    return f"{description} {truncated_scores}"


def _tabulate_groups(groups: Mapping[str, GroupFindings], *, full: bool) -> Table:
    """Build the table of nDCG@10 and verdicts by group; `full` adds start minus end and PSI."""
    effect = "Effect within the window"
    headings = ["Texts", "nDCG@10", "State", effect]
    if full:
        headings += ["Start minus end", "PSI as published", "by chance"]
    rows = []
    for name, findings in groups.items():
        cells = [
            name,
            format_estimate(findings[Quantity.NDCG_AT_10].estimate, format_percent),
            label_state(findings),
            format_finding(findings.verdict, with_level=False),
        ]
        if full:
            cells.append(
                format_estimate(findings[Quantity.START_MINUS_END].estimate, format_points)
            )
            cells += [
                format_score(Unit.INDEX, findings[quantity].estimate)
                for quantity in (Quantity.PSI_AS_PUBLISHED, Quantity.PSI_BY_CHANCE)
            ]
        rows.append(tuple(cells))
    columns = build_columns(
        headings, {*headings[1:]} - {"State"}, drawn=[effect], roles={"State": Role.STATE}
    )
    return Table(columns, tuple(rows))
