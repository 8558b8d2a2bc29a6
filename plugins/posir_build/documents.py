"""The documents of a build: those of any data, with unique ids."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from posir_build.settings import BuildSettings
from posir_tasks.digests import digest
from posir_tasks.errors import DataError
from posir_tasks.sources.formats.hub import is_hub_name
from posir_tasks.sources.formats.options import ReadOptions
from posir_tasks.sources.formats.passages import Passage, SkippedText, describe_skipped
from posir_tasks.sources.opening import Dataset, open_data


@dataclass(frozen=True)
class BuildText:
    """A text as it was read."""

    id: str
    text: str
    source: str


def open_source(settings: BuildSettings) -> Dataset:
    """Open the documents of a build; raise PosirError if there are none of that name."""
    options = ReadOptions(settings.text_field, settings.id_field, revision=settings.revision)
    return open_data(settings.documents, options)


def read_texts(settings: BuildSettings) -> Iterator[BuildText | SkippedText]:
    """Yield the texts of a source, whose ids are unique, and what in it cannot be read.

    Raises:
        DataError: The source does not exist or cannot be read, or two texts have one id.
    """
    seen: set[str] = set()
    for number, item in enumerate(open_source(settings).read_texts()):
        if isinstance(item, SkippedText):
            yield item
            continue
        name = item.id or str(number)
        if name in seen:
            raise DataError(f"{item.where}: another document has the id {name!r} too; ids must be unique.")
        seen.add(name)
        yield BuildText(name, item.text, item.where)


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
    raise DataError(f"documents: {settings.documents}: has no text that can be read. {describe_skipped(skipped)}".rstrip())


def digest_source(settings: BuildSettings) -> str:
    """Return a digest of the content of local files; of a dataset on the Hub, of its name and the revision in the settings."""
    local = Path(settings.documents).expanduser().exists()
    return digest(settings.documents, settings.revision or "", open_source(settings).find_revision() if local else "").hex()
