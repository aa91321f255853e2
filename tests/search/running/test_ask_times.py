"""Asks are counted by how long they took, per kind of sampler, and only those that succeeded."""

import pytest

from search.running.ask_times import BUCKETS, AskTimes


def test_an_ask_is_in_the_bucket_of_its_time() -> None:
    clock = iter((0.0, 0.004, 1.0, 1.3, 2.0, 2.3, 10.0, 3610.0))
    asks = AskTimes(clock=lambda: next(clock))
    for _ in range(4):
        with asks.timed("tpe"):
            assert asks.in_progress == 1
    (tpe,) = asks.histograms().values()
    assert tpe.seconds == pytest.approx(3600.604)
    found = dict(zip((*BUCKETS, float("inf")), tpe.counts, strict=True))
    assert {bound: count for bound, count in found.items() if count} == {
        0.005: 1,
        0.5: 2,
        float("inf"): 1,
    }
    assert asks.in_progress == 0


def test_a_failed_ask_does_not_count_and_is_not_in_progress_any_more() -> None:
    asks = AskTimes()
    with pytest.raises(RuntimeError), asks.timed("tpe"):
        raise RuntimeError("no sampler")
    assert (asks.histograms(), asks.in_progress) == ({}, 0)


def test_samplers_are_told_apart() -> None:
    asks = AskTimes()
    with asks.timed("tpe"), asks.timed("random"):
        assert asks.in_progress == 2
    assert {kind: sum(found.counts) for kind, found in asks.histograms().items()} == {
        "tpe": 1,
        "random": 1,
    }
