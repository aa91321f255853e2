"""A space by its candidates: a branch for each architecture and parametrization."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from search.samplers.modelling.paths import Way, ways
from search.samplers.sampler import Knowledge, Past, SamplerContext, Space
from search.spaces import Dimension, DrawnTrial, Scalar, Source
from storage.records import TrialRecord

V = TypeVar("V")


@dataclass(frozen=True, kw_only=True)
class Branch:
    """The configurations of one candidate, as a space of their own."""

    architecture: str
    parametrization: str
    chosen: Mapping[str, Scalar]
    """The options that name the candidate in the whole space."""
    dimensions: Mapping[str, Dimension]
    """What is searched of it."""
    conditional: tuple[str, ...]
    """Those dimensions that only some of its configurations have."""
    whole: Space

    def __str__(self) -> str:
        """The candidate in words."""
        return f"{self.architecture} with {self.parametrization}"

    def draw(self, source: Source) -> DrawnTrial:
        """One configuration of the candidate, with all values as the whole space names them."""
        return self.whole.draw(_Choosing(source, self.chosen))

    def agrees(self, values: Mapping[str, Scalar]) -> bool:
        """Whether these values, by dimension, name no other candidate."""
        return all(values.get(name, option) == option for name, option in self.chosen.items())

    def is_of(self, trial: TrialRecord) -> bool:
        """Whether a trial has this candidate."""
        candidate = (trial.architecture, trial.parametrization)
        return candidate == (self.architecture, self.parametrization)

    def holds(self, trial: TrialRecord) -> bool:
        """Whether it has a value of each dimension that all have, too: a preset may lie outside."""
        needed = self.dimensions.keys() - set(self.conditional)
        return self.is_of(trial) and needed <= trial.drawn.keys()


def branches_of(space: Space) -> tuple[Branch, ...]:
    """The branches, in the order in which the space has its candidates."""
    found: dict[tuple[str, str], list[Way]] = {}
    for way in ways(space):
        model = way.first.spec.model
        candidate = (model.architecture.kind, model.parametrization.family)
        found.setdefault(candidate, []).append(way)
    return tuple(_branch(space, *candidate, group) for candidate, group in found.items())


def narrowed(study: SamplerContext, branch: Branch) -> SamplerContext:
    """What a sampler may know of its study where it searches one branch alone.

    The branch's trials are numbered from 0, in their order.
    """

    def past() -> Past:
        whole = study.past()
        own = [trial for trial in whole.trials if branch.holds(trial)]
        numbers = {trial.number: place for place, trial in enumerate(own)}
        return Past(
            trials=[
                replace(
                    _within(trial, branch),
                    number=numbers[trial.number],
                    continues=numbers.get(trial.continues) if trial.continues is not None else None,
                )
                for trial in own
            ],
            validations=_renamed(whole.validations, numbers),
            validation_samples=whole.validation_samples,
        )

    known = [trial for trial in study.knowledge.trials if branch.holds(trial)]
    numbers = {trial.number: trial.number for trial in known}
    knowledge = Knowledge(
        trials=[_within(trial, branch) for trial in known],
        validations=_renamed(study.knowledge.validations, numbers),
    )
    return replace(study, space=branch, past=past, knowledge=knowledge)


class _Choosing:
    """Answers what names a candidate, and passes all else on."""

    def __init__(self, source: Source, chosen: Mapping[str, Scalar]) -> None:
        self._source, self._chosen = source, chosen

    def answer(self, dimension: Dimension) -> Scalar:
        if dimension.name in self._chosen:
            return self._chosen[dimension.name]
        return self._source.answer(dimension)


def _branch(space: Space, architecture: str, parametrization: str, group: Sequence[Way]) -> Branch:
    chosen = {name: option for name, option in group[0].options.items() if _names_candidate(name)}
    dimensions: dict[str, Dimension] = {}
    for way in group:
        dimensions |= {n: one for n, one in way.dimensions.items() if n not in chosen}
    return Branch(
        architecture=architecture,
        parametrization=parametrization,
        chosen=chosen,
        dimensions=dimensions,
        conditional=tuple(
            name for name in dimensions if any(name not in way.dimensions for way in group)
        ),
        whole=space,
    )


def _names_candidate(dimension: str) -> bool:
    """Whether it is `architecture`, `parametrization` or `<architecture>.parametrization`."""
    return dimension.rpartition(".")[2] in ("architecture", "parametrization")


def _within(trial: TrialRecord, branch: Branch) -> TrialRecord:
    drawn = {name: value for name, value in trial.drawn.items() if name in branch.dimensions}
    return replace(trial, drawn=drawn)


def _renamed(values: Mapping[int, V], numbers: Mapping[int, int]) -> dict[int, V]:
    return {numbers[number]: value for number, value in values.items() if number in numbers}
