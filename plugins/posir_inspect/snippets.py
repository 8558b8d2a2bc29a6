"""Code that makes the advised chunks in other libraries, to be pasted; measured are the chunks that posir searched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from string import Template
from typing import TYPE_CHECKING, Literal, TypeAlias

from posir_tasks.errors import PosirError
from posir_tasks.text.chunks import Chunking
from posir_tasks.text.words import find_words

if TYPE_CHECKING:
    from posir_inspect.splitting import ChunkComparison
    from posir_tasks.text.tokenizer import ModelTokenizer

#: The library, or the index, that code is written for.
SnippetKind: TypeAlias = Literal["langchain", "llamaindex", "haystack", "qdrant", "elasticsearch"]

SPLIT = '''from transformers import AutoTokenizer
$imports
tokenizer = AutoTokenizer.from_pretrained($tokenizer)


def split(text, size=$size, step=$step):
    """Return slices of the text of $size tokens, one every $step tokens."""
    found = tokenizer(text, add_special_tokens=False, truncation=False, return_offsets_mapping=True, verbose=False)
    spans = [(start, end) for start, end in found["offset_mapping"] if end > start]
    if len(spans) <= size:
        return [text]
    starts = range(0, len(spans) - size + step, step)
    return [text[spans[first][0] : spans[min(first + size, len(spans)) - 1][1]] for first in starts]


'''
SPLITTER = """class TokenChunks(TextSplitter):
    def split_text(self, text: str) -> list[str]:
        return split(text)


splitter = TokenChunks()
"""
CODE: dict[SnippetKind, str] = {
    "langchain": Template(SPLIT).safe_substitute(imports="from langchain_text_splitters import TextSplitter\n")
    + SPLITTER
    + "# chunks = splitter.split_documents(documents)\n",
    "llamaindex": Template(SPLIT).safe_substitute(imports="from llama_index.core.node_parser import TextSplitter\n")
    + SPLITTER
    + "# nodes = splitter.get_nodes_from_documents(documents)\n# Metadata are embedded, too, unless excluded.\n",
    "haystack": Template(SPLIT).safe_substitute(imports="from haystack.components.preprocessors import DocumentSplitter\n")
    + 'splitter = DocumentSplitter(split_by="function", splitting_function=split)\n'
    + '# chunks = splitter.run(documents=documents)["documents"]\n',
    "qdrant": """import posir
from qdrant_client import QdrantClient, models

documents = {"id": "text"}  # yours
model = posir.open_model($model)
client = QdrantClient(":memory:")
vectors = model.encode(list(documents.values()))
size, distance = vectors[0].shape[1], models.Distance.$distance
client.create_collection("chunks", vectors_config=models.VectorParams(size=size, distance=distance))
owned = [(name, vector.tolist()) for name, chunks in zip(documents, vectors) for vector in chunks]
points = [models.PointStruct(id=row, vector=vector, payload={"document": name}) for row, (name, vector) in enumerate(owned)]
client.upload_points("chunks", points)


def search(query, k=10):
    vector = model.encode([query], query=True)[0][0].tolist()
    found = client.query_points_groups("chunks", query=vector, group_by="document", limit=k, group_size=1)
    return [(group.id, group.hits[0].score) for group in found.groups]
""",
    "elasticsearch": """PUT chunks
{"mappings": {"properties": {"text": {
  "type": "semantic_text",
  "inference_id": "YOUR-ENDPOINT",
  "chunking_settings": {"type": "word", "max_chunk_size": $words, "overlap": $overlap}
}}}}
""",
}
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
    if tokenizer is None and kind not in ("qdrant", "elasticsearch"):
        raise PosirError(
            f"--snippet {kind}: the chunks of {model} are cut at estimated tokens, since its tokenizer is not here; no "
            "splitter counts these. Compare splitters of your own with --chunker, or write a snippet for qdrant."
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
            return Snippet(kind, "No code: that chunks serve better than whole texts cannot be said.")
        own = f"Your splitter {chunks.row.chunker} serves best: keep its settings."
        return Snippet(kind, own if chunks.row.chunker else "No code: whole texts serve, without a splitter.")
    words = max(LEAST_WORDS, int(size * sum(len(find_words(text)) for text in texts) / max(tokens, 1)))
    code = Template(CODE[kind]).substitute(
        imports="",
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
            f"Not run by posir, and not the same chunks: Elasticsearch counts words, and {size} tokens have about "
            f"{words} words in these texts. Measure your index with `posir score --retriever`."
        )
    elif kind == "qdrant":
        said = "The chunks that were measured, in an index in memory that groups them by document."
    else:
        said = "These are the chunks that were measured, character by character; half of each is in the next one."
    return Snippet(kind, said, code)
