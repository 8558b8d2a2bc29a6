"""Expected peak memory of a run, and free memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from rich.filesize import decimal

from posir_run.sizes import TOKENS, find_local_texts
from posir_tasks.base.errors import PosirError
from posir_tasks.models.dispatch import CORPUS_CHUNK_SIZE, MAX_SIMILARITIES
from posir_tasks.models.run_settings import WINDOW, find_run_settings

if TYPE_CHECKING:
    from mteb.models import ModelMeta

    from posir_tasks.tasks.base import PositionTask

#: Memory of a process after importing PyTorch, mteb and sentence-transformers, in bytes.
LIBRARIES = 1_000_000_000
#: Activations per token and dimension in a transformer layer; 12 to 21 were measured with BERT and
#: Qwen3.
ACTIVATIONS = 20
#: Bytes per single-precision number.
SINGLE = 4
#: Assumed length of the longest text, in tokens, if the data is not on this machine.
DEFAULT_TOKENS = 8_192
MEBIBYTE = 2**20
#: Files with the memory limit and usage of this container, in bytes: cgroups 2 and 1.
CONTAINER_FILES = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
    ),
)


@dataclass(frozen=True)
class PeakMemory:
    """Peak memory of a run with a dense model: GPU memory or, without a GPU, main memory."""

    model: str
    fixed: int
    """Bytes independent of the batch size."""
    per_text: int
    """Bytes per text of a batch, for the longest text."""
    batch_size: int
    free: int | None
    """Free bytes; None if unknown."""

    @property
    def bytes(self) -> int:
        """Expected peak, in bytes."""
        return self.fixed + self.batch_size * self.per_text

    def describe(self) -> str:
        """Describe the peak and, if it exceeds the free memory, the option that lowers it."""
        expected = f"{self.model}: peak memory about {decimal(self.bytes)}"
        if self.free is None:
            return f"{expected}."
        if self.bytes <= self.free:
            return f"{expected}, {decimal(self.free)} free."
        batch_size = (self.free - self.fixed) // self.per_text if self.per_text else 0
        option = "Free memory, or use a smaller model or --window."
        if batch_size > 0:
            option = f"Use --batch-size {batch_size}."
        return f"{expected}, but only {decimal(self.free)} free. {option}"


def expect_peaks(
    metas: Iterable[ModelMeta], tasks: Sequence[PositionTask], batch_size: int
) -> list[PeakMemory]:
    """Estimate the peaks of dense models without loading them; other models are left out."""
    peaks = []
    longest = find_longest(tasks)
    has_gpu = torch.cuda.is_available()
    free = torch.cuda.mem_get_info()[0] if has_gpu else find_free()
    for meta in metas:
        if not isinstance(meta.embed_dim, int):
            continue
        window = find_run_settings(meta).get(WINDOW) or meta.max_tokens or longest
        tokens = min(int(window), longest)
        weights = round((meta.memory_usage_mb or 0) * MEBIBYTE)
        per_text = ACTIVATIONS * tokens * meta.embed_dim * SINGLE if weights else 0
        # A search holds a block of embeddings twice: as returned, and in single precision.
        block = 2 * CORPUS_CHUNK_SIZE * meta.embed_dim * SINGLE
        search = 0 if has_gpu else LIBRARIES + MAX_SIMILARITIES * SINGLE + block
        peaks.append(PeakMemory(str(meta.name), weights + search, per_text, batch_size, free))
    return peaks


def find_longest(tasks: Iterable[PositionTask]) -> int:
    """Return the length, in tokens, of the longest document in the first subset of each task."""
    lengths = []
    for task in tasks:
        # Problems with the data are reported by the job that needs it.
        with suppress(PosirError):
            texts = find_local_texts(task, task.hf_subsets[0])
            tokens = texts[0]().select(TOKENS.max()).item() if texts else DEFAULT_TOKENS
            lengths.append(tokens or 0)
    return max(lengths, default=DEFAULT_TOKENS)


def find_free() -> int | None:
    """Return the free memory of the machine or its container, whichever is smaller, in bytes; None
    if unknown.
    """
    sizes = []
    for limit_file, used_file in CONTAINER_FILES:
        limit = _read_number(Path(limit_file))
        usage = _read_number(Path(used_file))
        if limit is not None and usage is not None:
            sizes.append(max(0, limit - usage))
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        lines = []
    sizes += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    return min(sizes, default=None)


def _read_number(file: Path) -> int | None:
    """Read an integer; None if the file is missing or contains `max`, for no limit."""
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None
