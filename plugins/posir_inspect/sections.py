"""The result of `posir inspect` and its display sections."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from posir_inspect.model_window import UnreadShare
from posir_inspect.questions import WordBaseline, Wording
from posir_inspect.snippets import Snippet
from posir_inspect.splitting import ChunkComparison
from posir_inspect.window import EXAMPLE_TASK, WindowReading
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
    format_evidence_share,
    format_finding,
    format_level,
    label_state,
    list_effects,
    list_steps,
)
from posir_significance.position_charts import build_position_chart
from posir_tasks.base.private_names import TASKS_REGISTRY
from posir_tasks.base.wording import drop_organization, pluralize
from posir_tasks.data.formats.passages import SkippedItem, describe_skipped
from posir_tasks.display.labels import ShellCommand, Term, join_steps
from posir_tasks.display.numbers import (
    format_estimate,
    format_percent,
    format_points,
    format_score,
)
from posir_tasks.display.position_charts import NDCG, Fact, PositionChart
from posir_tasks.display.presentation import Result
from posir_tasks.display.tables import DisplaySection, Medium, Role, Table, build_columns
from posir_tasks.models.command_reference import NO_REFERENCE, CommandReference
from posir_tasks.values.read_part import Part
from posir_tasks.values.scores import ALL, Unit

#: Scale of the position charts. The evidence is always a sentence.
SCALE = replace(
    NDCG,
    whole="the sentences",
    contents="sentences",
    caption="a text to its end: how well a sentence at each position is found (nDCG@10, 0 to 100)",
)
WINDOW_HEADING = "How far the model reads"
SEARCH_HEADING = "How well it finds a sentence"
ADVICE_HEADING = "What to do"
PARAPHRASE_HEADING = "Paraphrased questions"
NO_QUESTIONS = "Not measured: no sentence of 5 to 80 words occurs exactly once."
LEGEND = Term(
    "Brackets",
    "95% confidence intervals, widened where several are read together (rows by length; "
    f"changes: {format_level(CHANGE_LEVEL)}).",
)
EXPLANATION = (
    "Each text has at most ten questions, so long texts have fewer questions per word. The share "
    "of sentences beyond the window is therefore lower than the share of words.",
    "The window is measured from embeddings, without the model's claimed limits: a part of a text "
    "is unread if changing it does not change the embedding.",
    "The questions are generated, not written by people. Each question is a sentence from one "
    "text, and the task is to retrieve that text (inverse cloze task, Lee et al. 2019, arXiv "
    "1906.00300). The sentence stays in the text, since its position is tested. People phrase "
    "questions differently, so scores are higher than on real questions: compare positions and "
    "chunk sizes, not models. `posir report` uses a task's own questions and may give other "
    "results.",
)
#: Columns of a row. A row covers whole texts of one length, or chunks of one size, in one wording.
#: `change` is nDCG@10 of chunks minus nDCG@10 of whole texts, with a 98.33% interval.
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
    """nDCG@10 of questions about truncated sentences. None if no sentence is truncated or the
    window is unknown.
    """
    not_read_without_model: WordBaseline | None
    """nDCG@10 of BM25 on the same questions; None if there are none."""
    groups: Mapping[str, GroupFindings]
    """Findings by length bucket. The first entry, `all`, covers all questions."""
    analysis: GroupAnalysis
    """Analysis of all questions."""

    @property
    def findings(self) -> GroupFindings:
        """Findings for all questions."""
        return self.groups[ALL]

    def to_json(self) -> dict[str, object]:
        """Convert to JSON values, without the analysis."""
        values = dict(vars(self))
        del values["analysis"]
        values["groups"] = {name: group.to_json() for name, group in self.groups.items()}
        return values


@dataclass(frozen=True)
class ParaphraseResults:
    """Results for paraphrased questions."""

    writer: str
    """Name of the model that paraphrases the questions."""
    writer_is_model: bool
    questions: int
    """Number of paraphrased questions about whole texts."""
    unwritten: int
    """Number of questions that the writer did not paraphrase."""
    words_alone: WordBaseline | None
    """nDCG@10 of BM25 on whole texts; None if there are no questions."""
    answers: str = ""
    """A note about a language model's answers: the cost and the number of rejected answers."""
    chunks: ChunkComparison | None = None
    """None before the search in chunks, or if there are no questions."""


@dataclass(frozen=True)
class WorkEstimate:
    """The number of tokens to encode and the encoding time, with and without the budget."""

    tokens: int
    seconds: float
    all_tokens: int
    """Number of tokens in all texts, questions and chunks."""
    all_seconds: float


@dataclass(frozen=True, repr=False, kw_only=True)
class Inspection(Result):
    """The inspection of a model on texts: its window, nDCG@10 by position, and chunk sizes.

    There is one row per wording and length of whole texts, and one per chunk size or splitter.
    """

    model: str
    revision: str | None
    source: str
    texts: int
    texts_found: int
    """Number of texts before sampling."""
    languages: Mapping[str, int]
    """Number of texts by language code."""
    median_tokens: float
    tokens_estimated: bool
    """True if the tokenizer is unknown. A token is then estimated as four bytes."""
    skipped: tuple[SkippedItem, ...]
    window: WindowReading
    unread: UnreadShare
    reference: CommandReference = NO_REFERENCE
    """Command arguments for the model, texts and settings. Texts in memory are left out."""
    lengths: tuple[tuple[str, int, float], ...] = ()
    """Name, token count and unread share of each text, the longest first."""
    vectors_per_text: float | None = None
    """Mean number of chunks per text at the recommended size; None if no size is recommended."""
    unread_example: tuple[str, str] = ("", "")
    """An unread sentence and the name of its text; empty if no sentence is unread."""
    work: WorkEstimate | None = None
    """Work estimated before the search; None before the estimate."""
    encoded_tokens: int | None = None
    """Number of tokens encoded after the window was measured; None until the inspection ends."""
    fading: tuple[PositionScores, ...] | None = None
    """Scores by position, one entry per wording. None before the search; empty if there are no
    questions.
    """
    fading_texts: int = 0
    """Number of whole texts searched."""
    chunks: ChunkComparison | None = None
    """Comparison on questions reduced to their rarest words. None before the search, or if there
    are no questions.
    """
    chunk_texts: int = 0
    """Number of texts or excerpts in the chunk comparison."""
    excerpt_tokens: int | None = None
    """Maximum excerpt length in the chunk comparison; None if whole texts are compared."""
    other_words: ParaphraseResults | None = None
    """Results for paraphrased questions. None before the search, or if there is no writer."""
    snippets: tuple[Snippet, ...] = ()
    """Code for the recommended chunks, one snippet per library."""
    snippet: Snippet | None = None
    """Code for the library chosen with `--snippet`."""
    full: bool = False
    """If true, also show observed differences and the published PSI."""

    @property
    def name(self) -> str:
        """The model name without the organization."""
        return drop_organization(self.model)

    @property
    def is_task(self) -> bool:
        """True if the texts are the documents of a task."""
        return self.source in TASKS_REGISTRY.resolve()

    @property
    def chunk_sample(self) -> str:
        """A phrase for the sample in the chunk comparison, such as `50 texts`."""
        sample = pluralize(self.chunk_texts, "excerpt" if self.excerpt_tokens else "text")
        limit = f" of at most {self.excerpt_tokens:,} tokens" if self.excerpt_tokens else ""
        return f"{sample}{limit}"


def complete_inspection(inspection: Inspection) -> Inspection:
    """Add title, rows, values and sections to an inspection. The inspection may be partial."""
    title = _format_title(inspection)
    revision = (inspection.revision or "unknown")[:12]
    texts = pluralize(inspection.texts, "text")
    averages = map(_describe_averages, (inspection.fading or ())[-1:])
    return replace(
        inspection,
        title=title,
        data=f"{inspection.model}, revision {revision}; {texts} of {inspection.source}",
        rows=tuple(_build_rows(inspection)),
        values=partial(_convert_to_json, inspection),
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
            yield empty | chunks.to_row() | {"wording": wording.value, "length": ALL}


def _convert_to_json(inspection: Inspection) -> dict[str, object]:
    """Convert all fields to JSON values. `window` has the same keys as `posir window`."""
    values = inspection.list_own_fields()
    del values["snippets"]
    other_words = dict(vars(inspection.other_words)) if inspection.other_words else {}
    chunks = other_words.pop("chunks", None)
    return values | {
        "window": inspection.window.document(),
        "read": inspection.window.read_part.to_json(),
        "fading": [scores.to_json() for scores in inspection.fading or ()],
        "chunks": inspection.chunks and inspection.chunks.to_json(),
        "other_words": other_words or None,
        "chunks_in_other_words": chunks and chunks.to_json(),
        "rows": tuple(_build_rows(inspection)),
    }


def _format_title(inspection: Inspection) -> str:
    texts = f"these {pluralize(inspection.texts, 'text')}"
    if not inspection.unread.texts_cut:
        return READS_ALL_TEXTS.format(model=inspection.name, texts=texts)
    share = format_evidence_share(inspection.unread.share.value)
    return NEVER_READS.format(model=inspection.name, share=share, texts=texts)


def _build_sections(inspection: Inspection, title: str) -> Iterator[DisplaySection]:
    """Build the sections available so far. They fit a terminal of 48 lines and 80 columns."""
    description = (_describe_texts(inspection),)
    scores = inspection.fading
    charts = tuple(_build_chart(inspection, wording_scores) for wording_scores in scores or ())
    page_charts = tuple(
        replace(chart, name=inspection.name, is_in_title=True) for chart in charts[-1:]
    )
    yield DisplaySection(title, description, only=Medium.TEXT)
    yield DisplaySection(sentences=description, position_charts=page_charts, only=Medium.PAGE)
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
        SEARCH_HEADING, (charts[-1].finding,), position_charts=charts, only=Medium.TEXT
    )
    paragraph = "\n".join(map(str, _list_facts(inspection, scores[-1])))
    yield DisplaySection(sentences=(paragraph,), only=Medium.TEXT)
    if inspection.chunks:
        yield from _build_chunk_sections(inspection, inspection.chunks)
        yield from _build_length_section(inspection, scores)
    if snippet := inspection.snippet:
        yield DisplaySection(
            f"Code for {snippet.kind}",
            (snippet.sentence,),
            code=snippet.code,
            only=Medium.TEXT,
        )


def _build_chart(inspection: Inspection, scores: PositionScores) -> PositionChart:
    findings = scores.findings
    chart = build_position_chart(findings, scores.analysis, scores.wording.label)
    if len(inspection.fading or ()) == 1:
        chart = replace(chart, name=inspection.name)
    unread_sentences = (findings.get_value(Quantity.UNREAD_SHARE) or 0) * findings.questions
    code_snippets = tuple(
        (snippet.kind, snippet.sentence, snippet.code, snippet is inspection.snippet)
        for snippet in inspection.snippets
        if snippet.code
    )
    window_end = ""
    if findings.read.part is Part.FIRST and chart.truncated:
        window_end = f"{findings.read.tokens:,} tokens"
    sample = f"{inspection.fading_texts:,} of {inspection.texts:,} texts"
    return replace(
        chart,
        words=(sample, *chart.words),
        facts=partial(_list_facts, inspection, scores),
        steps=_list_steps(inspection),
        steps_title=ADVICE_HEADING,
        scale=SCALE,
        commands=() if code_snippets else _build_next_commands(inspection),
        code_snippets=code_snippets,
        window_end=window_end,
        truncated_label=f"{unread_sentences:,.0f} of {pluralize(findings.questions, 'sentence')}",
    )


def _build_chunk_sections(
    inspection: Inspection, chunks: ChunkComparison
) -> Iterator[DisplaySection]:
    """Build the advice and the chunk comparison behind it."""
    evaluation: tuple[str, ...] = ()
    if chunks.chunked_model:
        task = inspection.reference.data if inspection.is_task else EXAMPLE_TASK
        command = inspection.reference.format("mteb", "run", "-t", task, "-m", chunks.chunked_model)
        evaluation = (ShellCommand(command, "to evaluate these chunks on a task"),)
    yield DisplaySection(
        ADVICE_HEADING,
        (join_steps(_list_steps(inspection)),),
        commands=_build_next_commands(inspection),
        only=Medium.TEXT,
    )
    is_compared = chunks.has_splitters or not chunks.has_few_texts
    if chunks.rows[1:] and (is_compared or inspection.full):
        sentences = [*chunks.sentences, *chunks.describe_counts()]
        if inspection.excerpt_tokens or inspection.chunk_texts < inspection.texts:
            sentences.append(_describe_sample(inspection.chunk_sample, inspection.texts))
        yield DisplaySection(
            chunks.title, tuple(sentences), (chunks.build_table(),), commands=evaluation
        )
    if inspection.other_words:
        yield _build_paraphrase_section(chunks, inspection.other_words)


def _build_length_section(
    inspection: Inspection, scores: Sequence[PositionScores]
) -> Iterator[DisplaySection]:
    """Build the table of verdicts by wording and length, unless every row has too few texts."""
    overall, *lengths = scores[-1].groups.items()
    groups = {f"all, {item.wording.label}": item.findings for item in scores}
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
            (_build_group_table(groups, full=inspection.full),),
        )


def _list_steps(inspection: Inspection) -> tuple[str, ...]:
    """Recommend chunks, more texts, or the next step for the verdict."""
    chunks = inspection.chunks
    assert inspection.fading
    if chunks and chunks.is_recommended:
        vectors = inspection.vectors_per_text
        return (chunks.describe_recommendation(inspection.chunk_sample, vectors),)
    if chunks and chunks.has_few_texts and inspection.fading_texts == inspection.texts:
        largest = max(row.size or 0 for row in chunks.rows) if inspection.unread.texts_cut else 0
        return advise_more_texts(inspection.texts, largest)
    task = inspection.source if inspection.is_task else ""
    return list_steps(inspection.fading[-1].findings, task)


def _build_next_commands(inspection: Inspection) -> tuple[str, ...]:
    """Build the next commands: the snippet command if chunks are recommended, or the commands for
    the verdict on a task.
    """
    reference = inspection.reference
    if inspection.chunks and inspection.chunks.chunked_model and reference.data:
        command = reference.format(
            "posir", "inspect", reference.model, reference.data, "--snippet", "langchain"
        )
        comment = "code for langchain, llamaindex, haystack, qdrant or elasticsearch"
        return (ShellCommand(command, comment),)
    if not inspection.is_task or not inspection.fading:
        return ()
    return build_commands(inspection.fading[-1].findings, reference)


def _list_facts(inspection: Inspection, scores: PositionScores) -> Iterator[Fact]:
    sentences = pluralize(scores.findings.questions, "sentence")
    yield Fact(
        "Queries",
        f"{sentences} from your texts, reduced to their rarest words. A score of 100 means that "
        "a sentence's source text always ranks first.",
    )
    yield from list_effects(scores.findings)
    example, name = inspection.unread_example
    if example:
        yield Fact("Never read, for example", f'"{example}" ({name.rpartition("/")[2]})')


def _build_paraphrase_section(
    keyword_comparison: ChunkComparison, paraphrase_results: ParaphraseResults
) -> DisplaySection:
    questions = pluralize(paraphrase_results.questions, "question")
    sentences = [f"{questions} written by {paraphrase_results.writer}."]
    sentences += filter(None, [paraphrase_results.answers])
    if paraphrase_results.writer_is_model:
        sentences.append(
            "This is also the inspected model, so the questions favor it and small chunks. Use "
            "another model if possible."
        )
    if paraphrase_results.words_alone:
        shared_words = format_percent(paraphrase_results.words_alone.shared_words)
        chance = format_percent(paraphrase_results.words_alone.chance)
        sentences.append(WORD_BASELINE.format(shared=shared_words, chance=chance))
    chunks = paraphrase_results.chunks
    if not chunks:
        return DisplaySection(PARAPHRASE_HEADING, tuple(sentences))
    sentences += chunks.sentences
    if keyword_comparison.is_decided and chunks.is_decided:
        name = keyword_comparison.selection.name
        template = SAME_ADVICE if name == chunks.selection.name else OTHER_ADVICE
        sentences.append(template.format(chunks=name))
    return DisplaySection(PARAPHRASE_HEADING, tuple(sentences), (chunks.build_table(),))


def _describe_sample(sample: str, total: int) -> str:
    return f"Measured on {sample}, sampled at random from {total:,} texts."


def _describe_texts(inspection: Inspection) -> str:
    """Describe the length of the texts and, if there are several, the languages."""
    about = "about " if inspection.tokens_estimated else ""
    description = (
        f"The texts from {inspection.source} have a median length of "
        f"{about}{inspection.median_tokens:,.0f} tokens"
    )
    if inspection.texts_found > inspection.texts + len(inspection.skipped):
        description += f"; they are a sample of {inspection.texts_found:,} texts"
    if len(inspection.languages) > 1:
        languages = ", ".join(f"{count:,} {code}" for code, count in inspection.languages.items())
        description += f"; languages: {languages}"
    return f"{description}."


def _describe_averages(scores: PositionScores) -> Term:
    findings = scores.findings
    description = describe_sentence_scores(findings)
    baseline = scores.not_read_without_model
    if not baseline or scores.ndcg_at_10_not_read is None:
        return Term("How well", description)
    truncated_scores = TRUNCATED_SCORES.format(
        score=format_percent(scores.ndcg_at_10_not_read),
        read=findings.read.phrase,
        shared=format_percent(baseline.shared_words),
        chance=format_percent(baseline.chance),
    )
    return Term("How well", f"{description} {truncated_scores}")


def _build_group_table(groups: Mapping[str, GroupFindings], *, full: bool) -> Table:
    """Build the table of nDCG@10 and verdicts by group. `full` adds start minus end and PSI."""
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
