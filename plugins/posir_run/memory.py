"""The peak memory that a run is expected to take, and what is free."""

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

#: Bytes of a process that has imported PyTorch, mteb and sentence-transformers.
LIBRARIES = 1_000_000_000
#: Numbers that a transformer holds while a layer computes, per token and dimension: 12 to 21
#: measured with BERT and Qwen3.
HELD_NUMBERS = 20
#: Bytes of a number in single precision.
SINGLE = 4
#: Tokens of the longest text where the data is not here.
DEFAULT_TOKENS = 8_192
MEBIBYTE = 2**20
#: Files with the bytes that the processes of this container may use, and use: cgroups 2 and 1.
CONTAINER_FILES = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
    ),
)


@dataclass(frozen=True)
class PeakMemory:
    """The peak of a run with a dense model, in the memory where it computes: the GPU's, or this
    machine's.
    """

    model: str
    fixed: int
    """Bytes that do not depend on the batch size."""
    per_text: int
    """Bytes of each text that is encoded at a time, of the longest."""
    batch_size: int
    free: int | None
    """Bytes that are free; None if that is unknown."""

    @property
    def bytes(self) -> int:
        """Expected bytes at the peak."""
        return self.fixed + self.batch_size * self.per_text

    def describe(self) -> str:
        """Describe the peak, and the option that lowers it where it exceeds what is free."""
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
    """Estimate the peaks of dense models, without loading them; others are left out."""
    peaks = []
    longest = find_longest(tasks)
    has_gpu = torch.cuda.is_available()
    free = torch.cuda.mem_get_info()[0] if has_gpu else find_free()
    for meta in metas:
        if not isinstance(meta.embed_dim, int):
            continue
        window = find_run_settings(meta).get(WINDOW) or meta.max_tokens or longest
        tokens = min(int(window), longest)
        held = HELD_NUMBERS * tokens * meta.embed_dim * SINGLE
        weights = round((meta.memory_usage_mb or 0) * MEBIBYTE)
        # Of a search: a block of embeddings, as the model returns them and in single precision.
        block = 2 * CORPUS_CHUNK_SIZE * meta.embed_dim * SINGLE
        search = 0 if has_gpu else LIBRARIES + MAX_SIMILARITIES * SINGLE + block
        peak = PeakMemory(
            str(meta.name), weights + search, held if weights else 0, batch_size, free
        )
        peaks.append(peak)
    return peaks


def find_longest(tasks: Iterable[PositionTask]) -> int:
    """Find the tokens of the longest document in the first subsets of tasks."""
    longest = []
    for task in tasks:
        # What is wrong with the data is said by the job that needs it.
        with suppress(PosirError):
            texts = find_local_texts(task, task.hf_subsets[0])
            tokens = texts[0]().select(TOKENS.max()).item() if texts else DEFAULT_TOKENS
            longest.append(tokens or 0)
    return max(longest, default=DEFAULT_TOKENS)


def find_free() -> int | None:
    """Find the bytes of memory that this process can still get, of the machine and its container;
    None where the system does not say.
    """
    free = []
    for limit_file, used_file in CONTAINER_FILES:
        limit = _read_number(Path(limit_file))
        used = _read_number(Path(used_file))
        if limit is not None and used is not None:
            free.append(max(0, limit - used))
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        lines = []
    free += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    return min(free, default=None)


def _read_number(file: Path) -> int | None:
    """Read a whole number; None where the file is missing or says that there is no limit."""
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None
