"""Digests of values and of files; those of large files are cached, because reading them again takes
minutes.
"""

import hashlib
import json
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from posir_tasks.base.errors import PosirError
from posir_tasks.base.files import atomic_write, cache_folder, check_readable

#: Bytes of the digest of values; twice as many hexadecimal digits.
SIZE = 8
#: Size in bytes below which a digest is cached in this process only: it is computed in
#: milliseconds.
MIN_CACHED_SIZE = 4 * 2**20
#: Age in seconds below which a digest is not cached: a file that changes twice within the
#: resolution of the file system's clock has the same times after both changes.
MIN_CACHED_AGE = 2.0
DIGEST_BYTES = 64

#: Digests by path, size, times of modification and change, and inode of a file.
_digests: dict[tuple[object, ...], bytes] = {}


def digest(*parts: object, size: int = SIZE) -> bytes:
    """Compute a digest of texts and numbers, the same in every process, with `size` bytes."""
    return hashlib.blake2b(
        "\x1f".join(map(str, parts)).encode("utf-8", "surrogatepass"), digest_size=size
    ).digest()


def digest_json(value: object) -> str:
    """Compute 32 hexadecimal digits that identify a JSON value; other values are texts."""
    return digest(json.dumps(value, sort_keys=True, default=str), size=16).hex()


def digest_files(files: Mapping[str, Path]) -> str:
    """Compute 16 hexadecimal digits that identify files, given by name, by their names and
    contents.
    """
    names = sorted(files)
    with ThreadPoolExecutor() as pool:
        contents = list(pool.map(digest_file, (files[name] for name in names)))
    return digest(
        *(
            part
            for name, content in zip(names, contents, strict=True)
            for part in (name, content.hex())
        )
    ).hex()


def digest_file(file: Path) -> bytes:
    """Compute the BLAKE2b digest of a file's content, cached by path, size, times of modification
    and change, and inode.
    """
    check_readable(file)
    stat = file.stat()
    if time.time() - stat.st_ctime < MIN_CACHED_AGE:
        return _compute(file)
    key = (str(file.resolve()), stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)
    if key not in _digests:
        _digests[key] = (
            _compute(file) if stat.st_size < MIN_CACHED_SIZE else _read_or_compute(file, key)
        )
    return _digests[key]


def _read_or_compute(file: Path, key: tuple[object, ...]) -> bytes:
    """Read the digest of a file from the cache on disk; compute it and cache it there
    otherwise.
    """
    cached = cache_folder() / "digests" / digest(*key).hex()
    with suppress(OSError):
        stored = cached.read_bytes()
        if len(stored) == DIGEST_BYTES:
            return stored
    content = _compute(file)
    # Without a cache it only takes longer.
    with suppress(OSError, PosirError), atomic_write(cached) as part:
        part.write_bytes(content)
    return content


def _compute(file: Path) -> bytes:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "blake2b").digest()
