"""The manifest: files that posir wrote into a folder and may later replace or remove."""

from __future__ import annotations

import hashlib
from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints, ValidationError

from posir_tasks.base.errors import check_schema, summarize_error
from posir_tasks.base.files import write_text
from posir_tasks.base.untrusted import InputError, parse_json

#: Path of a site's manifest.
MANIFEST = "posir-site.json"
SCHEMA = 1


def is_site_path(path: str) -> bool:
    """Return True for a normalized relative path without `..`."""
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or not pure.parts:
        return False
    return str(pure) == path and "\\" not in path and path.isprintable()


def _check_site_path(path: str) -> str:
    if not is_site_path(path):
        raise ValueError(f"{path!r:.80} is not a valid site path")
    return path


def hash_content(content: bytes) -> str:
    """Return the SHA-256 of a file's content as 64 hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


class Manifest(BaseModel):
    """The files that posir wrote into a folder, with their digests."""

    model_config = ConfigDict(strict=True)

    schema_version: int = SCHEMA
    files: dict[
        Annotated[str, AfterValidator(_check_site_path)],
        list[Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]],
    ] = {}
    """SHA-256 of the possible contents of each path: two while a site is being replaced."""

    def __or__(self, other: Manifest) -> Manifest:
        """Return a manifest with the possible contents of both manifests."""
        contents = dict(self.files)
        for path, digests in other.files.items():
            contents[path] = [*contents.get(path, ()), *digests]
        return Manifest(files=contents)

    def has_content(self, path: str, content: bytes) -> bool:
        """Return True if posir wrote this content at a path."""
        return hash_content(content) in self.files.get(path, ())

    def write(self, folder: Path) -> None:
        """Write the manifest into a folder."""
        write_text(folder / MANIFEST, self.model_dump_json(indent=1))


def read_manifest(file: Path, name: object) -> Manifest:
    """Read a manifest, called `name` in messages; raise PosirError if it is invalid."""
    try:
        manifest = Manifest.model_validate(parse_json(file.read_bytes(), name))
    except ValidationError as error:
        raise InputError(
            name,
            f"is not a leaderboard's file list ({summarize_error(error)}). Build into another "
            "folder.",
        ) from error
    check_schema(manifest.schema_version, SCHEMA, f"{name}: this file list")
    return manifest


def has_link(folder: Path, path: str) -> bool:
    """Return True if a path below a folder is a link or contains one."""
    pure = PurePosixPath(path)
    return any((folder / prefix).is_symlink() for prefix in (pure, *pure.parents[:-1]))
