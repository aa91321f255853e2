"""Which configurations a study refuses before any training, and how large their files are."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

from models.architectures import Architecture
from models.errors import ExportError, SpecError
from models.interface import Interface
from search.documents.objectives import OBJECTIVE_KINDS, Objective
from search.documents.readable import number
from search.documents.region import ENDS
from search.errors import Fault
from search.graphs.network_trial import NetworkTrial
from search.measuring.runtimes import RUNTIMES
from search.papers import PRESETS
from search.spaces import (
    AnySpace,
    NetworkSpace,
    SearchSpace,
    excesses,
    excesses_of_a_network,
    most_allowed,
    state_bytes,
)
from search.studies.spec import StudySpec
from search.tasks import Metric
from search.training.deliverables import file_size
from search.training.trial_spec import AnyTrialSpec, TrialSpec

_BROKEN = 1.0
"""The excess of what cannot be had at all."""


def bytes_wanted(
    spec: StudySpec,
    trial: AnyTrialSpec,
    interface: Interface | None = None,
    *,
    continues: int | None = None,
) -> int | None:
    """The size of a trial's file; null where the study does not ask for it, or there is none."""
    if isinstance(trial, NetworkTrial):
        return trial.bytes
    if not spec.needs_bytes:
        return None
    try:
        return file_size(
            spec.trained_task, trial, spec.export, interface, continues=continues
        ).bytes
    except (ExportError, SpecError):
        return None


def state_wanted(spec: StudySpec, trial: TrialSpec, interface: Interface | None = None) -> int:
    """What is kept of one sample from a step to the next: by the file, where that says it.

    Raises:
        SpecError: the model cannot be built.
        ExportError: there is no such file of it.
    """
    size = (
        file_size(spec.trained_task, trial, spec.export, interface)
        if spec.export.has_state
        else None
    )
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


def largest_bytes(spec: StudySpec, space: AnySpace) -> int | None:
    """Of the files at the upper ends of a space and of what the study names; null: nobody asks."""
    drawn = (*space.ends(highest=True), *space.named()) if spec.needs_bytes else ()
    sizes = [bytes_wanted(spec, one.spec) for one in drawn]
    return max((size for size in sizes if size is not None), default=None)


def smallest_bytes(spec: StudySpec, space: AnySpace) -> tuple[str, int] | None:
    """The candidate of the smallest file at the lower ends of a space, and its size.

    Null where it is not known beforehand.
    """
    if isinstance(space, NetworkSpace):
        return None
    sizes = [
        (size, str(one.candidate))
        for one in space.ends(highest=False)
        if (size := bytes_wanted(spec, one.spec)) is not None
    ]
    if not sizes:
        return None
    size, candidate = min(sizes)
    return candidate, size


def region_faults(spec: StudySpec, space: AnySpace) -> Iterator[Fault]:
    """Bounds of a region of interest that are the wrong end, or where nothing can be found.

    The task has to be resolved.
    """
    metric = spec.task.metric
    for name, (end, bound) in spec.region.ends.items():
        kind = OBJECTIVE_KINDS[name]
        direction = kind.direction or metric.direction
        if end != ENDS[direction]:
            called = name if kind.direction else f"{name} ({metric.name})"
            message = (
                f"the direction of {called} is {direction}; allowed is {ENDS[direction]}, not "
                f"{end} {number(bound)}"
            )
            messages = iter([message])
        elif kind.known == "trained":
            messages = _quality_faults(metric, bound)
        else:
            messages = _cost_faults(spec, space, name, bound)
        yield from (Fault(f"objectives.{name}.{end}", message) for message in messages)


def _quality_faults(metric: Metric, bound: float) -> Iterator[str]:
    allowed = f"below {metric.baseline:g}"
    if metric.direction == "maximize":
        allowed = f"above {metric.baseline:g}, up to 1"
    if not metric.is_better(bound, metric.baseline):
        yield (
            f"{metric.name} {bound:g} is no better than the baseline, {metric.baseline:g}; "
            f"allowed is {allowed}"
        )
    elif metric.direction == "maximize" and bound > 1:
        yield f"no model has {metric.name} {bound:g}; allowed is {allowed}"


def _cost_faults(spec: StudySpec, space: AnySpace, name: Objective, bound: float) -> Iterator[str]:
    most = most_allowed(spec.limits, name)
    if most is not None and bound > most:
        yield f"limits exclude {number(bound)}; allowed is at most {number(most)}"
    find = _LEAST.get(name)
    least = None if find is None else find(spec, space)
    if least is not None and bound < least[1]:
        yield (
            f"no candidate has {number(bound)} {name} or fewer; the smallest, {least[0]}, has "
            f"{number(least[1])}"
        )


def _fewest_parameters(_spec: StudySpec, space: AnySpace) -> tuple[str, int] | None:
    if isinstance(space, NetworkSpace):
        # How small a network can be is known once its layers were fitted.
        return None
    # What the study names is trained wherever it lies.
    named = [(str(one.candidate), one.spec.parameter_count()) for one in space.named()]
    return min((space.smallest, *named), key=lambda one: one[1])


_LEAST: Mapping[Objective, Callable[[StudySpec, AnySpace], tuple[str, int] | None]] = {
    "parameters": _fewest_parameters,
    "bytes": smallest_bytes,
}
"""What has the least of an objective that follows from the configuration, and how much."""


def runtime_fault(spec: StudySpec, architecture: Architecture) -> str | None:
    """Why a study cannot measure models of an architecture; null where it can, or measures none."""
    runtime = spec.throughput.runtime
    if not spec.needs_throughput:
        return None
    fault = RUNTIMES[runtime].fault(architecture)
    return None if fault is None else f"the runtime {runtime} does not run it: {fault}"


def refusals(
    spec: StudySpec, trial: AnyTrialSpec, interface: Interface | None = None
) -> Iterator[tuple[str, float]]:
    """Why a study refuses a configuration: each sentence, and the relative excess.

    Raises:
        SpecError: the model cannot be built.
    """
    if isinstance(trial, NetworkTrial):
        yield from excesses_of_a_network(spec.limits, trial)
        return
    size: int | None = None
    state: int | None = None
    fault = runtime_fault(spec, trial.model.architecture)
    if fault is not None:
        yield fault, _BROKEN
    try:
        if spec.needs_bytes:
            size = file_size(spec.trained_task, trial, spec.export, interface).bytes
        if spec.limits.state_bytes is not None:
            state = state_wanted(spec, trial, interface)
    except ExportError as error:
        yield f"there is no {spec.export.file} file: {error}", _BROKEN
    yield from excesses(spec.limits, trial.model, file_bytes=size, state=state)


def choosing_faults(spec: StudySpec, space: SearchSpace) -> Iterator[Fault]:
    """What in a document would choose by samples that its models are trained on."""
    why = "and split '60k' trains on the images that would choose"
    if space.dimensions and len(spec.presets) < spec.budget.trials:
        names = ", ".join(sorted(space.dimensions))
        message = (
            f"'60k' chooses nothing, and this study searches {names}; allowed is '50k', or trials "
            "that are all named: each dimension pinned to what a study of '50k' found, or as many "
            "presets as budget.trials"
        )
        yield Fault("task.split", message)
    if spec.early_stopping is not None:
        message = f"{spec.early_stopping.kind!r} ends trials by validation, {why}; allowed is null"
        yield Fault("early_stopping", message)
    if spec.sampler.rungs(spec.budget.epochs):
        message = f"{spec.sampler.kind!r} pauses trials by validation, {why}; allowed is 'random'"
        yield Fault("sampler", message)
    if spec.confirm:
        message = f"{spec.confirm} seeds are for the best by validation, {why}; allowed is 0"
        yield Fault("confirm", message)
    words = f"plateau and patience go by validation, {why}; allowed are null and null"
    if any(one.spec.training.may_end_early for one in space.ends(highest=False)):
        yield Fault("space", words)
    for index, name in enumerate(spec.presets):
        if PRESETS[name].training.may_end_early:
            yield Fault(f"presets.{index}", f"{name!r}: {words}")
