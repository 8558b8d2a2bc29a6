"""Cache of the windows that `posir window` has measured."""

from __future__ import annotations

import json
import logging
from pathlib import Path

from posir_tasks.base.digests import digest
from posir_tasks.base.errors import PosirError
from posir_tasks.base.files import get_cache_folder, write_text
from posir_tasks.base.untrusted import read_json
from posir_tasks.models.references import MISSING_REVISIONS
from posir_tasks.values.read_part import ReadPart

logger = logging.getLogger(__name__)


def read_measured(model: str, revision: str | None) -> ReadPart | None:
    """Return the stored measurement for a model revision, or None."""
    file = _find_file(model, revision)
    try:
        return ReadPart.from_json(read_json(file)) if file and file.is_file() else None
    except PosirError as error:
        logger.warning("%s; measure the window again", error)
        return None


def store_measured(model: str, revision: str | None, part: ReadPart) -> None:
    """Store a measurement for later runs if the model has a revision.

    A lower bound does not replace a larger bound or an exact window.
    """
    earlier = read_measured(model, revision)
    if earlier and part.least_tokens:
        earlier_tokens = earlier.tokens or earlier.least_tokens
        if earlier_tokens and part.least_tokens <= earlier_tokens:
            return
    file = _find_file(model, revision)
    if file:
        write_text(file, json.dumps(part.to_json()))


def _find_file(model: str, revision: str | None) -> Path | None:
    """Return the file, or None: without a revision, the weights may change."""
    if revision in MISSING_REVISIONS:
        return None
    return get_cache_folder() / "windows" / f"{digest(model, revision).hex()}.json"
