"""The search space of a study: its candidates, their dimensions, and one draw of them."""

import itertools
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from typing import TypeAlias, TypeVar

from pydantic import ValidationError

from models.architectures import ARCHITECTURES
from models.errors import SlotError
from models.model import ModelSpec
from models.parametrizations import PARAMETRIZATIONS
from models.spec import SlotSize, Spec, kind_of
from search.dimension import ChoiceDimension, Dimension, Options, Override, Range, Scalar
from search.draws import (
    CornerSource,
    Recorder,
    Source,
    SpaceDraw,
    UnfitOverride,
    answer,
    fields_of,
)
from search.errors import Fault, SpecRefused
from search.spec import StudySpec
from search.trial import TrainingSpec, TrialSpec

V = TypeVar("V", bound=Spec)

Hyperparameters: TypeAlias = dict[str, Scalar]

_TRAINING = "training"
_ARCHITECTURES = {kind_of(variant): variant for variant in ARCHITECTURES}
_PARAMETRIZATIONS = {kind_of(variant): variant for variant in PARAMETRIZATIONS}


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """An architecture with a parametrization that is defined on its slots."""

    architecture: str
    parametrization: str


@dataclass(frozen=True, kw_only=True)
class DrawnTrial:
    """One configuration: the document, what was drawn for it, and the values that the model has."""

    candidate: Candidate
    spec: TrialSpec
    hyperparameters: Hyperparameters
    """Full field name -> value, cut to what the layers hold; pins included."""
    drawn: Hyperparameters
    """Dimension name -> value as the sampler knows it."""


class ParameterRange(Spec):
    """The fewest and the most trainable numbers that a candidate of the space can have."""

    low: int
    high: int


class SpaceDescription(Spec):
    """What a dry run tells: the dimensions, the candidates and the range of parameter counts."""

    dimensions: tuple[Dimension, ...]
    candidates: tuple[dict[str, str], ...]
    parameter_range: ParameterRange


class SearchSpace:
    """The space of one study. Everything in it is static, so that a sampler can model it jointly.

    Raises:
        SpecRefused: the spec names something unknown, empty or impossible.
    """

    def __init__(self, spec: StudySpec) -> None:
        self._spec = spec
        self._signature = spec.task.signature()
        self._overrides: Mapping[str, Override] = spec.space
        self._refuse_unknown_names()
        self._largest = self._largest_slot()
        self._overrides = {**spec.space, **self._cut_to_the_largest_slot()}
        self._combinations = self._defined_combinations()
        self.parameter_range = self._parameter_range()

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """Every architecture with each parametrization that is defined on it, in spec order."""
        return tuple(
            Candidate(architecture=architecture, parametrization=parametrization)
            for architecture, parametrizations in self._combinations.items()
            for parametrization in parametrizations
        )

    def draw(self, source: Source) -> DrawnTrial:
        """One configuration by the source's answers."""
        recorder = Recorder(source)
        architecture = str(
            answer(
                recorder,
                ChoiceDimension(name="architecture", options=tuple(self._combinations)),
            )
        )
        options = self._combinations[architecture]
        shared = len(set(self._combinations.values())) == 1
        name = "parametrization" if shared else f"{architecture}.parametrization"
        parametrization = str(answer(recorder, ChoiceDimension(name=name, options=options)))
        candidate = Candidate(architecture=architecture, parametrization=parametrization)
        return self._draw_candidate(candidate, recorder)

    def describe(self) -> SpaceDescription:
        """The whole space, as a dry run shows it."""
        dimensions: dict[str, Dimension] = {}
        for candidate in self.candidates:
            choices: dict[str, Scalar] = {
                "architecture": candidate.architecture,
                "parametrization": candidate.parametrization,
                f"{candidate.architecture}.parametrization": candidate.parametrization,
            }
            recorder = Recorder(CornerSource(highest=True, choices=choices))
            self.draw(recorder)
            dimensions |= recorder.dimensions
        return SpaceDescription(
            dimensions=tuple(dimensions.values()),
            candidates=tuple(
                {"architecture": c.architecture, "parametrization": c.parametrization}
                for c in self.candidates
            ),
            parameter_range=self.parameter_range,
        )

    def _draw_candidate(self, candidate: Candidate, source: Source) -> DrawnTrial:
        recorder = source if isinstance(source, Recorder) else Recorder(source)
        hyperparameters: Hyperparameters = {}

        def finished(draw: SpaceDraw, spec: V, kind: str) -> V:
            spec = draw.complete(spec)
            asked = [field for field in type(spec).model_fields if field in draw.asked]
            hyperparameters.update({f"{kind}.{field}": getattr(spec, field) for field in asked})
            return spec

        kind = candidate.architecture
        draw = SpaceDraw(kind, self._overrides, recorder)
        architecture = finished(draw, _ARCHITECTURES[kind].suggest(draw, self._signature), kind)

        kind = candidate.parametrization
        draw = SpaceDraw(kind, self._overrides, recorder)
        slot = self._slot(max(architecture.slots(self._signature).values(), key=min))
        parametrization = finished(draw, _PARAMETRIZATIONS[kind].suggest(draw, slot), kind)

        draw = SpaceDraw(_TRAINING, self._overrides, recorder)
        training = finished(draw, TrainingSpec.suggest(draw), _TRAINING)
        model = ModelSpec(
            architecture=architecture, parametrization=parametrization, signature=self._signature
        )
        return DrawnTrial(
            candidate=candidate,
            spec=TrialSpec(model=model, training=training, seed=self._spec.seed),
            hyperparameters=hyperparameters,
            drawn=dict(recorder.answers),
        )

    def _slot(self, size: tuple[int, int]) -> SlotSize:
        out_features, in_features = size
        largest_out, largest_in = self._largest
        return SlotSize(
            in_features=in_features,
            out_features=out_features,
            largest_in=largest_in,
            largest_out=largest_out,
        )

    def _variants(self) -> Iterator[tuple[str, type[Spec]]]:
        for kind in self._spec.architectures:
            yield kind, _ARCHITECTURES[kind]
        for kind in self._spec.parametrizations:
            yield kind, _PARAMETRIZATIONS[kind]
        yield _TRAINING, TrainingSpec

    def _refuse_unknown_names(self) -> None:
        known: set[str] = set()
        for kind, variant in self._variants():
            for field in fields_of(variant):
                known |= {field, f"{kind}.{field}"}
        unknown = [name for name in self._spec.space if name not in known]
        if unknown:
            allowed = ", ".join(sorted(known))
            raise SpecRefused(
                [
                    Fault(f"space.{name}", f"no candidate has {name!r}; allowed are {allowed}")
                    for name in unknown
                ]
            )

    def _largest_slot(self) -> tuple[int, int]:
        """The largest structured slot (out_features, in_features) of any candidate.

        Both ends are tried.
        """
        largest = (1, 1)
        for kind in self._spec.architectures:
            for highest in (False, True):
                draw = SpaceDraw(kind, self._overrides, CornerSource(highest=highest))
                with self._faults(kind):
                    architecture = draw.complete(
                        _ARCHITECTURES[kind].suggest(draw, self._signature)
                    )
                    slots = architecture.slots(self._signature).values()
                    largest = max(largest, *slots, key=min)
        return largest

    def _cut_to_the_largest_slot(self) -> dict[str, Override]:
        """Overrides of parametrizations, cut to what the largest slot holds.

        What a slot holds is read off `suggest`, which cuts what it drew.
        """
        cut: dict[str, Override] = {}
        faults: list[Fault] = []
        for kind in self._spec.parametrizations:
            for highest in (False, True):
                draw = SpaceDraw(kind, self._overrides, CornerSource(highest=highest))
                with self._faults(kind):
                    held = draw.complete(
                        _PARAMETRIZATIONS[kind].suggest(draw, self._slot(self._largest))
                    )
            for field in sorted(draw.asked):
                override, most = draw.override(field), getattr(held, field)
                if override is None or isinstance(most, str | bool):
                    continue
                path = self._path(kind, field)
                match override:
                    case Range(low=low, high=high) if high > most and low <= most:
                        cut[f"{kind}.{field}"] = override.model_copy(update={"high": most})
                    case Range(low=low, high=high) if low > most:
                        faults.append(Fault(path, _beyond(f"{low} to {high}", most)))
                    case Options(options=options) if any(_above(value, most) for value in options):
                        faults.append(Fault(path, _beyond(list(options), most)))
                    case int() | float() if override > most:
                        faults.append(Fault(path, _beyond(override, most)))
                    case _:
                        pass
        if faults:
            raise SpecRefused(faults)
        return cut

    def _defined_combinations(self) -> dict[str, tuple[str, ...]]:
        combinations: dict[str, tuple[str, ...]] = {}
        faults: list[Fault] = []
        for index, architecture in enumerate(self._spec.architectures):
            defined: list[str] = []
            refusals: list[str] = []
            for parametrization in self._spec.parametrizations:
                candidate = Candidate(architecture=architecture, parametrization=parametrization)
                try:
                    with self._faults(_TRAINING):
                        drawn = self._draw_candidate(candidate, CornerSource(highest=True))
                    drawn.spec.model.check()
                    defined.append(parametrization)
                except SlotError as error:
                    refusals.append(f"{parametrization}: {error}")
            if defined:
                combinations[architecture] = tuple(defined)
            else:
                message = f"no named parametrization fits {architecture!r}: {'; '.join(refusals)}"
                faults.append(Fault(f"architectures.{index}", message))
        if faults:
            raise SpecRefused(faults)
        return combinations

    def _parameter_range(self) -> ParameterRange:
        smallest = min(self._counts(highest=False), key=itemgetter(0))
        largest = max(self._counts(highest=True), key=itemgetter(0))
        limit = self._spec.limits.parameters
        if limit is not None and limit < smallest[0]:
            message = (
                f"no candidate has {limit} parameters or fewer; the smallest, "
                f"{smallest[1].architecture} with {smallest[1].parametrization}, has {smallest[0]}"
            )
            raise SpecRefused([Fault("limits.parameters", message)])
        return ParameterRange(low=smallest[0], high=largest[0])

    def _counts(self, *, highest: bool) -> Iterator[tuple[int, "Candidate"]]:
        """Parameter counts at one end of every candidate, over all of its options.

        Counts grow with every number (a conformance test of `models` says so), so the ends are the
        extremes.
        """
        for candidate in self.candidates:
            recorder = Recorder(CornerSource(highest=highest))
            self._draw_candidate(candidate, recorder)
            named = {
                name: dimension.options
                for name, dimension in recorder.dimensions.items()
                if isinstance(dimension, ChoiceDimension)
            }
            for values in itertools.product(*named.values()):
                choices = dict(zip(named, values, strict=True))
                source = CornerSource(highest=highest, choices=choices)
                drawn = self._draw_candidate(candidate, source)
                yield drawn.spec.model.parameter_count(), candidate

    def _path(self, kind: str, field: str) -> str:
        """Where in the document the user put what decides this field."""
        full = f"{kind}.{field}"
        return f"space.{full if full in self._spec.space else field}"

    @contextmanager
    def _faults(self, kind: str) -> Generator[None]:
        """Turn what is wrong with an override into a fault with its path in the document."""
        try:
            yield
        except SlotError:
            raise
        except UnfitOverride as error:
            raise SpecRefused([Fault(self._path(kind, error.field), str(error))]) from error
        except ValidationError as error:
            raise SpecRefused(
                [
                    Fault(
                        self._path(kind, ".".join(map(str, fault["loc"]))),
                        f"{fault['msg']}, not {fault['input']!r}",
                    )
                    for fault in error.errors()
                ]
            ) from error


def _above(value: Scalar, most: float) -> bool:
    return isinstance(value, int | float) and value > most


def _beyond(value: object, most: float) -> str:
    return f"{value} is more than the largest layer of this study holds; allowed is at most {most}"


def describe(spec: StudySpec) -> SpaceDescription:
    """What a study would search, without storing anything.

    Raises:
        SpecRefused: an unknown override, an empty range, an impossible pin or limit.
    """
    return SearchSpace(spec).describe()
