"""The retrieval of sentences that a model never reads, without the model: by the words that they share with what is read.

The sentences of a text share its topic and its words, so an unread sentence can lead to its text. BM25 over the part of the
texts that is read says how far words alone go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from datasets import Dataset
from mteb.timing import TimingStack

from posir_inspect.question_task import PseudoQuestionTask
from posir_tasks.embeddings.context import EncodingContext
from posir_tasks.evidence import Integers
from posir_tasks.profile import DEPTH, NDCG_AT_10, rank_columns
from posir_tasks.search.dispatch import SearchRequest
from posir_tasks.search.first_stage import load_first_stage
from posir_tasks.tasks.metadata import SPLIT


@dataclass(frozen=True)
class WordBaseline:
    """nDCG@10 of questions without the model."""

    shared_words: float
    """Score of BM25; of questions about unread sentences, with the part of each text that is read."""
    chance: float
    """Expected if texts are ranked at random."""


def measure_unread_baseline(task: PseudoQuestionTask, window: int) -> WordBaseline | None:
    """Search for the texts of unread sentences in what is read of all texts; None if everything is read.

    Args:
        task: The questions in one wording.
        window: Tokens of a text that the model reads; a character's place in tokens is its share of the text.
    """
    data = task.data
    beyond = np.flatnonzero(data.evidence.estimate_beyond(window))
    if not len(beyond):
        return None
    names, texts = data.corpus["id"][:], data.corpus["text"][:]
    tokens = dict(zip(data.evidence.document_ids, data.evidence.tokens.tolist(), strict=True))
    read = [text[: len(text) * window // max(window, tokens.get(name, 0))] for name, text in zip(names, texts, strict=True)]
    return _search_words(task, read, beyond)


def measure_word_baseline(task: PseudoQuestionTask) -> WordBaseline:
    """Search for the texts of all questions of a task by their words alone."""
    return _search_words(task, task.data.corpus["text"][:], np.arange(len(task.data.queries)))


def _search_words(task: PseudoQuestionTask, texts: Sequence[str], rows: Integers) -> WordBaseline:
    """Search for the texts of some questions, shape (n,), with BM25 in texts, or parts of them, in the order of the corpus."""
    data, names = task.data, task.data.corpus["id"][:]
    (subset,) = task.metadata.hf_subsets_to_langscripts
    queries = data.queries.select(rows)
    positives = data.evidence.positives()
    request = SearchRequest(
        corpus=Dataset.from_dict({"id": names, "text": texts}),
        queries=queries,
        positives=positives,
        top_ranked=None,
        top_k=DEPTH,
        context=EncodingContext(task.metadata, SPLIT, subset),
        timer=TimingStack(),
    )
    hits = load_first_stage(request).top_ranked
    ranks = [hits[query].index(positives[query]) + 1 if positives[query] in hits[query] else 0 for query in queries["id"][:]]
    chance = float(NDCG_AT_10[: min(DEPTH, len(names))].sum()) / len(names)
    return WordBaseline(float(NDCG_AT_10[rank_columns(np.array(ranks, np.int64))].mean()), chance)
