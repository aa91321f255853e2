"""Who joins a stack, who leaves it, and that the others do not notice."""

import itertools
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
import torch

from search.errors import TrainingDiverged
from search.tasks import DataSources, Split, Splits
from search.training.jobs import EpochReport, Verdict
from search.training.resume import from_bytes
from search.training.stacks import Entry, train_stack
from search.training.stacks.member import pause_between_saves
from search.training.stacks.together import Together
from search.training.trial_spec import TrainingSpec
from tests.search.training.stacks import stack_cases
from tests.search.training.stacks.stack_cases import (
    Hooks,
    Told,
    alone,
    assert_same,
    together,
    told,
    told_of,
)
from tests.search.training_cases import PIXELS, TASK, load_splits, make_job, make_overflowing_job

STOP = Verdict(verdict="stop", reason="beaten", lease_seconds=1)
PAUSE = Verdict(verdict="pause", reason="others are better", lease_seconds=1)


@pytest.fixture(scope="module")
def splits(tmp_path_factory: pytest.TempPathFactory) -> Splits[Split]:
    return load_splits(tmp_path_factory.mktemp("cache"))


def assert_as_alone(entries: Sequence[Entry], splits: Splits) -> None:
    for entry in entries:
        assert_same(told_of(entry), alone(entry, splits))


def test_who_is_computed_alone_has_the_same_numbers_bit_for_bit(splits: Splits[Split]) -> None:
    entries = told(*(make_job(seed=seed) for seed in range(3)))
    for entry, found in zip(entries, together(entries, splits, width=1), strict=True):
        wanted = alone(entry, splits)
        assert_same(found, wanted, bound=0)
        one, other = found.outcome.module.state_dict(), wanted.outcome.module.state_dict()
        assert all(torch.equal(one[name], other[name]) for name in other)


def test_who_stops_pauses_or_has_a_longer_budget_leaves_the_others_alone(
    splits: Splits[Split],
) -> None:
    entries = [
        Entry(make_job(seed=1, epochs=2), Told()),
        Entry(make_job(seed=2, epochs=4), Told({1: STOP})),
        Entry(make_job(seed=3, epochs=4), Told({2: PAUSE})),
        Entry(make_job(seed=4, epochs=3), Told()),
    ]
    together(entries, splits)
    assert [told_of(entry).outcome.outcome for entry in entries] == [
        "complete",
        "stopped",
        "paused",
        "complete",
    ]
    assert_as_alone(entries, splits)
    # The paused one goes on alone.
    (resume,) = told_of(entries[2]).saved
    assert from_bytes(resume, job=entries[2].job).position.epoch == 3


def test_who_joins_begins_where_the_others_stand(splits: Splits[Split]) -> None:
    first = told(make_job(seed=1, epochs=3), make_job(seed=2, epochs=2))
    second = told(make_job(seed=3, epochs=3))
    third = told(make_job(seed=4, epochs=1))
    together(first, splits, later={1: second, 3: third})
    assert_as_alone([*first, *second, *third], splits)


def test_resume_files_of_a_stack_go_on_alone_and_the_other_way_round(
    splits: Splits[Split],
) -> None:
    entries = told(*(make_job(seed=seed, epochs=2, checkpoint_seconds=0) for seed in (1, 2)))
    together(entries, splits)
    # In the middle of the first epoch, and at its end.
    for place in (1, 4):
        for entry in entries:
            again = Entry(entry.job, Told(), resume=told_of(entry).saved[place])
            found = alone(again, splits)
            missing = told_of(entry).reports[len(told_of(entry).reports) - len(found.reports) :]
            assert [report.epoch for report in found.reports] == [one.epoch for one in missing]
            assert_same_end(found, told_of(entry))
    by_themselves = [alone(entry, splits) for entry in entries]
    resumed = [
        Entry(entry.job, Told(), resume=one.saved[1])
        for entry, one in zip(entries, by_themselves, strict=True)
    ]
    for found, wanted in zip(together(resumed, splits), by_themselves, strict=True):
        assert_same_end(found, wanted)
    # One of them is in the middle of an epoch, and the other one at its beginning.
    apart = [
        Entry(entry.job, Told(), resume=one.saved[place])
        for entry, one, place in zip(entries, by_themselves, (1, 4), strict=True)
    ]
    for found, wanted in zip(together(apart, splits), by_themselves, strict=True):
        assert_same_end(found, wanted)


def assert_same_end(found: Told, wanted: Told) -> None:
    assert found.outcome.best_epoch == wanted.outcome.best_epoch
    stack_cases.close(
        found.outcome.module.state_dict(), wanted.outcome.module.state_dict(), bound=2e-4
    )


@pytest.mark.parametrize("nan_recovery", [None, 0.1])
def test_one_that_diverges_leaves_or_recovers(
    nan_recovery: float | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    wild = make_overflowing_job(nan_recovery=nan_recovery)
    tame = wild.model_copy(
        update={
            "trial": wild.trial.model_copy(
                update={
                    "training": TrainingSpec(
                        optimizer="adagrad", learning_rate=1e-3, batch_size=20
                    ),
                    "seed": 2,
                }
            )
        }
    )
    data = PIXELS.load(DataSources(cache=tmp_path_factory.mktemp("pixels")))
    entries = told(tame, wild, tame.model_copy(update={"epochs": 2}))
    together(entries, data)
    for entry in (entries[0], entries[2]):
        assert_same(told_of(entry), alone(entry, data))
    found = told_of(entries[1])
    if nan_recovery is None:
        assert isinstance(found.result, TrainingDiverged)
        assert "epoch 1, batch" in str(found.result)
    else:
        assert any(report.recovered_batches for report in found.reports)


class Raising(Told):
    """Hooks of a worker that is told to end."""

    def epoch_done(self, report: EpochReport) -> Verdict:
        super().epoch_done(report)
        if report.epoch == 2:
            raise InterruptedError("the lease is over")
        return Verdict(lease_seconds=1)


def test_what_a_members_hooks_raise_ends_it_alone(splits: Splits[Split]) -> None:
    entries = told(make_job(seed=1), make_job(seed=2), make_job(seed=3))
    raising = Entry(make_job(seed=4), Raising())
    broken = Entry(make_job(seed=5), Told(), resume=b"nonsense")
    together([entries[0], raising, broken, *entries[1:]], splits)
    assert_as_alone(entries, splits)
    assert isinstance(told_of(raising).result, InterruptedError)
    assert "damaged" in str(told_of(broken).result)


@pytest.mark.parametrize("failing", [2, 3, 6])
def test_a_call_that_fails_is_done_again_in_smaller_ones(
    failing: int,
    splits: Splits[Split],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The failure comes late in the n-th step, when parameters have changed already."""
    entries = told(*(make_job(seed=seed, epochs=2) for seed in range(5)))
    steps = itertools.count(1)
    plain = Together._stepped

    def stepped(engine: Together, *, watched: bool) -> object:
        found = plain(engine, watched=watched)
        if next(steps) == failing or len(engine.members) > 3:
            raise RuntimeError("can't allocate memory")
        return found

    monkeypatch.setattr(Together, "_stepped", stepped)
    together(entries, splits)
    assert_as_alone(entries, splits)
    assert "5 trials cannot be computed in one call: can't allocate memory" in caplog.text
    caplog.clear()


def test_who_cannot_be_computed_with_the_others_is_refused(splits: Splits[Split]) -> None:
    entries = told(make_job(seed=1), make_job("gru-low_rank_diagonal", seed=2))
    together(entries, splits)
    assert_as_alone(entries[:1], splits)
    assert "one stack_key" in str(told_of(entries[1]).result)


def test_what_the_hooks_of_all_raise_is_raised(splits: Splits[Split]) -> None:
    class Refused(Hooks):
        @contextmanager
        def batch(self) -> Iterator[None]:
            yield from ()
            raise InterruptedError("the lease is over")

    entries = told(make_job(seed=1), make_job(seed=2))
    with pytest.raises(InterruptedError, match="the lease is over"):
        train_stack(splits, task=TASK, hooks=Refused(*entries))
    assert [told_of(entry).result for entry in entries] == [None, None]


def test_seconds_of_an_epoch_are_shares(splits: Splits[Split]) -> None:
    entries = told(*(make_job(seed=seed, epochs=2) for seed in range(4)))
    together(entries, splits)
    seconds = {tuple(report.seconds for report in told_of(entry).reports) for entry in entries}
    assert len(seconds) == 1


def test_the_width_that_was_fastest_is_used(splits: Splits[Split]) -> None:
    entries = told(*(make_job(seed=seed, epochs=9) for seed in range(4)))
    together(entries, splits, width="auto")
    assert_as_alone(entries[:1], splits)


@pytest.mark.parametrize(
    ("least", "trained", "saving", "pause"),
    [
        (2.0, 0.0, 0.0, 2.0),
        (2.0, 150.0, 0.01, 2.0),
        (2.0, 1000.0, 0.01, 10.0),
        (2.0, 86_400.0, 0.01, 60.0),
        (20.0, 1000.0, 0.01, 20.0),
        (2.0, 1000.0, 1.5, 30.0),
        (2.0, 86_400.0, 60.0, 300.0),
        (0.0, 86_400.0, 60.0, 0.0),
    ],
)
def test_what_a_lost_trial_repeats_is_a_small_part_of_what_it_has_trained(
    least: float, trained: float, saving: float, pause: float
) -> None:
    found = pause_between_saves(least, trained_seconds=trained, saving_seconds=saving)
    assert found == pytest.approx(pause)


def test_a_state_that_takes_long_to_store_is_stored_less_often(splits: Splits[Split]) -> None:
    class Slow(Told):
        def save(self, resume: bytes) -> None:
            super().save(resume)
            time.sleep(0.1)

    entry = Entry(make_job(epochs=4, checkpoint_seconds=1e-3), Slow())
    begun = time.monotonic()
    together([entry], splits)
    # A twentieth of the time; the first one is not known to be slow, the last is not followed.
    most = 2 + (time.monotonic() - begun) / (20 * 0.1)
    assert 1 <= len(told_of(entry).saved) <= most
