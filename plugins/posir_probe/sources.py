"""The data of `posir probe`: documents, most with questions about them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from random import Random

from posir_data.texts import select_texts
from posir_probe.probe import ANY, ProbeData, Selection
from posir_tasks.sources.formats.options import ReadOptions
from posir_tasks.sources.formats.passages import Passage, SkippedText
from posir_tasks.sources.opening import DataReference, Dataset, Subset, open_data
from posir_tasks.sources.repository import combine_revisions


@dataclass(frozen=True)
class SubsetData:
    """The data of a subset, and its revision: a commit of the Hub, or `local-` and a digest."""

    revision: str
    data: ProbeData


@dataclass(frozen=True)
class SourceSubset:
    """A part of a source, read on demand."""

    name: str
    """`language/domain`, or the language of texts without questions."""
    read: Callable[[], SubsetData]
    """Reads and checks the data; raises PosirError if it is missing or invalid."""


@dataclass(frozen=True)
class ProbeSource:
    """Documents, most with questions about them."""

    name: str
    """A task, or a name that is derived from that of a file or folder."""
    subsets: tuple[SourceSubset, ...]
    skipped: tuple[SkippedText, ...] = ()
    """Texts, files, rows and questions that cannot be used."""


def open_probe_source(
    source: DataReference, *, column: str | None = None, limit: int = 1000, selection: Selection = ANY
) -> ProbeSource:
    """Open data by the path of a file or folder, which takes precedence, or the name of a task or of a dataset on the Hub.

    Args:
        source: What `open_data` takes.
        column: Column or field with the text, as in `read_texts`.
        limit: Most texts without questions; other data is sampled later.
        selection: Which of these are drawn.

    Raises:
        PosirError: There is no such data, or it cannot be used.
    """
    opened = open_data(source, ReadOptions(column=column, repair=True))
    if not opened.has_questions:
        return _open_texts(opened, limit, selection)
    skipped = [item for subset in opened.subsets for item in subset.read().skipped] if opened.in_memory else []
    return ProbeSource(opened.name, tuple(map(_from_subset, opened.subsets)), tuple(skipped))


def read_parallel(source: ProbeSource) -> SubsetData | None:
    """Return the documents that all languages of a source have under the same domain and id; None if there are none."""
    texts: dict[str, dict[str, str]] = {}
    revisions = []
    for subset in source.subsets:
        language, _, domain = subset.name.partition("/")
        read = subset.read()
        revisions.append(read.revision)
        named = {f"{domain}/{name}": text for name, text in read.data.documents.items()}
        texts.setdefault(language, {}).update(named)
    shared = set.intersection(*map(set, texts.values())) if len(texts) > 1 else set()
    if not shared:
        return None
    translations = {language: {name: texts[language][name] for name in sorted(shared)} for language in sorted(texts)}
    return SubsetData(combine_revisions(revisions), ProbeData(next(iter(translations.values())), translations=translations))


def _from_subset(subset: Subset) -> SourceSubset:
    def read() -> SubsetData:
        data = subset.read()
        return SubsetData(data.revision, ProbeData.from_position_data(data))

    return SourceSubset(subset.name, read)


def _open_texts(opened: Dataset, limit: int, selection: Selection) -> ProbeSource:
    collection = select_texts(opened, limit, partial(_draw, selection))
    data = ProbeData({text.name: text.text for text in collection.texts})
    texts = SubsetData(opened.find_revision(), data)
    return ProbeSource(opened.name, (SourceSubset(collection.language, lambda: texts),), collection.skipped)


def _draw(selection: Selection, candidates: Iterable[Passage | SkippedText]) -> tuple[int, list[Passage | SkippedText]]:
    """Return what cannot be read, then the passages that may be drawn, in the order in which `ProbeData.sample` draws."""
    listed = list(candidates)
    skipped = [item for item in listed if isinstance(item, SkippedText)]
    passages = [item for item in listed if isinstance(item, Passage) and selection.accepts(item.text, None)]
    passages.sort(key=lambda passage: (passage.text, passage.name))
    Random(selection.seed).shuffle(passages)
    return len(listed), [*skipped, *passages]
