"""How a slot's time is divided."""

import pytest

from search.agents.slots.shares import Shares


def test_the_parts_of_all_add_up_to_the_time_while_anybody_was_there() -> None:
    now = [100.0]
    shares = Shares(lambda: now[0])
    now[0] += 5
    shares.join("one")
    now[0] += 10
    shares.join("two")
    now[0] += 4
    assert (shares.of("one"), shares.of("two")) == (12, 2)
    shares.join("three")
    now[0] += 6
    ended = shares.leave("one")
    now[0] += 2
    parts = ended, shares.leave("two"), shares.of("three")
    assert parts == pytest.approx((14, 5, 3))
    assert sum(parts) == pytest.approx(22)
    assert shares.leave("three") == pytest.approx(3)
    now[0] += 50
    shares.join("later")
    assert shares.of("later") == 0
