"""Where agents are placed, by what waits and what is free; nothing here needs Ray."""

import pytest

from search.agents.launchers.ray.launcher import environment_of
from search.agents.launchers.ray.messages import Cluster, Demand, Place
from search.agents.launchers.ray.placement import Node, Placement

CLUSTER = Cluster(url="http://search.example:8080", command=("-m", "agent"))


def node(name: str, *, cpus: float = 0, gpus: float = 0, memory: float = 0) -> Node:
    resources = {"CPU": cpus, "GPU": gpus, "memory": memory}
    return Node(name, "host one", total=resources, free=resources)


def waits(joined: tuple[str, ...] = (), busy: tuple[str, ...] = (), **waiting: int) -> Demand:
    return Demand.model_validate({"waiting": waiting, "joined": joined, "busy": busy})


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def placement(clock: Clock) -> Placement:
    return Placement(CLUSTER, clock)


def shapes(places: list[Place]) -> list[tuple[str, int, int]]:
    return [(place.node_id, place.cpus, place.gpus) for place in places]


def test_nothing_is_placed_for_nothing(placement: Placement) -> None:
    assert not placement.update([node("a", cpus=4)], Demand()).place


def test_an_agent_takes_what_is_wished_for_and_no_more(placement: Placement) -> None:
    orders = placement.update([node("a", cpus=8), node("b", cpus=2)], waits(any=3))
    assert shapes([*orders.place]) == [("a", 3, 0)]
    assert orders.place[0].name.endswith("-host-one")


def test_what_one_node_lacks_the_next_one_gives(placement: Placement) -> None:
    orders = placement.update([node("a", cpus=2), node("b", cpus=4)], waits(cpu=5))
    assert shapes([*orders.place]) == [("b", 4, 0), ("a", 1, 0)]


def test_free_slots_and_those_that_are_coming_count(placement: Placement) -> None:
    free = Demand(waiting={"any": 3}, free={"cpu": 1})
    assert shapes([*placement.update([node("a", cpus=8)], free).place]) == [("a", 2, 0)]
    assert not placement.update([node("a", cpus=6), node("b", cpus=6)], free).place


def test_gpus_are_taken_whole_with_a_core_for_each_slot() -> None:
    placement = Placement(CLUSTER.model_copy(update={"slots_per_gpu": 2}))
    (place,) = placement.update([node("a", cpus=8, gpus=4)], waits(cuda=3)).place
    assert (place.gpus, place.cpus, place.cores, place.slots) == (2, 0, 4, 4)


def test_work_for_gpus_takes_no_node_without(placement: Placement) -> None:
    assert not placement.update([node("a", cpus=8)], waits(cuda=3)).place


def test_any_work_goes_to_gpus_first_and_then_to_cores(placement: Placement) -> None:
    (place,) = placement.update([node("a", cpus=8, gpus=1)], waits(any=3)).place
    assert (place.gpus, place.cpus, place.cores) == (1, 2, 3)


def test_a_part_of_a_gpu_is_not_enough(placement: Placement) -> None:
    assert not placement.update([node("a", cpus=0, gpus=0.5)], waits(cuda=1)).place


def test_cpu_slots_are_bounded_on_each_node() -> None:
    placement = Placement(CLUSTER.model_copy(update={"cpu_slots": 2}))
    orders = placement.update([node("a", cpus=8), node("b", cpus=8)], waits(cpu=9))
    assert [place.cpus for place in orders.place] == [2, 2]
    none = Placement(CLUSTER.model_copy(update={"cpu_slots": 0}))
    (place,) = none.update([node("a", cpus=8, gpus=1)], waits(any=9)).place
    assert (place.gpus, place.cpus) == (1, 0)


def test_a_slot_has_its_cores_part_of_the_nodes_memory(placement: Placement) -> None:
    (place,) = placement.update([node("a", cpus=4, memory=8 << 30)], waits(any=1)).place
    assert place.slot_memory == 2 << 30


def test_an_agent_without_work_is_given_back(placement: Placement, clock: Clock) -> None:
    nodes = [node("a", cpus=2)]
    (place,) = placement.update(nodes, waits(any=2)).place
    name = place.name
    assert not placement.update([], waits((name,), (name,))).give_back
    clock.now += 59
    assert not placement.update([], waits((name,), (name,))).give_back
    clock.now += 59
    assert not placement.update([], waits((name,))).give_back
    clock.now += 2
    assert placement.update([], waits((name,))).give_back == [name]
    assert not placement.update([], waits((name,))).give_back, "it is told once"


def test_a_node_whose_agent_failed_gets_the_next_one_later(
    placement: Placement, clock: Clock
) -> None:
    nodes = [node("a", cpus=2)]
    for pause in (1, 2, 4):
        (place,) = placement.update(nodes, waits(any=1)).place
        placement.ended(place.name, failed=True)
        clock.now += pause - 0.5
        assert not placement.update(nodes, waits(any=1)).place
        clock.now += 0.5


def test_one_that_never_joins_is_given_back_and_counts_as_failed(
    placement: Placement, clock: Clock
) -> None:
    nodes = [node("a", cpus=2)]
    (place,) = placement.update(nodes, waits(any=1)).place
    clock.now += 180
    assert placement.update([], waits(any=1)).give_back == [place.name]
    placement.ended(place.name, failed=False)
    assert not placement.update(nodes, waits(any=1)).place


def test_the_autoscaler_is_asked_for_what_waits_up_to_a_bound() -> None:
    nodes = [node("a", cpus=2)]
    assert Placement(CLUSTER).update(nodes, waits(any=9)).wish == 0
    placement = Placement(CLUSTER.model_copy(update={"most_slots": 5}))
    orders = placement.update(nodes, waits(any=3))
    assert orders.wish == 3
    name = orders.place[0].name
    assert placement.update([], waits((name,), (name,), any=9)).wish == 5
    assert placement.update([], waits((name,), (name,))).wish == 2


def test_a_token_is_sent_unless_an_open_cluster_is_wanted() -> None:
    ours = {"RAY_AUTH_MODE": "disabled", "RAY_AUTH_TOKEN_PATH": "/t", "REFLECTORY_SECRET": "s"}
    assert environment_of(CLUSTER, ours)["RAY_AUTH_MODE"] == "token"
    assert "REFLECTORY_SECRET" not in environment_of(CLUSTER, ours)
    opened = CLUSTER.model_copy(update={"open": True})
    assert environment_of(opened, ours)["RAY_AUTH_MODE"] == "disabled"
