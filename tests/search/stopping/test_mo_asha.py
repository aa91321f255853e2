"""Non-dominated sorting and epsilon-nets against brute force, and the quota of a rung."""

import numpy as np
import pytest

from search.stopping import Curve, MoAsha, Standings
from search.stopping.mo_asha import epsilon_net, order
from tests.search.stopping.random_studies import EPOCHS, random_study


def fronts(points: np.ndarray) -> list[set[int]]:
    """Peel the non-dominated points off, again and again."""
    left, found = set(range(len(points))), []
    while left:
        front = {
            i
            for i in left
            if not any(
                (points[j] <= points[i]).all() and (points[j] < points[i]).any() for j in left
            )
        }
        found.append(front)
        left -= front
    return found


@pytest.mark.parametrize("seed", range(10))
def test_order_is_front_by_front(seed: int) -> None:
    points = np.random.default_rng(seed).normal(size=(30, 3)).round(1)
    ordered = order(points, np.random.default_rng(seed))
    assert sorted(ordered) == list(range(30))
    start = 0
    for front in fronts(points):
        assert set(ordered[start : start + len(front)]) == front
        start += len(front)


def test_dominated_chain_is_ordered_by_dominance_and_not_by_its_inverse() -> None:
    points = np.array([[5, 5], [4, 4], [3, 3], [1, 1], [2, 2]], dtype=float)
    assert order(points, np.random.default_rng(0)) == [3, 4, 2, 1, 0]


@pytest.mark.parametrize("seed", range(10))
def test_epsilon_net_takes_the_farthest_each_time(seed: int) -> None:
    points = np.random.default_rng(seed).normal(size=(12, 3))
    front = [1, 3, 4, 6, 8, 9, 11]
    net = epsilon_net(points, front, np.random.default_rng(seed))
    assert sorted(net) == front
    for taken in range(1, len(net)):
        nearest = {
            i: min(float(np.linalg.norm(points[i] - points[j])) for j in net[:taken])
            for i in front
            if i not in net[:taken]
        }
        assert nearest[net[taken]] == pytest.approx(max(nearest.values()))


def test_order_does_not_depend_on_the_units_of_an_axis() -> None:
    points = np.random.default_rng(5).normal(size=(25, 3))
    scaled = points * [1000.0, 0.001, 1.0] + [5.0, 0.0, -3.0]
    assert order(points, np.random.default_rng(1)) == order(scaled, np.random.default_rng(1))


def test_a_third_of_a_rung_goes_on() -> None:
    stopped = {True: 0, False: 0}
    for seed in range(10):
        study = random_study(seed, others=20)
        for epoch in (1, 3):
            rivals = study.at_rung(epoch)
            decisions = [MoAsha().decide(study, c.number, epoch) for c in rivals]
            assert sum(not d.stop for d in decisions) == -(-len(rivals) // 3)
            for decision in decisions:
                stopped[decision.stop] += 1
    assert min(stopped.values()) > 0


def test_a_trial_that_nobody_dominates_in_a_rung_of_its_own_goes_on() -> None:
    study = random_study(0, finished=1, others=0)
    decision = MoAsha().decide(study, 0, 1)
    assert not decision.stop
    assert decision.why == "is number 1 of 1, of which the first 1 go on"


def test_rungs_are_below_the_last_epoch() -> None:
    assert MoAsha().rungs(27) == (1, 3, 9)
    assert MoAsha(min_epochs=2, eta=4).rungs(EPOCHS) == (2, 8)
    assert not MoAsha().decide(random_study(0), 0, EPOCHS).stop


def test_the_trial_that_is_best_in_everything_goes_on_wherever_it_stands_in_the_list() -> None:
    values = [5.0, 4.0, 3.0, 1.0, 2.0]
    curves = {n: Curve(number=n, errors=(v,), costs=(v,)) for n, v in enumerate(values)}
    study = Standings(curves, reference=(9.0, 9.0), epochs=EPOCHS)
    go_on = [n for n in curves if not MoAsha(eta=2).decide(study, n, 1).stop]
    assert go_on == [2, 3, 4]
    assert [n for n in curves if not MoAsha(eta=5).decide(study, n, 1).stop] == [3]
