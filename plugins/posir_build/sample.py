"""Stage 1, Sample: documents in given proportions of length, in one language, without
near-duplicates.

PosIR, section 2.1 draws about 70,000 documents a domain from eight length buckets; Built-in or
Learned, arXiv 2605.26578, section 3.1.1 from five. Neither states how duplicates, other languages,
or buckets that run short are handled. Here all are discarded or named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from posir_build.records import Discarded, Document, StageResult, seeded_order
from posir_build.settings import BuildSettings, SampleSettings
from posir_tasks.base.digests import digest
from posir_tasks.base.errors import DataError
from posir_tasks.base.progress import track
from posir_tasks.base.wording import pluralize
from posir_tasks.data.formats.passages import Item, Passage, SkippedText, describe_skipped
from posir_tasks.data.repository import is_hub_name
from posir_tasks.datasets.dataset import Dataset
from posir_tasks.datasets.opening import open_data
from posir_tasks.text.languages import detect_other_language
from posir_tasks.text.words import count_words


def open_source(settings: BuildSettings) -> Dataset:
    """Open the documents of a build; raise PosirError if there are none of that name."""
    return open_data(
        settings.documents,
        column=settings.text_field,
        id_column=settings.id_field,
        revision=settings.revision,
    )


def check_source(settings: BuildSettings) -> None:
    """Raise DataError if a local source does not exist or has no text that can be read."""
    path = Path(settings.documents).expanduser()
    if not path.exists() and is_hub_name(settings.documents):
        return
    skipped = []
    for item in open_source(settings).read_texts():
        if isinstance(item, Passage):
            return
        skipped.append(item)
    raise DataError(
        f"documents: {settings.documents}: has no text that can be read. "
        f"{describe_skipped(skipped)}".rstrip()
    )


def digest_source(settings: BuildSettings) -> str:
    """Return a digest of the content of local files; of a dataset on the Hub, of its name and the
    revision in the settings.
    """
    revision = (
        open_source(settings).find_revision()
        if Path(settings.documents).expanduser().exists()
        else ""
    )
    return digest(settings.documents, settings.revision or "", revision).hex()


#: Permutations of a MinHash, and words or characters of a shingle.
PERMUTATIONS, SHINGLE = 128, 5
#: Mean length of a word from which a text counts as written without spaces, and its shingles are of
#: characters.
LONG_WORD = 15


class NearDuplicates:
    """The texts accepted so far, by MinHash signature."""

    def __init__(self, threshold: float) -> None:
        from rensa import RMinHashLSH

        self._threshold = threshold
        self._index = RMinHashLSH(
            threshold=threshold, num_perm=PERMUTATIONS, num_bands=PERMUTATIONS // 4
        )
        self._signatures: list[tuple[str, Any]] = []

    def add(self, document: Document) -> str | None:
        """Accept a text, or return the id of an accepted one that is nearly the same."""
        from rensa import RMinHash

        words = document.text.lower().split()
        # Five words, or five characters of a text without spaces between words.
        units: Sequence[str] = (
            "".join(words) if len(document.text) > LONG_WORD * max(1, len(words)) else words
        )
        join = "" if isinstance(units, str) else " "
        signature = RMinHash(num_perm=PERMUTATIONS, seed=1)
        last = max(1, len(units) - SHINGLE + 1)
        signature.update(
            sorted({join.join(units[start : start + SHINGLE]) for start in range(last)})
        )
        for row in sorted(self._index.query(signature)):
            if signature.jaccard(self._signatures[row][1]) >= self._threshold:
                return str(self._signatures[row][0])
        self._index.insert(len(self._signatures), signature)
        self._signatures.append((document.id, signature))
        return None


def draw_documents(
    items: Iterable[Item],
    settings: SampleSettings,
    language: str,
    seed: int,
    count_tokens: Callable[[str], int],
) -> StageResult:
    """Sample documents in a language, in order of their ids. What is drawn depends on seed and id,
    not on the source's order.

    Those that were not drawn are only counted.
    """
    buckets, unit = settings.buckets(), settings.measured
    quotas = share_out(settings.documents, [bucket.share for bucket in buckets])
    duplicates = NearDuplicates(settings.near_duplicate) if settings.near_duplicate else None
    grouped, discarded, repeated = _group_by_length(items, settings, count_tokens)
    unread, kept, notes = len(discarded), list[Document](), list[str]()
    if repeated:
        counted = pluralize(len(repeated), "document")
        notes.append(
            f"{counted} whose id an earlier file has, too: named FILE:ID, such as {repeated[0]}"
        )
    with track("Filter documents", sum(map(min, quotas, map(len, grouped)))) as advance:
        for bucket, quota, group in zip(buckets, quotas, grouped, strict=True):
            before = len(kept)
            for document in sorted(group, key=lambda document: seeded_order(seed, document.id)):
                if len(kept) - before == quota:
                    break
                other = (
                    detect_other_language(document.text, language)
                    if settings.check_language
                    else None
                )
                original = duplicates.add(document) if duplicates and not other else None
                if other:
                    discarded.append(Discarded("another language", document.id, other))
                elif original:
                    discarded.append(Discarded("near-duplicate", document.id, f"of {original}"))
                else:
                    kept.append(document)
                    advance()
            if len(kept) - before < quota:
                filled = (
                    f"{len(kept) - before:,} of {pluralize(len(group), 'document')}; {quota:,} "
                    "wanted"
                )
                notes.append(
                    f"{bucket.minimum:,} to {bucket.maximum:,} {unit}: {filled}"
                    if len(buckets) > 1
                    else filled
                )
    read = sum(map(len, grouped)) + unread
    kept.sort(key=lambda document: document.id)
    return StageResult(tuple(kept), (), tuple(discarded), tuple(notes), {"documents read": read})


def _group_by_length(
    items: Iterable[Item], settings: SampleSettings, count_tokens: Callable[[str], int]
) -> tuple[list[list[Document]], list[Discarded], list[str]]:
    """Return the documents by bucket, those of no bucket, and the ids that were made unique.

    An id that an earlier file has, too, gets the name of its file in front: `b.jsonl:3`. Two texts
    of one file with one id are a DataError.
    """
    buckets, unit = settings.buckets(), settings.measured
    measures = {"tokens": count_tokens, "words": count_words, "characters": len}
    discarded, repeated = list[Discarded](), list[str]()
    grouped: list[list[Document]] = [[] for _ in buckets]
    names, in_files = set[str](), set[tuple[str, str]]()
    for number, item in enumerate(items):
        if isinstance(item, SkippedText):
            discarded.append(Discarded(item.reason, item.name, item.detail))
            continue
        stated = item.id or str(number)
        name = f"{item.file}:{stated}" if stated in names else stated
        if (item.file, stated) in in_files or name in names:
            raise DataError(
                f"{item.where}: another document of this file has the id {stated!r} too; ids must "
                "be unique in it."
            )
        names.add(name)
        in_files.add((item.file, stated))
        repeated += [name] if name != stated else []
        length = measures[unit](item.text)
        row = next(
            (
                row
                for row, bucket in enumerate(buckets)
                if bucket.minimum <= length <= bucket.maximum
            ),
            None,
        )
        if row is None:
            discarded.append(Discarded("length outside the buckets", name, f"{length:,} {unit}"))
        else:
            grouped[row].append(Document(name, item.text, count_tokens(item.text), item.where))
    return grouped, discarded, repeated


def share_out(total: int, shares: Sequence[float]) -> list[int]:
    """Return integers in proportion to shares that add up to a total, by largest remainders; ties
    go to the earlier one.
    """
    # Fractions of the decimals as they are written: rounding errors would decide ties.
    decimals = [Fraction(str(share)) for share in shares]
    exact = [total * share / sum(decimals) for share in decimals]
    floors = [int(share) for share in exact]
    order = sorted(range(len(shares)), key=lambda row: (floors[row] - exact[row], row))
    for row in order[: total - sum(floors)]:
        floors[row] += 1
    return floors
