"""Worker locations in a cluster. The end-to-end tests use a real cluster."""

import socket

import pytest

from posir_run.worker import RayLocation, check_address, find_locations
from posir_tasks.base.errors import PosirError


def node(name, *, alive=True, **resources):
    return {
        "NodeID": name,
        "NodeManagerAddress": f"{name}.local",
        "Alive": alive,
        "Resources": resources,
    }


def location(name, index, cpus, gpus):
    return RayLocation(name, f"{name}.local", index, cpus, gpus)


@pytest.mark.parametrize(
    ("nodes", "locations"),
    [
        (
            [node("a", CPU=8.0), node("b", CPU=2.0)],
            [location("a", 0, 8.0, 0), location("b", 0, 2.0, 0)],
        ),
        ([node("head"), node("head", CPU=0.0), node("a", CPU=8.0)], [location("a", 0, 8.0, 0)]),
        ([node("a", CPU=8.0, alive=False), node("b", CPU=2.0)], [location("b", 0, 2.0, 0)]),
        (
            [node("head", CPU=64.0), node("a", CPU=9.0, GPU=2.0), node("b", GPU=1.0)],
            [location("a", 0, 4.0, 1), location("a", 1, 4.0, 1), location("b", 0, 0, 1)],
        ),
    ],
)
def test_there_is_a_worker_per_gpu_or_else_per_machine(nodes, locations):
    assert find_locations(nodes) == locations
    assert len({str(location) for location in locations}) == len(locations)


def test_an_unreachable_address_fails_immediately():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        check_address(address)
        check_address(f"ray://{address}")
    with pytest.raises(
        PosirError,
        match=rf"--address {address}: no Ray cluster can be reached there .*`ray start --head`",
    ):
        check_address(address)
    for name in (None, "auto", "local"):
        check_address(name)
