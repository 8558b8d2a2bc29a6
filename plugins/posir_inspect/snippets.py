"""Code snippets that produce the recommended chunks in other libraries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from posir_tasks.base.errors import PosirError
from posir_tasks.text.chunks import Chunking
from posir_tasks.text.words import find_words

if TYPE_CHECKING:
    from posir_inspect.splitting import ChunkComparison
    from posir_tasks.text.tokenizer import ModelTokenizer

#: A library or a vector index.
SnippetKind: TypeAlias = Literal["langchain", "llamaindex", "haystack", "qdrant", "elasticsearch"]

#: Libraries that do not need the model's tokenizer.
UNCOUNTED: tuple[SnippetKind, ...] = ("qdrant", "elasticsearch")
#: Minimum number of words in an Elasticsearch chunk.
MIN_WORDS = 20


@dataclass(frozen=True)
class Snippet:
    """Code for a library."""

    kind: SnippetKind
    sentence: str
    """A comment on the code, or the reason why there is no code."""
    code: str = ""
    """Empty if no chunk size is recommended."""


def require_tokenizer(kind: SnippetKind, model: str, tokenizer: ModelTokenizer | None) -> None:
    """Raise PosirError if the library needs the model's tokenizer but the tokenizer is unknown."""
    if tokenizer is None and kind not in UNCOUNTED:
        raise PosirError(
            f"--snippet {kind}: the tokenizer of {model} is unknown, so no library can count the "
            "tokens of its chunks. Use --snippet qdrant, or compare splitters with --chunker."
        )


def write_snippet(
    kind: SnippetKind,
    chunks: ChunkComparison,
    tokenizer: ModelTokenizer | None,
    distance: str,
    texts: Sequence[str],
    tokens: int,
) -> Snippet:
    """Write code for the recommended chunks.

    Args:
        kind: The library.
        chunks: The comparison that recommends the chunks.
        tokenizer: The model's tokenizer; None if unknown.
        distance: Similarity function of the model, `DOT` or `COSINE`.
        texts: The texts, to convert tokens to words.
        tokens: Number of tokens of all texts.
    """
    size = chunks.row.size
    if not size or not chunks.chunked_model:
        reason = "whole texts do best, or no chunk size is shown to be better"
        if chunks.row.chunker:
            reason = f"your splitter {chunks.row.chunker} does best"
        return Snippet(kind, f"No code: {reason}.")
    total_words = sum(len(find_words(text)) for text in texts)
    words = max(MIN_WORDS, int(size * total_words / max(tokens, 1)))
    # Jinja2 takes time to import.
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader(__package__), undefined=StrictUndefined, trim_blocks=True
    )
    code = environment.get_template("snippet.txt").render(
        kind=kind,
        tokenizer=repr(tokenizer.tokenizer.name_or_path) if tokenizer else "",
        size=size,
        step=Chunking(size).step,
        model=repr(chunks.chunked_model),
        distance=distance,
        words=words,
        overlap=words // 2,
    )
    sentence = "These are the measured chunks. Each chunk overlaps the next by half."
    if kind == "elasticsearch":
        sentence = (
            "Not tested by posir, and not the measured chunks: Elasticsearch counts words, and "
            f"{size} tokens are about {words} words in these texts."
        )
    return Snippet(kind, sentence, code)
