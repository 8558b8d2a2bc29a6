"""Small made-up articles, with questions about evidence at all positions."""

import json
import random
from pathlib import Path

from posir_train.examples import Example, Examples, TrainingDocument
from tests.support.datasets import build_squad

WORDS = (
    "red",
    "blue",
    "stone",
    "river",
    "cloud",
    "lamp",
    "horse",
    "paper",
    "glass",
    "bread",
    "salt",
    "rope",
    "drum",
    "leaf",
)


def build_examples(
    articles: int = 6, questions: int = 6, sentences: int = 30, seed: int = 0
) -> Examples:
    """Build articles whose sentences each contain a number, and questions about these numbers at
    equally spaced positions.
    """
    rng = random.Random(seed)
    examples = []
    for article in range(articles):
        facts = [
            f"The {rng.choice(WORDS)} {rng.choice(WORDS)} weighs {rng.randint(1000, 9999)} grams."
            for _ in range(sentences)
        ]
        text = " ".join(facts)
        document = TrainingDocument(f"d{article}", text, "eng-Latn/c", f"article {article}")
        for number in range(questions):
            fact = facts[number * sentences // questions]
            answer = fact.split()[-2]
            start = text.index(fact) + fact.index(answer)
            question = (
                f"How much does the {' '.join(fact.split()[1:3])} in article {article} weigh, "
                f"according to sentence {number}?"
            )
            examples.append(
                Example(f"q{article}-{number}", question, document, start, start + len(answer))
            )
    return Examples("made-up", "1", tuple(examples))


def write_squad(file: Path, data: Examples) -> Path:
    """Write examples as SQuAD-format JSON. Return the file."""
    texts = {document.article: document.text for document in data.documents}
    questions = {
        example.id: (example.question, example.document.article, example.evidence)
        for example in data.examples
    }
    file.write_text(json.dumps(build_squad(texts, questions)))
    return file
