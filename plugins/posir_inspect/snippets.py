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

#: Name of a library or vector index.
SnippetKind: TypeAlias = Literal["langchain", "llamaindex", "haystack", "qdrant", "elasticsearch"]

#: Libraries that do not need the model's tokenizer.
TOKENIZER_FREE: tuple[SnippetKind, ...] = ("qdrant", "elasticsearch")
#: Minimum number of words in an Elasticsearch chunk.
MIN_WORDS = 20


@dataclass(frozen=True)
class Snippet:
    """Code for a library."""

    kind: SnippetKind
    sentence: str
    """A note about the code, or the reason why there is none."""
    code: str = ""
    """The code; empty if no chunk size is recommended."""


def check_tokenizer(kind: SnippetKind, model: str, tokenizer: ModelTokenizer | None) -> None:
    """Raise PosirError if the library needs the model's tokenizer, but it is unknown."""
    if tokenizer is None and kind not in TOKENIZER_FREE:
        raise PosirError(
            f"--snippet {kind}: the tokenizer of {model} is unknown, so {kind} cannot count "
            "tokens. Use --snippet qdrant, or compare splitters with --chunker."
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
        texts: The texts, for the mean number of words per token.
        tokens: Number of tokens in all texts.
    """
    size = chunks.selection.size
    if not size or not chunks.chunked_model:
        reason = "no chunk size is better than whole texts, or the comparison is inconclusive"
        if chunks.selection.chunker:
            reason = f"the splitter {chunks.selection.chunker} works best"
        return Snippet(kind, f"No code: {reason}.")
    total_words = sum(len(find_words(text)) for text in texts)
    words = max(MIN_WORDS, int(size * total_words / max(tokens, 1)))
    # Import Jinja2 only when needed, since it is slow.
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
    sentence = "This code produces the measured chunks. Each chunk overlaps the next by half."
    if kind == "elasticsearch":
        sentence = (
            "Not tested by posir, and not exactly the measured chunks: Elasticsearch counts words, "
            f"and {size} tokens are about {words} words in these texts."
        )
    return Snippet(kind, sentence, code)
