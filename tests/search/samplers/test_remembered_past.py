"""What a coordinator remembers of a study's past is what it would read anew."""

import random

import numpy as np
import pytest
from sqlalchemy.orm import Session

from search.samplers.modelling import acquisition
from search.samplers.sampler import Past
from search.sampling.sampler_context import RememberedPast
from storage.engine import Database
from storage.records import TrialOutcome, TrialState
from storage.repositories.measurements import Measurements
from storage.repositories.metrics import Metrics
from storage.repositories.studies import Studies
from storage.repositories.trials import Trials
from tests.storage.records import START, add_study, add_trial, measurement, metric


def past_read_anew(database: Database, study: str) -> Past:
    with database.read() as session:
        return Past(
            trials=Trials(session).list(study),
            validations=Metrics(session).validations(study),
            validation_samples=(Studies(session).get(study).prepared or {}).get("validation"),  # pyright: ignore[reportArgumentType]
        )


def step(session: Session, study: str, generator: random.Random) -> None:
    """One of the things that happen to a study."""
    trials = Trials(session)
    known = trials.list(study)
    kind = generator.randrange(9) if known else 0
    if kind == 0:
        add_trial(session, study, len(known))
        return
    one = generator.choice(known[-5:])
    if kind == 1 and not one.state.has_ended:
        trials.start(study, one.number, START)
    elif kind in (2, 3) and one.state == TrialState.RUNNING:
        epoch = generator.randrange(1, 4)
        Metrics(session).put(
            study, one.number, metric(epoch, validation=generator.randrange(99) / 99)
        )
    elif kind == 4 and not one.state.has_ended:
        state = generator.choice([TrialState.COMPLETE, TrialState.STOPPED, TrialState.FAILED])
        trials.end(study, one.number, state=state, at=START, outcome=TrialOutcome(quality=0.5))
    elif kind == 5 and one.state.has_ended:
        trials.mark_told(study, one.number, START)
    elif kind == 6:
        speed = measurement(study, trial=one.number, samples_per_second=generator.random() + 1)
        Measurements(session).add(study, speed)
        trials.share_throughput(study, speed)
        trials.set_throughput(study, one.number, speed)
    elif kind == 7 and one.state in (TrialState.RUNNING, TrialState.PAUSED):
        # A paused one goes on for an epoch, and pauses again.
        epochs = one.epochs_trained + (one.state == TrialState.PAUSED)
        if one.state == TrialState.PAUSED:
            trials.start(study, one.number, START)
            Metrics(session).put(study, one.number, metric(epochs, validation=0.1 * epochs))
        trials.pause(study, one.number, outcome=TrialOutcome(quality=0.25), epochs=epochs)
    elif kind == 8 and not one.state.has_ended:
        trials.set_stretches(study, {one.number: {"decision": generator.randrange(99)}})


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_past_that_was_brought_up_to_date_is_the_whole_past(database: Database) -> None:
    states = set[TrialState]()
    for seed in range(6):
        generator = random.Random(seed)
        with database.write() as session:
            study = add_study(session).id
        past = RememberedPast(database, study)
        before: list[tuple[Past, int, int]] = []
        for turn in range(60):
            with database.write() as session:
                if turn == 30:
                    Studies(session).set_prepared(study, {"validation": 400})
                for _ in range(generator.randrange(4)):
                    step(session, study, generator)
            now = past.now()
            assert now == past_read_anew(database, study)
            before.append((now, len(now.trials), len(now.validations)))
        states |= {trial.state for trial in before[-1][0].trials}
        # What was given out stays as it was.
        assert all(
            (len(given.trials), len(given.validations)) == (trials, curves)
            for given, trials, curves in before
        )
    assert states >= {TrialState.COMPLETE, TrialState.PAUSED, TrialState.RUNNING}


def test_a_front_is_found_as_by_comparing_each_point_with_each() -> None:
    generator = np.random.default_rng(0)
    for _ in range(500):
        points = generator.integers(0, 4, generator.integers(1, 12, 2)).astype(float)
        no_larger = np.all(points[:, None, :] <= points[None, :, :], axis=2)
        earlier = np.triu(np.ones_like(no_larger), k=1)
        compared = ~np.any(no_larger & (earlier | ~no_larger.T), axis=0)
        assert acquisition.undominated(points).tolist() == compared.tolist()


@pytest.mark.parametrize("objectives", [0, 1, 2])
def test_gains_are_the_same_however_many_are_computed_at_a_time(
    objectives: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against the best error of each cell by all points of the front that reach it."""
    generator = np.random.default_rng(objectives)
    for turn in range(40):
        front, candidates = generator.integers(0, 20), generator.integers(1, 9)
        costs = generator.integers(0, 6, (front, objectives)).astype(float)
        errors = generator.normal(-2, 1, front).round(1)
        offered = generator.integers(0, 7, (candidates, objectives)).astype(float)
        mean, deviation = generator.normal(-2, 1, candidates), generator.uniform(0.1, 1, candidates)
        monkeypatch.setattr(acquisition, "_MOST_CELLS", int(generator.integers(1, 2000)))
        found = acquisition.expected_gain(
            *(costs, errors, offered, mean, deviation),
            reference_error=-1.0,
            reference_costs=np.full(objectives, 5.0),
        )
        one_by_one = [
            acquisition.expected_gain(
                *(costs, errors, offered[[i]], mean[[i]], deviation[[i]]),
                reference_error=-1.0,
                reference_costs=np.full(objectives, 5.0),
            )[0]
            for i in range(candidates)
        ]
        assert found == pytest.approx(one_by_one, rel=1e-12), turn
        axes = [np.unique(np.pad(costs, ((0, 0), (0, 2 - objectives)))[:, a]) for a in range(2)]
        padded = np.pad(costs, ((0, 0), (0, 2 - objectives)))
        best = acquisition._best_in_cells(padded, errors, (axes[0], axes[1]), -1.0)  # pyright: ignore[reportPrivateUsage]
        ends = [np.append(-np.inf, axis) for axis in axes]
        for i, first in enumerate(ends[0]):
            for j, second in enumerate(ends[1]):
                reached = errors[(padded[:, 0] <= first) & (padded[:, 1] <= second)]
                assert best[i, j] == min([-1.0, *reached])
