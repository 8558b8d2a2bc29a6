"""Texts to measure a model's speed with: from the data where it is at hand, otherwise made of PosIR-Mini."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from posir_run.planning.sizes import BUCKETS, Lengths, Texts, bucket, texts_at_hand
from posir_tasks.sources.mini import read_documents
from posir_tasks.tokens import BYTES_A_TOKEN

if TYPE_CHECKING:
    from posir_tasks.tasks.base import PositionTask

#: Texts of a kind to draw from.
SAMPLE = 256
SEED = 42


@dataclass(frozen=True)
class Samples:
    """Texts of every length that is to come."""

    documents: tuple[list[str], ...]
    """By length bucket; empty where there are none to encode."""
    queries: list[str]
    drawn: bool
    """Whether all were drawn from the data."""


def samples_of(tasks: Sequence[PositionTask], wanted: Lengths) -> Samples:
    """Draw texts from the first subset of each task, and make those that the data at hand does not have.

    Args:
        tasks: Where texts are drawn from.
        wanted: What is to be encoded: texts are given for each length bucket that has any.

    Raises:
        DataError: The data cannot be read.
    """
    at_hand = [texts for task in tasks if (texts := texts_at_hand(task, task.hf_subsets[0]))]
    drawn = draw_documents(at_hand)
    given = tuple(
        (texts or made(tokens // count)) if count else []
        for texts, count, tokens in zip(drawn, wanted.texts, wanted.tokens, strict=True)
    )
    return Samples(given, draw_queries(at_hand), drawn=all(drawn[place] for place, texts in enumerate(given) if texts))


def draw_documents(at_hand: Sequence[Texts]) -> list[list[str]]:
    """Return documents of each length bucket, from all alike."""
    pools: list[list[str]] = [[] for _ in BUCKETS]
    for texts in at_hand:
        frame = texts.documents.select("text", bucket().alias("bucket")).collect()
        for place, pool in enumerate(pools):
            found = frame.filter(pl.col("bucket") == place)["text"]
            pool.extend(found.sample(min(SAMPLE, len(found)), seed=SEED))
    return [random.Random(SEED).sample(pool, min(SAMPLE, len(pool))) for pool in pools]


def draw_queries(at_hand: Sequence[Texts]) -> list[str]:
    """Return queries, from all alike; without data those of PosIR-Mini."""
    pool = [text for texts in at_hand for text in texts.queries.select("text").head(SAMPLE).collect()["text"]]
    pool = pool or [question for document in read_documents() for question in document.questions]
    return random.Random(SEED).sample(pool, min(SAMPLE, len(pool)))


def made(tokens: int) -> list[str]:
    """Return texts of one length, cut from PosIR-Mini's documents one after the other, each from another place on."""
    whole = "\n\n".join(document.text for document in read_documents())
    length = tokens * BYTES_A_TOKEN
    starts = range(0, len(whole), -(-len(whole) // SAMPLE))
    endless = whole * (length // len(whole) + 2)
    return [endless[start : start + length] for start in starts]
