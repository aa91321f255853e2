"""The space of a network's layers leaves out what is beyond a study's limits."""

import pytest

from search.graphs.model_outputs import ModelOutputs
from search.graphs.offered_layers import OfferedLayers
from search.spaces import DrawnNetwork, Limits, NetworkSpace
from tests.search.graphs.small_networks import offers

_WHOLE = 18_286


def _space(limits: Limits) -> NetworkSpace:
    task = ModelOutputs.example()
    facts = task.known.model_copy(update={"file_bytes": _WHOLE, "parameters": 4_512})
    return NetworkSpace(
        task.model_copy(update={"facts": facts}),
        costs=("bytes",),
        seed=0,
        limits=limits,
        offered=lambda: OfferedLayers(offers(), 300, 288),
    )


def _first(limits: Limits) -> list[DrawnNetwork]:
    space, found = _space(limits), list[DrawnNetwork]()
    for number in range(30):
        drawn = space.proposal(number, ())
        if not isinstance(drawn, DrawnNetwork):
            break
        found.append(drawn)
    return found


@pytest.mark.parametrize(
    ("limits", "value", "most"),
    [
        (Limits(bytes=4_000), "bytes", 4_000),
        (Limits(parameters=3_000), "parameters", 3_000),
    ],
    ids=["bytes", "parameters"],
)
def test_only_the_network_itself_is_beyond_a_limit(limits: Limits, value: str, most: int) -> None:
    assert any(getattr(one.spec, value) > most for one in _first(Limits())[1:])
    whole, *others = _first(limits)
    assert whole.spec.is_original
    assert others
    assert all(getattr(one.spec, value) <= most for one in others)


def test_limits_on_what_is_measured_later_leave_out_nothing() -> None:
    later = Limits(agreement=0.99, latency_seconds=1e-6, min_throughput_ratio=2)
    assert [one.spec for one in _first(later)] == [one.spec for one in _first(Limits())]


def test_a_limit_that_nothing_keeps_ends_after_the_nearest() -> None:
    whole, *others = _first(Limits(bytes=100))
    assert whole.spec.is_original
    assert 1 <= len(others) <= 2
