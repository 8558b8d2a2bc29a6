"""Stage 1, Sample: sample documents in one language with a given length distribution, without
near-duplicates.

PosIR (arXiv 2601.08363, section 2.1) samples about 70,000 documents per domain from eight length
buckets, Built-in or Learned (arXiv 2605.26578, section 3.1.1) from five. Neither paper states how
it handles duplicates, other languages, or buckets with too few documents. Here duplicates and
documents in other languages are discarded, and notes list the buckets that are too small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from posir_build.records import Discarded, DiscardReason, Document, StageResult, shuffle
from posir_build.settings import BuildSettings, SampleSettings
from posir_tasks.base.digests import digest
from posir_tasks.base.errors import DataError
from posir_tasks.base.progress import track
from posir_tasks.base.wording import pluralize
from posir_tasks.data.formats.passages import Item, Passage, SkippedItem, describe_skipped
from posir_tasks.data.repository import is_hub_name
from posir_tasks.datasets.dataset import Dataset
from posir_tasks.datasets.opening import open_data
from posir_tasks.text.languages import detect_other_language
from posir_tasks.text.words import count_words


def open_source(settings: BuildSettings) -> Dataset:
    """Open the documents of a build. Raise PosirError if they do not exist."""
    return open_data(
        settings.documents,
        column=settings.text_field,
        id_column=settings.id_field,
        revision=settings.revision,
    )


def check_source(settings: BuildSettings) -> None:
    """Raise DataError if local documents do not exist or contain no readable text."""
    if not Path(settings.documents).expanduser().exists() and is_hub_name(settings.documents):
        return
    skipped_texts = []
    for item in open_source(settings).read_texts():
        if isinstance(item, Passage):
            return
        skipped_texts.append(item)
    raise DataError(
        f"documents: {settings.documents}: contains no readable text. "
        f"{describe_skipped(skipped_texts)}".rstrip()
    )


def digest_source(settings: BuildSettings) -> str:
    """Hash the content of local documents, or the name and revision of a dataset on the Hub."""
    is_local = Path(settings.documents).expanduser().exists()
    revision = open_source(settings).find_revision() if is_local else ""
    return digest(settings.documents, settings.revision or "", revision).hex()


#: Number of permutations per MinHash signature, and their seed.
PERMUTATIONS = 128
MINHASH_SEED = 1
#: Number of words or characters per shingle.
SHINGLE_SIZE = 5
#: Texts with longer words on average count as written without spaces and have character shingles.
MAX_MEAN_WORD_LENGTH = 15


def build_minhash_index(threshold: float) -> Any:
    """Build a MinHash index for near-duplicates, whose shingles have at least this Jaccard
    similarity.
    """
    from rensa import RMinHashDeduplicator

    return RMinHashDeduplicator(threshold, PERMUTATIONS, True, PERMUTATIONS // 4, MINHASH_SEED)


def add_document(index: Any, document: Document) -> str | None:
    """Add a document to the index or, if the index contains a near-duplicate, return its id."""
    from rensa import RMinHash

    signature = RMinHash(PERMUTATIONS, MINHASH_SEED)
    signature.update(split_shingles(document.text))
    originals = index.get_duplicates(signature)
    if not originals:
        index.add(document.id, signature)
    return min(originals, default=None)


def split_shingles(text: str) -> list[str]:
    """List the distinct 5-grams of words, or of characters for texts without spaces."""
    units: Sequence[str] = text.lower().split()
    separator = " "
    if len(text) > MAX_MEAN_WORD_LENGTH * max(1, len(units)):
        units = "".join(units)
        separator = ""
    starts = range(max(1, len(units) - SHINGLE_SIZE + 1))
    return sorted({separator.join(units[start : start + SHINGLE_SIZE]) for start in starts})


def sample_corpus(
    items: Iterable[Item],
    settings: SampleSettings,
    language: str,
    seed: int,
    count_tokens: Callable[[str], int],
) -> StageResult:
    """Sample documents in a language, sorted by id.

    The sample depends on the seed and the ids, but not on the order of the items.
    """
    buckets = settings.buckets
    quotas = allocate(settings.documents, [bucket.share for bucket in buckets])
    index = build_minhash_index(settings.near_duplicate) if settings.near_duplicate else None
    groups, discarded, notes = _group_by_length(items, settings, count_tokens)
    total = sum(map(len, groups)) + len(discarded)
    sample = []
    with track("Filter documents", sum(map(min, quotas, map(len, groups)))) as advance:
        for bucket, quota, group in zip(buckets, quotas, groups, strict=True):
            missing = quota
            for document in shuffle(group, seed):
                if not missing:
                    break
                other_language = original = None
                if settings.check_language:
                    other_language = detect_other_language(document.text, language)
                if other_language:
                    reason = DiscardReason.OTHER_LANGUAGE
                    discarded.append(Discarded(reason, document.id, other_language))
                    continue
                if index is not None:
                    original = add_document(index, document)
                if original:
                    reason = DiscardReason.NEAR_DUPLICATE
                    discarded.append(Discarded(reason, document.id, f"of {original}"))
                    continue
                sample.append(document)
                missing -= 1
                advance()
            if missing:
                note = (
                    f"{quota - missing:,} of {pluralize(len(group), 'document')}; {quota:,} "
                    "requested"
                )
                if len(buckets) > 1:
                    note = f"{bucket} {settings.bucket_unit}: {note}"
                notes.append(note)
    sample.sort(key=lambda document: document.id)
    return StageResult(tuple(sample), (), tuple(discarded), tuple(notes), {"documents read": total})


def _group_by_length(
    items: Iterable[Item], settings: SampleSettings, count_tokens: Callable[[str], int]
) -> tuple[list[list[Document]], list[Discarded], list[str]]:
    """Group documents by bucket. Also return discarded texts, and a note about renamed documents.

    A document whose id occurs in an earlier file is renamed to `FILE:ID`, such as `b.jsonl:3`.
    Raise DataError if two texts in one file have the same id.
    """
    length_functions = {"tokens": count_tokens, "words": count_words, "characters": len}
    measure = length_functions[settings.bucket_unit]
    buckets = settings.buckets
    groups: list[list[Document]] = [[] for _ in buckets]
    discarded = []
    new_names = []
    files_by_name: dict[str, str] = {}
    for number, item in enumerate(items):
        if isinstance(item, SkippedItem):
            discarded.append(Discarded(item.reason, item.name, item.detail))
            continue
        name = item.id or str(number)
        if files_by_name.get(name, item.file) != item.file:
            name = f"{item.file}:{name}"
            new_names.append(name)
        if name in files_by_name:
            raise DataError(
                f"{item.source}: another text in this file has the same id, {name!r}. Give each "
                "text its own id."
            )
        files_by_name[name] = item.file
        length = measure(item.text)
        for bucket, group in zip(buckets, groups, strict=True):
            if bucket.minimum <= length <= bucket.maximum:
                group.append(Document(name, item.text, count_tokens(item.text), item.source))
                break
        else:
            detail = f"{length:,} {settings.bucket_unit}"
            discarded.append(Discarded(DiscardReason.OTHER_LENGTH, name, detail))
    notes = []
    if new_names:
        notes.append(
            f"{pluralize(len(new_names), 'document')} with the id of a document in an earlier "
            f"file: renamed to FILE:ID, such as {new_names[0]}"
        )
    return groups, discarded, notes


def allocate(total: int, shares: Sequence[float]) -> list[int]:
    """Split a total into integers in proportion to shares, with the largest remainder method; ties
    go to the earlier share.
    """
    # With floats, rounding errors could break ties.
    fractions = [Fraction(str(share)) for share in shares]
    exact = [total * share / sum(fractions) for share in fractions]
    counts = list(map(int, exact))
    order = sorted(range(len(counts)), key=lambda row: counts[row] - exact[row])
    for row in order[: total - sum(counts)]:
        counts[row] += 1
    return counts
