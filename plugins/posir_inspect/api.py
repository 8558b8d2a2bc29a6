"""The public functions of this package: `posir.window` and `posir.inspect`."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from posir_inspect.snippets import SnippetKind, require_tokenizer
from posir_inspect.window import MeasuredModel, WindowReading, describe_endpoint, measure_fit, measure_window
from posir_tasks.display.progress import track
from posir_tasks.errors import PosirError
from posir_tasks.models.connection import limit_first_retries
from posir_tasks.models.endpoint_client import EmbeddingClient
from posir_tasks.models.protocols import PaperName
from posir_tasks.models.reading_length import MAX_TOKENS
from posir_tasks.models.references import RERANKER, find_endpoint
from posir_tasks.models.run_settings import find_request_fields, with_settings
from posir_tasks.public import DataReference, Option, public
from posir_tasks.text.chunks import Chunker, load_splitter, name_splitters
from posir_tasks.text.tokenizer import ModelTokenizer

if TYPE_CHECKING:
    from posir_inspect.sections import Inspection
    from posir_tasks.language_models.other_words import QuestionWriter

#: Tokens that are encoded at most by default.
BUDGET = 180_000
#: Texts that are read at most within a budget; of more, a random sample.
MAX_TEXTS = 1000


def _parse_budget(text: str) -> int:
    """Return a number of tokens such as `500k`; raise PosirError if it is none."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kM]?)", text.replace(",", ""))
    tokens = round(float(match[1]) * {"": 1, "k": 1_000, "M": 1_000_000}[match[2]]) if match else 0
    if tokens < 1:
        raise PosirError(f"--budget {text}: not a number of tokens. Write a number such as 200000, 200k or 2M.")
    return tokens


@public(charts=True, streams=True)
def inspect(
    model: str | Path,
    texts: Annotated[DataReference, Option(one_value=True)],
    *,
    revision: str | None = None,
    window: Annotated[int | None, Option(min=1)] = None,
    protocol: PaperName | None = None,
    query_field: str | Iterable[str] | None = None,
    passage_field: str | Iterable[str] | None = None,
    column: str | None = None,
    tokenizer: str | Path | None = None,
    budget: Annotated[int, Option(parse=_parse_budget)] = BUDGET,
    all_texts: bool = False,
    batch_size: Annotated[int, Option(min=1)] = 32,
    chunker: Annotated[Chunker | Iterable[Chunker] | None, Option(parse=load_splitter, metavar="MODULE:FUNCTION")] = None,
    question_writer: str | None = None,
    llm: str | None = None,
    snippet: SnippetKind | None = None,
    output: str | Path | None = None,
    full: bool = False,
    show: Annotated[Callable[["Inspection"], object], Option(python_only=True)] = lambda _: None,  # noqa: UP037
) -> Inspection:
    """Show how far a model reads, where evidence fades, and which chunk size serves these texts; no questions are needed.

    Args:
        model: A name known to mteb or the Hub, a folder, or an endpoint (`MODEL@ADDRESS`).
        texts: A file or folder of plain text, Markdown, JSON Lines or Parquet; any data with questions; a task; a dataset
            on the Hub. In Python also a list of texts, or a column of a DataFrame (polars or pandas).
        revision: Revision of the model.
        window: Tokens of a text that the model reads, in place of its own window: an experiment, filed as such.
        protocol: Paper whose authors' settings the model is run with, whole or not at all: an experiment, filed as such.
        query_field: A field of requests for queries to an endpoint, such as `input_type=query`.
        passage_field: The same for documents, such as `input_type=document` or `truncate=true`.
        column: Column or field with the text of a file.
        tokenizer: Tokenizer of a model behind an endpoint: a name on the Hub, or a folder.
        budget: Most tokens that are encoded, such as 500k or 2M; texts are drawn at random, with a fixed seed.
        all_texts: Inspect all texts, with all questions and chunk sizes, whatever the budget.
        batch_size: Number of texts encoded at a time.
        chunker: A function that divides a text into a list of texts, such as `splitter.split_text` of LangChain; several are
            compared with each other and with whole texts, in place of chunk sizes.
        question_writer: An embedder, named as `model` is, that writes questions in other words; another than `model`, which
            would favor itself.
        llm: A language model that writes them in its place: `MODEL`, or `MODEL@ADDRESS`.
        snippet: Add code that makes the advised chunks in this library or index, to be pasted.
        output: Folder for results, as in `mteb run`.
        full: Show PSI, the PSI that chance alone gives and the p-value of any effect of position, too.
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
    splitters = tuple(name_splitters(chunker))
    if question_writer and llm:
        raise PosirError("--question-writer and --llm both write questions in other words. Give one of them.")
    with track("Reading texts"):
        # The readers take a second to import.
        from posir_data.texts import read_texts

        collection = read_texts(texts, column=column, limit=sys.maxsize // 2 if all_texts else MAX_TEXTS)
    # A mistake in a chunker should not cost the time to load the model.
    for splitter in splitters:
        splitter.divide(collection.texts[0].text)
    with track("Loading the model"):
        # mteb and PyTorch take seconds to import, which a mistake in the texts should not cost.
        from posir_inspect.inspection import Setup, inspect_model
        from posir_inspect.model_window import measure
        from posir_tasks.embeddings.encoding import load_encoder
        from posir_tasks.text.tokenizer import find_tokenizer

        fields = {"query_field": query_field, "passage_field": passage_field}
        with with_settings(protocol=protocol, window=window, **fields):
            encoder = load_encoder(str(model), revision, batch_size=batch_size)
        counter = ModelTokenizer.load(str(tokenizer)) if tokenizer else find_tokenizer(encoder.model)
    if snippet:
        require_tokenizer(snippet, str(model), find_tokenizer(encoder.model))
    writer = _open_question_writer(question_writer, llm, [text.text for text in collection.texts], batch_size)
    setup = Setup(encoder, counter, collection, None if all_texts else budget, splitters, writer, snippet)
    with measure(encoder.model):
        return inspect_model(setup, Path(output) if output else None, show, full=full)


def _open_question_writer(
    question_writer: str | None, llm: str | None, texts: Sequence[str], batch_size: int
) -> QuestionWriter | None:
    if llm:
        from posir_tasks.language_models.other_words import open_writer

        return open_writer(llm, texts)
    if not question_writer:
        return None
    from posir_tasks.embeddings.encoding import EmbeddingMemory, load_encoder
    from posir_tasks.language_models.other_words import EmbedderWriter, build_vocabulary

    with track("Loading the model that writes questions"):
        encoder = load_encoder(question_writer, batch_size=batch_size)
    # Chunks are compared by questions about the same sentences as whole texts.
    remembering = replace(encoder, memory=EmbeddingMemory())
    return EmbedderWriter(str(encoder.model.mteb_model_meta.name), remembering, build_vocabulary(texts))


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
    chunker: Annotated[Chunker | None, Option(parse=load_splitter, metavar="MODULE:FUNCTION")] = None,
    require_fit: bool = False,
) -> WindowReading:
    """Measure which part of a text a model reads, from its embeddings alone; no texts are needed.

    Two texts that are equal up to a cut and differ after it have the same embedding if the model reads no further than the cut.
    So it does not matter what its metadata says, or whether a server cuts texts without an error. An endpoint gets at most 40
    requests: 4 to 6 where the server states its limit, or counts the tokens that it reads.

    Args:
        model: A name known to mteb or the Hub, a folder, or an endpoint (`MODEL@ADDRESS`).
        texts: With `chunker`, texts that it divides: a file, a folder or any other data; in Python also a list of texts.
        require: Tokens that the model should read from the start without a gap, special ones included: `enough` of the result
            says whether it does. Exit status 1 if it reads fewer, 2 if that cannot be said.
        max_tokens: Longest text that is tried; by default a quarter more than the model claims, at most 32,768.
        tokenizer: Tokenizer of a model behind an endpoint, a name on the Hub or a folder. Without it, the length is in words.
        revision: Revision of the model.
        query_field: A field of requests for queries to an endpoint, such as `input_type=query`.
        passage_field: The same for documents, such as `input_type=document` or `truncate=true`.
        chunker: A function that divides a text into a list of texts, such as `splitter.split_text` of LangChain; chunks that
            are longer than what is read are counted.
        require_fit: Exit status 1 if any chunk is longer than what is read.

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
    (splitter,) = name_splitters(chunker) or (None,)
    if (splitter is None) != (texts is None) or (require_fit and splitter is None):
        raise PosirError("Give texts and --chunker MODULE:FUNCTION together, with or without --require-fit.")
    given: list[str] = []
    if splitter and texts is not None:
        from posir_data.texts import read_texts

        given = [text.text for text in read_texts(texts, limit=sys.maxsize // 2).texts]
        # A mistake in a chunker should not cost the time to load the model.
        splitter.divide(given[0])
    with track("Loading the model"), with_settings(query_field=query_field, passage_field=passage_field):
        described = _describe(str(model), revision, tokenizer, max(max_tokens or MAX_TOKENS, require or 0))
    measured = measure_window(described, required=require, max_tokens=max_tokens)
    if splitter is None:
        return measured
    fit = measure_fit(described, measured.reading, splitter, given)
    return replace(measured, fit=replace(fit, required=require_fit))


def _describe(model: str, revision: str | None, tokenizer: str | Path | None, longest: int) -> MeasuredModel:
    """Return a model with what is known of it; an endpoint needs neither mteb nor PyTorch, which take seconds to import."""
    known = ModelTokenizer.load(str(tokenizer)) if tokenizer else None
    endpoint = find_endpoint(model)
    if endpoint and not RERANKER.fullmatch(endpoint.model):
        # A check should say at once that a server is down.
        with limit_first_retries(1):
            client = EmbeddingClient(endpoint, find_request_fields())
        return describe_endpoint(endpoint, client, known, longest)
    from posir_inspect.model_window import describe_model
    from posir_tasks.embeddings.encoding import load_encoder
    from posir_tasks.text.tokenizer import find_tokenizer

    encoder = load_encoder(model, revision)
    return describe_model(encoder, known or find_tokenizer(encoder.model))
