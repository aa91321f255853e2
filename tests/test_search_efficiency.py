"""The benchmark of search efficiency counts what it says it counts."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from optuna.samplers import BaseSampler

from search.samplers import AnySampler, KnownCost, Random, SamplerContext
from search.spaces import NamedSource
from search.tasks import DataSources, Split, Splits
from search.training.jobs import TrainJob
from search.training.run import train
from search.training.trial_spec import TrainingSpec, TrialSpec
from storage.endings import TrialCause
from storage.records import TrialState
from tests.benchmarks.search_efficiency.contestants import (
    BASELINE,
    CONTESTANTS,
    PAIRS,
    by_spec,
)
from tests.benchmarks.search_efficiency.replay import (
    Configuration,
    Hypervolumes,
    Progress,
    Replay,
    Replayed,
    State,
    Trial,
    replay,
)
from tests.benchmarks.search_efficiency.report import (
    Comparison,
    Paired,
    Quartiles,
    Setting,
    front_counts,
)
from tests.benchmarks.search_efficiency.spaces import (
    DIGITS,
    ECG5000,
    SPACES,
    Space,
    Structure,
    multiply_adds,
)
from tests.benchmarks.search_efficiency.studies import StudySampler, TableSpace
from tests.benchmarks.search_efficiency.table import Table, read, stored_tables
from tests.benchmarks.search_efficiency.training import Curve, curves, measured, write

EPOCHS = DIGITS.epochs


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of made-up curves, which end higher for what is larger and rise at random rates."""
    random = np.random.default_rng(0)
    sizes = np.array([each.hidden_size * (2 + each.level) for each in DIGITS.structures()])
    shape = (len(sizes), len(DIGITS.learning_rates), 2, 1)
    ends = 0.75 + 0.2 * (sizes / sizes.max()).reshape(-1, 1, 1, 1) + random.normal(0, 0.01, shape)
    rises = 1 - np.exp(-np.arange(1, EPOCHS + 1) / random.uniform(2, 8, shape))
    path = tmp_path_factory.mktemp("tables") / "made-up.npz"
    np.savez_compressed(
        path,
        correct=np.rint(ends * rises * DIGITS.validation_samples).astype(np.uint16),
        seeds=np.array([0, 1]),
        parameters=40 * sizes,
        multiply_adds=300 * sizes**1.2,
        epoch_seconds=random.uniform(0.01, 0.03, (2, len(sizes))),
        torch_version=np.array(torch.__version__),
    )
    return path


@pytest.fixture
def table(path: Path) -> Table:
    return read(DIGITS, path)


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


@pytest.mark.parametrize("name", stored_tables())
def test_a_stored_table_is_of_the_space_that_is_described(name: str) -> None:
    space = SPACES[name]
    table = read(space)
    assert (np.diff(table.accuracy[table.diverged_in == 0]) >= 0).all()
    assert table.epochs == space.epochs
    models = [each.model(space.task) for each in space.structures()]
    assert table.parameters.tolist() == [model.parameter_count() for model in models]
    assert (table.samples_per_second > 0).all()
    assert space.file.stat().st_size < 1e6


def test_there_is_a_table_to_replay() -> None:
    assert "digits" in stored_tables()


def test_a_table_of_another_space_is_refused(path: Path, tmp_path: Path) -> None:
    with np.load(path) as stored:
        arrays = {**stored, "correct": stored["correct"][1:]}
    np.savez_compressed(tmp_path / "other.npz", **arrays)
    with pytest.raises(ValueError, match=r"other.npz .* \(77, 4, 2, 27\) .* has \(78, 4, 2, 27\)"):
        read(DIGITS, tmp_path / "other.npz")


def test_a_curve_is_that_of_the_projects_own_training(tmp_path: Path) -> None:
    structure = Structure("gru", 16, "low_rank_diagonal", 1)
    correct, diverged_in, seconds = curves(DIGITS, structure, 1, 2)
    hooks = Curve()
    job = TrainJob(
        task=DIGITS.task,
        trial=TrialSpec(
            model=structure.model(DIGITS.task),
            training=TrainingSpec(
                learning_rate=DIGITS.learning_rates[3], batch_size=DIGITS.batch_size
            ),
            seed=1,
        ),
        number=0,
        epochs=2,
        checkpoint_seconds=3600.0,
    )
    splits = DIGITS.task.load(DataSources(cache=tmp_path, folder=None))
    train(job, splits, task=DIGITS.task, hooks=hooks)
    assert correct.shape == (len(DIGITS.learning_rates), 2)
    assert (correct[3] / DIGITS.validation_samples).tolist() == hooks.validation
    assert diverged_in.tolist() == [0] * len(DIGITS.learning_rates)
    assert seconds > 0


class Damaged(Space):
    """Its training samples are no numbers."""

    def splits(self, sources: DataSources) -> Splits[Split]:
        found = super().splits(sources)
        train = Split(torch.full_like(found.train.x, math.nan), found.train.y)
        return Splits(train, found.validation, found.test)


def test_a_training_that_diverges_stays_at_the_baseline(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = {name: getattr(DIGITS, name) for name in Space.__dataclass_fields__}
    space = Damaged(**{**fields, "name": "damaged", "learning_rates": (1e-3,)})
    monkeypatch.setitem(cast("dict[str, Space]", SPACES), "damaged", space)
    trained = curves(space, Structure("rnn", 16, "dense", 0), 0, 3)
    assert trained.diverged_in.tolist() == [1]
    assert trained.correct.tolist() == [[round(0.1 * DIGITS.validation_samples)] * 3]


def test_training_adds_the_seeds_that_a_table_lacks(tmp_path: Path) -> None:
    space = replace(DIGITS, sizes=(16,), learning_rates=(1e-2,), epochs=1)
    path = tmp_path / "small.npz"
    write(space, path, seeds=[3], processes=1)
    first = read(space, path)
    write(space, path, seeds=[3, 5], processes=1)
    both = read(space, path)
    assert (first.seeds, both.seeds) == (1, 2)
    assert (both.accuracy[:, :, 0] == first.accuracy[:, :, 0]).all()
    assert (both.accuracy[:, :, 1] != both.accuracy[:, :, 0]).any()


def test_a_measured_throughput_follows_the_baselines_own() -> None:
    structures = [
        Structure("rnn", 64, kind, level)
        for kind, level in (("dense", 0), ("householder_svd", 3), ("dense", 0))
    ]
    dense, structured, again = measured(DIGITS, structures)
    assert dense == again
    assert min(dense, structured) > 0


def test_slow_starters_reach_the_same_end(table: Table) -> None:
    slow = table.slowed("packed_rotations")
    warped = np.array([each.parametrization == "packed_rotations" for each in table.structures])
    assert (slow.accuracy[..., -1] == table.accuracy[..., -1]).all()
    assert (slow.accuracy[~warped] == table.accuracy[~warped]).all()
    # After 9 of 27 epochs it is where it was after 9 * 9 / 27 = 3.
    assert slow.accuracy[warped, :, :, 8] == pytest.approx(table.accuracy[warped, :, :, 2])
    first = 0.1 + (table.accuracy[warped, :, :, 0] - 0.1) / 27
    assert slow.accuracy[warped, :, :, 0] == pytest.approx(first)


def test_a_diverged_training_is_read_as_the_baseline(path: Path, tmp_path: Path) -> None:
    with np.load(path) as stored:
        arrays = {**stored, "diverged_in": np.zeros(stored["correct"].shape[:3], np.uint16)}
    arrays["diverged_in"][5, 2, 1] = 4
    np.savez_compressed(tmp_path / "diverged.npz", **arrays)
    table, before = read(DIGITS, tmp_path / "diverged.npz"), read(DIGITS, path)
    assert (table.accuracy[5, 2, 1, :3] == before.accuracy[5, 2, 1, :3]).all()
    assert (table.accuracy[5, 2, 1, 3:] == 0.1).all()
    assert (table.accuracy != before.accuracy).sum() == EPOCHS - 3


@pytest.mark.parametrize("name", stored_tables())
def test_a_third_is_infeasible_in_what_can_be_learned(name: str) -> None:
    table = read(SPACES[name])
    found = table.with_a_third_infeasible()
    fails = found.diverged_in == 1
    assert 0.3 < fails.mean() < 0.4
    assert (found.accuracy[fails] == table.space.metric.baseline).all()
    assert (found.accuracy[~fails] == table.accuracy[~fails]).all()
    large = [each.hidden_size == max(table.space.sizes) for each in table.structures]
    assert fails[large, -1].all()
    families = {each.parametrization for each in table.structures}
    whole = [
        family
        for family in families
        if fails[[each.parametrization == family for each in table.structures]].all()
    ]
    assert len(whole) == 1


def made_up(space: Space) -> Table:
    """A table of a space whose curves do not matter."""
    structures = space.structures()
    shape = len(structures), len(space.learning_rates), 1
    return Table(
        space=space,
        structures=structures,
        accuracy=np.full((*shape, space.epochs), 0.9),
        parameters=np.arange(len(structures)),
        samples_per_second=np.ones(len(structures)),
        epoch_seconds=np.ones(len(structures)),
        torch_version=torch.__version__,
        diverged_in=np.zeros(shape, np.uint16),
    )


def test_a_space_of_the_whole_catalog_is_drawn_as_a_study_draws_it() -> None:
    """Every configuration has the dimensions that its own values ask for, and no others."""
    table = made_up(ECG5000)
    space = TableSpace(table)
    conditions = space.conditions
    for structure in range(len(table.structures)):
        configuration = Configuration(structure, structure % 2)
        drawn = space.at(configuration).drawn
        assert space.draw(NamedSource(drawn)).configuration == configuration
        assert set(drawn) == {
            name
            for name in space.dimensions
            if name not in conditions
            or any(drawn.get(other) == option for other, option in conditions[name])
        }
    assert table.configurations == 372
    assert set(ECG5000.combinations["urnn"]) == {"dense", "unitary_fft", "unitary_full"}


def test_architectures_that_take_the_same_share_their_dimensions(table: Table) -> None:
    assert [*TableSpace(table).dimensions] == [
        "architecture",
        "parametrization",
        "hidden_size",
        "householder_svd.level",
        "low_rank_diagonal.level",
        "packed_rotations.level",
        "learning_rate",
    ]


def test_multiply_adds_are_those_of_the_cheaper_form() -> None:
    few, many, dense = (
        Structure("rnn", 64, kind, level).model(DIGITS.task)
        for kind, level in (("householder_svd", 0), ("householder_svd", 3), ("dense", 0))
    )
    assert multiply_adds(few) < multiply_adds(dense)
    assert multiply_adds(many) == multiply_adds(dense)


def test_multiply_adds_are_of_all_steps_or_of_the_sequence_as_a_whole() -> None:
    recurrent, whole = (
        multiply_adds(Structure(architecture, 16, "dense", 0).model(ECG5000.task))
        for architecture in ("rnn", "mlp")
    )
    readout = 16 * 5
    # The readout is counted at every step, though the last one alone is answered.
    assert recurrent == 35 * (16 * 4 + 16 * 16 + readout)
    assert whole == 140 * 16 + 2 * 16 * 16 + readout


def test_the_front_is_counted_by_parametrization(table: Table) -> None:
    best = table.accuracy[..., -1].max(axis=(1, 2))
    costs = np.column_stack([1 - best, table.parameters, 1 / table.samples_per_second])
    front = [
        structure.parametrization
        for structure, own in zip(table.structures, costs, strict=True)
        if not any((other <= own).all() and (other < own).any() for other in costs)
    ]
    assert sorted(front_counts(table)) == sorted(
        f"{front.count(name)} {name}" for name in set(front)
    )


def test_a_sampler_sees_trials_as_a_study_has_them(table: Table) -> None:
    """Known cost proposes again what it would, and nothing that is complete, stopped or running."""
    searches = [StudySampler(table, KnownCost(startup_trials=2), seed=3) for _ in range(2)]
    trials: list[Trial] = []
    for number in range(8):
        proposals = {search.propose(trials) for search in searches}
        assert len(proposals) == 1
        [configuration] = proposals
        assert configuration not in {trial.configuration for trial in trials[2:]} or number < 2
        trial = Trial(number, configuration, repeat=0)
        row = configuration.structure, configuration.learning_rate
        curve: list[float] = table.accuracy[(*row, 0)].tolist()
        trials.append(trial)
        if number == 6:
            continue
        trial.state = State.STOPPED if number % 3 == 1 else State.COMPLETE
        trial.accuracy = curve[:3] if trial.state is State.STOPPED else curve
        for search in searches:
            search.ended(trial)


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
    slow = replace(table, epoch_seconds=np.full(len(table.structures), 2.0))
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


def test_a_diverged_trial_costs_its_epochs_and_has_no_end(table: Table) -> None:
    diverged_in = table.diverged_in.copy()
    diverged_in[1] = 3
    sampler = Scripted(*rows(2))
    found = replay(
        replace(table, diverged_in=diverged_in),
        sampler,
        None,
        seed=0,
        workers=1,
        epochs=2 * (EPOCHS + 3),
    )
    assert sampler.told == [
        (0, State.COMPLETE),
        (1, State.DIVERGED),
        (2, State.COMPLETE),
        (3, State.DIVERGED),
    ]
    assert [at.epochs for at in found.progress] == [EPOCHS, 2 * EPOCHS + 3]


class Watching(Random):
    """Draws at random, and keeps the studies that it was asked for."""

    def build_for(self, study: SamplerContext, /, *, seed: int) -> BaseSampler:
        STUDIES.append(study)
        return super().build_for(study, seed=seed)


STUDIES: list[SamplerContext] = []


def test_samplers_see_the_budget_and_trials_that_diverged(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CONTESTANTS, "watching", by_spec(cast("AnySampler", Watching()), None))
    STUDIES.clear()
    Setting("digits", 1, path=path, infeasible=True, full_trainings=12).search("watching", 1)
    study = STUDIES[-1]
    assert study.trials == 12
    ended = [trial for trial in study.past().trials if trial.state.has_ended]
    states = {trial.state for trial in ended}
    assert states == {TrialState.COMPLETE, TrialState.INFEASIBLE}
    diverged = [trial for trial in ended if trial.state == TrialState.INFEASIBLE]
    assert {(one.cause, one.dispatched, one.quality) for one in diverged} == {
        (TrialCause.INFEASIBLE, True, None)
    }
    assert {one.reason for one in diverged} == {"epoch 1, batch 1: the loss is nan"}


def test_a_search_is_told_noise_and_counted_without(table: Table) -> None:
    noisy = replace(table, noise=0.01)

    def searched(seed: int) -> tuple[Replayed, list[list[float]]]:
        search = Replay(noisy, Scripted(*rows(1)), None, seed=seed)
        found = search.run(1, table.seeds * EPOCHS, None, 0)
        return found, [trial.accuracy for trial in search.trials[: table.seeds]]

    found, told = searched(0)
    assert searched(0) == (found, told)
    assert searched(1)[1] != told
    own = [table.accuracy[0, 2, repeat].tolist() for repeat in (0, 1)]
    for curve in told:
        assert curve == sorted(curve)
        assert curve not in own
        assert min(np.abs(np.array(curve) - one).max() for one in own) < 0.06
    best = max(Hypervolumes(table).of([0], [curve[-1]])["M2"] for curve in own)
    assert found.progress[-1].volumes["M2"] == pytest.approx(best)


@pytest.mark.parametrize("name", ["freeze_thaw", "tpe + pareto_gain (fixed)"])
def test_a_search_bears_all_conditions_at_once(name: str, path: Path) -> None:
    setting = Setting("digits", 2, path=path, noise=0.01, infeasible=True, full_trainings=3)
    assert setting.search(name, 3).complete >= 1


def test_a_setting_says_its_conditions() -> None:
    assert str(Setting("digits", 1)) == "digits, 1 worker"
    setting = Setting("digits", 4, slow="dense", noise=0.01, infeasible=True)
    assert str(setting) == (
        "digits, dense starting slowly, noise of 0.01, a third infeasible, 4 workers, asynchronous"
    )


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
    setting = Setting("digits", workers=2, path=path, full_trainings=6)
    found = setting.search(name, 5)
    assert found == setting.search(name, 5)
    assert found.complete >= 1
    if CONTESTANTS[name].rule is not None:
        assert found.complete < found.trials - setting.workers


def test_quartiles_hold_misses() -> None:
    assert str(Quartiles.of([0.1, 0.2, 0.3, math.inf, math.inf])) == "0.30 [0.20-inf]"
    assert Quartiles.of([1.0, 2.0, 3.0, 4.0]) == Quartiles(1.75, 2.5, 3.25)


def test_shares_are_of_the_baselines_budget(path: Path) -> None:
    setting = Setting("digits", workers=1, path=path, full_trainings=10)
    searches: dict[str, Sequence[Replayed]] = {
        name: [setting.search(name, 2)] for name in (BASELINE, "random + mo_asha")
    }
    own = searches[BASELINE][0].progress
    comparison = Comparison(setting, own[0].volumes, own[-1].seconds, searches)
    assert comparison.epochs(BASELINE, "M1") == [0.1]
    assert comparison.seconds(BASELINE, "M1") == [own[0].seconds / own[-1].seconds]
    early = [comparison.early(BASELINE, "M2", part) for part in (5, 10)]
    volumes = [max(at.volumes["M2"] for at in own[: 10 // part]) for part in (5, 10)]
    assert early == [volume / own[0].volumes["M2"] for volume in volumes]
    header, _, baseline, other = comparison.lines()
    assert header.count("|") == baseline.count("|") == other.count("|")
    assert baseline.startswith("| random | 1 | - |")


def test_a_search_is_as_good_as_it_was_before_the_epochs_were_over() -> None:
    progress = tuple(Progress(epochs, 0.0, {"M1": volume}) for epochs, volume in ((3, 1), (5, 2)))
    found = Replayed(progress, trials=2, complete=2, seconds=0.0)
    assert [found.volume_at("M1", epochs) for epochs in (2, 3, 4.9, 5)] == [0, 1, 1, 2]


def test_pairs_count_a_miss_as_the_whole_budget() -> None:
    own, other = [0.1, 0.2, 0.3, math.inf, 0.2], [0.2, 0.2, math.inf, math.inf, 0.1]
    paired = Paired.of(own, other, most=1.0)
    assert (paired.wins, paired.losses) == (2, 1)
    assert Paired.of(own, own, most=1.0) == Paired(0, 0, 1.0)
    # All of six differ one way: the chance of that is 2 / 2^6.
    assert Paired.of([0.1] * 6, [0.2 + i / 100 for i in range(6)], most=1.0).p == 2 / 2**6


def test_every_pair_takes_part() -> None:
    assert {name for pair in PAIRS for name in pair} <= set(CONTESTANTS)
