"""A dataset of SQuAD-PosQ's true shape, drawn from the words of real texts with their frequencies.

Documents have as many words as SQuAD's, 117 on average; a question has 10 words, half of them from around its answer.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl

#: Distinct contexts and answerable questions of SQuAD 2.0, train and validation (Zeng et al. 2025, arXiv 2505.13950).
DOCUMENTS, QUERIES = 20_233, 92_749
WORDS_A_DOCUMENT, WORDS_A_QUERY = 117, 10


def make(texts: list[str], folder: Path, documents: int = DOCUMENTS, queries: int = QUERIES) -> None:
    """Write it twice: as the repository `squad_v2` wants it, and as a plain corpus and queries for raw bm25s.

    Args:
        texts: Real texts, whose words and their frequencies are drawn from.
        folder: Gets `squad_v2/` and `plain/`.
        documents: Number of contexts.
        queries: Number of questions.
    """
    rng = np.random.default_rng(0)
    counts = Counter(word for text in texts for word in text.split())
    words = np.array(list(counts))
    shares = np.array(list(counts.values()), float) / counts.total()
    lengths = np.maximum(rng.poisson(WORDS_A_DOCUMENT, documents), 30)
    drawn = [rng.choice(words, length, p=shares).tolist() for length in lengths]
    contexts = [" ".join(row) for row in drawn]
    asked = np.concatenate([np.arange(documents), rng.integers(0, documents, max(0, queries - documents))])[:queries]
    rows = [_question(rng, drawn[document], words, shares) for document in asked]
    (folder / "squad_v2" / "squad_v2").mkdir(parents=True)
    table = pl.DataFrame(
        {
            "id": [f"question-{row}" for row in range(queries)],
            "title": "made",
            "context": [contexts[document] for document in asked],
            "question": [f"{text} {row}" for row, (text, _, _) in enumerate(rows)],
            "answers": [{"text": [answer], "answer_start": [start]} for _, answer, start in rows],
        }
    )
    for split, part in (("train", table[: queries * 9 // 10]), ("validation", table[queries * 9 // 10 :])):
        part.write_parquet(folder / "squad_v2" / "squad_v2" / f"{split}-00000-of-00001.parquet")
    (folder / "plain").mkdir()
    pl.DataFrame({"text": list(dict.fromkeys(table["context"]))}).write_parquet(folder / "plain" / "corpus.parquet")
    pl.DataFrame({"text": table["question"]}).write_parquet(folder / "plain" / "queries.parquet")


def _question(rng: np.random.Generator, document: list[str], words: np.ndarray, shares: np.ndarray) -> tuple[str, str, int]:
    """Return a question about a word of a document, that word, and its first character."""
    place = int(rng.integers(0, len(document)))
    near = document[max(0, place - WORDS_A_QUERY // 4) : place + WORDS_A_QUERY // 4 + 1]
    other = rng.choice(words, WORDS_A_QUERY // 2, p=shares).tolist()
    return " ".join([*near, *other]), document[place], len(" ".join(document[:place])) + (place > 0)
