"""The gain is that of a brute-force hypervolume, and the rule is the one that is documented."""

import numpy as np
import pytest

from search.stopping import Curve, ParetoGain, Standings
from search.stopping.curves import best_so_far
from search.stopping.pareto_gain import Fixed, Rate
from tests.search.stopping.random_studies import EPOCHS, random_study, volume

SEEDS = range(12)


def judged(study: Standings, epoch: int) -> list[Curve]:
    return [c for c in study.curves.values() if len(c.errors) == epoch and not c.is_finished]


def nearest_improvements(study: Standings, trial: Curve, epoch: int) -> np.ndarray:
    at = trial.errors[epoch - 1]
    distances = {c.number: abs(c.errors[epoch - 1] - at) for c in study.finished}
    near = sorted(distances, key=lambda number: (distances[number], number))[:20]
    return np.array([study.curves[n].errors[-1] - study.curves[n].errors[epoch - 1] for n in near])


@pytest.mark.parametrize("objectives", [1, 2, 3])
@pytest.mark.parametrize("ties", [False, True])
def test_fixed_threshold_is_the_hoped_for_gain_by_brute_force(objectives: int, ties: bool) -> None:
    outcomes: set[bool] = set()
    for seed in SEEDS:
        study = random_study(seed, objectives=objectives, finished=9, ties=ties)
        front = [c.final for c in study.finished]
        base = volume(front, study.reference)
        rule = ParetoGain(never_stopped=0, threshold=Fixed(share=0.01, level=0.05))
        for epoch in (1, 2, 4, 8):
            for trial in judged(study, epoch):
                hope = np.quantile(nearest_improvements(study, trial, epoch), 0.05)
                point = (trial.errors[-1] + float(hope), *trial.costs)
                gain = volume([*front, point], study.reference) - base
                decision = rule.decide(study, trial.number, epoch)
                threshold = 0.01 * base
                assert decision.gain == pytest.approx(gain, abs=1e-12)
                assert decision.threshold == pytest.approx(threshold)
                assert decision.stop == (gain < threshold)
                outcomes.add(decision.stop)
    assert outcomes == {True, False}


def test_rate_threshold_is_a_share_of_what_the_study_gained_per_epoch_by_brute_force() -> None:
    outcomes: set[bool] = set()
    for seed in SEEDS:
        study = random_study(seed)
        rule = ParetoGain(never_stopped=0, threshold=Rate(share=0.2, window=3, least=0.001))
        base = volume([c.final for c in study.finished], study.reference)
        spent = max(c.ended_after or 0 for c in study.finished)
        old = [c.final for c in study.finished if (c.ended_after or 0) <= spent - 3 * EPOCHS]
        rate = (base - volume(old, study.reference)) / (3 * EPOCHS)
        for epoch in (1, 2, 4, 8):
            for trial in judged(study, epoch):
                steps = np.quantile(
                    nearest_improvements(study, trial, epoch), [0.1, 0.3, 0.5, 0.7, 0.9]
                )
                front = [c.final for c in study.finished]
                gains = [
                    volume([*front, (trial.errors[-1] + float(s), *trial.costs)], study.reference)
                    - base
                    for s in steps
                ]
                gain = float(np.mean(gains))
                decision = rule.decide(study, trial.number, epoch)
                assert decision.gain == pytest.approx(gain, abs=1e-12)
                threshold = max(0.001 * base, 0.2 * rate * (EPOCHS - epoch))
                assert decision.threshold == pytest.approx(threshold)
                assert decision.stop == (gain < threshold)
                outcomes.add(decision.stop)
    assert outcomes == {True, False}


def test_until_enough_have_finished_two_better_trials_as_cheap_stop_one() -> None:
    outcomes: set[bool] = set()
    for seed in SEEDS:
        study = random_study(seed, finished=4, others=16, ties=True)
        rule = ParetoGain(never_stopped=0)
        for epoch in (1, 2, 4, 8):
            for trial in judged(study, epoch):
                better = {
                    other.number
                    for other in study.curves.values()
                    if len(other.errors) >= epoch
                    and other.errors[epoch - 1] < trial.errors[epoch - 1]
                    and all(a <= b for a, b in zip(other.costs, trial.costs, strict=True))
                }
                decision = rule.decide(study, trial.number, epoch)
                assert set(decision.better) == better
                assert decision.stop == (len(better) >= 2)
                outcomes.add(decision.stop)
    assert outcomes == {True, False}


def slow_starter_and_rivals(slow_error: float) -> Standings:
    """Eight finished trials; one that is behind all of them and costs as much."""
    rival = best_so_far(np.linspace(-1, -2, EPOCHS).tolist())
    curves = {
        n: Curve(number=n, errors=rival, costs=(1.0,), is_finished=True, ended_after=9 * n)
        for n in range(8)
    }
    numbers = range(8, 408)
    slow = {n: Curve(number=n, errors=(slow_error,), costs=(1.0,)) for n in numbers}
    return Standings({**curves, **slow}, reference=(0.0, 3.0), epochs=EPOCHS, seed=7)


def test_a_share_of_slow_starters_is_trained_to_the_end_the_same_by_the_seed() -> None:
    study = slow_starter_and_rivals(-0.1)
    kept = [n for n in range(8, 408) if not ParetoGain().decide(study, n, 1).stop]
    assert 1 <= len(kept) <= 19  # Binomial(400, 0.02): 8, within four standard deviations
    assert kept == [n for n in range(8, 408) if ParetoGain().spares(n, seed=7)]
    assert kept != [n for n in range(8, 408) if ParetoGain().spares(n, seed=8)]
    strict = ParetoGain(never_stopped=0)
    assert all(strict.decide(study, n, 1).stop for n in range(8, 408))


def test_cheaper_trial_with_the_same_error_goes_on() -> None:
    study = slow_starter_and_rivals(-0.9)
    cheap = Curve(number=999, errors=(-0.9,), costs=(0.1,))
    study = Standings({**study.curves, 999: cheap}, study.reference, EPOCHS, study.seed)
    rule = ParetoGain(never_stopped=0)
    assert rule.decide(study, 8, 1).stop
    assert not rule.decide(study, 999, 1).stop


def test_last_epoch_and_epochs_between_rungs_stop_nothing() -> None:
    study = slow_starter_and_rivals(0.0)
    rule = ParetoGain(never_stopped=0, min_epochs=2, spacing=3)
    assert rule.rungs(EPOCHS) == (2, 6)
    assert rule.rungs(6) == (2,)
    assert not rule.decide(study, 8, 1).stop
    assert not rule.decide(study, 8, EPOCHS).stop


def test_the_sentence_names_the_gain_and_who_stands_before() -> None:
    decision = ParetoGain(never_stopped=0).decide(slow_starter_and_rivals(-0.1), 9, 1)
    assert decision.stop
    assert decision.why.startswith("could add 0 of 4 hypervolume, less than ")
    assert decision.why.endswith("; 0, 1, 2 and 5 more stand before it")
    assert decision.better == tuple(range(8))
