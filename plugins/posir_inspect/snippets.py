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
#: Fewest words of a chunk that Elasticsearch takes.
LEAST_WORDS = 20


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
            f"--snippet {kind}: the chunks of {model} are cut at estimated tokens, since its "
            "tokenizer is not here; no splitter counts these. Compare splitters of your own with "
            "--chunker, or write a snippet for qdrant."
        )


def write_snippet(
    kind: SnippetKind,
    chunks: ChunkComparison,
    tokenizer: ModelTokenizer | None,
    distance: str,
    texts: Sequence[str],
    tokens: int,
) -> Snippet:
    """Return code for the advised chunks; `tokens` are those of all texts."""
    size, model = chunks.row.size, chunks.chunked_model
    if not size or not model:
        if not chunks.decided:
            return Snippet(
                kind, "No code: whether chunks serve better than whole texts is inconclusive."
            )
        own = f"Your splitter {chunks.row.chunker} serves best: keep its settings."
        return Snippet(
            kind, own if chunks.row.chunker else "No code: whole texts serve, without a splitter."
        )
    words = max(
        LEAST_WORDS, int(size * sum(len(find_words(text)) for text in texts) / max(tokens, 1))
    )
    environment = Environment(
        loader=PackageLoader(__package__), undefined=StrictUndefined, trim_blocks=True
    )
    code = environment.get_template("snippet.txt").render(
        kind=kind,
        tokenizer=repr(tokenizer.tokenizer.name_or_path) if tokenizer else "",
        size=size,
        step=Chunking(size).step,
        model=repr(model),
        distance=distance,
        words=words,
        overlap=words // 2,
    )
    if kind == "elasticsearch":
        said = (
            f"Not run by posir, and not the same chunks: Elasticsearch counts words, and {size} "
            "tokens have about "
            f"{words} words in these texts. Measure your index with `posir score --retriever`."
        )
    elif kind == "qdrant":
        said = "The chunks that were measured, in an index in memory that groups them by document."
    else:
        said = (
            "These are the chunks that were measured, character by character; half of each is in "
            "the next one."
        )
    return Snippet(kind, said, code)
