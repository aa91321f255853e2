"""Configurations that are drawn again: reused, replicated or drawn anew."""

from collections.abc import Generator
from typing import Any

import optuna
import pytest

from search.samplers import Past
from search.sampling.optuna_study import OptunaStudy
from search.sampling.sampler_context import sampler_context_of
from search.spaces import DrawnTrial
from search.spaces.draws import TrialSource
from search.spaces.space import SearchSpace
from search.studies.configurations import configuration_of
from search.studies.spec import StudySpec
from storage.records import StudyRecord, StudyState, TrialState
from storage.repositories.trials import Trials
from tests.search.coordinating import Site, break_off, finish
from tests.service.running import Server
from tests.storage.records import START
from tests.storage.records import trial as trial_record

SPEC: dict[str, Any] = {
    "task": {"kind": "digits"},
    "architectures": ["rnn"],
    "parametrizations": ["dense"],
    "space": {
        "hidden_size": {"options": [8, 12]},
        "training.learning_rate": 0.01,
        "training.batch_size": 64,
    },
    "objectives": ["quality", "parameters"],
    "budget": {"trials": 6, "epochs": 1},
    "sampler": {"kind": "random"},
    "seed": 1,
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    running = Server(tmp_path_factory.mktemp("duplicates") / "data")
    yield running.start()
    running.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Generator[Site]:
    made = Site(tmp_path_factory.mktemp("site"))
    yield made
    made.close()


def study_record() -> StudyRecord:
    return StudyRecord(
        id="s",
        name="rehearsed",
        state=StudyState.RUNNING,
        spec={},
        created_at=START,
        started_at=START,
    )


def size(trial: dict[str, Any]) -> int:
    return trial["hyperparameters"]["rnn.hidden_size"]


def first_of(trials: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """The first trial of each size."""
    return {size(trial): trial for trial in reversed(trials)}


def test_the_same_documents_are_the_same_configuration_whatever_the_seed() -> None:
    document = {"model": {"a": 1, "b": 2.5}, "training": {"c": None}, "seed": 3}
    turned = {"seed": 4, "training": {"c": None}, "model": {"b": 2.5, "a": 1}}
    other = {**document, "training": {"c": 1}}
    assert configuration_of(document) == configuration_of(turned)
    assert configuration_of(document) != configuration_of(other)


def test_a_repeat_takes_over_the_result_and_trains_nothing(server: Server) -> None:
    study = server.wait(server.submit(SPEC))
    trials = server.trials(study["id"])
    firsts = first_of(trials)
    assert len(trials) == 6
    assert len(firsts) == 2
    assert study["progress"]["epochs_trained"] == 2
    assert study["progress"]["trials"]["complete"] == 6
    for trial in trials:
        first = firsts[size(trial)]
        assert trial["outcome"] == "complete"
        if trial is first:
            assert trial["repeats"] is None
            assert len(trial["attempts"]) == 1
            continue
        assert trial["repeats"] == first["number"]
        assert trial["reason"] == f"same configuration as trial {first['number']}"
        assert trial["attempts"] == []
        assert server.curve(study["id"], trial["number"]) == []
        for field in ("values", "test_quality", "test_metrics", "best_epoch"):
            assert trial[field] == first[field]
        for file in ("checkpoint", "report"):
            files = [server.http.get(one["links"][file]) for one in (trial, first)]
            assert files[0].status_code == 200
            assert files[0].content == files[1].content


def test_a_replicate_is_trained_with_a_seed_of_its_own(server: Server) -> None:
    budget = {"trials": 4, "epochs": 1}
    spec = {**SPEC, "duplicates": "replicate", "budget": budget}
    ended = [server.wait(server.submit(spec)) for _ in range(2)]
    runs = [server.trials(study["id"]) for study in ended]
    firsts = first_of(runs[0])
    details = [server.get(trial["links"]["trial"]) for trial in runs[0]]
    seeds = {trial["number"]: trial["spec"]["seed"] for trial in details}
    assert ended[0]["progress"]["epochs_trained"] == 4
    repeats = [trial for trial in runs[0] if trial is not firsts[size(trial)]]
    assert repeats
    for trial in repeats:
        assert trial["repeats"] == firsts[size(trial)]["number"]
    for first in firsts.values():
        assert seeds[first["number"]] == SPEC["seed"]
    assert len(set(seeds.values())) == len(repeats) + 1
    first, second = ([one["values"]["quality"] for one in run] for run in runs)
    assert first == second


def test_drawing_again_finds_more_configurations_and_gives_up_in_a_used_up_space(
    server: Server,
) -> None:
    def sizes(**fields: Any) -> list[int]:
        space = {**SPEC["space"], "hidden_size": {"options": [4, 6, 8, 10]}}
        trials = server.trials(
            server.wait(server.submit({**SPEC, "space": space, "seed": 3, **fields}))["id"]
        )
        assert {trial["outcome"] for trial in trials} == {"complete"}
        return [size(trial) for trial in trials]

    plain, again = sizes(), sizes(duplicates="resample")
    repeated = next(number for number in range(1, 6) if plain[number] in plain[:number])
    assert again[:repeated] == plain[:repeated]
    assert again[repeated] not in again[:repeated]
    assert len(again) == 6
    assert set(again) == {4, 6, 8, 10}


SAMPLERS = pytest.mark.parametrize(
    "sampler", [{"kind": "random"}, {"kind": "tpe", "startup_trials": 3}]
)


def of_optuna_alone(sampler: dict[str, Any]) -> tuple[SearchSpace, OptunaStudy]:
    """A study of many dimensions, as Optuna keeps it."""
    wide = {**SPEC, "space": {}, "parametrizations": ["dense", "low_rank"], "sampler": sampler}
    spec = StudySpec.model_validate(wide)
    space = SearchSpace(spec)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    nothing = Past(trials=(), validations={}, validation_samples=None)
    context = sampler_context_of(spec, space, lambda: nothing)
    return space, OptunaStudy(study_record(), spec, context, ())


def tell(optuna_study: OptunaStudy, number: int, drawn: DrawnTrial) -> None:
    """The trial is complete, with a quality of its own."""
    count = drawn.spec.model.parameter_count()
    optuna_study.tell(
        trial_record("s", number, state=TrialState.COMPLETE, quality=number / 8, parameters=count)
    )


@SAMPLERS
def test_a_rehearsal_answers_what_the_trial_itself_would(sampler: dict[str, Any]) -> None:
    space, optuna_study = of_optuna_alone(sampler)
    for number in range(8):
        asked = optuna_study.ask()
        rehearsed = [space.draw(optuna_study.rehearse(asked, again)) for again in (0, 0, 1)]
        assert not optuna_study.trials[number].params
        drawn = space.draw(TrialSource(asked))
        assert rehearsed[0] == rehearsed[1] == drawn
        assert rehearsed[2] != drawn
        tell(optuna_study, number, drawn)


@pytest.mark.parametrize(
    ("duplicates", "point", "number"),
    [("resample", "given", 2), pytest.param("reuse", "ended", 4, marks=pytest.mark.slow)],
)
def test_repeats_survive_the_coordinator(
    site: Site, duplicates: str, point: str, number: int
) -> None:
    spec = {**SPEC, "duplicates": duplicates}
    study_id = site.http.post("/v1/studies", json=spec).json()["id"]
    break_off(site, point, number)
    finish(site, study_id)
    with site.database.read() as session:
        trials = Trials(session).list(study_id)
    assert [trial.number for trial in trials] == list(range(6))
    assert {trial.state for trial in trials} == {TrialState.COMPLETE}
    by_configuration: dict[str, set[float | None]] = {}
    for trial in trials:
        by_configuration.setdefault(configuration_of(trial.spec), set()).add(trial.quality)
    assert all(len(qualities) == 1 for qualities in by_configuration.values())
    assert sum(trial.epochs_trained for trial in trials) == len(by_configuration)
    mirrored = optuna.load_study(
        study_name=f"study [{study_id}]", storage=f"sqlite:///{site.folder / 'optuna.db'}"
    )
    assert [trial.params for trial in mirrored.trials] == [dict(trial.drawn) for trial in trials]
