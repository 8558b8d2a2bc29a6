"""The list of the files that posir wrote into a folder: only these are replaced and removed
later.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from posir_tasks.base.errors import check_schema
from posir_tasks.base.files import write_text
from posir_tasks.base.untrusted import GateError, parse_json, read_json

#: Where a site has its manifest.
MANIFEST = "posir-site.json"
SCHEMA = 1
DIGEST = re.compile(r"[0-9a-f]{64}")


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
        paths = self.digests.keys() | other.digests.keys()
        nothing: frozenset[str] = frozenset()
        return Manifest(
            {
                path: self.digests.get(path, nothing) | other.digests.get(path, nothing)
                for path in paths
            }
        )

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
    files = content.get("files") if isinstance(content, dict) else None
    schema = content.get("schema_version") if isinstance(content, dict) else None
    if not isinstance(files, dict) or not isinstance(schema, int):
        raise GateError(
            name, "is not the list of files of a leaderboard. Build into another folder."
        )
    check_schema(schema, SCHEMA, f"{name}: this list of files")
    digests = {}
    for path, known in files.items():
        if not is_site_path(path) or not isinstance(known, list) or not all(map(_is_digest, known)):
            raise GateError(name, f"has an invalid entry {path!r:.80}. Build into another folder.")
        digests[path] = frozenset(known)
    return Manifest(digests)


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and DIGEST.fullmatch(value) is not None


def is_site_path(path: str) -> bool:
    """Return whether a path is one of a file below a folder, in its only spelling."""
    pure = PurePosixPath(path)
    is_below = not pure.is_absolute() and ".." not in pure.parts and pure.parts
    return bool(is_below) and str(pure) == path and "\\" not in path and path.isprintable()


def has_link(folder: Path, path: str) -> bool:
    """Return whether a file, or a folder between it and the given one, is a link."""
    return any((folder / parent).is_symlink() for parent in _list_parents(path))


def _list_parents(path: str) -> Iterator[PurePosixPath]:
    pure = PurePosixPath(path)
    yield pure
    yield from (parent for parent in pure.parents if parent.parts)
