"""The public functions of this package: `posir.window`, `posir.inspect` and `posir.score_chunks`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posir_data.texts import read_texts
from posir_tasks.display.presentation import Presentable
from posir_tasks.display.progress import track
from posir_tasks.display.sections import DisplaySection
from posir_tasks.errors import PosirError
from posir_tasks.estimates import Estimate
from posir_tasks.sources.opening import DataReference, open_data
from posir_tasks.text.splitters import name_splitters

if TYPE_CHECKING:
    from posir_inspect.inspection import ModelInspection
    from posir_inspect.other_words import QuestionWriter
    from posir_inspect.scored_chunkers import ScoredChunkers
    from posir_inspect.window import WindowReading
    from posir_tasks.display.charts.figures import Figure

#: Tokens that are encoded at most by default.
BUDGET = 180_000
#: Chunks that are retrieved for a question by default.
RETRIEVED = 5
#: Texts that are read at most within a budget; of more, a random sample.
MAX_TEXTS = 1000
EXPLANATION = (
    "How far the model reads was found from its embeddings alone: the ends of texts were changed, and a change that alters no "
    "embedding is not read. The model's own limits were not asked for.",
    "Nobody wrote the questions. Each is a sentence of one text, and finding it is finding that text among the others (inverse "
    "cloze task, Lee et al. 2019, arXiv 1906.00300); the sentence stays in the text, as its position is what is compared. "
    "People ask in other words, so the scores are higher than those of their questions; compare positions and sizes, not "
    "models by these numbers.",
)

#: Fields of whole texts that are those of `posir_inspect.inspection.Scores`.
SCORES = (
    "questions",
    "ndcg_at_10",
    "start_to_end",
    "psi",
    "psi_as_published",
    "psi_null",
    "p_value",
    "p_corrected",
    "bias",
)


@dataclass(frozen=True, kw_only=True)
class InspectionRow:
    """Scores of the questions in one wording: of whole texts by length, or of chunks of one size; None where unknown."""

    model: str
    chunk_size: int | None = None
    """Tokens; None for whole texts and the chunks of a splitter."""
    chunker: str | None = None
    """Name of the splitter; None if there is none."""
    vectors: int | None = None
    """Vectors in the index; None for whole texts of one length."""
    tokens: int | None = None
    """Tokens of the chunks to encode; None for whole texts."""
    wording: str
    length: str = "all"
    """`all`, or the title of a length bucket."""
    questions: int | None
    ndcg_at_10: Estimate | None
    """Mean over the questions, in [0, 1]."""
    start_to_end: Estimate | None
    """nDCG@10 of the first third of the texts minus that of the last."""
    gain: Estimate | None = None
    """nDCG@10 of chunks minus that of whole texts."""
    psi: Estimate | None = None
    psi_as_published: float | None = None
    psi_null: Estimate | None = None
    p_value: float | None = None
    p_corrected: float | None = None
    bias: str | None = None


@dataclass(frozen=True, repr=False)
class Inspection(Presentable):
    """The inspection of a model on texts: how far it reads, where evidence fades, which chunk size serves."""

    findings: ModelInspection
    """All values and verdicts, such as `findings.window` and `findings.chunk_verdict`."""

    @property
    def title(self) -> str:
        """The model."""
        return self.findings.model

    def sections(self) -> list[DisplaySection]:
        """Return the texts, then each question with its verdict, tables and chart."""
        from posir_inspect.sections import CHUNKERS, CHUNKS, FADING, build_sections

        charts = {FADING: self._draw_positions, CHUNKS: self._draw_chunks, CHUNKERS: self._draw_chunks}
        drawn = charts if self.findings.fading else {}
        return [replace(section, draw=drawn.get(section.title)) for section in build_sections(self.findings)]

    def records(self) -> list[InspectionRow]:
        """Return a row for each wording and length of whole texts, and for each chunk size or splitter."""
        from posir_inspect.pseudo_questions import Wording

        model, fading, other = self.findings.model, self.findings.fading or (), self.findings.other_words
        compared = {
            Wording.RAREST_WORDS: self.findings.chunks,
            Wording.OTHER_WORDS: other.chunks.rows if other and other.chunks else (),
        }
        whole = [
            InspectionRow(
                model=model,
                vectors=self.findings.fading_texts if length == "all" else None,
                wording=wording.wording.value,
                length=length,
                **{name: getattr(scores, name) for name in SCORES},
            )
            for wording in fading
            for length, scores in {"all": wording.scores, **wording.by_length}.items()
        ]
        return whole + [
            InspectionRow(
                model=model,
                chunk_size=chunk.size,
                chunker=chunk.chunker,
                vectors=chunk.vectors,
                tokens=chunk.counts.tokens,
                wording=wording.wording.value,
                questions=wording.scores.questions,
                ndcg_at_10=chunk.ndcg_at_10,
                start_to_end=chunk.start_to_end,
                gain=chunk.gain,
            )
            for wording in reversed(fading)
            for chunk in compared.get(wording.wording, ())
            if chunk.size is not None or chunk.chunker is not None
        ]

    def document(self) -> dict[str, Any]:
        """Return all values and verdicts, the reading length with the names of `posir window`."""
        return {**vars(self.findings), "window": self.findings.window.document()}

    def legend(self) -> tuple[str, ...]:
        """Return what the numbers are."""
        from posir_inspect.sections import LEGEND

        return (LEGEND,)

    def explanation(self) -> tuple[str, ...]:
        """Return how it was found out."""
        return EXPLANATION

    def _draw_positions(self) -> Sequence[Figure]:
        from posir_inspect.charts import draw_positions
        from posir_tasks.display.charts.figures import Figure

        return [Figure("positions", None, self.findings.model, draw_positions(self.findings))]

    def _draw_chunks(self) -> Sequence[Figure]:
        from posir_inspect.charts import draw_chunks
        from posir_tasks.display.charts.figures import Figure

        return [Figure("chunk-sizes", None, self.findings.model, draw_chunks(self.findings))]


def inspect(
    model: str | Path,
    texts: DataReference,
    *,
    revision: str | None = None,
    column: str | None = None,
    tokenizer: str | Path | None = None,
    budget: int | None = BUDGET,
    batch_size: int = 32,
    chunkers: Sequence[Callable[[str], Any]] = (),
    question_writer: str | None = None,
    llm: str | None = None,
    output: str | Path | None = None,
    show: Callable[[Inspection], object] = lambda _: None,
) -> Inspection:
    """Show how far a model reads, where evidence fades, and which chunk size serves these texts; no questions are needed.

    Args:
        model: A name known to mteb or the Hub, a folder, or an endpoint (`MODEL@ADDRESS`).
        texts: A list of texts, a column of a DataFrame (polars or pandas), a file or folder, a task, or a dataset on the Hub.
        revision: Revision of the model.
        column: Column or field with the text of a file.
        tokenizer: Tokenizer of a model behind an endpoint: a name on the Hub, or a folder.
        budget: Most tokens that are encoded; texts are drawn at random, with a fixed seed. None for all texts and questions.
        batch_size: Number of texts encoded at a time.
        chunkers: Functions that divide a text into a list of texts, such as `splitter.split_text` of LangChain; they are
            compared with each other and with whole texts, in place of chunk sizes.
        question_writer: An embedder, named as `model` is, that writes questions in other words; another than `model`, which
            would favor itself.
        llm: A language model that writes them in its place: `MODEL`, or `MODEL@ADDRESS`.
        output: Folder for the results of the pseudo-questions, as `mteb run` writes them; None to save nothing.
        show: Called with what is known whenever there is a further answer.

    Returns:
        Verdicts and scores; nDCG@10 and PSI in [0, 1], with 95 % intervals. A row for each wording and length of whole texts
        and for each chunk size in tokens, or each chunker.

    Raises:
        PosirError: There is no such model or no such text, the model refuses some of them for their length, or a chunker does
            not divide one.

    Examples:
        >>> import posir
        >>> inspection = posir.inspect("./my-model", "PosIR-Mini", budget=5_000)
        >>> inspection.to_polars()["wording"].unique().sort().to_list()
        ['rarest-words']
    """
    splitters = tuple(name_splitters(chunkers))
    if question_writer and llm:
        raise PosirError("--question-writer and --llm both write questions in other words. Give one of them.")
    with track("Reading texts"):
        collection = read_texts(texts, column=column, limit=sys.maxsize // 2 if budget is None else MAX_TEXTS)
    # A mistake in a chunker should not cost the time to load the model.
    for splitter in splitters:
        splitter.divide(collection.texts[0].text)
    with track("Loading the model"):
        # mteb and PyTorch take seconds to import, which a mistake in the texts should not cost.
        from posir_inspect.inspection import Setup, inspect_model
        from posir_inspect.window import measure
        from posir_tasks.embeddings.encoding import load_encoder
        from posir_tasks.text.tokenizer import ModelTokenizer, find_tokenizer

        encoder = load_encoder(str(model), revision, batch_size=batch_size)
        counter = ModelTokenizer.load(str(tokenizer)) if tokenizer else find_tokenizer(encoder.model)
    writer = open_question_writer(question_writer, llm, [text.text for text in collection.texts], batch_size)
    setup = Setup(encoder, counter, collection, budget, splitters, writer)
    with measure(encoder.model):
        known = inspect_model(setup, Path(output) if output else None, lambda part: show(Inspection(part)))
    return Inspection(known)


def open_question_writer(
    question_writer: str | None, llm: str | None, texts: Sequence[str], batch_size: int
) -> QuestionWriter | None:
    """Return what writes questions in other words, an embedder or a language model; None without either.

    Args:
        question_writer: An embedder.
        llm: A language model.
        texts: The user's texts, whose words an embedder chooses from.
        batch_size: Number of texts that the embedder encodes at a time.
    """
    if llm:
        from posir_inspect.asked_language_model import open_writer

        return open_writer(llm, texts)
    if not question_writer:
        return None
    from posir_inspect.other_words import EmbedderWriter, build_vocabulary
    from posir_tasks.embeddings.encoding import EmbeddingMemory, load_encoder

    with track("Loading the model that writes questions"):
        encoder = load_encoder(question_writer, batch_size=batch_size)
    # Chunks are compared by questions about the same sentences as whole texts.
    remembering = replace(encoder, memory=EmbeddingMemory())
    return EmbedderWriter(str(encoder.model.mteb_model_meta.name), remembering, build_vocabulary(texts))


def window(
    model: str | Path,
    *,
    require: int | None = None,
    max_tokens: int | None = None,
    tokenizer: str | Path | None = None,
    revision: str | None = None,
) -> WindowReading:
    """Measure how many tokens of a text a model reads, from its embeddings alone; no texts are needed.

    Two texts that are equal up to a cut and differ after it have the same embedding if the model reads no further than the cut.
    So it does not matter what its metadata says, or whether a server cuts texts without an error. An endpoint gets at most 40
    requests.

    Args:
        model: A name known to mteb or the Hub, a folder, or an endpoint (`MODEL@ADDRESS`).
        require: Tokens that the model should read, special ones included; `enough` of the result says whether it does.
        max_tokens: Longest text that is tried; by default a quarter more than the model claims, at most 32,768.
        tokenizer: Tokenizer of a model behind an endpoint, a name on the Hub or a folder. Without it, the length is in words.
        revision: Revision of the model.

    Returns:
        The length in `tokens`, with a lower and an upper bound that are equal if it is known exactly.

    Raises:
        PosirError: There is no such model or tokenizer, a number is not a positive whole one, or the model cannot encode short
            texts. A server that does not answer is asked twice.

    Examples:
        >>> import posir
        >>> posir.window("all-MiniLM-L6-v2").tokens  # doctest: +SKIP
        Bounds(low=256, high=256)
    """
    for name, number in (("require", require), ("max_tokens", max_tokens)):
        if number is not None and (type(number) is not int or number < 1):
            raise PosirError(f"{name}={number!r}: must be a whole number of tokens, at least one.")
    with track("Loading the model"):
        # mteb and PyTorch take seconds to import.
        from posir_inspect.window import measure_window
        from posir_tasks.embeddings.encoding import load_encoder
        from posir_tasks.models.connection import limit_first_retries
        from posir_tasks.text.tokenizer import ModelTokenizer, find_tokenizer

        # A check should say at once that a server is down.
        with limit_first_retries(1):
            encoder = load_encoder(str(model), revision)
        known = ModelTokenizer.load(str(tokenizer)) if tokenizer else find_tokenizer(encoder.model)
    return measure_window(encoder, known, required=require, max_tokens=max_tokens)


def score_chunks(
    model: str | Path,
    data: str | Path,
    chunkers: Sequence[Callable[[str], Any]],
    *,
    retrieve: int = RETRIEVED,
    revision: str | None = None,
    batch_size: int = 32,
) -> ScoredChunkers:
    """Score text splitters by what a model retrieves of the excerpts that answer questions.

    Source: Smith & Troynikov 2024, Evaluating Chunking Strategies for Retrieval, as its code computes IoU, recall, precision
    and precision Omega.

    Args:
        model: A name known to mteb or the Hub, a folder, or an endpoint (`MODEL@ADDRESS`).
        data: Questions with the spans of their evidence, several of a question included: see docs/data.md.
        chunkers: Functions that divide a text into a list of texts, such as `splitter.split_text` of LangChain.
        retrieve: Chunks of all documents that are retrieved for a question.
        revision: Revision of the model.
        batch_size: Number of texts encoded at a time.

    Returns:
        Scores in [0, 1] with 95 % intervals, a row for each chunker over all documents and for each of a few documents;
        `scoring` has all others.

    Raises:
        PosirError: There is no such model or data, a chunker does not divide a text, or a number is not positive.

    Examples:
        >>> import posir
        >>> posir.score_chunks("all-MiniLM-L6-v2", "PosIR-Mini", [splitter.split_text])  # doctest: +SKIP
    """
    splitters = name_splitters(chunkers)
    if not splitters or retrieve < 1:
        raise PosirError("score_chunks needs at least one chunker, and at least one chunk to retrieve.")
    opened = open_data(data)
    with track("Loading the model"):
        # mteb and PyTorch take seconds to import.
        from posir_inspect.chunk_scoring import read_excerpts, score_splitters
        from posir_inspect.scored_chunkers import ScoredChunkers
        from posir_tasks.embeddings.encoding import load_encoder
        from posir_tasks.text.tokenizer import EstimatedTokenizer, find_tokenizer

        excerpts = read_excerpts(opened)
        # A mistake in a chunker should not cost the time to load the model.
        for splitter in splitters:
            splitter.divide(next(iter(excerpts.documents.values())))
        encoder = load_encoder(str(model), revision, batch_size=batch_size)
        tokenizer = find_tokenizer(encoder.model) or EstimatedTokenizer()
    return ScoredChunkers(score_splitters(encoder, tokenizer, excerpts, splitters, retrieve))
