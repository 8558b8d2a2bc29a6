"""Results with rotated versions whose true effect is known."""

import numpy as np
import torch
from mteb.models import ModelMeta

from posir_significance.analysis import GroupAnalysis
from posir_significance.controlled import ControlledTest
from posir_significance.observations import Observations
from posir_tasks.text.rotations import VERSIONS
from posir_tasks.values.document_ranks import DocumentRanks, DocumentSet
from posir_tasks.values.layouts import QueryLayout
from posir_tasks.values.profile import RANKS
from posir_tasks.values.read_part import ReadPart, WindowSource
from posir_tasks.values.rotation_ranks import IN_WHOLE, RotationRanks, RotationSet, Window

READS_ALL = ReadPart.all(WindowSource.CLASS)
READS_FIRST = ReadPart.first(256, WindowSource.CLASS)


class WordVectors:
    """A bag of hashed words, or of the first words alone: word order plays no part in what is
    read.
    """

    def __init__(self, window: int | None = None) -> None:
        self.mteb_model_meta = ModelMeta.create_empty({"name": "test/words", "revision": "1"})
        self.window = window
        self.read_part = (
            ReadPart.all(WindowSource.CLASS)
            if window is None
            else ReadPart.first(window, WindowSource.CLASS)
        )

    def encode(self, inputs, **_):
        return np.stack([self.embed(text) for batch in inputs for text in batch["text"]])

    def embed(self, text):
        words = text.lower().replace(".", " ").replace(",", " ").split()[: self.window]
        rows = [
            sum(ord(letter) * 31**place for place, letter in enumerate(word)) % 512
            for word in words
        ]
        return np.sqrt(np.bincount(rows, minlength=512)).astype(np.float32)

    def similarity(self, first, second):
        first, second = (
            torch.nn.functional.normalize(torch.as_tensor(side)) for side in (first, second)
        )
        return first @ second.T

    similarity_pairwise = similarity


def build_test(
    documents=40, questions=5, effect=0.0, level=0.6, spread=0.25, seed=0, moved=0.0, unread=None
):
    """A test of questions whose evidence is in each third once: gains fall by the effect from the
    first third to the last.
    """
    rng = np.random.default_rng(seed)
    question = np.repeat(np.arange(documents * questions), 3)
    versions = np.tile(np.arange(3), documents * questions)
    start = rng.integers(0, 3, documents * questions)
    thirds = (start[question] - versions) % 3
    base = level + rng.normal(0, 0.15, documents * questions)
    gains = (
        base[question]
        - effect * (thirds - 1) / 2
        - moved * (versions > 0)
        + rng.normal(0, spread, len(question))
    )
    hidden = np.zeros(len(question), bool) if unread is None else thirds >= unread
    return ControlledTest(
        gains=np.clip(gains - 0.4 * hidden, 0, 1),
        thirds=thirds,
        versions=versions,
        unread=hidden,
        questions=question,
        clusters=question // questions,
        weights=np.ones(len(question)),
    )


def build_group(
    test=None, whole=None, read=READS_ALL, reason=None, documents=40, questions=5, seed=0, **fields
):
    """The analysis of a group of questions with given tests."""
    rng = np.random.default_rng(seed)
    number = documents * questions
    rows = np.arange(number)
    zeros = np.zeros(number, np.int64)
    twelfths = rng.integers(0, 12, number)
    observations = Observations(
        gains=rng.choice([0.0, 0.5, 1.0], number),
        layout=QueryLayout(zeros, rows // questions, rows, twelfths, bins=12, thirds=twelfths // 4),
        twelfths=np.where(rows % 5 == 0, 13, twelfths) if read is READS_FIRST else twelfths,
        read=read,
    )
    return GroupAnalysis(
        observations, reason, whole=whole if whole is not None else test, within=test, **fields
    )


def rotate_ranks(ranks: DocumentRanks, hit_rates=(0.6, 0.6, 0.6), seed=0) -> RotationRanks:
    """The rotations of all documents of a result by a model that reads all.

    The evidence of a moved version is ranked first with the probability in `hit_rates` of its
    third, else not at all.
    """
    return RotationRanks(tuple(_rotate_set(part, np.array(hit_rates), seed) for part in ranks.sets))


def _rotate_set(part: DocumentSet, hit_rates, seed) -> RotationSet:
    documents, questions = len(part.document_sizes), len(part.ranks)
    # The same versions for all models.
    places = np.random.default_rng(0).integers(0, 12, questions)
    start = 4 * part.thirds + places % 4 if len(part.thirds) else places
    twelfths = (start[:, None] - 4 * np.arange(VERSIONS)) % 12
    is_found = np.random.default_rng(seed).random(twelfths.shape) < hit_rates[twelfths // 4]
    columns = np.where(is_found, 0, len(RANKS) - 1)
    columns[:, 0] = part.ranks
    return RotationSet(
        part.subset,
        part.documents,
        part.queries,
        sample_size=1_000,
        subsets=1,
        sample=np.arange(1, documents + 1),
        versions=np.full(documents, 2**VERSIONS - 1),
        tested=np.full(questions, IN_WHOLE),
        twelfths=twelfths.ravel(),
        ranks=columns.ravel(),
        window=Window.WHOLE,
        digest="whole",
        window_digest="whole",
    )
