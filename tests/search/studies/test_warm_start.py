"""What studies know of others: every sampler makes use of it, and it leaves no trace in Optuna."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from models.interface import Classes, Interface, Standardise
from search.errors import SpecRefused
from search.samplers import Knowledge, RankedTrials, ranks_of
from search.samplers.sampler import Sampler
from search.spaces.draws import TrialSource
from search.spaces.model_space import DrawnTrial
from search.spaces.space import SearchSpace
from search.studies.feasibility import bytes_wanted
from search.studies.spec import StudySpec
from search.studies.warm_start import knowledge_of, source_trials
from search.training.deliverables import stored_interface
from search.training.trial_spec import TrialSpec
from storage.records import StudyRecord, TrialRecord, TrialState
from storage.repositories.studies import Studies
from storage.repositories.trials import Trials
from tests.search.samplers.test_samplers import SPEC, Played
from tests.service.site import Site

LEARNING = {
    "tpe": {"startup_trials": 4},
    "nsga2": {"population": 4},
    "known_cost": {"startup_trials": 4, "random_share": 0.0},
    "freeze_thaw": {"startup_trials": 4, "random_share": 0.0},
    "nsga3": {"population": 4},
    "gp": {"startup_trials": 4},
    "branches": {"startup_trials": 1, "sampler": {"kind": "tpe", "startup_trials": 2}},
}
WIDE: dict[str, Any] = {
    "objectives": ("quality",),
    "space": {
        "hidden_size": {"low": 8, "high": 32, "step": 8},
        "low_rank.d": {"options": [1, 2, 4]},
        "training.learning_rate": {"low": 1e-4, "high": 1e-1, "log": True},
        "training.batch_size": 32,
    },
}

OTHERWISE: dict[str, dict[str, Any]] = {
    "nsga3": {"objectives": ("quality", "parameters")},
    "gp": {"architectures": ["rnn"], "parametrizations": ["low_rank"]},
}
"""What of that has to be otherwise for a sampler."""


def wide(kind: str) -> dict[str, Any]:
    return {**WIDE, **OTHERWISE.get(kind, {})}


def rate_of(drawn: DrawnTrial) -> float:
    return drawn.spec.training.learning_rate


def known(trials: int = 24, **fields: Any) -> Knowledge:
    """What another study found, in which low learning rates are far better than others."""
    played = Played({"kind": "random"}, **{**WIDE, "seed": 99, **fields})
    drawn = played.play(trials)
    graded = [
        replace(trial, number=trial.number - trials, quality=_quality(trial, rate_of(one)))
        for trial, one in zip(played.trials, drawn, strict=True)
    ]
    return Knowledge(
        trials=tuple(graded),
        validations={
            trial.number: dict.fromkeys(range(1, trial.epochs_trained + 1), 0.5) for trial in graded
        },
    )


def _quality(trial: TrialRecord, rate: float) -> float | None:
    return None if trial.state == TrialState.STOPPED else (0.9 if rate < 5e-4 else 0.3)


def sampler(kind: str) -> Mapping[str, Any]:
    return {"kind": kind, **LEARNING.get(kind, {})}


def first(played: Played, count: int) -> list[DrawnTrial]:
    """So many suggestions before any outcome is known."""
    asked = (TrialSource(played.optuna_study.ask()) for number in range(count))
    return [played.space.draw(source) for source in asked]


@pytest.mark.parametrize("kind", LEARNING)
def test_the_first_suggestions_go_where_others_were_good(kind: str) -> None:
    knowledge = known(**wide(kind))
    warm = [rate_of(one) for one in first(Played(sampler(kind), knowledge, **wide(kind)), 12)]
    cold = [rate_of(one) for one in first(Played(sampler(kind), **wide(kind)), 12)]
    # A quarter of random rates are this low.
    assert sum(rate < 5e-4 for rate in cold) <= 4
    # Some of the parents that nsga3 has are there for their small counts.
    assert sum(rate < 5e-4 for rate in warm) >= (5 if kind == "nsga3" else 6), warm


@pytest.mark.parametrize("kind", LEARNING)
def test_warm_suggestions_follow_from_seed_number_and_knowledge(kind: str) -> None:
    knowledge = known(**wide(kind))
    one, two = (Played(sampler(kind), knowledge, **wide(kind)) for _ in range(2))
    assert [trial.drawn for trial in one.play(8)] == [trial.drawn for trial in two.play(8)]
    # Of a study that another coordinator claims, too.
    two.optuna_study = two.new_optuna_study()
    assert [trial.drawn for trial in one.play(4)] == [trial.drawn for trial in two.play(4)]


@pytest.mark.parametrize("kind", LEARNING)
def test_optunas_study_has_the_studys_own_trials_alone(kind: str) -> None:
    played = Played(sampler(kind), known(**wide(kind)), **wide(kind))
    played.play(6)
    assert [trial.number for trial in played.optuna_study.trials] == list(range(6))


@pytest.mark.parametrize("kind", ["random", "grid"])
def test_samplers_that_learn_nothing_suggest_what_they_would_have(kind: str) -> None:
    fields = SPEC if kind == "grid" else WIDE
    other = Played({"kind": "random"}, seed=99, **({} if kind == "grid" else WIDE))
    other.play(6)
    knowledge = Knowledge(
        trials=tuple(replace(trial, number=trial.number - 6) for trial in other.trials)
    )
    fields = {} if kind == "grid" else WIDE
    warm, cold = Played({"kind": kind}, knowledge, **fields), Played({"kind": kind}, **fields)
    assert [one.drawn for one in warm.play(5)] == [one.drawn for one in cold.play(5)]


def test_known_cost_suggests_the_best_of_the_others_for_its_own_front() -> None:
    """It is on no front of this study yet, so that training it here adds the most."""
    knowledge = known()
    played = Played(sampler("known_cost"), knowledge, **WIDE)
    drawn = first(played, 1)[0]
    assert rate_of(drawn) < 1e-3


def test_a_trial_without_an_objective_of_this_study_is_left_out() -> None:
    knowledge = known()
    bare = Knowledge(trials=tuple(replace(one, throughput=None) for one in knowledge.trials))
    fields = {**WIDE, "objectives": ("quality", "parameters", "throughput")}
    for kind in ("tpe", "nsga2"):
        warm = Played(sampler(kind), bare, **fields)
        assert len(warm.play(3)) == 3


def test_a_space_finds_the_draw_of_a_configuration_of_another_space() -> None:
    narrow = SearchSpace(StudySpec.model_validate({**SPEC, "parametrizations": ["low_rank"]}))
    wide = SearchSpace(StudySpec.model_validate({**SPEC, **WIDE}))
    played = Played({"kind": "random"}, parametrizations=["low_rank"])
    for drawn in played.play(6):
        place = wide.place(drawn.spec)
        assert place is not None
        assert (place.spec.model, place.spec.training) == (drawn.spec.model, drawn.spec.training)
        assert place.drawn["parametrization"] == "low_rank"
    dense = next(
        one
        for one in Played({"kind": "random"}, **WIDE).play(20)
        if one.candidate.parametrization == "dense"
    )
    assert narrow.place(dense.spec) is None


def test_every_sampler_is_asked_about() -> None:
    kinds = {kind.model_fields["kind"].default for kind in Sampler.__subclasses__()}
    # Of a network of others nothing is known beforehand.
    assert kinds == {*LEARNING, "random", "grid", "by_layer"}


@pytest.mark.parametrize("file", ["onnx", "c", "checkpoint"])
def test_files_of_known_trials_have_what_stands_around_the_model(tmp_path: Path, file: str) -> None:
    """Scaled rows: their means and deviations count in the files of this study and of the other."""
    site = Site(tmp_path)
    other = site.study(task={"kind": "digits", "layout": "rows"})
    spec = StudySpec.model_validate(
        {**other.spec, "objectives": ["quality", "bytes"], "export": {"file": file}}
    )
    spec = spec.model_copy(update={"warm_start": (other.id,)})
    scaled = Interface(
        sample=("steps", 8),
        inputs=(Standardise(means=(0.5,) * 8, deviations=(2.0,) * 8),),
        answer=Classes(classes=tuple("0123456789")),
    )
    with site.database.write() as session:
        Studies(session).set_prepared(other.id, {"interface": stored_interface(scaled)})
    trial = site.trial(other, 0, quality=0.5)
    site.epoch(other, 0, 1)
    (source,) = source_trials(site.database, spec, SearchSpace(spec))
    (known,) = source.trials
    sizes = [
        bytes_wanted(spec, TrialSpec.model_validate(trial.spec), interface)
        for interface in (None, scaled)
    ]
    site.close()
    assert sizes[0] != sizes[1]
    assert known.bytes == sizes[1]


PIXELS: dict[str, Any] = {"kind": "digits", "layout": "pixels"}
FREEZE_THAW: dict[str, Any] = {"kind": "freeze_thaw"}


def with_trials(site: Site, **changes: Any) -> StudyRecord:
    """A study of digits in rows with three complete trials, a stopped one and one that ran."""
    other = site.study(**changes)
    for number, quality in enumerate((0.5, 0.9, 0.5)):
        site.trial(other, number, quality=quality)
    site.trial(other, 3, state=TrialState.STOPPED)
    site.trial(other, 4, state=TrialState.RUNNING)
    for number in range(5):
        site.epoch(other, number, 1)
    return other


def asked(site: Site, *studies: StudyRecord, **changes: Any) -> StudyRecord:
    warm_start = [study.id for study in studies]
    return site.study(warm_start=warm_start, sampler=FREEZE_THAW, **changes)


def refused(site: Site, *studies: StudyRecord, **changes: Any) -> str:
    with pytest.raises(SpecRefused) as caught:
        asked(site, *studies, **changes)
    [fault] = caught.value.faults
    assert fault.path == "warm_start.0"
    return fault.message


def test_of_another_task_complete_trials_are_known_by_their_ranks(site: Site) -> None:
    other = with_trials(site)
    knowledge = knowledge_of(site.database, asked(site, other, task=PIXELS).id)
    assert (list(knowledge.trials), dict(knowledge.validations)) == ([], {})
    [ranked] = knowledge.ranked
    assert [trial.number for trial in ranked.trials] == [-3, -2, -1]
    # The second is the best of three, the others are equal.
    assert ranked.ranks == pytest.approx([2 / 3, 1 / 6, 2 / 3])
    with site.database.read() as session:
        [first, *_] = Trials(session).list(other.id)
    assert ranked.trials[0].hyperparameters == first.hyperparameters


def test_of_the_same_task_trials_are_evidence_for_every_sampler(site: Site) -> None:
    same, other = with_trials(site), with_trials(site, task=PIXELS)
    knowledge = knowledge_of(site.database, asked(site, other, same).id)
    assert [trial.number for trial in knowledge.trials] == [-4, -3, -2, -1]
    assert [len(ranked.trials) for ranked in knowledge.ranked] == [3]


def test_the_lower_the_better_ranks_a_metric_that_is_minimised(site: Site) -> None:
    adding: dict[str, Any] = {"kind": "addition", "steps": 10}
    other = with_trials(site, task=adding)
    [ranked] = knowledge_of(site.database, asked(site, other).id).ranked
    assert ranked.ranks == pytest.approx([1 / 3, 5 / 6, 1 / 3])


def test_candidates_that_the_study_does_not_have_do_not_rank(site: Site) -> None:
    other = with_trials(site)
    study = asked(site, other, task=PIXELS, parametrizations=["low_rank"])
    assert knowledge_of(site.database, study.id).ranked == ()


def test_another_tasks_speeds_may_be_measured_otherwise(site: Site) -> None:
    other = with_trials(site)
    fast: dict[str, Any] = {
        "objectives": ["quality", "throughput"],
        "throughput": {"batch_size": 7},
    }
    asked(site, other, task=PIXELS, **fast)
    assert "measured throughput by" in refused(site, other, **fast)


def test_speeds_that_were_predicted_are_known_as_they_were_to_the_other_study(site: Site) -> None:
    fast: dict[str, Any] = {"objectives": ["quality", "throughput"]}
    other = site.study(**fast)
    for number, speed in enumerate((None, 7.0)):
        site.trial(other, number, quality=0.5, throughput=speed)
        site.epoch(other, number, 1)
        with site.database.write() as session:
            Trials(session).set_predicted(other.id, number, {"throughput": (9.0, 8.0, 10.0)})
    knowledge = knowledge_of(site.database, asked(site, other, **fast).id)
    assert [trial.throughput for trial in knowledge.trials] == [9.0, 7.0]


def test_a_source_without_a_shared_dimension_is_refused(site: Site) -> None:
    pinned: dict[str, Any] = {
        "parametrizations": ["dense"],
        "space": {"hidden_size": 8, "training.batch_size": 32},
    }
    other = with_trials(site, **pinned)
    space: dict[str, Any] = {
        "hidden_size": {"low": 8, "high": 16, "step": 8},
        "training.learning_rate": 0.01,
    }
    message = refused(site, other, task=PIXELS, parametrizations=["dense"], space=space)
    assert "searches training.learning_rate; allowed" in message
    assert "rnn.hidden_size" in message


def test_samplers_that_learn_nothing_from_ranks_say_which_does(site: Site) -> None:
    other = with_trials(site)
    with pytest.raises(SpecRefused, match=r"or the sampler freeze_thaw, .* this study's is tpe"):
        site.study(warm_start=[other.id], task=PIXELS, sampler={"kind": "tpe"})


def test_the_first_suggestions_go_where_trials_of_another_task_ranked_high() -> None:
    graded = known().trials
    ranked = RankedTrials(
        trials=[replace(trial, quality=None) for trial in graded],
        ranks=ranks_of([-(trial.quality or 0.3) for trial in graded]),
    )
    kind = sampler("freeze_thaw")
    warm, cold = (Played(kind, Knowledge(ranked=ranked), **WIDE) for ranked in ([ranked], []))
    low = [sum(rate_of(one) < 5e-4 for one in played.play(12)[4:]) for played in (warm, cold)]
    assert low[0] > low[1], low
    again = Played(kind, Knowledge(ranked=[ranked]), **WIDE)
    again.play(6)
    assert [trial.drawn for trial in again.trials] == [trial.drawn for trial in warm.trials[:6]]
