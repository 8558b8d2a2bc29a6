"""The findings of an inspection: the answer in sections, and the numbers behind it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass, replace

from posir_inspect.model_window import UnreadShare
from posir_inspect.questions import WordBaseline, Wording
from posir_inspect.snippets import Snippet
from posir_inspect.splitting import CHUNKS, ChunkComparison
from posir_inspect.window import MINI, WindowReading
from posir_significance import messages
from posir_significance.advice import build_commands
from posir_significance.analysis import GroupAnalysis
from posir_significance.changes import CHANGE_LEVEL
from posir_significance.findings import GroupFindings, Quantity, Reason
from posir_significance.messages import format_finding, format_level, label_state
from posir_significance.strips import build_strip
from posir_tasks.base.private_names import TASKS_REGISTRY
from posir_tasks.base.progress import format_seconds
from posir_tasks.base.wording import pluralize
from posir_tasks.data.formats.passages import SkippedText, describe_skipped
from posir_tasks.display.numbers import (
    format_estimate,
    format_interval,
    format_percent,
    format_points,
    format_score,
)
from posir_tasks.display.presentation import Presentable
from posir_tasks.display.strip import NDCG, Strip
from posir_tasks.display.tables import DisplaySection, Table, build_columns
from posir_tasks.models.command_reference import NO_REFERENCE, CommandReference
from posir_tasks.values.read_part import Part
from posir_tasks.values.scores import ALL, Estimate, Unit

#: What pictures show: the evidence is a sentence.
SCALE = replace(
    NDCG,
    whole="the sentences",
    caption="texts to their end: how well a sentence there is found (nDCG@10, 0 to 100)",
)
READING, FADING, ADVICE = "How far the model reads", "How well it finds a sentence", "What to do"
OTHER = "The same in other words"
LENGTHS = "How well it finds a sentence, by length of the text"
LEGEND = (
    "Brackets: 95% confidence intervals, widened where several are read together (rows by length; "
    "changes: "
    f"{format_level(CHANGE_LEVEL)})."
)
EXPLANATION = (
    "At most ten sentences of each text are asked about, so that long texts count less, and fewer "
    "of the sentences than of the "
    "words are never read.",
    "How far the model reads was found from its embeddings alone: the ends of texts were changed, "
    "and a change that alters no "
    "embedding is not read. The model's own limits were not asked for.",
    "Nobody wrote the questions. Each is a sentence of one text, and finding it is finding that "
    "text among the others (inverse "
    "cloze task, Lee et al. 2019, arXiv 1906.00300); the sentence stays in the text, as its "
    "position is what is compared. "
    "People ask in other words, so the scores are higher than those of their questions; compare "
    "positions and sizes, not "
    "models by these numbers. `posir report`, with a task's questions, can say otherwise.",
)
#: Columns of a row: whole texts by length, or chunks of one size, asked in one wording. Findings
#: keep their names; `change` is nDCG@10 of chunks minus that of whole texts, at 98.33%.
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
class Fading:
    """nDCG@10 of pseudo-questions in one wording by the position of their sentence."""

    wording: Wording
    ndcg_at_10_not_read: float | None
    """nDCG@10 of the questions about sentences that the model does not read; None if there are
    none, or it is unknown.
    """
    not_read_without_model: WordBaseline | None
    """nDCG@10 of the latter without the model; None if there are none."""
    groups: Mapping[str, GroupFindings]
    """The findings on all questions, `all`, then by the title of the length bucket."""
    group: GroupAnalysis
    """The analysis of all questions."""

    @property
    def findings(self) -> GroupFindings:
        """The findings on all questions."""
        return self.groups[ALL]


@dataclass(frozen=True)
class OtherWords:
    """The questions in other words, and which chunk size they advise."""

    writer: str
    by_itself: bool
    questions: int
    """Questions about whole texts."""
    unwritten: int
    """Sentences that have a question in their rarest words and none in other words."""
    words_alone: WordBaseline | None
    """nDCG@10 of BM25 in whole texts; None if there are no questions."""
    chunks: ChunkComparison | None = None
    """None if it is not known yet, or there are no questions."""


@dataclass(frozen=True)
class WorkEstimate:
    """Tokens to encode, and the time that it takes; everything is all texts, questions in both
    wordings and chunk sizes.
    """

    tokens: int
    seconds: float
    all_tokens: int
    all_seconds: float

    @property
    def sentence(self) -> str:
        """A sentence on what is planned, and on what everything would take."""
        planned = (
            f"The rest takes at most about {format_seconds(self.seconds)}: {self.tokens:,} tokens "
            "to encode (--budget)"
        )
        every = (
            f"; all {self.all_tokens:,} would take {format_seconds(self.all_seconds)} (--all-texts)"
        )
        return f"{planned}{every if self.all_tokens > self.tokens else ''}."


@dataclass(frozen=True, repr=False)
class Inspection(Presentable):
    """The inspection of a model on texts: how far it reads, where evidence fades, which chunk size
    serves.
    """

    model: str
    revision: str | None
    source: str
    texts: int
    texts_found: int
    languages: Mapping[str, int]
    median_tokens: float
    tokens_estimated: bool
    """Whether tokens are estimated, one per four bytes, because the tokenizer is unknown."""
    skipped: tuple[SkippedText, ...]
    window: WindowReading
    unread: UnreadShare
    reference: CommandReference = NO_REFERENCE
    """The model, the texts and the settings as a command names them; without texts if they are in
    memory.
    """
    lengths: tuple[tuple[str, int, float], ...] = ()
    """Name, tokens, and the share that is never read of each text, the longest first."""
    vectors_per_text: float | None = None
    """Mean number of chunks of the advised size, which overlap by half, of a text; None if no size
    is advised.
    """
    unread_example: tuple[str, str] = ("", "")
    """A sentence that is not read, and its text; empty if there is none."""
    work: WorkEstimate | None = None
    """Tokens and time of the rest; None if it is not known yet."""
    encoded_tokens: int | None = None
    """Tokens that were encoded after the reading length was known; None as long as there is more to
    encode.
    """
    fading: tuple[Fading, ...] | None = None
    """None if it is not known yet."""
    fading_texts: int = 0
    """Texts that the questions were about, among which they were searched."""
    chunks: ChunkComparison | None = None
    """The result by questions in their rarest words; None if it is not known yet, or there are no
    questions.
    """
    chunk_texts: int = 0
    excerpt_tokens: int | None = None
    """Longest excerpt of these texts in tokens; None if they are whole."""
    other_words: OtherWords | None = None
    """None without a model that writes questions in other words, or if they are not written yet."""
    snippets: tuple[Snippet, ...] = ()
    """Code for the advised chunks in each library, if they are known."""
    snippet: Snippet | None = None
    """That of them which was asked for."""
    full: bool = False
    """Whether observed differences and the published PSI are also shown."""

    @property
    def name(self) -> str:
        """The model without its organization."""
        return self.model.rpartition("/")[2]

    def sections(self) -> list[DisplaySection]:
        """Return the texts, then the answer in its parts, with tables."""
        return list(_build_sections(self))

    def page_sections(self) -> list[DisplaySection]:
        """Return what was asked at the top, and what the card does not say."""
        first, *parts = self.sections()
        # A card has one action; the other stands below what it evaluates.
        evaluated, read = _write_command(self).partition("\n\n")[2], self.window.read_part
        reads = (
            (f"It reads {read.phrase} of a text.",) if self.unread.texts_cut and read.tokens else ()
        )
        return [replace(first, title="", sentences=(*reads, *first.sentences))] + [
            replace(part, code=evaluated if part.title == CHUNKS else "")
            for part in parts
            # The card has the code.
            if (part.sentences or part.tables) and not part.code
        ]

    def describe_data(self) -> str:
        """Return model and texts with the revision of the model."""
        return (
            f"{self.model}, revision {(self.revision or 'unknown')[:12]}; "
            f"{pluralize(self.texts, 'text')} of {self.source}"
        )

    @property
    def title(self) -> str:
        """Finding: the share of words that the model never reads, or of how many texts the end."""
        these, cut, unread = (
            f"these {pluralize(self.texts, 'text')}",
            self.unread.texts_cut,
            self.unread.share,
        )
        if not cut:
            return f"{self.name} reads {these} to the end"
        if (
            unread.interval
            and unread.interval[0] >= 0.01
            and unread.interval[1] <= min(unread.interval[0] + 0.2, 0.99)
        ):
            return (
                f"{self.name} never reads {messages.format_evidence_share(unread.value)} of the "
                f"words of {these}"
            )
        return f"{self.name} does not read all of {cut:,} of {these}"

    def strips(self) -> list[Strip]:
        """Return the picture of the verdict, with what the title of the page does not say; other
        wordings are in the table.
        """
        return [replace(strip, name=self.name) for strip in super().strips()[-1:]]

    def records(self) -> list[Mapping[str, object]]:
        """Return a row for each wording and length of whole texts, and for each chunk size or
        splitter.
        """
        rows: list[dict[str, object]] = []
        for fading in self.fading or ():
            for length, findings in fading.groups.items():
                vectors = self.fading_texts if length == ALL else None
                own = {"vectors": vectors, "wording": fading.wording.value, "length": length}
                values = findings.to_json()
                intervals = {
                    name: values[f"{name}_interval"]
                    for name in values
                    if f"{name}_interval" in values
                }
                known = {
                    name: Estimate(values[name], ends)
                    for name, ends in intervals.items()
                    if values[name] is not None
                }
                rows.append(own | values | known)
        in_other_words = self.other_words.chunks if self.other_words else None
        for wording, comparison in (("rarest-words", self.chunks), ("other-words", in_other_words)):
            rows += [
                row.record() | {"wording": wording, "length": ALL}
                for row in (comparison.rows[1:] if comparison else ())
            ]
        return [{name: (row | {"model": self.model}).get(name) for name in COLUMNS} for row in rows]

    def document(self) -> dict[str, object]:
        """Return all values, the reading length with the names of `posir window`, and the rows."""
        other, chunks = self.other_words, self.chunks
        return {
            **{
                name: value
                for name, value in vars(self).items()
                if name not in ("full", "snippets")
            },
            "window": self.window.document(),
            "read": self.window.read_part.to_json(),
            "other_words": {name: value for name, value in vars(other).items() if name != "chunks"}
            if other
            else None,
            "fading": [
                {
                    **{name: value for name, value in vars(fading).items() if name != "group"},
                    "groups": {
                        name: findings.to_json() for name, findings in fading.groups.items()
                    },
                }
                for fading in self.fading or ()
            ],
            "chunks": chunks and chunks.document(),
            "chunks_in_other_words": other.chunks.document() if other and other.chunks else None,
            "rows": self.records(),
        }

    def legend(self) -> tuple[str, ...]:
        """Return what the numbers are, and what was skipped."""
        return tuple(filter(None, (LEGEND, describe_skipped(self.skipped, examples=1))))

    def explanation(self) -> tuple[str, ...]:
        """Return how it was found out, with the averages that are no verdict."""
        return (_describe_averages(self.fading[-1]), *EXPLANATION) if self.fading else EXPLANATION


def _build_sections(inspection: Inspection) -> Iterator[DisplaySection]:
    """Yield the texts, then what is known of the answer; under 48 lines of 80 columns."""
    cut, unread, fading = inspection.unread.texts_cut, inspection.unread.share, inspection.fading
    yield DisplaySection(inspection.title, (_describe_texts(inspection),))
    share = f"{format_percent(unread.value)}% {format_interval(unread, format_percent)}".rstrip()
    longer = (
        [f"{cut:,} of {inspection.texts:,} texts are longer: {share} of all words are never read."]
        if cut
        else []
    )
    yield DisplaySection(
        READING, (inspection.window.sentence, *longer), lengths=inspection.lengths if cut else ()
    )
    if not fading:
        unasked = DisplaySection(
            FADING, ("Not measured: no sentence of 5 to 80 words occurs only once.",)
        )
        yield from [] if fading is None else [unasked]
        return
    yield from _build_fading(inspection, fading)
    if inspection.chunks:
        yield from _build_chunks(inspection, inspection.chunks)
        groups, sampled = (
            fading[-1].groups,
            tuple(_describe_sample(inspection.fading_texts, inspection.texts)),
        )
        title = LENGTHS if len(groups) > 2 else f"{FADING}, by wording"
        is_tested = any(of.reason is not Reason.FEW_DOCUMENTS for of in groups.values())
        if is_tested and (title is LENGTHS or fading[1:] or inspection.full):
            yield DisplaySection(
                title, sampled, tables=tuple(_build_tables(fading, full=inspection.full))
            )
    if snippet := inspection.snippet:
        yield DisplaySection(
            f"The chunks for {snippet.kind}", (snippet.sentence,), code=snippet.code
        )


def _build_fading(inspection: Inspection, fading: tuple[Fading, ...]) -> Iterator[DisplaySection]:
    """Yield the scores inside and outside the window, one picture per wording, then the supporting
    figures.
    """
    strips = tuple(
        _draw_fading(inspection, of, of.wording.words if fading[1:] else inspection.name)
        for of in fading
    )
    yield DisplaySection(FADING, said=(strips[-1].finding,), strips=strips)
    known = (
        f"{name}: {value.replace(chr(10), ', ')}"
        for name, value in _list_facts(inspection, fading[-1])
    )
    yield DisplaySection(said=("\n".join(known),))


def _draw_fading(inspection: Inspection, fading: Fading, name: str) -> Strip:
    """Return the picture of questions in one wording, with what follows from it and the title of
    the page does not say.
    """
    findings = fading.findings
    strip = build_strip(findings, fading.group, name)
    read = findings.read
    unread = (findings.value(Quantity.UNREAD_SHARE) or 0) * findings.questions
    counted = f"{unread:,.0f} of {pluralize(findings.questions, 'sentence')}"
    codes = tuple(
        (of.kind, of.sentence, of.code, of is inspection.snippet)
        for of in inspection.snippets
        if of.code
    )
    finding = messages.describe_group(findings)
    searched = f"{inspection.fading_texts:,} of {inspection.texts:,} texts"
    return replace(
        strip,
        finding=finding,
        words=(searched, *strip.words[:-1], finding),
        facts=lambda: [*_list_facts(inspection, fading), (ADVICE, _advise(inspection))],
        scale=SCALE,
        code="" if codes else _write_command(inspection).partition("\n\n")[0],
        codes=codes,
        border=f"{read.tokens:,} tokens"
        if read.tokens and read.part is Part.FIRST and strip.truncated
        else "",
        counted=counted,
    )


def _build_chunks(inspection: Inspection, chunks: ChunkComparison) -> Iterator[DisplaySection]:
    """Yield what to do, then the comparison of chunks that it rests on, also in other words."""
    yield DisplaySection(ADVICE, said=(_advise(inspection),), code=_write_command(inspection))
    sentences = [
        *(chunks.doubts if chunks.is_advised else chunks.sentences),
        *chunks.describe_counts(),
    ]
    if (
        chunks.has_few_texts
        and (work := inspection.work)
        and inspection.chunk_texts < inspection.texts
    ):
        sentences.append(f"`--all-texts` measures on more: {work.all_tokens:,} tokens to encode.")
    excerpts = _describe_sample(inspection.chunk_texts, inspection.texts, inspection.excerpt_tokens)
    # The advice says of how many texts sizes cannot be compared.
    if chunks.rows[1:] and (inspection.full or chunks.title != CHUNKS or not chunks.has_few_texts):
        yield DisplaySection(chunks.title, (*sentences, *excerpts), tables=(chunks.tabulate(),))
    if inspection.other_words:
        yield _build_other_words(chunks, inspection.other_words)


def _advise(inspection: Inspection) -> str:
    """Return what to do, and below it what it gains: the chunks that were found better, or what
    follows from the state.
    """
    chunks, fading = inspection.chunks, inspection.fading
    assert fading
    if chunks and chunks.is_advised:
        length = (
            f" of at most {inspection.excerpt_tokens:,} tokens" if inspection.excerpt_tokens else ""
        )
        measured = f"{pluralize(inspection.chunk_texts, 'excerpt' if length else 'text')}{length}"
        return chunks.advise(measured, inspection.vectors_per_text)
    if chunks and chunks.has_few_texts and inspection.fading_texts == inspection.texts:
        largest = max(row.size or 0 for row in chunks.rows) if inspection.unread.texts_cut else 0
        step = f"Search in chunks of {largest} tokens: it reads no more. " if largest else ""
        return (
            f"{step}Add texts: {inspection.texts:,} are too few to measure a bias or the best "
            "chunks."
        )
    return messages.describe_advice(
        fading[-1].findings, inspection.source if _is_task(inspection) else ""
    )


def _write_command(inspection: Inspection) -> str:
    """Return the commands that write and evaluate the advised chunks, or those that follow from the
    state.
    """
    reference = inspection.reference
    if model := inspection.chunks and inspection.chunks.chunked_model:
        commands = []
        if reference.data:
            snippet = reference.write(
                "posir", "inspect", reference.model, reference.data, "--snippet", "langchain"
            )
            commands.append(
                f"# code for langchain, llamaindex, haystack, qdrant or elasticsearch\n{snippet}"
            )
        task = reference.data if _is_task(inspection) else MINI
        run = reference.write("mteb", "run", "-t", task, "-m", model)
        return "\n\n".join([*commands, f"# to evaluate these chunks on a task\n{run}"])
    if not _is_task(inspection) or not inspection.fading:
        return ""
    return "\n".join(build_commands(inspection.fading[-1].findings, reference))


def _is_task(inspection: Inspection) -> bool:
    return inspection.source in TASKS_REGISTRY.resolve()


def _list_facts(inspection: Inspection, fading: Fading) -> Iterator[tuple[str, str]]:
    """Yield what the finding rests on, a name and a value each."""
    findings = fading.findings
    asked = pluralize(findings.questions, "sentence")
    yield (
        "Queries",
        f"{asked} from your texts, reduced to their rarest words. 100 = its text always ranks "
        "first.",
    )
    facts = dict(messages.list_facts(findings))
    yield from (
        (name, value) for name, value in facts.items() if not name.startswith(("nDCG", "Next"))
    )
    example, name = inspection.unread_example
    if example:
        yield "Never read, for example", f'"{example}" ({name.rpartition("/")[2]})'


def _build_other_words(rarest: ChunkComparison, other: OtherWords) -> DisplaySection:
    chunks, baseline = other.chunks, other.words_alone
    unwritten = (
        f"; about {pluralize(other.unwritten, 'sentence')} there is none" if other.unwritten else ""
    )
    sentences = [f"{pluralize(other.questions, 'question')} that {other.writer} wrote{unwritten}."]
    if other.by_itself:
        sentences.append(
            "That is the inspected model: they favor it, and small chunks. Name another if you "
            "have one."
        )
    if baseline:
        shared, chance = map(format_percent, astuple(baseline))
        sentences.append(
            f"BM25 finds their texts with nDCG@10 {shared}, a random order with {chance}."
        )
    if not chunks:
        return DisplaySection(OTHER, tuple(sentences))
    sentences += chunks.sentences
    if rarest.decided and chunks.decided:
        same = rarest.row.name == chunks.row.name
        differs = f"differs: questions in their rarest words have {rarest.row.name}"
        sentences.append(
            f"The advice {'is that of questions in their rarest words' if same else differs}."
        )
    return DisplaySection(OTHER, tuple(sentences), tables=(chunks.tabulate(),))


def _describe_sample(
    texts: int, inspected: int, excerpt_tokens: int | None = None
) -> Iterator[str]:
    sample = (
        f"{texts:,} of the {inspected:,} texts" if texts < inspected else f"all {inspected:,} texts"
    )
    if excerpt_tokens:
        sample = (
            f"{pluralize(texts, 'excerpt')} of at most {excerpt_tokens:,} tokens, from {sample}"
        )
    if excerpt_tokens or texts < inspected:
        longer = "; what chunks gain in longer texts is not measured here" if excerpt_tokens else ""
        yield f"Measured on {sample}, drawn at random{longer}."


def _describe_texts(inspection: Inspection) -> str:
    """Return how long the texts are, of how many they are a sample, and their languages if there
    are several.
    """
    examined, skipped = (
        inspection.texts + len(inspection.skipped),
        sum(item.number for item in inspection.skipped),
    )
    sample = (
        f", a sample of {inspection.texts_found:,}" if inspection.texts_found > examined else ""
    )
    median = (
        f"{'about ' * inspection.tokens_estimated}{inspection.median_tokens:,.0f} tokens at the "
        "median"
    )
    languages = ", ".join(f"{count:,} {code}" for code, count in inspection.languages.items())
    counted = f"; languages: {languages}" if len(inspection.languages) > 1 else ""
    others = f"; {pluralize(skipped, 'other is', 'others are')} left out" if skipped else ""
    return f"The texts, from {inspection.source}{sample}, have {median}{counted}{others}."


def _describe_averages(fading: Fading) -> str:
    """Return how well all sentences are found, and those that are not read beside what is found
    without the model.
    """
    score, baseline, findings = (
        fading.ndcg_at_10_not_read,
        fading.not_read_without_model,
        fading.findings,
    )
    average = messages.format_score_in_percent(findings[Quantity.NDCG_AT_10].estimate)
    observed = messages.describe_observed(findings)
    known = (
        f"How well: nDCG@10 {average} over {pluralize(findings.questions, 'sentence')}. {observed}"
    ).rstrip()
    if not baseline or score is None:
        return known
    shared, chance = map(format_percent, astuple(baseline))
    guessed = ": it is guessed from the topic" * (
        1.5 * baseline.chance < score <= baseline.shared_words
    )
    without = f"BM25 on {findings.read.phrase} has {shared}, a random order {chance}"
    return f"{known} Truncated sentences: {format_percent(score)}; {without}{guessed}."


def _build_tables(fading: tuple[Fading, ...], *, full: bool) -> Iterator[Table]:
    """Yield nDCG@10 and the verdict by wording, then by length; if all is asked for, observed
    values and PSI as well.
    """
    lengths = {
        name.partition(": ")[2].removesuffix(" tokens"): of
        for name, of in fading[-1].groups.items()
        if name != ALL
    }
    groups = {f"all, {of.wording.words}" if fading[1:] else "all": of.findings for of in fading}
    groups |= lengths if len(lengths) > 1 else {}
    headings = (
        heading := "Tokens of a text",
        "nDCG@10",
        "State",
        effect := "Effect within the window",
    )
    rows = [
        (
            name,
            format_estimate(findings[Quantity.NDCG_AT_10].estimate, format_percent),
            label_state(findings),
            format_finding(findings.verdict, with_level=False),
        )
        for name, findings in groups.items()
    ]
    yield Table(build_columns(headings, ("nDCG@10", effect), drawn=[effect]), tuple(rows))
    if full:
        columns = (heading, "Start minus end", "PSI as published", "by chance")
        observed = [
            (
                name,
                format_estimate(findings[Quantity.START_MINUS_END].estimate, format_points),
                *(
                    format_score(Unit.INDEX, findings[quantity].estimate)
                    for quantity in (Quantity.PSI_AS_PUBLISHED, Quantity.PSI_BY_CHANCE)
                ),
            )
            for name, findings in groups.items()
        ]
        yield Table(build_columns(columns, columns[1:]), tuple(observed))
