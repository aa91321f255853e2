"""Submit a study, or try one: complete its document, compile its space, check it, store a row."""

import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pydantic import BaseModel
from sqlalchemy.orm import Session

from models.errors import SpecError
from search.documents.runtimes import RUNTIME_KINDS, running
from search.documents.spaces import DryRun, WarmStartSource
from search.errors import Fault, SpecRefused
from search.graphs.model_outputs import ModelOutputs
from search.papers import PRESETS
from search.spaces import ARCHITECTURE_KINDS, AnySpace, SearchSpace
from search.studies.feasibility import (
    choosing_faults,
    region_faults,
    runtime_fault,
    smallest_bytes,
    smallest_state,
)
from search.studies.memory import MemoryPlace, refuse_too_large, space_memory
from search.studies.networks import refuse_of_a_network, resolved_network
from search.studies.resolving import resolved, with_defaults, with_original
from search.studies.space_of import space_of
from search.studies.spec import StudySpec
from search.studies.states import announce
from search.studies.warm_start import source_trials
from search.tasks import DataSources, Mnist
from storage.accounts.audit import Audit
from storage.accounts.quotas import Quotas
from storage.engine import Database
from storage.records import StudyRecord, WarmStartTrialRecord
from storage.repositories.studies import Studies
from storage.repositories.uploads import Datasets, UploadedModels
from storage.repositories.warm_start_trials import WarmStartTrials

MOST_MEASURED_NUMBERS = 2**31
"""Inputs of a call that is timed: samples times steps times features."""


_NO_CLASSES = "{} has targets that are no classes; allowed is 'task', the task's own loss"

_NUMBER_BYTES = 4
"""Bytes of one trainable number: parameters are single precision."""


@dataclass(frozen=True)
class CheckedStudy:
    """A study that can be run as it is."""

    spec: StudySpec
    warm_start: Sequence[WarmStartTrialRecord]
    """What its sampler knows beforehand."""


def submit(
    database: Database,
    spec: StudySpec,
    *,
    sources: DataSources,
    idempotency_key: str | None = None,
    places: Sequence[MemoryPlace] = (),
) -> StudyRecord:
    """Store a study with the facts of its data, to be begun by a coordinator.

    The same key with the same spec gives the same study, whatever became of its data since.
    `places` are the slots that serve the study, as far as they are known.

    Raises:
        SpecRefused: the spec cannot be run, its data are not there, or all that it could try needs
            more memory than any of the places has; nothing is stored.
        IdempotencyConflict: the key came with another spec before.
        QuotaReached: the tenant has as many studies in progress as it may have.
    """
    digest = digest_of(spec)
    if idempotency_key is not None:
        with database.read() as session:
            known = Studies(session).find_idempotent(idempotency_key, digest)
        if known is not None:
            return known
    checked = check(database, spec, sources=sources, places=places)
    with database.write() as session:
        return store(
            session,
            checked,
            at=datetime.now(UTC),
            idempotency_key=idempotency_key,
            body_digest=digest,
        )


def digest_of(spec: BaseModel) -> str:
    """Of a document as it was sent: the data may have changed when the same is sent again."""
    document = json.dumps(spec.model_dump(mode="json"), sort_keys=True)
    return hashlib.sha256(document.encode()).hexdigest()


def check(
    database: Database,
    spec: StudySpec,
    *,
    sources: DataSources,
    places: Sequence[MemoryPlace] = (),
) -> CheckedStudy:
    """A study with all that follows from its data, which is ready to be stored.

    Raises:
        SpecRefused: see `submit`.
    """
    spec = completed(database, spec, sources)
    space = checked_space(spec)
    refuse_too_large(spec, space, places)
    known = source_trials(database, spec, space)
    return CheckedStudy(spec, tuple(trial for source in known for trial in source.trials))


def store(
    session: Session,
    checked: CheckedStudy,
    *,
    at: datetime,
    idempotency_key: str | None = None,
    body_digest: str | None = None,
) -> StudyRecord:
    """Store a study that was checked, or find the one that the key was used for.

    Raises:
        NotFound: its data set or its model was deleted since.
        IdempotencyConflict: see `submit`.
        QuotaReached: see `submit`.
    """
    spec, study_id = checked.spec, secrets.token_hex(6)
    document = spec.model_dump(mode="json")
    Datasets(session).hold_for(document)
    UploadedModels(session).hold_for(document)
    studies = Studies(session)
    study = studies.create(
        id=study_id,
        name=spec.name,
        spec=document,
        at=at,
        idempotency_key=idempotency_key,
        body_digest=body_digest,
    )
    if study.id == study_id:
        Quotas(session).make_room("studies", is_added=True)
        WarmStartTrials(session).add(study.id, checked.warm_start)
        announce(session, study, at=at)
        Audit(session).note("study.submitted", study.id, name=study.name)
    return studies.get(study.id)


def dry_run(
    database: Database,
    spec: StudySpec,
    *,
    sources: DataSources,
    places: Sequence[MemoryPlace] = (),
) -> DryRun:
    """What a study would search and would know beforehand; nothing is stored.

    Raises:
        SpecRefused: see `submit`.
    """
    spec = completed(database, spec, sources)
    space = checked_space(spec)
    refuse_too_large(spec, space, places)
    known = source_trials(database, spec, space)
    described = space.describe().model_copy(
        update={
            "known_trials": sum(len(one.trials) for one in known if one.by == "results"),
            "warm_start": tuple(
                WarmStartSource(study=one.study, by=one.by, trials=len(one.trials)) for one in known
            ),
        }
    )
    return DryRun(
        **vars(described),
        memory=space_memory(spec, space, places),
        trials=spec.budget.trials,
        epochs=spec.budget.epochs,
    )


def completed(database: Database, spec: StudySpec, sources: DataSources) -> StudySpec:
    """A document with what follows from its data, and from the model that it compresses.

    Raises:
        SpecRefused: they are not there, or do not go together.
    """
    if isinstance(spec.task, ModelOutputs):
        return resolved_network(database, spec, spec.task, sources)
    if spec.limits.agreement is not None:
        message = (
            f"{spec.limits.agreement:g} is for the task model_outputs, where networks are to "
            "answer as another does; allowed with others is null"
        )
        raise SpecRefused([Fault("limits.agreement", message)])
    return with_defaults(with_original(database, resolved(spec, sources)))


def checked_space(spec: StudySpec) -> AnySpace:
    """The space of a completed document, whose other parts go with it.

    Raises:
        SpecRefused: the space cannot be compiled, or the document asks of it what it has not.
    """
    if isinstance(spec.task, ModelOutputs):
        refuse_of_a_network(spec, spec.task)
        network = space_of(spec)
        _refuse_region(spec, network)
        return network
    space = SearchSpace(spec)
    _refuse_runtime(spec)
    _refuse_bits(spec, space)
    _refuse_presets(spec, space)
    _refuse_losses(spec, space)
    _refuse_choosing(spec, space)
    _refuse_other_lengths(spec, space)
    _refuse_limits(spec, space)
    _refuse_region(spec, space)
    _refuse_sampler(spec, space)
    return space


def _refuse_runtime(spec: StudySpec) -> None:
    """Refuse a runtime that does not do what the study wants of it."""
    wanted, faults = spec.throughput, list[Fault]()
    kind = RUNTIME_KINDS[wanted.runtime]
    if wanted.mode not in kind.modes:
        allowed = ", ".join(running(mode=wanted.mode))
        message = f"{wanted.runtime!r} runs no {wanted.mode}; allowed are {allowed}"
        faults.append(Fault("throughput.runtime", message))
    if kind.most_threads is not None and wanted.threads > kind.most_threads:
        message = (
            f"{wanted.runtime!r} runs on no {wanted.threads} threads; allowed is "
            f"{kind.most_threads}, or another throughput.runtime"
        )
        faults.append(Fault("throughput.threads", message))
    device = spec.resources.device
    if device != "any" and device not in kind.devices:
        allowed = ", ".join(running(device=device))
        message = f"{wanted.runtime!r} does not run on {device}; allowed are {allowed}"
        faults.append(Fault("throughput.runtime", message))
    if wanted.mode == "training":
        message = "is that of an answer, and throughput.mode is 'training'; allowed is 'inference'"
        if "latency" in spec.objectives:
            place = "latency"
            if not isinstance(spec.objectives, Mapping):
                place = str(spec.objectives.index("latency"))
            faults.append(Fault(f"objectives.{place}", f"latency {message}"))
        if spec.limits.latency_seconds is not None:
            faults.append(Fault("limits.latency_seconds", f"latency {message}"))
    original = None if spec.compress is None else spec.compress.original.architecture
    fault = None if original is None else runtime_fault(spec, original)
    if fault is not None:
        faults.append(Fault("throughput.runtime", f"the model that is compressed: {fault}"))
    if faults:
        raise SpecRefused(faults)


def _refuse_bits(spec: StudySpec, space: SearchSpace) -> None:
    """Refuse to measure numbers of fewer bits by what has none."""
    runtime = spec.throughput.runtime
    if RUNTIME_KINDS[runtime].rounds or not spec.needs_throughput:
        return
    fewer = {drawn.spec.model.bits for drawn in space.ends(highest=False)} - {32}
    if fewer:
        allowed = ", ".join(kind.name for kind in RUNTIME_KINDS.values() if kind.rounds)
        message = (
            f"{runtime!r} has numbers of 32 bits alone, and model.bits may be "
            f"{', '.join(map(str, sorted(fewer)))}; allowed are {allowed}, or a space with "
            "model.bits 32"
        )
        raise SpecRefused([Fault("throughput.runtime", message)])


def _refuse_presets(spec: StudySpec, space: SearchSpace) -> None:
    faults: list[Fault] = []
    named, trials = len(spec.presets), spec.budget.trials
    if named > trials:
        message = f"{named} presets are more than the {trials} trials of budget.trials"
        faults.append(Fault("presets", message))
    for index, name in enumerate(spec.presets):
        try:
            space.preset_model(name).check()
        except SpecError as error:
            faults.append(Fault(f"presets.{index}", f"{name!r} does not fit the task: {error}"))
    if faults:
        raise SpecRefused(faults)


def _refuse_losses(spec: StudySpec, space: SearchSpace) -> None:
    """Refuse a loss of classes where nobody asks for classes."""
    task = spec.trained_task
    if task.asks_for_classes:
        return
    faults: list[Fault] = []
    for index, name in enumerate(spec.presets):
        loss = PRESETS[name].training.loss
        if loss != "task":
            message = f"{name!r} is trained on {loss!r}, and {_NO_CLASSES.format(task.kind)}"
            faults.append(Fault(f"presets.{index}", message))
    path = next((f"space.{name}" for name in ("training.loss", "loss") if name in spec.space), "")
    drawn = {one.spec.training.loss for one in space.ends(highest=False)} - {"task"}
    faults += [
        Fault(path, f"{loss!r} cannot be, for {_NO_CLASSES.format(task.kind)}")
        for loss in sorted(drawn)
    ]
    if faults:
        raise SpecRefused(faults)


def _refuse_choosing(spec: StudySpec, space: SearchSpace) -> None:
    """Refuse to choose by samples that the models are trained on: the task holds none out."""
    task = spec.trained_task
    if not isinstance(task, Mnist) or task.holds_validation_out:
        return
    faults = [*choosing_faults(spec, space)]
    if faults:
        raise SpecRefused(faults)


def _refuse_other_lengths(spec: StudySpec, space: SearchSpace) -> None:
    """Refuse to measure at a length at which one of the models does not run."""
    signature = spec.trained_task.signature()
    wanted, own = spec.throughput.sequence_length, signature.sequence_length
    samples = spec.throughput.batch_size
    numbers = samples * (wanted or own) * signature.input_size
    if numbers > MOST_MEASURED_NUMBERS:
        message = (
            f"{samples} samples of {wanted or own} steps with {signature.input_size} "
            f"features are {numbers} numbers in a call; allowed are {MOST_MEASURED_NUMBERS}"
        )
        raise SpecRefused([Fault("throughput", message)])
    if wanted is None or wanted == own:
        return
    kinds = [
        *(candidate.architecture for candidate in space.candidates),
        *(PRESETS[name].architecture.kind for name in spec.presets),
    ]
    fixed = dict.fromkeys(kind for kind in kinds if not ARCHITECTURE_KINDS[kind].any_length)
    if fixed:
        message = (
            f"at {wanted} steps {', '.join(fixed)} cannot run, only at the task's own; "
            f"allowed is null or {own}"
        )
        raise SpecRefused([Fault("throughput.sequence_length", message)])


def _refuse_limits(spec: StudySpec, space: SearchSpace) -> None:
    """Refuse limits that not even the smallest configuration keeps.

    Only what is certain: a space may pass here and hold nothing feasible all the same.
    """
    limits, faults = spec.limits, list[Fault]()
    smallest, least = space.smallest
    if limits.parameters is not None and limits.parameters < least:
        message = (
            f"no candidate has {limits.parameters} parameters or fewer; the smallest, {smallest}, "
            f"has {least}"
        )
        faults.append(Fault("limits.parameters", message))
    if limits.memory_bytes is not None and limits.memory_bytes < _NUMBER_BYTES * least:
        message = (
            f"no candidate fits into {limits.memory_bytes} bytes; the parameters of the smallest, "
            f"{smallest}, take {_NUMBER_BYTES * least}"
        )
        faults.append(Fault("limits.memory_bytes", message))
    if limits.bytes is not None:
        least_file = smallest_bytes(spec, space)
        if least_file is not None and limits.bytes < least_file[1]:
            message = (
                f"no candidate has a file of {limits.bytes} bytes or fewer; that of the smallest, "
                f"{least_file[0]}, has at least {least_file[1]}"
            )
            faults.append(Fault("limits.bytes", message))
    if limits.state_bytes is not None:
        least_state = smallest_state(spec, space)
        if least_state is not None and limits.state_bytes < least_state[1]:
            message = (
                f"no candidate keeps {limits.state_bytes} bytes or fewer from a step to the next; "
                f"the smallest, {least_state[0]}, keeps {least_state[1]}"
            )
            faults.append(Fault("limits.state_bytes", message))
    if faults:
        raise SpecRefused(faults)


def _refuse_region(spec: StudySpec, space: AnySpace) -> None:
    if spec.region.ends and (faults := [*region_faults(spec, space)]):
        raise SpecRefused(faults)


def _refuse_sampler(spec: StudySpec, space: SearchSpace) -> None:
    fault = spec.sampler.fault(space, tuple(spec.objectives))
    if fault is not None:
        raise SpecRefused([Fault("sampler", fault)])
    most, trials = spec.sampler.most_trials(), spec.budget.trials
    if most is not None and trials > most:
        kind = spec.sampler.kind
        message = f"{trials} is more than {kind} keeps up with; allowed are at most {most}"
        raise SpecRefused([Fault("budget.trials", message)])
