"""Trials that users name: their own configurations, and trials that go on from a checkpoint.

A request leaves a command; the coordinator, which alone asks Optuna, makes a trial of it
(`search.sampling.enqueued`).
"""

import hashlib
import secrets
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from pydantic import ConfigDict, Field
from sqlalchemy.orm import Session

from models.spec import Spec
from search.documents.export_kinds import CHECKPOINT
from search.documents.nearest import allowed_instead
from search.errors import Fault, SpecRefused
from search.spaces import (
    Candidate,
    Dimension,
    GivenScalar,
    NetworkSpace,
    Scalar,
    SearchSpace,
    Source,
    corners,
    names_of,
)
from search.studies.commands import refuse_if_over, reopen
from search.studies.space_of import space_of
from search.studies.spec import ArchitectureKind, ParametrizationKind, StudySpec
from storage.accounts.audit import Audit
from storage.accounts.quotas import Quotas
from storage.engine import Database
from storage.errors import Conflict, IdempotencyConflict
from storage.records import (
    CommandKind,
    CommandRecord,
    StudyRecord,
    TrialOrigin,
    TrialRecord,
    TrialState,
)
from storage.repositories.commands import Commands
from storage.repositories.studies import Studies
from storage.repositories.trials import Trials


class NamedTrial(Spec):
    """A trial that a user asks for: a configuration, or one that goes on from another trial."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "architecture": "rnn",
                    "parametrization": "low_rank",
                    "hyperparameters": {"rnn.hidden_size": 32, "low_rank.d": 4},
                },
                {"continues": 3},
            ]
        }
    )

    architecture: ArchitectureKind | None = Field(
        default=None, description="one of the study's; required without `continues`"
    )
    parametrization: ParametrizationKind | None = Field(
        default=None, description="one of the study's; required without `continues`"
    )
    hyperparameters: Mapping[str, GivenScalar | None] = Field(
        default_factory=dict[str, GivenScalar | None],
        max_length=2_000,
        description="by the names that trials show, or by the field alone, as in `space`; those "
        "left out are drawn",
    )
    continues: int | None = Field(
        default=None,
        ge=0,
        description="a complete or stopped trial: the new one has its configuration and starts "
        "from its checkpoint, with a fresh optimizer, another order of the data and all epochs of "
        "the budget; stands alone",
    )


class NamedFirst:
    """Answers with the values that a user named, and passes the other questions on."""

    def __init__(self, named: NamedTrial, rest: Source) -> None:
        self._choices = {
            "architecture": named.architecture,
            "parametrization": named.parametrization,
            f"{named.architecture}.parametrization": named.parametrization,
        }
        self._values = named.hyperparameters
        self._rest = rest
        self.asked: set[str] = set()
        """The user's names that dimensions asked for."""
        self.faults: dict[str, Fault] = {}
        """By those names: why a value was passed over."""

    def answer(self, dimension: Dimension) -> Scalar:
        """The user's value where it lies in the dimension; the fuller name goes first."""
        choice = self._choices.get(dimension.name)
        if choice is not None:
            return choice
        name = _naming(dimension.name, self._values)
        if name is None:
            return self._rest.answer(dimension)
        self.asked.add(name)
        value = self._values[name]
        if value is not None and dimension.contains(value):
            return value
        allowed = dimension.model_dump_json(exclude={"kind", "name"}, exclude_none=True)
        message = f"{value!r} is not in the study's space; allowed is {allowed}"
        self.faults[name] = Fault(f"hyperparameters.{name}", message)
        return self._rest.answer(dimension)


def enqueue(
    database: Database, study_id: str, named: NamedTrial, *, idempotency_key: str | None = None
) -> CommandRecord:
    """Ask for a trial before all that wait; a finished study runs on for it.

    The same key with the same trial asks once. A command that is accepted becomes a trial, whatever
    becomes of its study meanwhile, unless that is deleted.

    Raises:
        NotFound: there is no such study, or no such trial to continue.
        SpecRefused: what was named does not lie in the study's space.
        Conflict: the study is over, or the trial has no checkpoint to continue from.
        IdempotencyConflict: the key came with another trial before.
        QuotaReached: as many of the tenant's trials wait as may wait.
    """
    now = datetime.now(UTC)
    command = CommandRecord(
        id=_command_id(study_id, idempotency_key),
        study_id=study_id,
        kind=CommandKind.ENQUEUE,
        payload=named.model_dump(mode="json"),
        created_at=now,
    )
    with database.write() as session:
        study = Studies(session).get(study_id)
        earlier = Commands(session).find(command.id)
        if earlier is not None:
            if earlier.payload != command.payload:
                raise IdempotencyConflict(
                    f"the idempotency key {idempotency_key!r} was used for another trial of study "
                    f"{study_id!r}"
                )
            return earlier
        refuse_if_over(study)
        if study.ending is not None:
            raise Conflict(
                f"study {study_id!r} takes no further trial: it has used up its {study.ending}; "
                "give it more of that first"
            )
        _check(session, study, named)
        Quotas(session).make_room("queued_trials", tenant=study.tenant)
        Commands(session).add(command)
        Audit(session).note("trial.enqueued", study_id)
        reopen(session, study, at=now)
    return command


def needed_checkpoints(session: Session, study_id: str) -> set[int]:
    """Numbers of the trials that others start from which have not ended, or are not there yet."""
    asked = Commands(session).open(CommandKind.ENQUEUE, study_id)
    named = (NamedTrial.model_validate(command.payload).continues for command in asked)
    return Trials(session).continued_by_open(study_id) | {
        number for number in named if number is not None
    }


_NO_NAMED_LAYERS = (
    "trials of the task model_outputs choose for a network's layers, which by_layer does alone; "
    "allowed are none"
)


def precedence(trial: TrialRecord) -> tuple[bool, bool, int]:
    """What orders open trials: those that lost their attempt, those that users named, the rest."""
    waits = trial.state == TrialState.QUEUED
    return (waits, trial.origin != TrialOrigin.USER, trial.number)


def _command_id(study_id: str, idempotency_key: str | None) -> str:
    if idempotency_key is None:
        return secrets.token_hex(8)
    return hashlib.sha256(f"{study_id} {idempotency_key}".encode()).hexdigest()


def _check(session: Session, study: StudyRecord, named: NamedTrial) -> None:
    if named.continues is None:
        space = space_of(StudySpec.model_validate(study.spec))
        if isinstance(space, NetworkSpace):
            raise SpecRefused([Fault("architecture", _NO_NAMED_LAYERS)])
        _check_candidate(space, named)
        if faults := _faults(space, named):
            raise SpecRefused(faults)
        return
    given = named.model_dump(exclude={"continues"}, exclude_defaults=True)
    if given:
        message = (
            f"trial {named.continues} has a configuration, which the new one takes over; allowed "
            f"beside it is nothing, not {', '.join(given)}"
        )
        raise SpecRefused([Fault("continues", message)])
    _check_checkpoint(Trials(session).get(study.id, named.continues))


def _check_candidate(space: SearchSpace, named: NamedTrial) -> None:
    faults = [
        Fault(path, "this is required, unless `continues` names a trial")
        for path in ("architecture", "parametrization")
        if getattr(named, path) is None
    ]
    if named.architecture is not None and named.parametrization is not None:
        wanted = Candidate(architecture=named.architecture, parametrization=named.parametrization)
        if wanted not in space.candidates:
            allowed = ", ".join(str(candidate) for candidate in space.candidates)
            message = f"{wanted} is no candidate of the study; allowed are {allowed}"
            known = {candidate.architecture for candidate in space.candidates}
            path = "parametrization" if wanted.architecture in known else "architecture"
            faults.append(Fault(path, message))
    if faults:
        raise SpecRefused(faults)


def _faults(space: SearchSpace, named: NamedTrial) -> list[Fault]:
    """What of the hyperparameters is wrong, whatever options are drawn for those left out.

    The largest of all that can be drawn is looked at: it cuts the values the least.
    """

    def look(rest: Source) -> Mapping[str, Fault]:
        source = NamedFirst(named, rest)
        has = space.draw(source).hyperparameters
        misfits = {name: _misfit(name, has, source.asked, named) for name in named.hyperparameters}
        return {name: fault for name, fault in misfits.items() if fault} | source.faults

    first, *others = corners(look, highest=True)
    return [fault for name, fault in first.items() if all(name in other for other in others)]


def _misfit(
    name: str, has: Mapping[str, Scalar | None], asked: set[str], named: NamedTrial
) -> Fault | None:
    """Why a configuration does not have the value that was named, if it does not."""
    path, value = f"hyperparameters.{name}", named.hyperparameters[name]
    found = list(_values(name, has, named))
    if not found:
        rest = allowed_instead(name, sorted(has), rest="the study's trials have all of them")
        return Fault(path, f"the candidate has no {name!r} in this study{rest}")
    other = next((one for one in found if one != value), value)
    if other == value:
        return None
    if name in asked:
        return Fault(path, f"{value!r} is more than the largest model holds, which is {other!r}")
    return Fault(path, f"{value!r} is not {other!r}, at which the study holds it")


def _naming(full: str, named: Mapping[str, Scalar | None]) -> str | None:
    """The fullest of a user's names for a field, or None where there is none."""
    return next((name for name in names_of(full) if name in named), None)


def _values(
    name: str, has: Mapping[str, Scalar | None], named: NamedTrial
) -> Iterator[Scalar | None]:
    """The values of the fields that a name speaks of: those for which there is no fuller one.

    A name that fuller ones leave nothing still speaks of all, of which none may differ from it.
    """
    fields = [full for full in has if name in names_of(full)]
    own = [full for full in fields if _naming(full, named.hyperparameters) == name]
    yield from (has[full] for full in own or fields)


def _check_checkpoint(trial: TrialRecord) -> None:
    can_be = trial.state in (TrialState.COMPLETE, TrialState.STOPPED)
    if can_be and CHECKPOINT in trial.artifacts:
        return
    lack = " and has no checkpoint any more" if can_be else ""
    raise Conflict(
        f"trial {trial.number} of study {trial.study_id!r} is {trial.state.value}{lack}; only a "
        "complete or stopped trial with its checkpoint can be continued"
    )
