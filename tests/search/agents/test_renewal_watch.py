"""Leases are counted by the watcher's own clock: setting the wall clock ends and prolongs none."""

from datetime import UTC, datetime, timedelta

from search.agents.renewal_watch import RenewalWatch

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def watch() -> tuple[RenewalWatch, Clock]:
    clock = Clock()
    return RenewalWatch(10.0, clock=clock), clock


def test_a_lease_that_nobody_renews_is_stale_after_its_time() -> None:
    watching, clock = watch()
    for clock.seconds, stale in ((0.0, set()), (9.9, set()), (10.0, {"a"}), (11.0, {"a"})):
        assert watching.stale({"a": NOON}) == stale


def test_a_renewal_counts_whichever_way_the_wall_clock_was_set() -> None:
    """The machine's clock is set an hour ahead, then two hours back, while renewals go on."""
    watching, clock = watch()
    for step, jump in enumerate((0 * HOUR, HOUR, HOUR, -HOUR, -HOUR)):
        clock.seconds = 9.0 * step
        assert watching.stale({"a": NOON + jump + timedelta(seconds=clock.seconds)}) == set()
    clock.seconds += 10.0
    assert watching.stale({"a": NOON - HOUR + timedelta(seconds=36)}) == {"a"}


def test_a_row_far_in_the_past_or_future_is_as_good_as_any() -> None:
    watching, clock = watch()
    leases = {"past": NOON - 1000 * HOUR, "future": NOON + 1000 * HOUR}
    assert watching.stale(leases) == set()
    clock.seconds = 10.0
    assert watching.stale(leases) == {"past", "future"}


def test_what_is_held_no_more_is_forgotten() -> None:
    watching, clock = watch()
    watching.stale({"a": NOON})
    watching.stale({})
    clock.seconds = 20.0
    assert watching.stale({"a": NOON}) == set()
