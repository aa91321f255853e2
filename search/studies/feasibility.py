"""Which configurations a study refuses before any training, and how large their files are."""

from collections.abc import Iterator
from contextlib import suppress

from models.architectures import Architecture
from models.errors import ExportError, SpecError
from models.interface import Interface
from search.measuring.runtimes import RUNTIMES
from search.spaces import SearchSpace, excesses, state_bytes
from search.studies.spec import StudySpec
from search.training.deliverables import file_size
from search.training.trial_spec import TrialSpec

_BROKEN = 1.0
"""The excess of what cannot be had at all."""


def bytes_wanted(
    spec: StudySpec,
    trial: TrialSpec,
    interface: Interface | None = None,
    *,
    continues: int | None = None,
) -> int | None:
    """The size of a trial's file; null where the study does not ask for it, or there is none."""
    if not spec.needs_bytes:
        return None
    try:
        return file_size(spec.task, trial, spec.export, interface, continues=continues).bytes
    except (ExportError, SpecError):
        return None


def state_wanted(spec: StudySpec, trial: TrialSpec, interface: Interface | None = None) -> int:
    """What is kept of one sample from a step to the next: by the file, where that says it.

    Raises:
        SpecError: the model cannot be built.
        ExportError: there is no such file of it.
    """
    size = file_size(spec.task, trial, spec.export, interface) if spec.export.has_state else None
    kept = None if size is None else size.state_bytes
    return state_bytes(trial.model) if kept is None else kept


def smallest_state(spec: StudySpec, space: SearchSpace) -> tuple[str, int] | None:
    """The candidate that keeps the least at the lower ends of a space, and how much it keeps."""
    kept: list[tuple[int, str]] = []
    for one in space.ends(highest=False):
        with suppress(ExportError):
            kept.append((state_wanted(spec, one.spec), str(one.candidate)))
    if not kept:
        return None
    size, candidate = min(kept)
    return candidate, size


def largest_bytes(spec: StudySpec, space: SearchSpace) -> int | None:
    """Of the files at the upper ends of a space and of what the study names; null: nobody asks."""
    drawn = (*space.ends(highest=True), *space.named()) if spec.needs_bytes else ()
    sizes = [bytes_wanted(spec, one.spec) for one in drawn]
    return max((size for size in sizes if size is not None), default=None)


def smallest_bytes(spec: StudySpec, space: SearchSpace) -> tuple[str, int] | None:
    """The candidate of the smallest file at the lower ends of a space, and its size."""
    sizes = [
        (size, str(one.candidate))
        for one in space.ends(highest=False)
        if (size := bytes_wanted(spec, one.spec)) is not None
    ]
    if not sizes:
        return None
    size, candidate = min(sizes)
    return candidate, size


def runtime_fault(spec: StudySpec, architecture: Architecture) -> str | None:
    """Why a study cannot measure models of an architecture; null where it can, or measures none."""
    runtime = spec.throughput.runtime
    if not spec.needs_throughput:
        return None
    fault = RUNTIMES[runtime].fault(architecture)
    return None if fault is None else f"the runtime {runtime} does not run it: {fault}"


def refusals(
    spec: StudySpec, trial: TrialSpec, interface: Interface | None = None
) -> Iterator[tuple[str, float]]:
    """Why a study refuses a configuration: each sentence, and the relative excess.

    Raises:
        SpecError: the model cannot be built.
    """
    size: int | None = None
    state: int | None = None
    fault = runtime_fault(spec, trial.model.architecture)
    if fault is not None:
        yield fault, _BROKEN
    try:
        if spec.needs_bytes:
            size = file_size(spec.task, trial, spec.export, interface).bytes
        if spec.limits.state_bytes is not None:
            state = state_wanted(spec, trial, interface)
    except ExportError as error:
        yield f"there is no {spec.export.file} file: {error}", _BROKEN
    yield from excesses(spec.limits, trial.model, file_bytes=size, state=state)
