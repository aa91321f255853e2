"""Every sampler: what it suggests follows from seed, number and past, and lies in the space."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import numpy as np
import optuna
import pytest
from pydantic import ValidationError

from models.spec import kind_of
from search.errors import SpecRefused
from search.samplers import AnySampler, FreezeThaw, Knowledge, KnownCost, Past, Tpe
from search.samplers.adapters.frozen import frozen
from search.samplers.gp import _known as known_to_gp  # pyright: ignore[reportPrivateUsage]
from search.sampling.optuna_study import OptunaStudy
from search.sampling.sampler_context import sampler_context_of
from search.spaces.dimension import ChoiceDimension, IntegerDimension, RealDimension
from search.spaces.draws import TrialSource
from search.spaces.model_space import DrawnTrial
from search.spaces.space import SearchSpace
from search.studies.spec import StudySpec
from search.studies.submission import checked_space
from storage.endings import TrialCause
from storage.records import StudyRecord, StudyState, TrialOrigin, TrialRecord, TrialState
from tests.service.running import Server

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SPEC: dict[str, Any] = {
    "task": {"kind": "digits"},
    "architectures": ["rnn", "gru"],
    "parametrizations": ["dense", "low_rank"],
    "space": {
        "hidden_size": {"low": 8, "high": 32, "step": 8},
        "low_rank.d": {"options": [1, 2, 4]},
        "training.learning_rate": {"options": [0.003, 0.01]},
        "training.batch_size": 32,
    },
    "budget": {"trials": 30, "epochs": 9},
    "seed": 5,
}
SAMPLERS = [kind_of(sampler) for sampler in get_args(get_args(AnySampler)[0])]
"""All of the union: a new one is tried unnamed, as it is by default."""
SAMPLERS_WITH_A_SLOW_ONE = [
    pytest.param(kind, marks=pytest.mark.slow if kind == "gp" else []) for kind in SAMPLERS
]

SETTINGS: dict[str, dict[str, Any]] = {
    "tpe": {"startup_trials": 4},
    "nsga2": {"population": 4},
    "known_cost": {"startup_trials": 4, "random_share": 0.2},
    "nsga3": {"population": 4},
    "branches": {"startup_trials": 1, "sampler": {"kind": "tpe", "startup_trials": 2}},
    "gp": {"startup_trials": 8},
}
"""What is set otherwise, so that a sampler learns within few trials."""

FIELDS: dict[str, dict[str, Any]] = {
    "gp": {"architectures": ["rnn"], "parametrizations": ["low_rank"], "objectives": ["quality"]}
}
"""What of the document has to be otherwise for a sampler."""


class Played:
    """A study that is played without training: a formula says how good a configuration is."""

    def __init__(
        self, sampler: Mapping[str, Any], knowledge: Knowledge | None = None, **fields: Any
    ) -> None:
        self.knowledge = knowledge
        self.spec = StudySpec.model_validate({**SPEC, **fields, "sampler": sampler})
        self.space = SearchSpace(self.spec)
        self.trials: list[TrialRecord] = []
        self.optuna_study = self.new_optuna_study()

    def new_optuna_study(self) -> OptunaStudy:
        """Optuna's side, made of the rows that there are."""
        return OptunaStudy(
            StudyRecord(
                id="s",
                name="played",
                state=StudyState.RUNNING,
                spec={},
                created_at=NOW,
                started_at=NOW,
            ),
            self.spec,
            sampler_context_of(self.spec, self.space, self.past, self.knowledge),
            self.trials,
        )

    def past(self) -> Past:
        return Past(
            trials=tuple(self.trials),
            validations={
                trial.number: {epoch: epoch / 9 for epoch in range(1, trial.epochs_trained + 1)}
                for trial in self.trials
            },
            validation_samples=300,
        )

    def play(self, trials: int) -> list[DrawnTrial]:
        """Ask for so many trials, each of which is complete before the next but for every 5th."""
        drawn: list[DrawnTrial] = []
        for number in range(len(self.trials), len(self.trials) + trials):
            drawn.append(self.space.draw(TrialSource(self.optuna_study.ask())))
            self.end(number, drawn[-1])
        return drawn

    def end(self, number: int, drawn: DrawnTrial, **given: Any) -> None:
        """Stop every 5th trial and complete the others."""
        trial = replace(self.record(number, drawn), **given)
        self.trials.append(trial)
        self.optuna_study.tell(trial)

    def record(self, number: int, drawn: DrawnTrial) -> TrialRecord:
        """The row of a trial that has ended."""
        model = drawn.spec.model
        stopped = number % 5 == 4
        count = model.parameter_count()
        return TrialRecord(
            study_id="s",
            number=number,
            state=TrialState.STOPPED if stopped else TrialState.COMPLETE,
            architecture=drawn.candidate.architecture,
            parametrization=drawn.candidate.parametrization,
            hyperparameters=dict(drawn.hyperparameters),
            drawn=dict(drawn.drawn),
            spec=drawn.spec.model_dump(mode="json"),
            parameters=count,
            dense_parameters=model.dense_twin().parameter_count(),
            shape_key=str(number),
            quality=None if stopped else 1 - 10 / (count + 11 + number),
            origin=TrialOrigin.SAMPLER,
            epochs_trained=3 if stopped else 9,
            throughput=1e6 / count,
            throughput_ratio=1.0,
            dispatched=True,
            created_at=NOW,
            started_at=NOW,
            finished_at=NOW + timedelta(seconds=number),
            told_at=NOW + timedelta(seconds=number),
        )


@pytest.fixture(autouse=True)
def quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)


@pytest.mark.parametrize("kind", SAMPLERS)
def test_two_studies_are_equal_suggestion_for_suggestion(kind: str) -> None:
    sampler = {"kind": kind, **SETTINGS.get(kind, {})}
    fields = FIELDS.get(kind, {})
    first, second = (Played(sampler, **fields).play(14) for _ in range(2))
    other_seed = Played(sampler, seed=6, **fields).play(14)
    assert [one.drawn for one in first] == [one.drawn for one in second]
    assert [one.drawn for one in first] != [one.drawn for one in other_seed]


@pytest.mark.parametrize("kind", SAMPLERS)
def test_a_rebuilt_study_goes_on_with_the_same_suggestions(kind: str) -> None:
    """The coordinator dies after 11 trials: what Optuna noted beside them is lost."""
    sampler = {"kind": kind, **SETTINGS.get(kind, {})}
    whole, broken = (Played(sampler, **FIELDS.get(kind, {})) for _ in range(2))
    whole.play(11)
    broken.play(11)
    broken.optuna_study = broken.new_optuna_study()
    assert [one.drawn for one in broken.play(4)] == [one.drawn for one in whole.play(4)]


def test_what_was_told_of_a_trial_stays_when_it_is_measured_later() -> None:
    """The sampler is told the prediction that a trial trained on, told or rebuilt."""
    played = Played({"kind": "random"})
    played.play(3)
    asked = played.space.draw(TrialSource(played.optuna_study.ask()))
    played.end(3, asked, throughput=None, predicted={"throughput": [125.0, 100.0, 150.0]})
    values = [trial.values for trial in played.optuna_study.trials]
    assert 125.0 in values[3]
    played.trials[3] = replace(played.trials[3], throughput=111.0, measurement_id="m")
    rebuilt = played.new_optuna_study()
    assert [trial.values for trial in rebuilt.trials] == values


@pytest.mark.parametrize("kind", SAMPLERS)
def test_trials_whose_rows_are_written_later_count_like_those_that_are_there(kind: str) -> None:
    """Several that are asked for in one moment are written together, however long that takes."""
    sampler = {"kind": kind, **SETTINGS.get(kind, {})}
    found: list[list[Mapping[str, Any]]] = []
    for together in (False, True):
        played = Played(sampler, **FIELDS.get(kind, {}))
        played.play(6)
        asked: list[TrialRecord] = []
        for number in range(6, 12):
            drawn = played.space.draw(TrialSource(played.optuna_study.ask()))
            queued = replace(
                played.record(number, drawn),
                state=TrialState.QUEUED,
                quality=None,
                throughput=None,
                epochs_trained=0,
                dispatched=False,
                started_at=None,
                finished_at=None,
                told_at=None,
            )
            asked.append(queued)
            if together:
                played.optuna_study.unwritten = asked
            else:
                played.trials.append(queued)
        found.append([trial.drawn for trial in asked])
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", ["nsga2", "tpe"])
def test_a_limit_that_was_found_broken_later_changes_nothing_after_a_restart(kind: str) -> None:
    """Optuna heard of the trial before; in its row are the limit and what it was told."""
    played = Played({"kind": kind, **SETTINGS.get(kind, {})})
    played.play(12)
    for number in (1, 3, 6):
        played.trials[number] = replace(
            played.trials[number], cause=TrialCause.LIMIT, detail="too slow", violation=0.5
        )
    going_on = played.optuna_study
    played.optuna_study = played.new_optuna_study()
    rebuilt = [drawn.drawn for drawn in played.play(3)]
    del played.trials[12:]
    played.optuna_study = going_on
    assert [drawn.drawn for drawn in played.play(3)] == rebuilt


def test_a_limit_that_was_found_broken_later_is_known_to_those_who_read_rows() -> None:
    played = Played({"kind": "random"}, **FIELDS["gp"])
    played.play(12)
    played.trials[5] = replace(played.trials[5], violation=0.5)
    context = sampler_context_of(played.spec, played.space, played.past)
    told = known_to_gp(context, 12)
    broken = [trial.system_attrs["constraints"][0] > 0 for trial in told]
    assert broken == [number == 5 for number in range(12)]


def test_what_is_predicted_of_a_trial_is_what_processes_are_fitted_to() -> None:
    played = Played({"kind": "random"}, **{**FIELDS["gp"], "objectives": ["throughput"]})
    played.play(8)
    last = replace(played.trials[7], throughput=None, predicted={"throughput": [125.0, 1.0, 2.0]})
    played.trials[7] = last
    context = sampler_context_of(played.spec, played.space, played.past)
    assert known_to_gp(context, 8)[7].values == [pytest.approx(-np.log10(125))]
    complete = frozen(last, context)
    assert complete is not None
    assert complete.values == [125.0]


@pytest.mark.parametrize("kind", ["known_cost", "freeze_thaw"])
@pytest.mark.parametrize("failed", [False, True])
def test_what_was_refused_or_failed_is_not_suggested_again_and_again(
    kind: str, failed: bool
) -> None:
    """Half of the space is slower than it may be, or fails."""
    played = Played(
        {"kind": kind, "startup_trials": 3},
        limits={} if failed else {"min_throughput_ratio": 1.0},
        budget={"trials": 40, "epochs": 9},
    )
    in_vain: list[str] = []
    bad: dict[str, Any] = {
        "state": TrialState.FAILED if failed else TrialState.INFEASIBLE,
        "dispatched": failed,
        "quality": None,
        "throughput": 500.0,
        "throughput_ratio": 0.5,
        "violation": None if failed else 1.0,
        "epochs_trained": 0,
    }
    good: dict[str, Any] = {"state": TrialState.COMPLETE, "epochs_trained": 9}
    for number in range(24):
        drawn = played.space.draw(TrialSource(played.optuna_study.ask()))
        if drawn.candidate.parametrization == "low_rank":
            in_vain.append(str(sorted(drawn.drawn.items())))
            played.end(number, drawn, **bad)
        else:
            quality = 1 - 10 / (drawn.parameters + 30)
            played.end(number, drawn, quality=quality, throughput_ratio=1.5, **good)
    assert len(in_vain) == len(set(in_vain))
    # Chance alone would draw 18, and 44 of 45 were before; of what fails nothing is predicted.
    assert failed or len(in_vain) <= 9


@pytest.mark.parametrize("kind", ["nsga2", "nsga3"])
def test_a_preset_outside_the_space_leaves_the_others_their_crossover(kind: str) -> None:
    flat: dict[str, Any] = {"architectures": ["rnn"], "parametrizations": ["low_rank"]}
    played = Played({"kind": kind, "population": 4}, **flat)
    played.play(1)
    played.trials[0] = replace(played.trials[0], drawn={})
    played.optuna_study = played.new_optuna_study()
    played.play(12)
    # A mutation leaves some out.
    assert max(len(played.optuna_study.ask().relative_params) for _ in range(3)) >= 2


@pytest.mark.parametrize("kind", SAMPLERS_WITH_A_SLOW_ONE)
def test_every_dimension_is_searched_to_both_of_its_ends(kind: str) -> None:
    """With enough suggestions for the start, which is random or spread, and for what follows."""
    played = Played({"kind": kind, **SETTINGS.get(kind, {})}, **FIELDS.get(kind, {}))
    found: dict[str, set[object]] = {name: set() for name in played.space.dimensions}
    for drawn in played.play(40 if kind == "gp" else 60):
        for name, value in drawn.drawn.items():
            found[name].add(value)
    for name, dimension in played.space.dimensions.items():
        match dimension:
            case ChoiceDimension(options=options):
                assert found[name] == set(options), name
            case IntegerDimension(low=low, high=high) | RealDimension(low=low, high=high):
                assert {low, high} <= found[name], name


@pytest.mark.parametrize("kind", SAMPLERS_WITH_A_SLOW_ONE)
def test_every_sampler_draws_all_bits(kind: str) -> None:
    fields = {**FIELDS.get(kind, {}), "space": {**SPEC["space"], "bits": {"options": [32, 8, 4]}}}
    sampler = {"kind": kind, **SETTINGS.get(kind, {})}
    drawn = Played(sampler, **fields).play(24)
    assert {one.spec.model.bits for one in drawn} == {32, 8, 4}
    again = Played(sampler, **fields).play(24)
    assert [one.drawn for one in drawn] == [one.drawn for one in again]


def test_the_past_changes_what_known_cost_suggests() -> None:
    sampler = {"kind": "known_cost", "startup_trials": 4, "random_share": 0.0}
    one, other = Played(sampler), Played(sampler)
    one.play(8)
    other.play(8)
    other.trials = [replace(trial, quality=1 / (trial.number + 2)) for trial in other.trials]
    assert [drawn.drawn for drawn in one.play(3)] != [drawn.drawn for drawn in other.play(3)]


def test_the_grid_has_every_combination_once_and_no_other() -> None:
    played = Played({"kind": "grid"})
    sizes, rates = (8, 16, 24, 32), (0.003, 0.01)
    expected = {
        (architecture, "dense", size, None, rate)
        for architecture, size, rate in itertools.product(("rnn", "gru"), sizes, rates)
    } | set(itertools.product(("rnn", "gru"), ("low_rank",), sizes, (1, 2, 4), rates))

    def point(drawn: DrawnTrial) -> tuple[object, ...]:
        architecture = drawn.candidate.architecture
        return (
            architecture,
            drawn.candidate.parametrization,
            drawn.drawn[f"{architecture}.hidden_size"],
            drawn.drawn.get("low_rank.d"),
            drawn.drawn["training.learning_rate"],
        )

    # The options of `reset` or the like would make more points than this list has.
    total = len(expected)
    assert played.spec.sampler.size(played.space) == total
    suggested = [point(drawn) for drawn in played.play(total)]
    assert len(set(suggested)) == total
    assert set(suggested) == expected
    assert suggested != sorted(suggested, key=str)


@pytest.mark.parametrize(
    ("space", "words"),
    [
        ({"hidden_size": 8}, "no end of values between the low and high of training.learning_rate"),
        ({"training.learning_rate": 0.01}, "the range of rnn.hidden_size has 113 values"),
        (
            {"hidden_size": 8, "training.learning_rate": {"low": 0.1, "high": 0.9, "step": 1e-9}},
            "the grid has 800000001 points or more; allowed are at most 100000",
        ),
        (
            {
                "hidden_size": {"low": 8, "high": 40, "step": 8},
                "training.learning_rate": {"low": 0.1, "high": 0.9, "step": 4e-5},
            },
            "points or more; allowed are at most 100000",
        ),
    ],
)
def test_a_grid_without_an_end_is_refused(space: dict[str, Any], words: str) -> None:
    fields = {**SPEC, "space": space, "sampler": {"kind": "grid"}}
    with pytest.raises(SpecRefused) as refused:
        checked_space(StudySpec.model_validate(fields))
    assert [fault.path for fault in refused.value.faults] == ["sampler"]
    assert words in str(refused.value)


def test_known_cost_without_quality_is_refused() -> None:
    fields = {**SPEC, "objectives": ["parameters"], "sampler": {"kind": "known_cost"}}
    with pytest.raises(SpecRefused, match="objectives are parameters"):
        checked_space(StudySpec.model_validate(fields))


def test_a_population_of_one_is_refused() -> None:
    with pytest.raises(ValidationError, match="population"):
        StudySpec.model_validate({**SPEC, "sampler": {"kind": "nsga2", "population": 1}})


@pytest.mark.parametrize(
    "objectives", [["quality"], ["quality", "parameters"], ["quality", "throughput"]]
)
def test_known_cost_works_with_any_objectives_beside_quality(objectives: list[str]) -> None:
    played = Played({"kind": "known_cost", "startup_trials": 3}, objectives=objectives)
    drawn = played.play(8)
    assert len({str(sorted(one.drawn.items())) for one in drawn}) == 8


def test_known_cost_suggests_nothing_over_a_limit() -> None:
    played = Played(
        {"kind": "known_cost", "startup_trials": 4, "random_share": 0.0},
        limits={"parameters": 1000},
    )
    counts = [drawn.spec.model.parameter_count() for drawn in played.play(10)]
    assert max(counts) <= 1000


def test_known_cost_reaches_a_hypervolume_with_fewer_trials_than_random() -> None:
    """Ten paired seeds on a formula; what random search has after 30 trials is the target."""
    space = {"training.batch_size": 32}
    needed: list[int] = []
    for seed in range(10):
        target = max(volumes({"kind": "random"}, trials=30, seed=seed, space=space))
        reached = volumes({"kind": "known_cost"}, trials=30, seed=seed, space=space)
        needed.append(next((n for n, volume in enumerate(reached, 1) if volume >= target), 31))
    assert np.median(needed) <= 20
    assert sum(trials < 30 for trials in needed) >= 9


def volumes(sampler: dict[str, Any], *, trials: int, **fields: Any) -> Iterator[float]:
    """Area between error and log10 parameters after each trial; more of both is worse."""
    played = Played(sampler, objectives=["quality", "parameters"], **fields)
    points: list[tuple[float, float]] = []
    for number in range(trials):
        drawn = played.space.draw(TrialSource(played.optuna_study.ask()))
        played.end(number, drawn)
        rate = float(str(drawn.drawn["training.learning_rate"]))
        count = played.trials[-1].parameters
        error = min(0.9, 3 / count**0.5 + 0.3 * abs(np.log10(rate / 0.005)))
        played.trials[-1] = replace(
            played.trials[-1], state=TrialState.COMPLETE, quality=1 - error, epochs_trained=9
        )
        points.append((float(np.log10(count)), error))
        yield area(points)


def area(points: list[tuple[float, float]]) -> float:
    """Of the region that the points dominate, up to 10^5 parameters and an error of 0.9."""
    total, lowest = 0.0, 0.9
    for index, (size, error) in enumerate(sorted(points)):
        lowest = min(lowest, error)
        following = sorted(points)[index + 1][0] if index + 1 < len(points) else 5.0
        total += (following - size) * (0.9 - lowest)
    return total


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory):
    running = Server(tmp_path_factory.mktemp("samplers") / "data")
    yield running.start()
    running.close()


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("nsga2", {"population": 2}),
        ("nsga3", {"population": 2}),
        ("known_cost", {"startup_trials": 2}),
        ("branches", {"sampler": {"kind": "gp", "startup_trials": 1}, "startup_trials": 1}),
    ],
)
def test_a_study_runs_from_end_to_end(server: Server, kind: str, settings: dict[str, Any]) -> None:
    settings = {"kind": kind, **settings}
    spec = {**SPEC, "budget": {"trials": 5, "epochs": 1}, "sampler": settings}
    ended = server.wait(server.submit(spec))
    assert (ended["state"], ended["state_reason"]) == ("finished", None)
    assert {trial["outcome"] for trial in server.trials(ended["id"])} == {"complete"}


def test_a_study_ends_when_its_grid_is_used_up(server: Server) -> None:
    spec = {
        **SPEC,
        "architectures": ["rnn"],
        "parametrizations": ["dense"],
        "space": {**SPEC["space"], "hidden_size": {"options": [4, 6]}},
        "budget": {"trials": 10, "epochs": 1},
        "sampler": {"kind": "grid"},
    }
    del spec["space"]["low_rank.d"]
    ended = server.wait(server.submit(spec))
    assert (ended["state"], ended["state_reason"]) == ("finished", "grid_exhausted")
    found = {
        (
            trial["hyperparameters"]["rnn.hidden_size"],
            trial["hyperparameters"]["training.learning_rate"],
        )
        for trial in server.trials(ended["id"])
    }
    assert found == set(itertools.product((4, 6), (0.003, 0.01)))


def test_the_default_goes_by_what_the_document_wants() -> None:
    task = {"kind": "digits"}
    assert StudySpec.model_validate({"task": task}).sampler == FreezeThaw()
    assert StudySpec.model_validate({"task": task, "early_stopping": None}).sampler == FreezeThaw()
    ruled = {"task": task, "early_stopping": {"kind": "pareto_gain"}}
    assert StudySpec.model_validate(ruled).sampler == KnownCost()
    sizes = {"task": task, "objectives": ["parameters"]}
    assert StudySpec.model_validate(sizes).sampler == Tpe()
