"""Suggestions that can be trained together: some follow the shape of one that was drawn freely.

A slot trains trials of one architecture and size in the same calls (Note [Stacks] in
`search/README.md`), and few draws of a whole space are alike by chance. So a free draw is followed
by companions: the sampler chooses their counts, ranks and learning rates, and their shape is given.
At random each shape is as likely as it is without companions.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, final

from models.parametrizations import PARAMETRIZATIONS
from models.spec import kind_of
from search.running import StudyContext
from search.spaces import Scalar
from search.training.jobs import TrainJob
from search.training.trial_spec import TrialSpec
from storage.records import TrialOrigin, TrialRecord, TrialState
from storage.repositories.trials import Trials

_PER_TRIAL: Final = 4
"""Where trials are paused, so many are begun for each whole training of a budget, about."""
_SIZES: Final = 3
"""In so many sizes each candidate may begin, at the least."""
_ALIKE = {"batch_size", "optimizer"}
"""What trials have in common of their training that are trained together."""
_FAMILIES = {kind_of(family): family for family in PARAMETRIZATIONS}


@dataclass(frozen=True)
class _Shape:
    key: str
    pins: Mapping[str, Scalar]


@final
class Companions:
    """The shapes that suggestions of one study are given. They follow from its rows alone."""

    def __init__(self, study: StudyContext) -> None:
        self._study = study
        self._shape: _Shape | None = None
        """Of the last suggestion that was drawn; null: a companion of it would be refused, too."""
        self._alike = 0
        """How many suggestions had it, one after the other up to the last one."""
        self._drawn = 0
        self._next: int | None = None
        """The number of the trial before which all is known."""

    def pins(self, number: int) -> Mapping[str, Scalar]:
        """The values by dimension that trial `number` is to have; none: it is drawn freely."""
        size = self._size()
        if size == 1:
            return {}
        if self._next != number:
            self._look(number)
        candidates = len(self._study.space.candidates)
        if self._shape is None or self._drawn < candidates or self._alike % size == 0:
            return {}
        return self._shape.pins

    def note(self, trial: TrialRecord, *, is_refused: bool) -> None:
        """Remember a trial that was added; its number is the next one."""
        if trial.number != self._next:
            return
        self._next = trial.number + 1
        if trial.origin != TrialOrigin.SAMPLER or self._study.spec.sampler.proposes:
            return
        self._drawn += 1
        shape = None if is_refused else self._shape_of(trial)
        if shape is None or self._shape is None or shape.key != self._shape.key:
            self._alike = 0
        self._alike += 1
        self._shape = shape

    def _look(self, number: int) -> None:
        with self._study.database.read() as session:
            rows = Trials(session).list(self._study.id)
        self._shape, self._alike, self._drawn, self._next = None, 0, 0, 0
        for row in rows:
            if row.number < number:
                is_refused = row.state == TrialState.INFEASIBLE and not row.dispatched
                self.note(row, is_refused=is_refused)

    def _size(self) -> int:
        """Of how many suggestions each shape has a series.

        Fewer where the budget would else not last for each candidate in a few sizes: the front is
        found by what differs.
        """
        spec = self._study.spec
        if spec.sampler.size(self._study.space) is not None:
            return 1
        pauses = bool(spec.sampler.rungs(spec.budget.epochs))
        begun = spec.budget.trials * (_PER_TRIAL if pauses else 1)
        each = begun // (_SIZES * len(self._study.space.candidates))
        return max(1, min(spec.resources.most_together, each))

    def _shape_of(self, trial: TrialRecord) -> _Shape | None:
        job = TrainJob(
            task=self._study.spec.trained_task,
            trial=TrialSpec.model_validate(trial.spec),
            number=trial.number,
            epochs=self._study.spec.budget.epochs,
        )
        together = self._study.together(job)
        if together is None:
            return None
        drawn = {name: value for name, value in trial.drawn.items() if _is_of_shape(name)}
        pins = {name: one for name, one in drawn.items() if isinstance(one, int | float | str)}
        return _Shape(together.key, pins)


def _is_of_shape(dimension: str) -> bool:
    """Whether trials that are trained together have the same value of a dimension."""
    owner, _, field = dimension.rpartition(".")
    if owner == "training":
        return field in _ALIKE
    family = _FAMILIES.get(owner.partition(".")[0])
    if family is None or field not in family.model_fields:
        return True
    return family.model_fields[field].annotation is not int and field not in family.reals
