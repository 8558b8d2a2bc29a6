"""mteb's BM25 baseline on all cores, with arrays instead of dictionaries."""

from __future__ import annotations

import logging
import multiprocessing
import os
import unicodedata
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial, partialmethod
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from datasets import Dataset
from mteb.models.model_implementations.bm25 import BM25Search
from mteb.models.models_protocols import MTEBModels

from posir_tasks.base.overrides import override
from posir_tasks.base.private_names import BM25_TOKENIZER
from posir_tasks.models.references import BM25_BASELINE
from posir_tasks.text.words import UNSPACED_ALPHABETS
from posir_tasks.values.ranks import Hits

if TYPE_CHECKING:
    from bm25s import BM25, Results
    from bm25s.tokenization import Tokenized

# bm25s starts JAX if it is installed, and JAX would reserve three quarters of the GPU memory.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

#: Minimum number of queries for which starting another process saves time.
MIN_QUERIES_PER_PROCESS = 2_000

logger = logging.getLogger(__name__)

#: A worker process's index, tokenized queries and k.
_worker_state: tuple[BM25, Tokenized, int]


def split_trigrams(text: str) -> list[str]:
    """Split a text into overlapping character trigrams; drop white space and control characters."""
    normalized_text = unicodedata.normalize("NFKC", text).lower()
    letters = "".join(
        letter for letter in normalized_text if unicodedata.category(letter)[0] not in "CZ"
    )
    return [letters[start : start + 3] for start in range(max(len(letters) - 2, 1))]


def adapt_to_script(model: MTEBModels, corpus_language: str) -> MTEBModels:
    """Make mteb's BM25 baseline use character trigrams in alphabets without spaces; return other
    models unchanged.

    For Thai, Khmer, Lao, Burmese and Tibetan, mteb's tokens are single characters, which are not
    specific enough: on XQuAD in Arabic, German, Russian and Spanish with spaces removed, BM25's
    nDCG@10 is 12 to 17 with single characters, 71 to 83 with bigrams and 94 with trigrams. A
    Chinese character, in contrast, is almost a word: nDCG@10 is 95 with single characters and 89
    with trigrams.
    """
    if (
        not isinstance(model, BM25Search)
        or model.mteb_model_meta.name != BM25_BASELINE
        or corpus_language[4:] not in UNSPACED_ALPHABETS
    ):
        return model
    trigram_model = BM25Search(
        tokenizer=split_trigrams, k1=model.k1, b=model.b, delta=model.delta, method=model.method
    )
    # mteb's class does not declare the attribute.
    vars(trigram_model)["mteb_model_meta"] = model.mteb_model_meta
    return cast("MTEBModels", trigram_model)


def search_bm25(
    model: BM25Search,
    corpus: Dataset,
    queries: Dataset,
    *,
    top_k: int,
    num_proc: int | None = None,
    **task_arguments: Any,
) -> Hits:
    """Find the `top_k` documents of each query like `BM25Search`. By default, use all cores."""
    ids = corpus["id"][:]
    k = min(top_k, len(ids))
    # The model iterates over its corpus. A list is much faster than a dataset.
    texts = [{"id": name, "text": text} for name, text in zip(ids, corpus["text"][:], strict=True)]
    with _hide_progress():
        try:
            model.index(texts, **task_arguments)
        except ValueError:
            # bm25s raises an error for an empty vocabulary.
            if any(map(len, BM25_TOKENIZER.read(model).transform(corpus["text"][:]).ids)):
                raise
            logger.warning(
                "subset %r: BM25 finds no words in any document, only punctuation or stop words. "
                "All scores are 0. Check the texts and their language.",
                task_arguments["hf_subset"],
            )
            shape = (len(queries), k)
            rows = np.broadcast_to(np.arange(k), shape)
            return Hits(rows, np.zeros(shape, np.float32), ids)
        tokens = BM25_TOKENIZER.read(model).transform(queries["text"][:])
    processes = min(num_proc or os.cpu_count() or 1, len(queries) // MIN_QUERIES_PER_PROCESS)
    batches = retrieve(model.retriever, tokens, k=k, processes=processes)
    return Hits(
        np.concatenate([batch.documents for batch in batches]),
        np.concatenate([batch.scores for batch in batches]),
        ids,
    )


@contextmanager
def _hide_progress() -> Iterator[None]:
    """Hide the progress bars of bm25s, which mteb cannot turn off."""
    import bm25s

    # The import of bm25s sets its logger to DEBUG.
    logging.getLogger("bm25s").setLevel(logging.NOTSET)
    tokenize = partial(bm25s.tokenize, show_progress=False)
    index = partialmethod(bm25s.BM25.index, show_progress=False)
    with override(bm25s, tokenize=tokenize), override(bm25s.BM25, index=index):
        yield


def retrieve(retriever: BM25, tokens: Tokenized, *, k: int, processes: int) -> list[Results]:
    """Retrieve the top `k` documents; return consecutive batches of queries.

    bm25s holds the GIL, so threads do not help. Forked processes share the index without copying
    it. Platforms without fork use a single process.
    """
    if processes < 2 or "fork" not in multiprocessing.get_all_start_methods():
        return [_retrieve(retriever, tokens, k)]
    bounds = np.linspace(0, len(tokens.ids), processes + 1).astype(int).tolist()
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(
        processes, context, initializer=_set_worker_state, initargs=(retriever, tokens, k)
    ) as pool:
        return list(pool.map(_retrieve_batch, bounds[:-1], bounds[1:]))


def _set_worker_state(retriever: BM25, tokens: Tokenized, k: int) -> None:
    global _worker_state
    _worker_state = (retriever, tokens, k)


def _retrieve_batch(start: int, end: int) -> Results:
    from bm25s.tokenization import Tokenized

    retriever, tokens, k = _worker_state
    return _retrieve(retriever, Tokenized(ids=tokens.ids[start:end], vocab=tokens.vocab), k)


def _retrieve(retriever: BM25, tokens: Tokenized, k: int) -> Results:
    # If JAX is installed, it is the default backend, but it orders ties differently and cannot be
    # forked.
    return retriever.retrieve(tokens, k=k, show_progress=False, backend_selection="numpy")
