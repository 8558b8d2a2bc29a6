"""The benchmarks, which group the tasks."""

from collections.abc import Iterable
from typing import Any

from mteb.benchmarks.benchmark import Benchmark
from mteb.get_tasks import get_tasks

from posir_tasks.languages import LANGUAGES
from posir_tasks.tasks.base import BenchmarkTasks, PositionTask
from posir_tasks.tasks.citations import POSIR, POSQ
from posir_tasks.tasks.posir import CROSS_LINGUAL, MONOLINGUAL
from posir_tasks.tasks.posq import FineWebPosQ, SQuADPosQ


def build_benchmark(name: str, tasks: Iterable[type[PositionTask]], **fields: Any) -> Benchmark:
    """Return a benchmark of tasks that are skipped, with one warning, if the data lacks them."""
    instances = get_tasks([task.metadata.name for task in tasks])
    BenchmarkTasks(name, [task for task in instances if isinstance(task, PositionTask)])
    return Benchmark(name=name, tasks=instances, **fields)


def build_benchmarks() -> tuple[Benchmark, ...]:
    """Return the benchmarks. The tasks must be registered with mteb."""
    return (
        build_benchmark(
            "PosIR",
            MONOLINGUAL.values(),
            description="Ten languages, 31 domains: does a model find evidence at any position? The paper's main table.",
            reference="https://arxiv.org/abs/2601.08363",
            citation=POSIR,
        ),
        build_benchmark(
            "PosIR(cross-lingual)",
            [CROSS_LINGUAL[language] for language in LANGUAGES if language.cross_lingual_in_paper],
            description="PosIR's queries in eight languages against the English corpus.",
            reference="https://arxiv.org/abs/2601.08363",
            citation=POSIR,
        ),
        build_benchmark(
            "PosQ",
            [SQuADPosQ, FineWebPosQ],
            description="SQuAD-PosQ and FineWeb-PosQ: questions by the position of their answer in a passage.",
            reference="https://arxiv.org/abs/2505.13950",
            citation=POSQ,
        ),
    )
