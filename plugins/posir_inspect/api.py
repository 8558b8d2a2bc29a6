"""The public functions of this package: `posir.window` and `posir.inspect`."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from posir_data.texts import read_texts
from posir_tasks.display.progress import track
from posir_tasks.errors import PosirError
from posir_tasks.models.protocols import PaperName
from posir_tasks.models.run_settings import with_settings
from posir_tasks.public import Option, public
from posir_tasks.sources.opening import DataReference
from posir_tasks.text.chunks import Chunker, load_splitter, name_splitters

if TYPE_CHECKING:
    from posir_inspect.sections import Inspection
    from posir_inspect.window import WindowReading
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
    column: str | None = None,
    tokenizer: str | Path | None = None,
    budget: Annotated[int, Option(parse=_parse_budget)] = BUDGET,
    all_texts: bool = False,
    batch_size: Annotated[int, Option(min=1)] = 32,
    chunker: Annotated[Chunker | Iterable[Chunker] | None, Option(parse=load_splitter, metavar="MODULE:FUNCTION")] = None,
    question_writer: str | None = None,
    llm: str | None = None,
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
        collection = read_texts(texts, column=column, limit=sys.maxsize // 2 if all_texts else MAX_TEXTS)
    # A mistake in a chunker should not cost the time to load the model.
    for splitter in splitters:
        splitter.divide(collection.texts[0].text)
    with track("Loading the model"):
        # mteb and PyTorch take seconds to import, which a mistake in the texts should not cost.
        from posir_inspect.inspection import Setup, inspect_model
        from posir_inspect.window import measure
        from posir_tasks.embeddings.encoding import load_encoder
        from posir_tasks.text.tokenizer import ModelTokenizer, find_tokenizer

        with with_settings(protocol=protocol, window=window):
            encoder = load_encoder(str(model), revision, batch_size=batch_size)
        counter = ModelTokenizer.load(str(tokenizer)) if tokenizer else find_tokenizer(encoder.model)
    writer = _open_question_writer(question_writer, llm, [text.text for text in collection.texts], batch_size)
    setup = Setup(encoder, counter, collection, None if all_texts else budget, splitters, writer)
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


@public(undecided_by=("require",))
def window(
    model: str | Path,
    *,
    require: Annotated[int | None, Option(min=1)] = None,
    max_tokens: Annotated[int | None, Option(min=1)] = None,
    tokenizer: str | Path | None = None,
    revision: str | None = None,
) -> WindowReading:
    """Measure which part of a text a model reads, from its embeddings alone; no texts are needed.

    Two texts that are equal up to a cut and differ after it have the same embedding if the model reads no further than the cut.
    So it does not matter what its metadata says, or whether a server cuts texts without an error. An endpoint gets at most 40
    requests.

    Args:
        model: A name known to mteb or the Hub, a folder, or an endpoint (`MODEL@ADDRESS`).
        require: Tokens that the model should read from the start without a gap, special ones included: `enough` of the result
            says whether it does. Exit status 1 if it reads fewer, 2 if that cannot be said.
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
