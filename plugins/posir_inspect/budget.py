"""The work of an inspection in tokens to encode, and the texts that a budget allows."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from posir_data.texts import TextCollection
from posir_inspect.questions import WITHOUT_MODEL, QuestionSet, Wording
from posir_inspect.splitting import Division
from posir_tasks.text.tokenizer import Tokenizer

#: Texts from which on most questions are decided: the first step of a search, and the fewest in which chunks are compared.
MIN_TEXTS = 50
#: Tokens that are encoded at most within a budget, in multiples of the tokens of the texts.
MAX_PASSES = 3.0
#: Share of the budget for the search in whole texts; the rest is for chunks.
WHOLE_SHARE = 0.5
#: Texts of the first step; each further step doubles them.
FIRST_TEXTS = MIN_TEXTS
#: Fewest texts of a search, among which one can be found.
MIN_SEARCHED = 2
#: Lengths of excerpts in tokens, if chunks of enough whole texts exceed the budget.
EXCERPTS = (2048, 1024, 512)
SEED = 14


@dataclass(frozen=True)
class WorkEstimate:
    """Tokens to encode, and the time that it takes; everything is all texts, questions in both wordings and chunk sizes."""

    tokens: int
    seconds: float
    all_tokens: int
    all_seconds: float


@dataclass(frozen=True)
class Costs:
    """Tokens to encode for each text, in the order in which texts are drawn."""

    whole: tuple[int, ...]
    """The text as far as the model reads it."""
    questions: tuple[int, ...]
    """Its questions in their rarest words and, if there are any, in other words, of which as many tokens are assumed."""
    verbatim: tuple[int, ...]
    chunks: tuple[int, ...]
    """Its chunks in all divisions."""

    @classmethod
    def count(
        cls,
        questions: QuestionSet,
        divisions: Sequence[Division],
        window: int | None,
        tokenizer: Tokenizer,
        *,
        in_other_words: bool = False,
    ) -> Costs:
        """Count the tokens of texts, questions and chunks; special tokens are not counted."""
        lengths = list(questions.tokens.values())
        rows = {name: row for row, name in enumerate(questions.documents)}
        asked = {wording: [0] * len(lengths) for wording in WITHOUT_MODEL}
        for wording, counts in asked.items():
            texts = [question.wordings[wording] for question in questions.questions]
            for question, tokens in zip(questions.questions, tokenizer.count_all(texts), strict=True):
                counts[rows[question.document]] += tokens
        return cls(
            tuple(min(length, window or length) for length in lengths),
            tuple(tokens * (1 + in_other_words) for tokens in asked[Wording.RAREST_WORDS]),
            tuple(asked[Wording.VERBATIM]),
            tuple(sum(division.estimate_tokens(length) for division in divisions) for length in lengths),
        )

    @property
    def total(self) -> int:
        """Tokens of everything."""
        return sum(map(sum, (self.whole, self.questions, self.verbatim, self.chunks)))

    def count_whole(self, texts: int) -> int:
        """Return the tokens of the first texts and their questions."""
        return sum(self.whole[:texts]) + sum(self.questions[:texts])

    def fit_whole(self, budget: float) -> int:
        """Return how many texts fit a budget with their questions, at least two."""
        return max(MIN_SEARCHED, fit(map(sum, zip(self.whole, self.questions, strict=True)), budget))


def fit(costs: Iterable[int], budget: float) -> int:
    """Return how many of the first costs are together within a budget."""
    return sum(total <= budget for total in accumulate(costs))


def cut_excerpts(collection: TextCollection, tokenizer: Tokenizer, size: int, texts: int) -> TextCollection:
    """Return the first texts, of each of which a random excerpt of so many tokens is kept, with a fixed seed."""
    drawn = collection.texts[:texts]
    spans = tokenizer.find_tokens([text.text for text in drawn])
    excerpts = []
    for number, (text, tokens) in enumerate(zip(drawn, spans, strict=True)):
        first = random.Random(f"{SEED} {number}").randint(0, max(0, len(tokens) - size))
        last = min(first + size, len(tokens)) - 1
        whole = len(tokens) <= size
        excerpts.append(text if whole else replace(text, text=text.text[tokens[first][0] : tokens[last][1]]))
    return replace(collection, texts=tuple(excerpts))
