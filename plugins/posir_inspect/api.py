"""The public functions of this package: `posir.window` and `posir.inspect`."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from posir_inspect.snippets import SnippetKind
from posir_inspect.window import WindowReading, complete_reading, measure_fit, measure_window
from posir_score.retriever_objects import load_retriever
from posir_tasks.base.errors import PosirError, UsageError
from posir_tasks.base.files import cache_folder
from posir_tasks.base.progress import track
from posir_tasks.base.public import DataReference, Option, public
from posir_tasks.models.command_reference import refer_as_given, refer_to
from posir_tasks.models.measured_model import MeasuredModel, load_embedder
from posir_tasks.models.protocols import PaperName
from posir_tasks.models.reading_length import MAX_TOKENS
from posir_tasks.models.references import RERANKER, find_endpoint
from posir_tasks.models.run_settings import with_settings
from posir_tasks.text.chunks import Chunker, TextSplitter, load_splitter, name_splitters
from posir_tasks.text.tokenizer import ModelTokenizer
from posir_tasks.values.read_part import parse_window

if TYPE_CHECKING:
    from posir_data.texts import TextCollection
    from posir_inspect.live_index import IndexInspection
    from posir_inspect.sections import Inspection
    from posir_tasks.language_models.other_words import QuestionWriter

#: Texts that are read at most within a budget; of more, a random sample.
MAX_TEXTS = 1000


def _parse_budget(text: str) -> int:
    """Parse a token count such as `500k`; raise PosirError if it is malformed."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kM]?)", text.replace(",", ""))
    tokens = 0
    if match:
        tokens = round(float(match[1]) * {"": 1, "k": 1_000, "M": 1_000_000}[match[2]])
    if tokens < 1:
        raise UsageError(
            f"--budget {text}: not a number of tokens. Write a number such as 200000, 200k or 2M."
        )
    return tokens


#: Titles in the help of `inspect`; what is under none comes first.
GROUPS = {
    "Model": "revision window backend protocol batch_size query_prompt document_prompt query_field "
    "passage_field tokenizer",
    "Questions in other words": "question_writer llm",
    "Retriever": "embedder k max_requests max_time concurrency timeout chunk_separator "
    "document_field write_questions",
}


@public(charts=True, card=True, streams=True, groups=GROUPS)
def inspect(
    model: Annotated[DataReference | None, Option(one_value=True)] = None,
    texts: Annotated[DataReference | None, Option(one_value=True)] = None,
    *,
    budget: int | str = "180k",
    all_texts: bool = False,
    output: str | Path | None = None,
    column: str | None = None,
    retriever: Annotated[Any | None, Option(parse=load_retriever, metavar="MODULE:OBJECT")] = None,
    revision: str | None = None,
    window: str | int | None = None,
    backend: str | None = None,
    protocol: PaperName | None = None,
    query_prompt: str | None = None,
    document_prompt: str | None = None,
    query_field: str | Iterable[str] | None = None,
    passage_field: str | Iterable[str] | None = None,
    tokenizer: str | Path | None = None,
    batch_size: Annotated[int, Option(min=1)] = 32,
    chunker: Annotated[
        Chunker | Iterable[Chunker] | None, Option(parse=load_splitter, metavar="MODULE:FUNCTION")
    ] = None,
    question_writer: str | None = None,
    llm: str | None = None,
    snippet: SnippetKind | None = None,
    embedder: str | None = None,
    k: Annotated[int, Option(min=1)] = 10,
    max_requests: Annotated[int, Option(min=1)] = 1000,
    max_time: Annotated[float | None, Option(min=0.001)] = None,
    concurrency: Annotated[int, Option(min=1)] = 8,
    timeout: Annotated[float, Option(min=0.001)] = 60.0,
    chunk_separator: str = "#",
    document_field: str | None = None,
    write_questions: str | Path | None = None,
    full: bool = False,
    show: Annotated[Callable[["Inspection"], object], Option(python_only=True)] = lambda _: None,  # noqa: UP037
) -> Inspection | IndexInspection:
    """Show how far a model reads, where evidence fades, and which chunk size serves these texts; no
    questions are needed.

        posir inspect all-MiniLM-L6-v2 FOLDER
        posir inspect all-MiniLM-L6-v2 FOLDER --html texts.html
        posir inspect --retriever pipeline:search FOLDER

    With a retriever in place of the model, a running index is asked for sentences of the texts that
    it should have, and the answer is how many come back from the first, second and last third of
    documents, and which documents are not in it at all.

    Args:
        model: A name known to mteb or the Hub, a folder, or an endpoint (`MODEL@ADDRESS`).
        texts: A file or folder of plain text, Markdown, HTML, PDF, CSV, JSON Lines or Parquet; any
            data with questions; a task; a dataset on the Hub. In Python also a list of texts, or a
            column of a DataFrame (polars or pandas).
        retriever: A function of a query and `k`, in place of a model, that returns ids or chunks,
            or a retriever, vector store, index, pipeline or collection of a framework; its answers
            are kept.
        revision: Revision of the model.
        window: Tokens of a text that the model reads, in place of its own window: an experiment,
            filed as such. With a retriever, the first tokens of a document that are in its
            embedding, or `none` if all are.
        backend: Library that runs a model of sentence-transformers, `onnx` or `openvino`, perhaps
            with a file, such as `onnx:model_qint8_avx512.onnx`: an experiment, filed as such.
        protocol: Paper with whose authors' settings the model is run: an experiment, filed as such.
        query_prompt: Text before each query, in place of the model's own: an experiment, filed as
            such.
        document_prompt: Text before each document, likewise.
        query_field: A field of requests for queries to an endpoint, such as `input_type=query`.
        passage_field: The same for documents, such as `truncate=true`.
        column: Column or field with the text of a file.
        tokenizer: Tokenizer of a model behind an endpoint: a name on the Hub, or a folder.
        budget: Most tokens that are encoded, such as 500k or 2M, of texts drawn at random.
        all_texts: Inspect all texts, whatever the budget.
        batch_size: Number of texts encoded at a time.
        chunker: A function that divides a text, such as `splitter.split_text` of LangChain; several
            are compared.
        question_writer: An embedder that writes them; another than `model`, which would favor
            itself.
        llm: A language model that writes them: `MODEL`, or `MODEL@ADDRESS`.
        snippet: Add code that makes the advised chunks there.
        embedder: The system's model, whose window is known or measured, in place of `window`; it
            embeds the queries of a collection.
        k: Documents or chunks to ask for.
        max_requests: Most questions that are asked, without further attempts.
        max_time: Seconds after which no more is asked; the same call goes on from there.
        concurrency: Queries searched at the same time.
        timeout: Seconds that a search may take.
        chunk_separator: Between document id and number of a chunk; empty without chunks.
        document_field: Field of a hit with its document's id; by default a usual one, such as
            `doc_id`.
        write_questions: Folder for the questions with their spans, in the PosIR layout.
        output: Folder for results, as in `mteb run`.
        full: Show PSI, what chance alone gives, and p-values, too.
        show: Called with what is known whenever there is a further answer.

    Returns:
        Verdicts and scores; nDCG@10 and PSI in [0, 1], with 95% intervals. A row for each wording
        and length of whole texts and for each chunk size in tokens, or each chunker.

    Raises:
        PosirError: There is no such model or no such text, the model refuses some of them for their
            length, or a chunker does not divide one.

    Examples:
        >>> import posir
        >>> inspection = posir.inspect("./my-model", "PosIR-Mini", budget=5_000)
        >>> inspection.to_polars()["wording"].unique().sort().to_list()
        ['rarest-words']
    """
    max_tokens = None if all_texts else _parse_budget(str(budget))
    limit = sys.maxsize // 2 if all_texts else MAX_TEXTS
    reads = parse_window(window)
    if question_writer and llm:
        raise PosirError(
            "--question-writer and --llm both write questions in other words. Give one of them."
        )
    write = partial(_open_question_writer, question_writer, llm, batch_size=batch_size)
    if retriever is not None:
        source = _choose_index_texts(model, texts, (chunker, revision, protocol, tokenizer))
        # The readers and mteb take seconds to import.
        from posir_inspect.live_index import IndexOptions, inspect_index
        from posir_score.collecting import CollectionSettings
        from posir_tasks.datasets.opening import open_data

        # Which hits are the first k does not depend on their order.
        settings = CollectionSettings(
            k,
            concurrency,
            timeout=timeout,
            order="score",
            document_field=document_field,
            folder=Path(output or cache_folder() / "retrievers"),
            max_time=max_time,
        )
        opened = open_data(source, column=column)
        options = IndexOptions(
            limit,
            max_requests,
            load_embedder(embedder) if embedder else reads,
            embedder,
            chunk_separator,
            Path(write_questions) if write_questions else None,
        )
        return inspect_index(retriever, opened, write, settings, options)
    if texts is None or not isinstance(model, str | Path):
        raise UsageError("Give a model and texts, or texts and --retriever module:function.")
    if embedder or write_questions or max_time:
        raise PosirError("--embedder, --max-time and --write-questions need --retriever.")
    splitters = name_splitters(chunker)
    collection = _read_texts(str(model), texts, column, limit, splitters)
    with track("Loading the model"):
        # mteb and PyTorch take seconds to import, which a mistake in the texts should not cost.
        from posir_inspect.inspection import InspectionInput, inspect_model
        from posir_inspect.model_window import measure
        from posir_tasks.models.embeddings.encoding import load_encoder
        from posir_tasks.text.tokenizer import find_tokenizer

        with with_settings(
            protocol=protocol,
            window=reads.tokens,
            tokenizer=str(tokenizer) if tokenizer else None,
            backend=backend,
            query_prompt=query_prompt,
            document_prompt=document_prompt,
            query_field=query_field,
            passage_field=passage_field,
        ):
            encoder = load_encoder(str(model), revision, batch_size=batch_size)
        counter = (
            ModelTokenizer.load(str(tokenizer)) if tokenizer else find_tokenizer(encoder.model)
        )
    writer = write([text.text for text in collection.texts])
    data = str(texts) if isinstance(texts, str | Path) else ""
    reference = refer_to(encoder.model.mteb_model_meta, str(model), data)
    request = InspectionInput(
        encoder, counter, collection, max_tokens, splitters, writer, reference, snippet
    )
    with measure(encoder.model):
        return inspect_model(request, Path(output) if output else None, show, full=full)


def _choose_index_texts(
    model: DataReference | None, texts: DataReference | None, others: Sequence[object]
) -> DataReference:
    """Choose the texts of an index, which are the only argument before the options."""
    source = texts if model is None else model
    has_both = model is not None and texts is not None
    if source is None or has_both or any(other is not None for other in others):
        raise PosirError(
            "A retriever needs the texts of its index and no model: posir inspect "
            "--retriever module:function TEXTS."
        )
    return source


def _read_texts(
    model: str,
    texts: DataReference,
    column: str | None,
    limit: int,
    splitters: Sequence[TextSplitter],
) -> TextCollection:
    """Read the texts of an inspection, and try the splitters; a mistake should not cost the time to
    load the model.
    """
    with track("Reading texts"):
        # The readers take a second to import.
        from posir_tasks.models.registry import refuse_unloadable
        from posir_tasks.tasks.catalog import refuse_missing

        refuse_unloadable(model)
        if isinstance(texts, str | Path):
            refuse_missing(str(texts))
        from posir_data.texts import read_texts

        collection = read_texts(texts, column=column, limit=limit)
    for splitter in splitters:
        splitter.divide(collection.texts[0].text)
    return collection


def _open_question_writer(
    question_writer: str | None, llm: str | None, texts: Sequence[str], batch_size: int
) -> QuestionWriter | None:
    if llm:
        from posir_tasks.language_models.other_words import open_writer

        return open_writer(llm, texts)
    if not question_writer:
        return None
    from posir_tasks.language_models.other_words import EmbedderWriter, build_vocabulary
    from posir_tasks.models.embeddings.encoding import EmbeddingMemory, load_encoder

    with track("Loading the model that writes questions"):
        encoder = load_encoder(question_writer, batch_size=batch_size)
    # Chunks are compared by questions about the same sentences as whole texts.
    remembering = replace(encoder, memory=EmbeddingMemory())
    return EmbedderWriter(
        str(encoder.model.mteb_model_meta.name), remembering, build_vocabulary(texts)
    )


@public(undecided_by=("require", "require_fit"))
def window(
    model: str | Path,
    texts: Annotated[DataReference | None, Option(one_value=True)] = None,
    *,
    require: Annotated[int | None, Option(min=1)] = None,
    max_tokens: Annotated[int | None, Option(min=1)] = None,
    tokenizer: str | Path | None = None,
    revision: str | None = None,
    query_field: str | Iterable[str] | None = None,
    passage_field: str | Iterable[str] | None = None,
    chunker: Annotated[
        Chunker | None, Option(parse=load_splitter, metavar="MODULE:FUNCTION")
    ] = None,
    require_fit: bool = False,
) -> WindowReading:
    """Measure which part of a text a model reads, from its embeddings or a reranker's scores alone;
    no texts are needed.

        posir window all-MiniLM-L6-v2
        posir window bge-m3@http://localhost:8000/v1

    It does not matter what its metadata says, or whether a server cuts texts without an error. An
    endpoint gets at most 40 requests.

    Args:
        model: A name known to mteb or the Hub, a folder, or an endpoint (`MODEL@ADDRESS`).
        texts: With `chunker`, texts that it divides: a file, a folder or any other data; in Python
            also a list of texts.
        require: Exit status 1 if the model reads fewer tokens from the start without a gap; 2 if
            that cannot be said.
        max_tokens: Longest text that is tried; by default a quarter more than the model claims, at
            most 32,768.
        tokenizer: Tokenizer of a model behind an endpoint, a name on the Hub or a folder. Without
            it, the length is in words.
        revision: Revision of the model.
        query_field: A field of requests for queries to an endpoint, such as `input_type=query`.
        passage_field: The same for documents, such as `truncate=true`.
        chunker: A function that divides a text; chunks that are longer than what is read are
            counted.
        require_fit: Exit status 1 if any chunk is longer than what is read.

    Returns:
        The length in `tokens`, with a lower and an upper bound that are equal if it is known
        exactly; `enough` says whether it reads what `require` asks for.

    Raises:
        PosirError: There is no such model or tokenizer, a number is not a positive whole one, or
            the model cannot encode short texts. A server that does not answer is asked twice.

    Examples:
        >>> import posir
        >>> posir.window("all-MiniLM-L6-v2").tokens  # doctest: +SKIP
        Bounds(low=256, high=256)
    """
    (splitter,) = name_splitters(chunker) or (None,)
    if (splitter is None) != (texts is None) or (require_fit and splitter is None):
        raise PosirError(
            "Give texts and --chunker MODULE:FUNCTION together, with or without --require-fit."
        )
    divided: list[str] = []
    if splitter and texts is not None:
        from posir_tasks.data.formats.passages import Passage
        from posir_tasks.datasets.opening import open_data

        # Of any length and language, since a system indexes all of them.
        opened = open_data(texts)
        passages = (item for item in opened.read_texts() if isinstance(item, Passage))
        divided = [passage.text for passage in passages if passage.text.strip()]
        if not divided:
            raise PosirError(
                f"{opened.location}: no text that can be used. Give texts that {splitter.name} "
                "can divide."
            )
        # A mistake in a chunker should not cost the time to load the model.
        splitter.divide(divided[0])
    stage = "Asking the server" if find_endpoint(str(model)) else "Loading the model"
    with track(stage), with_settings(query_field=query_field, passage_field=passage_field):
        reference = refer_as_given(str(model))
        longest = max(max_tokens or MAX_TOKENS, require or 0)
        described = _describe(str(model), revision, tokenizer, longest)
    measured = measure_window(described, required=require, max_tokens=max_tokens)
    measured = replace(measured, reference=reference)
    if splitter:
        fit = measure_fit(described, measured.reading, splitter, divided)
        measured = replace(measured, fit=replace(fit, required=require_fit))
    return complete_reading(measured)


def _describe(
    model: str, revision: str | None, tokenizer: str | Path | None, longest: int
) -> MeasuredModel:
    """Describe a model; an endpoint needs neither mteb nor PyTorch, which
    take seconds to import.
    """
    counter = ModelTokenizer.load(str(tokenizer)) if tokenizer else None
    endpoint = find_endpoint(model)
    if endpoint and not RERANKER.fullmatch(endpoint.model):
        # A check should say at once that a server is down.
        return MeasuredModel.connect(endpoint, counter, longest, retries=1)
    from posir_tasks.models.registry import find_model, load_model, refuse_unloadable

    refuse_unloadable(model)
    from transformers.utils.logging import disable_progress_bar

    from posir_inspect.model_window import describe_model, describe_reranker
    from posir_tasks.models.embeddings.encoding import load_encoder
    from posir_tasks.models.references import CROSS_ENCODER, ModelReference
    from posir_tasks.text.tokenizer import find_tokenizer

    # The bar of transformers is shown even if the output is piped.
    disable_progress_bar()  # type: ignore[no-untyped-call]
    reference = ModelReference(model, revision)
    if CROSS_ENCODER in find_model(reference).model_type:
        reranker = load_model(reference)
        return describe_reranker(reranker, counter or find_tokenizer(reranker))
    encoder = load_encoder(model, revision)
    return describe_model(encoder, counter or find_tokenizer(encoder.model))
