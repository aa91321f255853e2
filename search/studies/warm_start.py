"""What a study starts with: trials of others, copied when it is submitted and never changed.

The copies make a study's suggestions follow from its own rows: they are the same after a restart,
whatever the other study does meanwhile, and when it is deleted.
"""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from datetime import UTC, datetime

from sqlalchemy.orm import Session

from search.documents.objectives import OBJECTIVE_KINDS
from search.errors import Fault, SpecRefused
from search.samplers import Knowledge
from search.spaces import SearchSpace
from search.studies.configurations import is_trained_afresh
from search.studies.feasibility import bytes_wanted
from search.studies.spec import StudySpec
from search.training.deliverables import prepared_interface
from search.training.trial_spec import TrialSpec
from storage.engine import Database
from storage.errors import NotFound
from storage.records import (
    StudyRecord,
    TrialOrigin,
    TrialRecord,
    TrialState,
    WarmStartTrialRecord,
)
from storage.repositories.metrics import Metrics
from storage.repositories.studies import Studies
from storage.repositories.trials import Trials
from storage.repositories.warm_start_trials import WarmStartTrials

_UNKNOWN = datetime(1970, 1, 1, tzinfo=UTC)
"""When a copy was made says nothing to a sampler."""

_COPIED = {field.name for field in fields(WarmStartTrialRecord)} & {
    field.name for field in fields(TrialRecord)
}
"""What a copy has of the trial itself."""


def warm_start_trials(
    database: Database, spec: StudySpec, space: SearchSpace
) -> Sequence[WarmStartTrialRecord]:
    """The trials of the studies in `warm_start` that lie in a space, as they stand now.

    Complete and stopped ones, each of which was trained from the start.

    Raises:
        SpecRefused: a study is not there, has another task, or measured throughput otherwise.
    """
    found: list[WarmStartTrialRecord] = []
    faults: list[Fault] = []
    with database.read() as session:
        for index, study_id in enumerate(spec.warm_start):
            try:
                other = Studies(session).get(study_id)
            except NotFound as error:
                faults.append(Fault(f"warm_start.{index}", str(error)))
                continue
            if message := _difference(spec, other):
                faults.append(Fault(f"warm_start.{index}", message))
            else:
                found += _fitting(session, spec, space, other)
    if faults:
        raise SpecRefused(faults)
    return found


def knowledge_of(database: Database, study_id: str) -> Knowledge:
    """What a study was given when it was submitted."""
    with database.read() as session:
        trials = WarmStartTrials(session).list(study_id)
    first = -len(trials)
    return Knowledge(
        trials=tuple(_trial(one, study_id, first + place) for place, one in enumerate(trials)),
        validations={
            first + place: dict(enumerate(one.curve, start=1)) for place, one in enumerate(trials)
        },
    )


def _difference(spec: StudySpec, other: StudyRecord) -> str | None:
    """Why trials of another study do not compare with those of this one, if they do not."""
    theirs = StudySpec.model_validate(other.spec)
    if theirs.task != spec.task:
        return (
            f"the task of study {other.id!r} is {theirs.task.model_dump_json()}; allowed is this "
            "study's own, field by field"
        )
    if theirs.compress != spec.compress:
        return (
            f"study {other.id!r} starts its trials from {_start(theirs)}, and this one from "
            f"{_start(spec)}; allowed are studies that start from the same"
        )
    measured = any(OBJECTIVE_KINDS[name].known == "measured" for name in spec.objectives)
    if measured and theirs.throughput.protocol != spec.throughput.protocol:
        return (
            f"study {other.id!r} measured throughput by {theirs.throughput.model_dump_json()}; "
            f"allowed is {spec.throughput.model_dump_json()}, or another objective"
        )
    return None


def _start(spec: StudySpec) -> str:
    if spec.compress is None:
        return "the seed's initialisation"
    return (
        f"the model {spec.compress.model!r} by {spec.compress.model_dump_json(exclude={'facts'})}"
    )


def _fitting(
    session: Session, spec: StudySpec, space: SearchSpace, other: StudyRecord
) -> Iterator[WarmStartTrialRecord]:
    validations = Metrics(session).validations(other.id)
    theirs = StudySpec.model_validate(other.spec)
    same_speed = theirs.throughput.protocol == spec.throughput.protocol
    interface = prepared_interface(other.prepared)
    measured = ("throughput", "throughput_ratio", "latency_p50", "latency_p99")
    for trial in Trials(session).list(other.id, TrialState.COMPLETE, TrialState.STOPPED):
        curve = validations.get(trial.number, {})
        # A result that was taken over from an equal trial has no curve, and says nothing new.
        if not curve or not is_trained_afresh(trial):
            continue
        trained = TrialSpec.model_validate(trial.spec)
        place = space.place(trained)
        if place is None:
            continue
        copied = {name: getattr(trial, name) for name in _COPIED}
        copied |= {
            "hyperparameters": dict(place.hyperparameters),
            "drawn": dict(place.drawn),
            **{name: copied[name] if same_speed else None for name in measured},
            # Of this study's file, which may be another; the task is the same, and so is what
            # preparing its data found.
            "bytes": bytes_wanted(spec, trained, interface),
        }
        yield WarmStartTrialRecord(
            source_study=other.id,
            source_trial=trial.number,
            curve=[curve[epoch] for epoch in sorted(curve)],
            **copied,
        )


def _trial(copy: WarmStartTrialRecord, study_id: str, number: int) -> TrialRecord:
    """The copy as samplers read trials; what they do not read is empty."""
    copied = {name: value for name, value in vars(copy).items() if name in _COPIED}
    return TrialRecord(
        study_id=study_id,
        number=number,
        origin=TrialOrigin.SAMPLER,
        epochs_trained=len(copy.curve),
        dispatched=True,
        created_at=_UNKNOWN,
        **copied,
    )
