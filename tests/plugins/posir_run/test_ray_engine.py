"""Where the workers of a cluster stand; a cluster itself is in the end-to-end tests."""

import socket

import pytest

from posir_run.ray_engine import Place, check_address, places_of
from posir_tasks.errors import PosirError


def node(name, *, alive=True, **resources):
    return {"NodeID": name, "NodeManagerAddress": f"{name}.local", "Alive": alive, "Resources": resources}


@pytest.mark.parametrize(
    ("nodes", "places"),
    [
        ([node("a", CPU=8.0), node("b", CPU=2.0)], [Place("a", "a.local", 0, 8.0, 0), Place("b", "b.local", 0, 2.0, 0)]),
        ([node("head"), node("head", CPU=0.0), node("a", CPU=8.0)], [Place("a", "a.local", 0, 8.0, 0)]),
        ([node("a", CPU=8.0, alive=False), node("b", CPU=2.0)], [Place("b", "b.local", 0, 2.0, 0)]),
        (
            [node("head", CPU=64.0), node("a", CPU=9.0, GPU=2.0), node("b", GPU=1.0)],
            [Place("a", "a.local", 0, 4.0, 1), Place("a", "a.local", 1, 4.0, 1), Place("b", "b.local", 0, 0, 1)],
        ),
        ([], []),
    ],
)
def test_a_worker_for_each_gpu_or_else_for_each_machine(nodes, places):
    assert places_of(nodes) == places
    assert len({str(place) for place in places}) == len(places)


def test_an_address_where_nothing_listens_is_refused_at_once_and_others_are_left_to_ray():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        check_address(address)
        check_address(f"ray://{address}")
    with pytest.raises(PosirError, match=rf"--address {address}: no Ray cluster can be reached there .*`ray start --head`"):
        check_address(address)
    for name in (None, "auto", "local"):
        check_address(name)
