"""Estimate the peak memory of a run, and find the free memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from rich.filesize import decimal

from posir_run.sizes import TOKENS, find_local_readers
from posir_tasks.base.errors import PosirError
from posir_tasks.models.dispatch import CORPUS_CHUNK_SIZE, MAX_SIMILARITIES
from posir_tasks.models.run_settings import WINDOW, find_run_settings

if TYPE_CHECKING:
    from mteb.models import ModelMeta

    from posir_tasks.tasks.base import PositionTask

#: Memory of a process with PyTorch, mteb and sentence-transformers imported, in bytes.
LIBRARY_BYTES = 1_000_000_000
#: Activations of a transformer layer per token and dimension. We measured 12 to 21 with BERT and
#: Qwen3.
ACTIVATIONS_PER_TOKEN = 20
#: Bytes of a single-precision number.
FLOAT_BYTES = 4
#: Assumed length of the longest text in tokens if the data is not on this machine.
DEFAULT_TOKENS = 8_192
MEBIBYTE = 2**20
#: Files with the container's memory limit and usage in bytes, for cgroups 2 and 1.
CONTAINER_FILES = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
    ),
)


@dataclass(frozen=True)
class PeakMemory:
    """Peak memory of a run with a dense model: GPU memory if there is a GPU, else main memory."""

    model: str
    fixed_bytes: int
    """Bytes that do not depend on the batch size."""
    bytes_per_text: int
    """Bytes per text in a batch, assuming the longest text."""
    batch_size: int
    free_bytes: int | None
    """Free bytes; None if unknown."""

    @property
    def peak_bytes(self) -> int:
        """Expected peak in bytes."""
        return self.fixed_bytes + self.batch_size * self.bytes_per_text

    def describe(self) -> str:
        """Describe the peak. If it exceeds the free memory, also suggest what to change."""
        peak_memory = f"{self.model}: peak memory about {decimal(self.peak_bytes)}"
        if self.free_bytes is None:
            return f"{peak_memory}."
        if self.peak_bytes <= self.free_bytes:
            return f"{peak_memory}, {decimal(self.free_bytes)} free."
        batch_size = (
            (self.free_bytes - self.fixed_bytes) // self.bytes_per_text
            if self.bytes_per_text
            else 0
        )
        advice = "Free memory, or use a smaller model or window."
        if batch_size > 0:
            advice = f"Use --batch-size {batch_size}."
        return f"{peak_memory}, but only {decimal(self.free_bytes)} free. {advice}"


def estimate_peaks(
    metas: Iterable[ModelMeta], tasks: Sequence[PositionTask], batch_size: int
) -> list[PeakMemory]:
    """Estimate the peak memory of dense models without loading them; skip other models."""
    peaks = []
    longest = find_longest_document(tasks)
    has_gpu = torch.cuda.is_available()
    free_bytes = torch.cuda.mem_get_info()[0] if has_gpu else find_free_memory()
    for meta in metas:
        if not isinstance(meta.embed_dim, int):
            continue
        window = find_run_settings(meta).get(WINDOW) or meta.max_tokens or longest
        tokens = min(int(window), longest)
        weights = round((meta.memory_usage_mb or 0) * MEBIBYTE)
        bytes_per_text = (
            ACTIVATIONS_PER_TOKEN * tokens * meta.embed_dim * FLOAT_BYTES if weights else 0
        )
        # Search stores a block of embeddings twice: as returned, and in single precision.
        block = 2 * CORPUS_CHUNK_SIZE * meta.embed_dim * FLOAT_BYTES
        search = 0 if has_gpu else LIBRARY_BYTES + MAX_SIMILARITIES * FLOAT_BYTES + block
        peaks.append(
            PeakMemory(str(meta.name), weights + search, bytes_per_text, batch_size, free_bytes)
        )
    return peaks


def find_longest_document(tasks: Iterable[PositionTask]) -> int:
    """Return the length in tokens of the longest document in the first subset of any task."""
    lengths = []
    for task in tasks:
        # The job that needs the data reports problems with it.
        with suppress(PosirError):
            texts = find_local_readers(task, task.hf_subsets[0])
            tokens = texts[0]().select(TOKENS.max()).item() if texts else DEFAULT_TOKENS
            lengths.append(tokens or 0)
    return max(lengths, default=DEFAULT_TOKENS)


def find_free_memory() -> int | None:
    """Return the free bytes of the machine or its container, whichever is less; None if unknown."""
    free_sizes = []
    for limit_file, usage_file in CONTAINER_FILES:
        limit = _read_number(Path(limit_file))
        usage = _read_number(Path(usage_file))
        if limit is not None and usage is not None:
            free_sizes.append(max(0, limit - usage))
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        lines = []
    free_sizes += [
        int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")
    ]
    return min(free_sizes, default=None)


def _read_number(file: Path) -> int | None:
    """Read an integer. Return None if the file is missing or contains `max` (no limit)."""
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None
