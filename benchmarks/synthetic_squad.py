"""Write a synthetic dataset of the size of SQuAD-PosQ, with the word frequencies of real texts.

Documents have 117 words on average, as in SQuAD. Questions have 10 words, half of them from around
the answer.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl

#: Numbers of distinct contexts and answerable questions in SQuAD 2.0, train and validation (Zeng et
#: al. 2025, arXiv 2505.13950).
DOCUMENTS, QUERIES = 20_233, 92_749
WORDS_PER_DOCUMENT, WORDS_PER_QUERY = 117, 10


def write_synthetic_squad(
    texts: list[str], folder: Path, documents: int = DOCUMENTS, queries: int = QUERIES
) -> None:
    """Write the dataset in the layout of the repository `squad_v2`, and as plain corpus and queries
    for bm25s.

    Args:
        texts: Real texts, for word frequencies.
        folder: Folder in which to create `squad_v2/` and `plain/`.
        documents: Number of contexts.
        queries: Number of questions.
    """
    rng = np.random.default_rng(0)
    counts = Counter(word for text in texts for word in text.split())
    words = np.array(list(counts))
    shares = np.array(list(counts.values()), float) / counts.total()
    lengths = np.maximum(rng.poisson(WORDS_PER_DOCUMENT, documents), 30)
    word_lists = [rng.choice(words, length, p=shares).tolist() for length in lengths]
    contexts = [" ".join(row) for row in word_lists]
    relevant = np.concatenate(
        [np.arange(documents), rng.integers(0, documents, max(0, queries - documents))]
    )[:queries]
    rows = [_sample_question(rng, word_lists[document], words, shares) for document in relevant]
    (folder / "squad_v2" / "squad_v2").mkdir(parents=True)
    table = pl.DataFrame(
        {
            "id": [f"question-{row}" for row in range(queries)],
            "title": "synthetic",
            "context": [contexts[document] for document in relevant],
            "question": [f"{text} {row}" for row, (text, _, _) in enumerate(rows)],
            "answers": [{"text": [answer], "answer_start": [start]} for _, answer, start in rows],
        }
    )
    for split, split_table in (
        ("train", table[: queries * 9 // 10]),
        ("validation", table[queries * 9 // 10 :]),
    ):
        split_table.write_parquet(
            folder / "squad_v2" / "squad_v2" / f"{split}-00000-of-00001.parquet"
        )
    (folder / "plain").mkdir()
    pl.DataFrame({"text": list(dict.fromkeys(table["context"]))}).write_parquet(
        folder / "plain" / "corpus.parquet"
    )
    pl.DataFrame({"text": table["question"]}).write_parquet(folder / "plain" / "queries.parquet")


def _sample_question(
    rng: np.random.Generator, document: list[str], words: np.ndarray, shares: np.ndarray
) -> tuple[str, str, int]:
    """Sample a question about a word in a document. Return it, the word and the index of the word's
    first character.
    """
    index = int(rng.integers(0, len(document)))
    context = document[max(0, index - WORDS_PER_QUERY // 4) : index + WORDS_PER_QUERY // 4 + 1]
    other_words = rng.choice(words, WORDS_PER_QUERY // 2, p=shares).tolist()
    return (
        " ".join([*context, *other_words]),
        document[index],
        len(" ".join(document[:index])) + (index > 0),
    )
