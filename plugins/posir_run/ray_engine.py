"""Workers on the machines of a Ray cluster: one for each GPU, or one for each machine where there is no GPU."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Hashable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from posir_run.jobs import EvaluationJob, Outcome
from posir_run.worker import Evaluator, Settings, versions
from posir_tasks.errors import PosirError

#: Variables that the workers get from here. Paths in them must hold on every machine.
SENT = ("POSIR_", "HF_", "MTEB_")

#: Seconds to wait for a cluster's head to answer.
CONNECT_SECONDS = 10


@dataclass(frozen=True)
class Place:
    """Room for a worker on a machine of the cluster."""

    node: str
    """Ray's id of the machine."""
    address: str
    number: int
    """Counts the machine's workers from 0."""
    cpus: float
    gpus: int
    """1 if the worker has a GPU, otherwise 0."""

    def __str__(self) -> str:
        return f"{self.address}, GPU {self.number}" if self.gpus else self.address


class RayEngine:
    """A Ray cluster."""

    def __init__(self, address: str | None, settings: Settings) -> None:
        """Connect to a cluster, or without an address start one on this machine.

        Raises:
            PosirError: Ray is not installed, or there is no cluster at the address.
        """
        try:
            import ray
        except ImportError as error:
            raise PosirError("--engine ray needs Ray: pip install 'posir[ray]'") from error
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
            raise unreachable(address, error) from error
        self._environment = {name: value for name, value in os.environ.items() if name.startswith(SENT)}
        self._settings = settings

    def places(self) -> Sequence[Place]:
        """Return the places of the machines that are in the cluster now."""
        import ray

        return places_of(ray.nodes())  # type: ignore[no-untyped-call]

    def start(self, place: Hashable) -> RayWorker:
        """Start an actor on a machine."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        assert isinstance(place, Place)
        actor = ray.remote(Evaluator).options(
            num_cpus=place.cpus,
            num_gpus=place.gpus,
            scheduling_strategy=NodeAffinitySchedulingStrategy(place.node, soft=False),
        )
        return RayWorker(actor.remote(self._settings, self._environment))

    def close(self) -> None:
        """Leave the cluster, which ends what is left of this run on it."""
        import ray

        ray.shutdown()


def check_address(address: str | None) -> None:
    """Refuse an address where nothing listens; Ray itself would try for a quarter of an hour.

    Raises:
        PosirError: Nothing does.
    """
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if port.isdecimal():
        try:
            socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()
        except OSError as error:
            raise unreachable(address, error) from error


def unreachable(address: str | None, error: Exception) -> PosirError:
    """Return the error that says how to have a cluster."""
    return PosirError(
        f"--address {address}: no Ray cluster can be reached there ({error}). `ray start --head` starts one and prints its "
        "address."
    )


def places_of(nodes: Sequence[Mapping[str, Any]]) -> list[Place]:
    """Return a place for each GPU of a cluster; if it has none, one for each machine, with all of its processors.

    So a worker has to itself what a run on its machine alone would have, and the same number of threads.

    Args:
        nodes: As `ray.nodes` returns them.
    """
    alive = [node for node in nodes if node["Alive"]]
    with_gpus = [place for node in alive for place in gpu_places(node)]
    return with_gpus or [
        Place(node["NodeID"], node["NodeManagerAddress"], 0, node["Resources"]["CPU"], 0)
        for node in alive
        if node["Resources"].get("CPU", 0) >= 1
    ]


def gpu_places(node: Mapping[str, Any]) -> list[Place]:
    """Return a place for each GPU of a machine, with its share of the processors."""
    count = int(node["Resources"].get("GPU", 0))
    cpus = node["Resources"].get("CPU", 0)
    return [Place(node["NodeID"], node["NodeManagerAddress"], number, cpus // count, 1) for number in range(count)]


class RayWorker:
    """An actor, which ends with the process that started it."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def ready(self) -> Future[Any]:
        """Return what is done when the actor runs and was found to have our versions."""
        checked: Future[Any] = self._actor.check.remote(versions()).future()
        return checked

    def submit(self, unit: EvaluationJob) -> Future[Outcome]:
        """Have it evaluate a unit."""
        evaluated: Future[Outcome] = self._actor.evaluate.remote(unit).future()
        return evaluated

    def stop(self) -> None:
        """Kill the actor."""
        import ray

        ray.kill(self._actor)
