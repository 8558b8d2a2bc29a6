"""Workers on a Ray cluster: one per GPU, or one per machine if the cluster has no GPU."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Hashable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from posir_run.jobs import Job, JobOutcome
from posir_run.worker import Evaluator, Settings, installed_versions
from posir_tasks.errors import PosirError

#: Prefixes of the environment variables passed on to the workers. Paths in them must exist on every machine.
FORWARDED_PREFIXES = ("POSIR_", "HF_", "MTEB_")

#: Seconds to wait for the cluster's head node.
CONNECT_SECONDS = 10


@dataclass(frozen=True)
class RayLocation:
    """Resources for one worker on a machine of the cluster."""

    node: str
    """Ray's id of the machine."""
    address: str
    index: int
    """Index of the worker on its machine."""
    cpus: float
    gpus: int
    """1 if the worker has a GPU, otherwise 0."""

    def __str__(self) -> str:
        return f"{self.address}, GPU {self.index}" if self.gpus else self.address


class RayEngine:
    """A Ray cluster."""

    def __init__(self, address: str | None, settings: Settings) -> None:
        """Connect to a cluster, or start one on this machine if no address is given.

        Raises:
            PosirError: Ray is not installed, or no cluster can be reached at the address.
        """
        try:
            import ray
        except ImportError as error:
            raise PosirError("--engine ray needs Ray: pip install 'ray>=2.9'") from error
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        check_address(address)
        level = logging.INFO if settings.verbose else logging.ERROR
        try:
            ray.init(
                address or "local",
                log_to_driver=settings.verbose,
                logging_level=level,
                include_dashboard=None if address else False,
            )
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise cluster_unreachable(address, error) from error
        self._environment = {name: value for name, value in os.environ.items() if name.startswith(FORWARDED_PREFIXES)}
        self._settings = settings

    def locations(self) -> Sequence[RayLocation]:
        """Return the locations on the machines that are in the cluster now."""
        import ray

        return find_locations(ray.nodes())  # type: ignore[no-untyped-call]

    def start(self, location: Hashable) -> RayWorker:
        """Start an actor on a machine."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        assert isinstance(location, RayLocation)
        actor = ray.remote(Evaluator).options(
            num_cpus=location.cpus,
            num_gpus=location.gpus,
            scheduling_strategy=NodeAffinitySchedulingStrategy(location.node, soft=False),
        )
        return RayWorker(actor.remote(self._settings, self._environment))

    def close(self) -> None:
        """Disconnect from the cluster, which ends all workers of this run."""
        import ray

        ray.shutdown()


def check_address(address: str | None) -> None:
    """Raise PosirError if nothing listens at an address; Ray itself would keep trying for 15 minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if port.isdecimal():
        try:
            socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()
        except OSError as error:
            raise cluster_unreachable(address, error) from error


def cluster_unreachable(address: str | None, error: Exception) -> PosirError:
    """Return the error for a cluster that cannot be reached, with how to start one."""
    return PosirError(
        f"--address {address}: no Ray cluster can be reached there ({error}). `ray start --head` starts one and prints its "
        "address."
    )


def find_locations(nodes: Sequence[Mapping[str, Any]]) -> list[RayLocation]:
    """Return a location per GPU with an equal share of its machine's processors; without any GPU, one per machine.

    A worker then has the same resources and number of threads as a run on its machine alone. `nodes` is `ray.nodes()`.
    """
    alive = [(node, node["Resources"].get("CPU", 0), int(node["Resources"].get("GPU", 0))) for node in nodes if node["Alive"]]
    per_gpu = [(node, index, cpus // gpus, 1) for node, cpus, gpus in alive for index in range(gpus)]
    per_machine = [(node, 0, cpus, 0) for node, cpus, _ in alive if cpus >= 1]
    return [RayLocation(node["NodeID"], node["NodeManagerAddress"], *rest) for node, *rest in per_gpu or per_machine]


class RayWorker:
    """A Ray actor, which ends with the process that started it."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor
        self.started: Future[Any] = actor.check_versions.remote(installed_versions()).future()
        """Completes when the actor runs and its versions have been checked."""

    def submit(self, job: Job) -> Future[JobOutcome]:
        """Evaluate a job in the actor."""
        evaluated: Future[JobOutcome] = self._actor.evaluate.remote(job).future()
        return evaluated

    def stop(self) -> None:
        """Kill the actor."""
        import ray

        ray.kill(self._actor)
