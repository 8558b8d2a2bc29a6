"""The list of the files that posir wrote into a folder: only these are replaced and removed
later.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints, ValidationError

from posir_tasks.base.errors import check_schema, summarize_error
from posir_tasks.base.files import write_text
from posir_tasks.base.untrusted import GateError, parse_json, read_json

#: Where a site has its manifest.
MANIFEST = "posir-site.json"
SCHEMA = 1


def is_site_path(path: str) -> bool:
    """Return whether a path is one of a file below a folder, in its only spelling."""
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or not pure.parts:
        return False
    return str(pure) == path and "\\" not in path and path.isprintable()


def _check_site_path(path: str) -> str:
    if not is_site_path(path):
        raise ValueError(f"{path!r:.80} is no path of a site")
    return path


#: SHA-256 of a file.
Digest = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]


class ManifestFile(BaseModel):
    """The form of a manifest in a file."""

    model_config = ConfigDict(strict=True)

    schema_version: int
    files: dict[Annotated[str, AfterValidator(_check_site_path)], list[Digest]]


def hash_content(content: bytes) -> str:
    """Return the SHA-256 digest of a file, in 64 hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


@dataclass(frozen=True)
class Manifest:
    """The files that posir wrote into a folder."""

    digests: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The digests of the contents that each path may have: several while a site is written."""

    @classmethod
    def of_site(cls, site: Mapping[str, bytes]) -> Manifest:
        """Return the manifest of a site, which has its content by path."""
        return cls({path: frozenset({hash_content(body)}) for path, body in site.items()})

    def __or__(self, other: Manifest) -> Manifest:
        """Return the manifest of a folder whose files are of either manifest."""
        both = dict(self.digests)
        for path, digests in other.digests.items():
            both[path] = both.get(path, frozenset()) | digests
        return Manifest(both)

    def has_content(self, path: str, content: bytes) -> bool:
        """Return whether posir wrote this content at a path."""
        return hash_content(content) in self.digests.get(path, ())

    def write(self, folder: Path) -> None:
        """Write the manifest into a folder."""
        files = {path: sorted(digests) for path, digests in sorted(self.digests.items())}
        write_text(
            folder / MANIFEST, json.dumps({"schema_version": SCHEMA, "files": files}, indent=1)
        )


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a folder, an empty one if there is none; raise PosirError if it is
    invalid.
    """
    file = folder / MANIFEST
    if not file.is_file() or has_link(folder, MANIFEST):
        return Manifest()
    return _parse_manifest(read_json(file), file)


def parse_manifest(content: bytes, name: object) -> Manifest:
    """Return a manifest; `name` is its source, for messages; raise PosirError if it is invalid."""
    return _parse_manifest(parse_json(content, name), name)


def _parse_manifest(content: object, name: object) -> Manifest:
    try:
        manifest = ManifestFile.model_validate(content)
    except ValidationError as error:
        raise GateError(
            name,
            f"is not the list of files of a leaderboard ({summarize_error(error)}). Build into "
            "another folder.",
        ) from error
    check_schema(manifest.schema_version, SCHEMA, f"{name}: this list of files")
    return Manifest({path: frozenset(digests) for path, digests in manifest.files.items()})


def has_link(folder: Path, path: str) -> bool:
    """Return whether a file, or a folder between it and the given one, is a link."""
    pure = PurePosixPath(path)
    return any((folder / part).is_symlink() for part in (pure, *pure.parents[:-1]))
