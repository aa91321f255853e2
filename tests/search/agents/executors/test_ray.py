"""What a Ray cluster offers, when more is wished for, and who is not spoken to."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from search.agents.executor import Slot
from search.agents.launchers.ray import Cluster, RayExecutor
from search.agents.launchers.ray.demand import DemandRule
from search.agents.launchers.ray.messages import Described
from search.agents.launchers.ray.offers import bundle_of, slots_of, why_refused
from search.agents.launchers.ray.session import environment_of
from search.tasks import Digits
from search.training.jobs import PrepareJob
from tests.ray_clusters import RayCluster
from tests.search.agents.executors.attempts import exits, ticket, wait_until
from tests.search.attempt_api import TOKEN, AttemptApi

NODE = Described(
    release="1.0",
    loopback="machine a",
    cpu="some processor",
    gpus=(("GPU-1", "some GPU"), ("GPU-2", "some GPU")),
)
LOCK = {"reflectory_lane": 1.0}


def names(slots: tuple[Slot, ...]) -> list[str]:
    return [slot.name.partition("/")[2] for slot in slots]


def test_each_part_of_a_gpu_takes_a_core_and_the_others_are_cpu_slots() -> None:
    cluster = Cluster(slots_per_gpu=2)
    slots = slots_of("node", {"CPU": 6.0, "GPU": 2.0, **LOCK}, NODE, cluster)
    assert names(slots) == ["gpu-0-0", "gpu-0-1", "gpu-1-0", "gpu-1-1", "cpu-0", "cpu-1"]
    assert {slot.device: slot.share for slot in slots} == {
        "cuda:GPU-1": 0.5,
        "cuda:GPU-2": 0.5,
        "cpu": 1.0,
    }
    assert all(slot.machine == "node" and slot.measures for slot in slots)
    asked = {"CPU": sum(bundle_of(slot)["CPU"] for slot in slots)}
    asked["GPU"] = sum(bundle_of(slot).get("GPU", 0.0) for slot in slots)
    assert asked == {"CPU": 6.0, "GPU": 2.0}


def test_a_node_with_fewer_cores_than_parts_of_gpus_offers_no_more_than_cores() -> None:
    slots = slots_of("node", {"CPU": 1.0, "GPU": 2.0}, NODE, Cluster(slots_per_gpu=2))
    assert names(slots) == ["gpu-0-0"]


def test_gpus_that_ray_and_torch_count_differently_are_not_offered() -> None:
    assert names(slots_of("node", {"CPU": 1.0, "GPU": 1.0}, NODE, Cluster())) == ["cpu-0"]


def test_cpu_slots_are_bounded_per_node() -> None:
    resources = {"CPU": 8.0}
    assert len(slots_of("node", resources, NODE, Cluster(cpu_slots=3))) == 3
    assert slots_of("node", resources, NODE, Cluster(cpu_slots=0)) == ()


def test_a_node_without_the_resource_measures_nothing() -> None:
    assert not any(slot.measures for slot in slots_of("node", {"CPU": 2.0}, NODE, Cluster()))


def test_a_measuring_slot_is_its_resource_and_no_part_of_a_device() -> None:
    slot = Slot("lane node/cpu", "cpu", "some processor", 0.0, "node")
    assert bundle_of(slot) == LOCK


@pytest.mark.parametrize("url", ["http://127.0.0.1:8080", "http://localhost:1", "http://[::1]:80"])
def test_a_node_elsewhere_is_refused_where_the_api_is_on_loopback(url: str) -> None:
    there = Cluster(url=url)
    why = why_refused(NODE, there, release="1.0", home="machine b")
    assert why is not None
    assert url in why
    assert "REFLECTORY_URL" in why
    assert why_refused(NODE, there, release="1.0", home="machine a") is None
    reachable = Cluster(url="http://search.example:8080")
    assert why_refused(NODE, reachable, release="1.0", home="machine b") is None


def test_a_node_with_another_release_is_refused() -> None:
    why = why_refused(NODE, Cluster(), release="1.1", home="machine a")
    assert why == "it has Reflectory 1.0, and the coordinator 1.1"


def test_a_token_is_sent_unless_an_open_cluster_is_wanted() -> None:
    ours = {"RAY_AUTH_MODE": "disabled", "RAY_AUTH_TOKEN_PATH": "/token"}
    assert environment_of(Cluster(), ours)["RAY_AUTH_MODE"] == "token"
    assert environment_of(Cluster(open=True), ours)["RAY_AUTH_MODE"] == "disabled"


def test_more_slots_are_wished_for_while_all_are_taken_and_none_when_idle() -> None:
    now = 1000.0
    rule = DemandRule(5, clock=lambda: now)
    assert rule.update(slots=2, busy=2) is None
    now += 11
    assert rule.update(slots=2, busy=2) == 4
    assert rule.update(slots=2, busy=2) is None
    assert rule.update(slots=4, busy=4) == 5
    assert rule.update(slots=5, busy=1) is None
    assert rule.update(slots=5, busy=0) is None
    now += 61
    assert rule.update(slots=5, busy=0) == 0
    assert rule.update(slots=5, busy=0) is None


def test_without_a_bound_nothing_is_wished_for() -> None:
    now = 0.0
    rule = DemandRule(0, clock=lambda: now)
    for _ in range(10):
        now += 60
        assert rule.update(slots=1, busy=1) is None


@pytest.mark.slow
def test_a_cluster_that_wants_no_token_is_not_used_unless_told_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RayCluster(token=False) as cluster:
        # We have one, and would send it to whoever answers there.
        monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(cluster.token_file))
        monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
        wanted = Cluster(address=cluster.address, scratch=cluster.scratch)
        executor = RayExecutor(wanted, logs=tmp_path)
        try:
            reasons: list[str] = []
            wait_until(
                lambda: (
                    reasons.extend(str(record.__dict__.get("reason")) for record in caplog.records)
                    or any("REFLECTORY_RAY_OPEN=true" in reason for reason in reasons)
                ),
                seconds=200.0,
            )
            assert executor.capacity() == ()
        finally:
            executor.close()
        executor = RayExecutor(wanted.model_copy(update={"open": True}), logs=tmp_path)
        try:
            assert executor.wait_for_slots(240.0)
        finally:
            executor.close()


def test_attempts_are_lost_from_outside_when_the_bridge_dies_and_slots_come_back(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    wanted = Cluster(address=ray_cluster.address, scratch=ray_cluster.scratch)
    executor = RayExecutor(wanted, logs=tmp_path / "logs")
    try:
        assert executor.wait_for_slots(240.0)
        with AttemptApi(PrepareJob(task=Digits())) as api:
            api.fault = lambda _method, _what: time.sleep(600)
            slot = executor.capacity()[0]
            attempt = replace(
                ticket("", device=slot.device), url=api.url, token=TOKEN, lease_seconds=60.0
            )
            executor.start(attempt, slot)
            api.wait_until(lambda: api.asked == ["GET job"])
            bridge = executor._bridge  # pyright: ignore[reportPrivateUsage]
            assert bridge is not None
            bridge.kill()
            (ended,) = exits(executor, 1)
        assert (ended.returncode, ended.signal) == (None, None)
        assert ended.detail.startswith("lost: the connection to Ray broke")
        wait_until(lambda: len(executor.capacity()) == 2, seconds=240.0)
    finally:
        executor.close()
