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

from posir_build.records import Discarded, DiscardReason, Document, StageResult, seeded_order
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
    is_local = Path(settings.documents).expanduser().exists()
    if not is_local and is_hub_name(settings.documents):
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
    """Compute a digest of the content of local files, or of the name and revision of a dataset on
    the Hub.
    """
    is_local = Path(settings.documents).expanduser().exists()
    revision = open_source(settings).find_revision() if is_local else ""
    return digest(settings.documents, settings.revision or "", revision).hex()


#: Permutations of a MinHash.
PERMUTATIONS = 128
#: Words or characters of a shingle.
SHINGLE = 5
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
        self._signatures: dict[int, tuple[str, Any]] = {}

    def add(self, document: Document) -> str | None:
        """Accept a text, or return the id of an accepted one that is nearly the same."""
        from rensa import RMinHash

        signature = RMinHash(num_perm=PERMUTATIONS, seed=1)
        signature.update(split_shingles(document.text))
        for row in sorted(self._index.query(signature)):
            original, other = self._signatures[row]
            if signature.jaccard(other) >= self._threshold:
                return original
        row = len(self._signatures)
        self._index.insert(row, signature)
        self._signatures[row] = (document.id, signature)
        return None


def split_shingles(text: str) -> list[str]:
    """List all runs of five words, or of five characters without spaces between words."""
    units: Sequence[str] = text.lower().split()
    separator = " "
    if len(text) > LONG_WORD * max(1, len(units)):
        units = "".join(units)
        separator = ""
    starts = range(max(1, len(units) - SHINGLE + 1))
    return sorted({separator.join(units[start : start + SHINGLE]) for start in starts})


def draw_documents(
    items: Iterable[Item],
    settings: SampleSettings,
    language: str,
    seed: int,
    count_tokens: Callable[[str], int],
) -> StageResult:
    """Sample documents in a language, in order of their ids.

    The sample depends on seed and ids, not on the source's order. Documents that were not drawn are
    only counted.
    """
    buckets = settings.buckets()
    quotas = share_out(settings.documents, [bucket.share for bucket in buckets])
    duplicates = NearDuplicates(settings.near_duplicate) if settings.near_duplicate else None
    grouped, discarded, notes = _group_by_length(items, settings, count_tokens)
    read = sum(map(len, grouped)) + len(discarded)
    kept = []
    with track("Filter documents", sum(map(min, quotas, map(len, grouped)))) as advance:
        for bucket, quota, group in zip(buckets, quotas, grouped, strict=True):
            missing = quota
            for document in sorted(group, key=lambda document: seeded_order(seed, document.id)):
                if not missing:
                    break
                other = None
                if settings.check_language:
                    other = detect_other_language(document.text, language)
                if other:
                    discarded.append(Discarded(DiscardReason.OTHER_LANGUAGE, document.id, other))
                    continue
                original = duplicates.add(document) if duplicates else None
                if original:
                    reason = DiscardReason.NEAR_DUPLICATE
                    discarded.append(Discarded(reason, document.id, f"of {original}"))
                    continue
                kept.append(document)
                missing -= 1
                advance()
            if missing:
                note = (
                    f"{quota - missing:,} of {pluralize(len(group), 'document')}; {quota:,} wanted"
                )
                notes.append(f"{bucket} {settings.measured}: {note}" if len(buckets) > 1 else note)
    kept.sort(key=lambda document: document.id)
    return StageResult(tuple(kept), (), tuple(discarded), tuple(notes), {"documents read": read})


def _group_by_length(
    items: Iterable[Item], settings: SampleSettings, count_tokens: Callable[[str], int]
) -> tuple[list[list[Document]], list[Discarded], list[str]]:
    """Group documents by bucket; return also those of no bucket, and a note on ids made unique.

    An id that an earlier file has as well gets the name of its file in front: `b.jsonl:3`. Two
    texts of one file with one id are a DataError.
    """
    measures = {"tokens": count_tokens, "words": count_words, "characters": len}
    measure = measures[settings.measured]
    buckets = settings.buckets()
    grouped: list[list[Document]] = [[] for _ in buckets]
    discarded = []
    renamed = []
    files: dict[str, str] = {}
    for number, item in enumerate(items):
        if isinstance(item, SkippedText):
            discarded.append(Discarded(item.reason, item.name, item.detail))
            continue
        name = item.id or str(number)
        if files.get(name, item.file) != item.file:
            name = f"{item.file}:{name}"
            renamed.append(name)
        if name in files:
            raise DataError(f"{item.where}: another text of this file has the id {name!r}, too.")
        files[name] = item.file
        length = measure(item.text)
        fitting = [row.minimum <= length <= row.maximum for row in buckets]
        if any(fitting):
            document = Document(name, item.text, count_tokens(item.text), item.where)
            grouped[fitting.index(True)].append(document)
        else:
            detail = f"{length:,} {settings.measured}"
            discarded.append(Discarded(DiscardReason.OTHER_LENGTH, name, detail))
    notes = []
    if renamed:
        repeated = pluralize(len(renamed), "document")
        notes.append(
            f"{repeated} with the id of a document of an earlier file: named FILE:ID, such as "
            f"{renamed[0]}"
        )
    return grouped, discarded, notes


def share_out(total: int, shares: Sequence[float]) -> list[int]:
    """Divide a total into integers in proportion to shares, by largest remainders; ties go to the
    earlier one.
    """
    # Fractions of the decimals as they are written, or rounding errors would decide ties.
    decimals = [Fraction(str(share)) for share in shares]
    exact = [total * share / sum(decimals) for share in decimals]
    parts = list(map(int, exact))
    order = sorted(range(len(parts)), key=lambda row: parts[row] - exact[row])
    for row in order[: total - sum(parts)]:
        parts[row] += 1
    return parts
