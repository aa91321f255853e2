"""The benchmark of search efficiency counts what it says it counts."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from search.tasks import DataSources, Digits
from search.training import train
from search.trial import TrainingSpec, TrialSpec
from search.wire import TrainJob
from tests.benchmarks.search_efficiency.contestants import BASELINE, CONTESTANTS
from tests.benchmarks.search_efficiency.replay import (
    Configuration,
    Hypervolumes,
    Replayed,
    State,
    Trial,
    replay,
)
from tests.benchmarks.search_efficiency.report import Comparison, Quartiles, Setting
from tests.benchmarks.search_efficiency.table import (
    BATCH,
    EPOCHS,
    FILE,
    LEARNING_RATES,
    VALIDATION_SAMPLES,
    Curve,
    Structure,
    Table,
    curves,
    multiply_adds,
    read,
    structures,
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of made-up curves, which end higher for what is larger and rise at random rates."""
    random = np.random.default_rng(0)
    sizes = np.array([each.hidden_size * (2 + each.level) for each in structures()])
    shape = (len(sizes), len(LEARNING_RATES), 2, 1)
    ends = 0.75 + 0.2 * (sizes / sizes.max()).reshape(-1, 1, 1, 1) + random.normal(0, 0.01, shape)
    rises = 1 - np.exp(-np.arange(1, EPOCHS + 1) / random.uniform(2, 8, shape))
    path = tmp_path_factory.mktemp("tables") / "made-up.npz"
    np.savez_compressed(
        path,
        correct=np.rint(ends * rises * VALIDATION_SAMPLES).astype(np.uint16),
        parameters=40 * sizes,
        multiply_adds=300 * sizes**1.2,
        epoch_seconds=random.uniform(0.01, 0.03, len(sizes)),
        torch_version=np.array(torch.__version__),
    )
    return path


@pytest.fixture
def table(path: Path) -> Table:
    return read(path)


class Scripted:
    """Proposes what it was given, over and over, and keeps what it is told."""

    def __init__(self, *configurations: Configuration) -> None:
        self._next = itertools.cycle(configurations)
        self.refusals = 0
        self.told: list[tuple[int, State]] = []

    def propose(self, trials: Sequence[Trial]) -> Configuration:
        del trials
        return next(self._next)

    def refuse(self) -> None:
        self.refusals += 1

    def ended(self, trial: Trial) -> None:
        self.told.append((trial.number, trial.state))


class StopsAfter:
    """Stops every trial of odd number after some epochs."""

    def __init__(self, epochs: int) -> None:
        self._epochs = epochs

    def stops(self, trials: Sequence[Trial], trial: Trial) -> bool:
        del trials
        return trial.number % 2 == 1 and len(trial.accuracy) == self._epochs


def rows(count: int) -> list[Configuration]:
    return [Configuration(structure, 2) for structure in range(count)]


def test_the_stored_table_is_of_the_space_that_is_described() -> None:
    table = read()
    assert (np.diff(table.accuracy, axis=3) >= 0).all()
    assert table.epochs == EPOCHS
    assert table.parameters.tolist() == [each.model().parameter_count() for each in structures()]
    assert FILE.stat().st_size < 1.5e6


def test_a_table_of_another_space_is_refused(path: Path, tmp_path: Path) -> None:
    with np.load(path) as stored:
        arrays = {**stored, "correct": stored["correct"][1:]}
    np.savez_compressed(tmp_path / "other.npz", **arrays)
    with pytest.raises(ValueError, match=r"other.npz holds curves of \(77, 4\) .* has \(78, 4\)"):
        read(tmp_path / "other.npz")


def test_a_curve_is_that_of_the_projects_own_training(tmp_path: Path) -> None:
    structure = Structure("gru", 16, "low_rank_diagonal", 1)
    correct, seconds = curves(structure, 1, 2)
    hooks = Curve()
    job = TrainJob(
        task=Digits(),
        trial=TrialSpec(
            model=structure.model(),
            training=TrainingSpec(learning_rate=LEARNING_RATES[3], batch_size=BATCH),
            seed=1,
        ),
        number=0,
        epochs=2,
        checkpoint_seconds=3600.0,
    )
    train(job, Digits().load(DataSources(cache=tmp_path, folder=None)), task=Digits(), hooks=hooks)
    assert correct.shape == (len(LEARNING_RATES), 2)
    assert (correct[3] / VALIDATION_SAMPLES).tolist() == hooks.validation
    assert seconds > 0


def test_multiply_adds_are_those_of_the_cheaper_form() -> None:
    few, many, dense = (
        Structure("rnn", 64, kind, level).model()
        for kind, level in (("householder_svd", 0), ("householder_svd", 3), ("dense", 0))
    )
    assert multiply_adds(few) < multiply_adds(dense)
    assert multiply_adds(many) == multiply_adds(dense)


def test_the_hypervolume_is_that_of_counted_cells(table: Table) -> None:
    chosen, accuracies = [0, 20, 50], [0.9, 0.95, 0.97]
    volume = Hypervolumes(table).of(chosen, accuracies)["M1"]
    costs = np.log([table.parameters, 1 / table.samples_per_second]).T
    points = np.column_stack([1 - np.array(accuracies), costs[chosen]])
    reference = np.array([0.2, *(costs.max(axis=0) + np.log(1.1))])
    edges = [np.unique([*points[:, axis], reference[axis]]) for axis in range(3)]
    counted = 0.0
    for cell in itertools.product(*(itertools.pairwise(edge) for edge in edges)):
        lower = np.array([low for low, _ in cell])
        if (points <= lower).all(axis=1).any():
            counted += math.prod(high - low for low, high in cell)
    assert volume == pytest.approx(counted)
    assert Hypervolumes(table).of([], [])["M2"] == 0.0


def test_epochs_and_seconds_of_two_workers_are_added_up(table: Table) -> None:
    slow = replace(table, epoch_seconds=np.full(len(structures()), 2.0))
    sampler = Scripted(*rows(3))
    found = replay(slow, sampler, None, seed=0, workers=2, epochs=4 * EPOCHS)
    assert [at.epochs for at in found.progress] == [
        2 * EPOCHS - 1,
        2 * EPOCHS,
        4 * EPOCHS - 1,
        4 * EPOCHS,
    ]
    assert [at.seconds for at in found.progress] == [2.0 * EPOCHS] * 2 + [4.0 * EPOCHS] * 2
    assert found.complete == 4


def test_a_stopped_trial_costs_its_epochs_and_is_not_on_the_front(table: Table) -> None:
    sampler = Scripted(*rows(6))
    found = replay(table, sampler, StopsAfter(3), seed=0, workers=1, epochs=2 * (EPOCHS + 3))
    assert sampler.told == [
        (0, State.COMPLETE),
        (1, State.STOPPED),
        (2, State.COMPLETE),
        (3, State.STOPPED),
    ]
    assert [at.epochs for at in found.progress] == [EPOCHS, 2 * EPOCHS + 3]
    alone = max(
        Hypervolumes(table).of([0], [accuracy])["M2"] for accuracy in table.accuracy[0, 2, :, -1]
    )
    assert found.progress[0].volumes["M2"] <= alone


def test_a_configuration_is_trained_once_per_seed_and_then_refused(table: Table) -> None:
    sampler = Scripted(*rows(1))
    found = replay(table, sampler, None, seed=0, workers=1, epochs=(table.seeds + 1) * EPOCHS)
    assert found.trials == table.seeds + 2  # the last one begins as the budget ends
    assert sampler.refusals == 6  # three proposals each, then one at random


def test_a_search_ends_at_its_targets(table: Table) -> None:
    targets = Hypervolumes(table).of([0], [float(table.accuracy[0, 2, :, -1].min())])
    found = replay(table, Scripted(*rows(9)), None, seed=0, workers=1, epochs=900, targets=targets)
    assert found.epochs_to("M1", targets["M1"]) == EPOCHS
    assert found.epochs_to("M1", math.inf) == math.inf
    assert found.complete == 1


@pytest.mark.parametrize("name", CONTESTANTS)
def test_a_contestant_repeats_itself(name: str, path: Path) -> None:
    setting = Setting(path, workers=2, full_trainings=12)
    found = setting.search(name, 5)
    assert found == setting.search(name, 5)
    assert found.complete >= 1
    if CONTESTANTS[name].rule is not None:
        assert found.complete < found.trials - setting.workers


def test_quartiles_hold_misses() -> None:
    assert str(Quartiles.of([0.1, 0.2, 0.3, math.inf, math.inf])) == "0.30 [0.20-inf]"
    assert Quartiles.of([1.0, 2.0, 3.0, 4.0]) == Quartiles(1.75, 2.5, 3.25)


def test_shares_are_of_the_baselines_budget(path: Path) -> None:
    setting = Setting(path, workers=1, full_trainings=10)
    searches: dict[str, Sequence[Replayed]] = {
        name: [setting.search(name, 1)] for name in (BASELINE, "random + mo_asha")
    }
    own = searches[BASELINE][0].progress
    comparison = Comparison(setting, own[0].volumes, own[-1].seconds, searches)
    assert comparison.epochs(BASELINE, "M1") == [0.1]
    assert comparison.seconds(BASELINE, "M1") == [own[0].seconds / own[-1].seconds]
    header, _, baseline, other = comparison.lines()
    assert header.count("|") == baseline.count("|") == other.count("|")
    assert baseline.startswith("| random | 1 | - | 1 | - |")
