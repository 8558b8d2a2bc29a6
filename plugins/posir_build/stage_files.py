"""The results of stages in a build's work folder, each with a fingerprint of all that it depends on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as validated

from posir_build.records import Discarded, Document, Question, StageResult
from posir_tasks.digests import digest_json
from posir_tasks.errors import PosirError, summarize_error
from posir_tasks.files import atomic_write

#: Schema version of the files; raise it if the records change, and every stage is run again (answered calls are kept).
SCHEMA = 1


@validated(frozen=True)
class StageFile:
    """A result as it is saved. Texts of documents are in the file of the stage that sets them; other files have ids only."""

    schema_version: int
    stage: str
    fingerprint: str
    document_ids: tuple[str, ...]
    documents: tuple[Document, ...] | None
    questions: tuple[Question, ...]
    discarded: tuple[Discarded, ...]
    notes: tuple[str, ...]
    counts: dict[str, int]


ADAPTER = TypeAdapter(StageFile)


def compute_fingerprint(*parts: Any) -> str:
    """Return a digest of values that JSON can represent and of the schema of stage files."""
    return digest_json([SCHEMA, *parts])


class StageFiles:
    """The results in a work folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def _file(self, stage: str) -> Path:
        return self._folder / f"{stage}.json"

    def load(self, stage: str, fingerprint: str, before: StageResult | None) -> StageResult | None:
        """Return the result of a stage; None if there is none, or it depends on something that has changed.

        Args:
            stage: Name of the stage.
            fingerprint: What it must have been computed from.
            before: Result of the stage before, which has the texts of documents.
        """
        file = self._file(stage)
        if not file.is_file():
            return None
        try:
            stored = ADAPTER.validate_json(file.read_bytes())
        except (OSError, ValidationError) as error:
            raise PosirError(
                f"{file}: cannot be read ({summarize_error(error)}). Remove it to run the stage again; answered calls are kept."
            ) from error
        if (stored.schema_version, stored.fingerprint) != (SCHEMA, fingerprint):
            return None
        documents = stored.documents
        if documents is None:
            known = {document.id: document for document in (before.documents if before else ())}
            documents = tuple(known[name] for name in stored.document_ids)
        return StageResult(documents, stored.questions, stored.discarded, stored.notes, stored.counts)

    def save(self, stage: str, fingerprint: str, result: StageResult, before: StageResult | None) -> None:
        """Write the result of a stage."""
        known = set(before.documents) if before else set()
        documents = None if known.issuperset(result.documents) else result.documents
        ids = tuple(document.id for document in result.documents)
        content = StageFile(
            SCHEMA, stage, fingerprint, ids, documents, result.questions, result.discarded, result.notes, result.counts
        )
        with atomic_write(self._file(stage)) as part:
            part.write_bytes(ADAPTER.dump_json(content, indent=1))
