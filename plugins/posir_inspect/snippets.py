"""Code that makes the advised chunks in other libraries, to be pasted; measured are the chunks that
posir searched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from jinja2 import Environment, PackageLoader, StrictUndefined

from posir_tasks.base.errors import PosirError
from posir_tasks.text.chunks import Chunking
from posir_tasks.text.words import find_words

if TYPE_CHECKING:
    from posir_inspect.splitting import ChunkComparison
    from posir_tasks.text.tokenizer import ModelTokenizer

#: The library, or the index, that code is written for.
SnippetKind: TypeAlias = Literal["langchain", "llamaindex", "haystack", "qdrant", "elasticsearch"]

#: Those that need no tokenizer of the model.
UNCOUNTED: tuple[SnippetKind, ...] = ("qdrant", "elasticsearch")
#: Smallest number of words of a chunk that Elasticsearch takes.
MIN_WORDS = 20


@dataclass(frozen=True)
class Snippet:
    """Code for a library, and what is known of it."""

    kind: SnippetKind
    sentence: str
    code: str = ""
    """Empty if there is nothing to divide, or no size is advised."""


def require_tokenizer(kind: SnippetKind, model: str, tokenizer: ModelTokenizer | None) -> None:
    """Raise PosirError if no library can count the tokens of the chunks of a model."""
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
    """Write code for the advised chunks; `tokens` are those of all texts."""
    size = chunks.row.size
    if not size or not chunks.chunked_model:
        reason = "whole texts serve best, or no chunks are shown to be better"
        if chunks.row.chunker:
            reason = f"your splitter {chunks.row.chunker} serves best"
        return Snippet(kind, f"No code: {reason}.")
    words = max(
        MIN_WORDS, int(size * sum(len(find_words(text)) for text in texts) / max(tokens, 1))
    )
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
    sentence = "These are the chunks that were measured; half of each is in the next one."
    if kind == "elasticsearch":
        sentence = (
            "Not run by posir, and not the same chunks: Elasticsearch counts words, and "
            f"{size} tokens have about {words} words in these texts."
        )
    return Snippet(kind, sentence, code)
