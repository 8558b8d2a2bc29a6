"""Digests of values and files. Digests of large files are cached, since reading takes minutes."""

import hashlib
import json
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import chain
from pathlib import Path

from posir_tasks.base.errors import PosirError
from posir_tasks.base.files import check_readable, get_cache_folder, write_atomically

#: Default size in bytes of a digest of values.
SIZE = 8
#: Minimum size in bytes of files whose digest is cached on disk.
MIN_CACHED_SIZE = 4 * 2**20
#: Minimum age in seconds of files whose digest is cached. A second change within the clock
#: resolution of the file system would not change the key.
MIN_CACHED_AGE = 2.0
DIGEST_BYTES = 64

#: Cached digests by path, size, modification time, change time and inode.
_digests: dict[tuple[object, ...], bytes] = {}


def digest(*parts: object, size: int = SIZE) -> bytes:
    """Compute a digest of texts and numbers, `size` bytes long and equal in all processes."""
    content = "\x1f".join(map(str, parts)).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(content, digest_size=size).digest()


def digest_json(value: object) -> str:
    """Compute a digest of JSON in 32 hexadecimal digits. Other values are converted to strings."""
    return digest(json.dumps(value, sort_keys=True, default=str), size=16).hex()


def digest_files(files: Mapping[str, Path]) -> str:
    """Compute a digest of the names and contents of files in 16 hexadecimal digits."""
    names = sorted(files)
    with ThreadPoolExecutor() as pool:
        contents = pool.map(digest_file, (files[name] for name in names))
    pairs = zip(names, (content.hex() for content in contents), strict=True)
    return digest(*chain.from_iterable(pairs)).hex()


def digest_file(file: Path) -> bytes:
    """Compute the BLAKE2b digest of a file's content, or return the cached digest."""
    check_readable(file)
    stat = file.stat()
    if time.time() - stat.st_ctime < MIN_CACHED_AGE:
        return _compute(file)
    key = (str(file.resolve()), stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)
    if key not in _digests:
        is_small = stat.st_size < MIN_CACHED_SIZE
        _digests[key] = _compute(file) if is_small else _read_or_compute(file, key)
    return _digests[key]


def _read_or_compute(file: Path, key: tuple[object, ...]) -> bytes:
    """Read the digest of a file from the disk cache, or compute and cache it."""
    cache_file = get_cache_folder() / "digests" / digest(*key).hex()
    with suppress(OSError):
        cached_digest = cache_file.read_bytes()
        if len(cached_digest) == DIGEST_BYTES:
            return cached_digest
    file_digest = _compute(file)
    # Failing to write the cache is not an error.
    with suppress(OSError, PosirError), write_atomically(cache_file) as temporary:
        temporary.write_bytes(file_digest)
    return file_digest


def _compute(file: Path) -> bytes:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "blake2b").digest()
