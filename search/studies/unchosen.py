"""Studies of tasks that hold no samples out for validation: nothing in them may be chosen."""

from collections.abc import Iterator

from search.errors import Fault, SpecRefused
from search.spaces import PRESETS, SearchSpace
from search.studies.spec import StudySpec
from search.tasks import Mnist


def refuse_choosing(spec: StudySpec, space: SearchSpace) -> None:
    """Refuse a study that would choose by samples that its models are trained on.

    Raises:
        SpecRefused: the task holds none out, and something in the document chooses by them.
    """
    task = spec.trained_task
    if (
        isinstance(task, Mnist)
        and not task.holds_validation_out
        and (faults := [*_faults(spec, space)])
    ):
        raise SpecRefused(faults)


def _faults(spec: StudySpec, space: SearchSpace) -> Iterator[Fault]:
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
