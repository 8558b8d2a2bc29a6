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
from posir_tasks.base.files import get_cache_folder
from posir_tasks.base.progress import track
from posir_tasks.base.public import (
    DataReference,
    Names,
    Option,
    OptionalPositive,
    Positive,
    public,
)
from posir_tasks.models.command_reference import build_reference, build_reference_from_environment
from posir_tasks.models.measured_model import MeasuredModel, load_embedder
from posir_tasks.models.protocols import PaperName
from posir_tasks.models.reading_length import MAX_TOKENS
from posir_tasks.models.references import RERANKER_NAME, find_endpoint
from posir_tasks.models.run_settings import override_settings
from posir_tasks.text.chunks import Chunker, TextSplitter, load_splitter, name_splitters
from posir_tasks.text.tokenizer import ModelTokenizer
from posir_tasks.values.read_part import parse_window

if TYPE_CHECKING:
    from posir_data.texts import TextCollection
    from posir_inspect.live_index import IndexInspection
    from posir_inspect.sections import Inspection
    from posir_tasks.language_models.other_words import QuestionWriter

#: Maximum number of texts to read within a budget; a larger collection is sampled at random.
MAX_TEXTS = 1000


def _parse_budget(text: str) -> int:
    """Parse a token count such as `500k`. Raise UsageError if it is malformed."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kM]?)", text.replace(",", ""))
    tokens = 0
    if match:
        tokens = round(float(match[1]) * {"": 1, "k": 1_000, "M": 1_000_000}[match[2]])
    if tokens < 1:
        raise UsageError(
            f"--budget {text}: not a token count. Give a number such as 200000, 200k or 2M."
        )
    return tokens


#: Option groups in the help of `posir inspect`. All other options are listed before them.
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
    query_field: Names | None = None,
    passage_field: Names | None = None,
    tokenizer: str | Path | None = None,
    batch_size: Positive = 32,
    chunker: Annotated[
        Chunker | Iterable[Chunker] | None, Option(parse=load_splitter, metavar="MODULE:FUNCTION")
    ] = None,
    question_writer: str | None = None,
    llm: str | None = None,
    snippet: SnippetKind | None = None,
    embedder: str | None = None,
    k: Positive = 10,
    max_requests: Positive = 1000,
    max_time: Annotated[float | None, Option(min=0.001)] = None,
    concurrency: Positive = 8,
    timeout: Annotated[float, Option(min=0.001)] = 60.0,
    chunk_separator: str = "#",
    document_field: str | None = None,
    write_questions: str | Path | None = None,
    full: bool = False,
    show: Annotated[Callable[["Inspection"], object], Option(python_only=True)] = lambda _: None,  # noqa: UP037
) -> Inspection | IndexInspection:
    """Show what a model misses in your own texts, and which chunk size fixes it.

    No questions are needed.

        posir inspect all-MiniLM-L6-v2 FOLDER
        posir inspect all-MiniLM-L6-v2 FOLDER --html texts.html
        posir inspect --retriever pipeline:search FOLDER

    With a retriever instead of a model, a running index is queried with sentences of the texts that
    it should contain. The result is the recall of sentences from the first, second and last third
    of documents, and the documents that are missing.

    Args:
        model: A name known to mteb or the Hub, a folder, or an endpoint (`MODEL@ADDRESS`).
        texts: A file or folder of plain text, Markdown, HTML, PDF, CSV, JSON Lines or Parquet; any
            data with questions; a task; a dataset on the Hub. In Python also a list of texts, or a
            column of a DataFrame (polars or pandas).
        retriever: A function `search(query, k)` that returns ids or chunks, to test instead of a
            model; or a framework's retriever, vector store, index, pipeline or collection. Answers
            are cached.
        revision: Revision of the model.
        window: Override the model's context window, in tokens. Results are stored separately, as an
            experiment. With a retriever: the number of tokens that its document embeddings cover,
            or `none` for all.
        backend: Backend of a sentence-transformers model, `onnx` or `openvino`, optionally with a
            file, such as `onnx:model_qint8_avx512.onnx`. Results are stored separately, as an
            experiment.
        protocol: Use the settings of this paper's authors. Results are stored separately, as an
            experiment.
        query_prompt: Override the model's query prompt. Results are stored separately, as an
            experiment.
        document_prompt: Override the model's document prompt. Results are stored separately, as an
            experiment.
        query_field: A field to add to an endpoint's query requests, such as `input_type=query`.
        passage_field: A field to add to an endpoint's document requests, such as `truncate=true`.
        column: Column or field that contains the texts in a file.
        tokenizer: Tokenizer of a model behind an endpoint: a name on the Hub, or a folder.
        budget: Maximum number of tokens to encode, such as 500k or 2M. Texts are sampled at random.
        all_texts: Inspect all texts, regardless of the budget.
        batch_size: Number of texts per encoding batch.
        chunker: A function that splits a text, such as LangChain's `splitter.split_text`. Several
            functions are compared with each other.
        question_writer: An embedding model that paraphrases the questions. Use a different one:
            `model` would favor itself.
        llm: A language model that paraphrases the questions: `MODEL`, or `MODEL@ADDRESS`.
        snippet: Also print code that produces the recommended chunks in this library.
        embedder: The system's embedding model, instead of `window`: its window is looked up or
            measured, and it embeds the queries for a collection.
        k: Number of documents or chunks to retrieve per query.
        max_requests: Maximum number of questions, not counting retries.
        max_time: Time limit in seconds for sending questions. The same call later resumes.
        concurrency: Number of parallel searches.
        timeout: Time limit of a search in seconds.
        chunk_separator: Separator between document id and chunk number in ids; empty if documents
            are not chunked.
        document_field: Field of a hit that contains the document id. By default, common fields such
            as `doc_id` are tried.
        write_questions: Folder for the questions with their spans, in the PosIR layout.
        output: Folder for results, as in `mteb run`.
        full: Also show PSI, its value by chance, and observed differences.
        show: Called with the incomplete inspection after each stage.

    Returns:
        Verdicts and scores. nDCG@10 and PSI are in [0, 1], with 95% intervals. There is one row per
        wording and length of whole texts, and one per chunk size in tokens or chunker.

    Raises:
        PosirError: The model or the texts do not exist, some texts are longer than the model
            accepts, or a chunker fails on a text.

    Examples:
        >>> import posir
        >>> inspection = posir.inspect("./my-model", "PosIR-Mini", budget=5_000)
        >>> inspection.to_polars()["wording"].unique().sort().to_list()
        ['rarest-words']
    """
    max_tokens = None if all_texts else _parse_budget(str(budget))
    max_texts = sys.maxsize // 2 if all_texts else MAX_TEXTS
    read_part = parse_window(window)
    if question_writer and llm:
        raise PosirError("--question-writer and --llm both paraphrase questions. Give only one.")
    open_writer = partial(_open_question_writer, question_writer, llm, batch_size=batch_size)
    if retriever is not None:
        index_texts = _get_index_texts(model, texts, (chunker, revision, protocol, tokenizer))
        # These imports take seconds.
        from posir_inspect.indexed_texts import IndexOptions
        from posir_inspect.live_index import inspect_index
        from posir_score.collecting import CollectionSettings
        from posir_tasks.datasets.opening import open_data

        # Recall at k does not depend on the order of the hits.
        settings = CollectionSettings(
            k,
            concurrency,
            timeout=timeout,
            order="score",
            document_field=document_field,
            folder=Path(output or get_cache_folder() / "retrievers"),
            max_time=max_time,
        )
        dataset = open_data(index_texts, column=column)
        options = IndexOptions(
            max_texts,
            max_requests,
            load_embedder(embedder) if embedder else read_part,
            embedder,
            chunk_separator,
            Path(write_questions) if write_questions else None,
        )
        return inspect_index(retriever, dataset, open_writer, settings, options)
    if texts is None or not isinstance(model, str | Path):
        raise UsageError("Give a model and texts, or texts and --retriever module:function.")
    if embedder or write_questions or max_time:
        raise PosirError("--embedder, --max-time and --write-questions need --retriever.")
    splitters = name_splitters(chunker)
    collection = _read_texts(str(model), texts, column, max_texts, splitters)
    with track("Loading the model"):
        # mteb and PyTorch take seconds to import, so errors in the texts are raised first.
        from posir_inspect.inspection import InspectionInput, inspect_model
        from posir_inspect.model_window import suppress_truncation_warnings
        from posir_tasks.models.embeddings.encoding import load_encoder
        from posir_tasks.text.tokenizer import find_tokenizer

        with override_settings(
            protocol=protocol,
            window=read_part.tokens,
            tokenizer=str(tokenizer) if tokenizer else None,
            backend=backend,
            query_prompt=query_prompt,
            document_prompt=document_prompt,
            query_field=query_field,
            passage_field=passage_field,
        ):
            encoder = load_encoder(str(model), revision, batch_size=batch_size)
        model_tokenizer = (
            ModelTokenizer.load(str(tokenizer)) if tokenizer else find_tokenizer(encoder.model)
        )
    writer = open_writer([text.text for text in collection.texts])
    data = str(texts) if isinstance(texts, str | Path) else ""
    reference = build_reference(encoder.model.mteb_model_meta, str(model), data)
    request = InspectionInput(
        encoder, model_tokenizer, collection, max_tokens, splitters, writer, reference, snippet
    )
    with suppress_truncation_warnings(encoder.model):
        return inspect_model(request, Path(output) if output else None, show, full=full)


def _get_index_texts(
    model: DataReference | None, texts: DataReference | None, model_options: Sequence[object]
) -> DataReference:
    """Return the only positional argument, the texts. Raise PosirError if a model is given too."""
    sources = [source for source in (model, texts) if source is not None]
    if len(sources) != 1 or any(option is not None for option in model_options):
        raise PosirError(
            "A retriever needs the texts of its index and no model: posir inspect "
            "--retriever module:function TEXTS."
        )
    return sources[0]


def _read_texts(
    model: str,
    texts: DataReference,
    column: str | None,
    max_texts: int,
    splitters: Sequence[TextSplitter],
) -> TextCollection:
    """Read the texts and try each splitter on the first text, before the model is loaded."""
    with track("Reading texts"):
        # This import takes a second.
        from posir_tasks.models.registry import raise_if_unloadable
        from posir_tasks.tasks.catalog import raise_if_missing

        raise_if_unloadable(model)
        if isinstance(texts, str | Path):
            raise_if_missing(str(texts))
        from posir_data.texts import read_texts

        collection = read_texts(texts, column=column, limit=max_texts)
    for splitter in splitters:
        splitter.split_text(collection.texts[0].text)
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

    with track("Loading the question writer"):
        encoder = load_encoder(question_writer, batch_size=batch_size)
    # Chunks and whole texts share sentences, so embeddings are cached.
    cached_encoder = replace(encoder, memory=EmbeddingMemory())
    return EmbedderWriter(
        str(encoder.model.mteb_model_meta.name), cached_encoder, build_vocabulary(texts)
    )


@public(check_options=("require", "require_fit"))
def window(
    model: str | Path,
    texts: Annotated[DataReference | None, Option(one_value=True)] = None,
    *,
    require: OptionalPositive = None,
    max_tokens: OptionalPositive = None,
    tokenizer: str | Path | None = None,
    revision: str | None = None,
    query_field: Names | None = None,
    passage_field: Names | None = None,
    chunker: Annotated[
        Chunker | None, Option(parse=load_splitter, metavar="MODULE:FUNCTION")
    ] = None,
    require_fit: bool = False,
) -> WindowReading:
    """Measure how many tokens of a text a model reads, from its embeddings or a reranker's scores.

    No texts are needed.

        posir window all-MiniLM-L6-v2
        posir window bge-m3@http://localhost:8000/v1

    The measurement ignores the model's metadata, so it also reveals silent truncation by a server.
    An endpoint receives at most 40 requests.

    Args:
        model: A name known to mteb or the Hub, a folder, or an endpoint (`MODEL@ADDRESS`).
        texts: Texts for `chunker`: a file, a folder or any other data; in Python also a list of
            texts.
        require: Exit with status 1 if the model reads fewer tokens from the start without a gap,
            or with status 2 if this is inconclusive.
        max_tokens: Length of the longest text to try; by default a quarter more than the model
            claims, at most 32,768.
        tokenizer: Tokenizer of a model behind an endpoint: a name on the Hub, or a folder. Without
            it, the length is in words.
        revision: Revision of the model.
        query_field: A field to add to an endpoint's query requests, such as `input_type=query`.
        passage_field: A field to add to an endpoint's document requests, such as `truncate=true`.
        chunker: A function that splits a text, to count the chunks that exceed the window.
        require_fit: Exit with status 1 if any chunk exceeds the window.

    Returns:
        `tokens`, the lower and upper bound of the window, which are equal if the window is exact;
        and `enough`, which is true if the model reads the required tokens.

    Raises:
        PosirError: The model or the tokenizer does not exist, a number is not a positive integer,
            or the model cannot encode short texts. A request without a response is retried once.

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
    contents = []
    if splitter and texts is not None:
        from posir_tasks.data.formats.passages import Passage
        from posir_tasks.datasets.opening import open_data

        # Read texts of any length and language, since a system indexes all of them.
        dataset = open_data(texts)
        passages = (item for item in dataset.read_texts() if isinstance(item, Passage))
        contents = [passage.text for passage in passages if passage.text.strip()]
        if not contents:
            raise PosirError(
                f"{dataset.location}: no usable text. Give texts that {splitter.name} can split."
            )
        # Fail on a faulty chunker before loading the model.
        splitter.split_text(contents[0])
    stage = "Querying the server" if find_endpoint(str(model)) else "Loading the model"
    with track(stage), override_settings(query_field=query_field, passage_field=passage_field):
        reference = build_reference_from_environment(str(model))
        longest = max(max_tokens or MAX_TOKENS, require or 0)
        measured_model = _describe_model(str(model), revision, tokenizer, longest)
    result = measure_window(measured_model, required=require, max_tokens=max_tokens)
    result = replace(result, reference=reference)
    if splitter:
        fit = measure_fit(measured_model, result.reading, splitter, contents)
        result = replace(result, fit=fit)
    result = complete_reading(result)
    has_long_chunks = require_fit and result.fit and result.fit.too_long
    return replace(result, exit_status=1) if has_long_chunks else result


def _describe_model(
    model: str, revision: str | None, tokenizer: str | Path | None, max_tokens: int
) -> MeasuredModel:
    """Describe the model to measure. An endpoint does not need mteb and PyTorch, which take seconds
    to import.
    """
    given_tokenizer = ModelTokenizer.load(str(tokenizer)) if tokenizer else None
    endpoint = find_endpoint(model)
    if endpoint and not RERANKER_NAME.fullmatch(endpoint.model):
        # With a single retry, a server that is down is reported quickly.
        return MeasuredModel.connect(endpoint, given_tokenizer, max_tokens, retries=1)
    from posir_tasks.models.registry import find_model, load_model, raise_if_unloadable

    raise_if_unloadable(model)
    from transformers.utils.logging import disable_progress_bar

    from posir_inspect.model_window import describe_model, describe_reranker
    from posir_tasks.models.embeddings.encoding import load_encoder
    from posir_tasks.models.references import CROSS_ENCODER, ModelReference
    from posir_tasks.text.tokenizer import find_tokenizer

    # Transformers shows its progress bar even if the output is piped.
    disable_progress_bar()  # type: ignore[no-untyped-call]
    reference = ModelReference(model, revision)
    if CROSS_ENCODER in find_model(reference).model_type:
        reranker = load_model(reference)
        return describe_reranker(reranker, given_tokenizer or find_tokenizer(reranker))
    encoder = load_encoder(model, revision)
    return describe_model(encoder, given_tokenizer or find_tokenizer(encoder.model))
