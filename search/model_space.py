"""The models of a search space: which architecture goes with which parametrization, and how large.

Ranges are static over a study: a parametrization's end with the largest main slot that it is
defined on, and what is drawn is cut to the slot at hand.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar

from models.architectures import ARCHITECTURES, AnyArchitecture
from models.compression.families import refuse_unconvertible
from models.errors import ConversionError, SlotError, SpecError
from models.model import ModelSpec
from models.parametrizations import PARAMETRIZATIONS, AnyFamily
from models.spec import Slot, Spec, kind_of
from search.compression import MOST_LAYERS_APART
from search.dimension import ChoiceDimension, Options, Override, Range, Scalar
from search.draws import (
    CornerSource,
    Recorder,
    Source,
    SpaceDraw,
    fields_of,
    path_of,
    refusing,
)
from search.errors import Fault, SpecRefused
from search.layers import layers_apart, main_slot, names_by_layer, together
from search.spec import StudySpec

T = TypeVar("T")

Hyperparameters: TypeAlias = dict[str, Scalar | None]

ARCHITECTURE_KINDS = {kind_of(variant): variant for variant in ARCHITECTURES}
PARAMETRIZATION_KINDS = {kind_of(variant): variant for variant in PARAMETRIZATIONS}


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """An architecture with a parametrization that is defined on its slots."""

    architecture: str
    parametrization: str

    def __str__(self) -> str:
        return f"{self.architecture} with {self.parametrization}"


class ModelSpace:
    """The architectures and parametrizations of a study, under the user's overrides.

    Raises:
        SpecRefused: an override does not suit its field, or no parametrization an architecture.
    """

    def __init__(self, spec: StudySpec) -> None:
        self._spec = spec
        self._signature = spec.task.signature()
        self._overrides: Mapping[str, Override] = spec.space
        self._layers_apart = layers_apart(spec)
        self._refuse_what_no_conversion_gives()
        self._largest = self._largest_slots()
        self._overrides = {**spec.space, **self._cut_to_the_largest_slots()}
        self.combinations = self._defined_combinations()
        """Architecture -> the parametrizations that are defined on it, in spec order."""

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """Every architecture with each parametrization that is defined on it, in spec order."""
        return tuple(
            Candidate(architecture=architecture, parametrization=parametrization)
            for architecture, parametrizations in self.combinations.items()
            for parametrization in parametrizations
        )

    def draw(
        self,
        candidate: Candidate,
        source: Source,
        hyperparameters: Hyperparameters | None = None,
    ) -> ModelSpec:
        """One model of a candidate; every field that was asked for is noted."""
        architecture, asked = self._draw_architecture(candidate.architecture, source)
        slot = main_slot(architecture.slots(self._signature))
        kind = candidate.parametrization
        names = names_by_layer(kind, self._layers_apart)
        one = replace(slot, layers=slot.layers // len(names))
        drawn = [self._draw_family(name, kind, one, source) for name in names]
        if hyperparameters is not None:
            note(hyperparameters, candidate.architecture, architecture, asked)
            for name, (member, draw) in zip(names, drawn, strict=True):
                note(hyperparameters, name, member, draw)
        return ModelSpec(
            architecture=architecture,
            parametrization=together(
                [member for member, _ in drawn], drawn=any(draw.asked for _, draw in drawn)
            ),
            signature=self._signature,
        )

    def _draw_family(
        self, name: str, kind: str, slot: Slot, source: Source
    ) -> tuple[AnyFamily, SpaceDraw]:
        """A member of a family for a slot, and what was asked for it by a name."""
        draw = SpaceDraw(name, self._overrides, source)
        largest = self._largest.get(kind, slot).smaller_side
        with refusing(name, self._spec.space):
            member = _fitted(
                draw.complete(PARAMETRIZATION_KINDS[kind].suggest(draw, slot, largest=largest)),
                slot,
                named=draw.named,
            )
        return member, draw

    def refusal(self, candidate: Candidate) -> str | None:
        """Why no model of a candidate can be built, or None where one can."""
        refusal: str | None = None
        for highest in (True, False):
            for model in self._models(candidate, highest=highest):
                try:
                    model.check()
                except SpecError as error:
                    refusal = refusal or str(error)
                else:
                    return None
        return refusal

    def counts(self, candidate: Candidate, *, highest: bool) -> list[int]:
        """Parameter counts at one end of a candidate.

        Counts grow with every number (a conformance test of `models` says so), so the ends are the
        extremes. Where no end can be built, its count is a bound.
        """
        models = list(self._models(candidate, highest=highest))
        buildable = [model for model in models if _can_be_built(model)]
        return [model.parameter_count() for model in buildable or models]

    def _draw_architecture(self, kind: str, source: Source) -> tuple[AnyArchitecture, SpaceDraw]:
        if self._spec.compress is not None:
            # What is trained stays as it was: only what leaves the numbers alone may be named.
            free = {
                name: override
                for name, override in self._overrides.items()
                if _leaves_numbers_alone(name.rpartition(".")[2])
            }
            draw = SpaceDraw(kind, free, source)
            with refusing(kind, self._spec.space):
                return draw.complete(self._spec.compress.original.architecture), draw
        draw = SpaceDraw(kind, self._overrides, source)
        with refusing(kind, self._spec.space):
            return draw.complete(ARCHITECTURE_KINDS[kind].suggest(draw, self._signature)), draw

    def _refuse_what_no_conversion_gives(self) -> None:
        """Refuse other architectures than the original's, and forms that it is not converted to."""
        if self._spec.compress is None:
            return
        architecture = self._spec.compress.original.architecture
        draw = SpaceDraw(architecture.kind, self._overrides, CornerSource(highest=True))
        faults: list[Fault] = []
        for field in sorted(fields_of(type(architecture))):
            own = getattr(architecture, field)
            if _leaves_numbers_alone(field) or not draw.is_overridden(field):
                continue
            if draw.override(field) != own:
                path = path_of(architecture.kind, field, self._spec.space)
                message = f"{field} is what the model has, {own!r}; allowed is nothing else"
                faults.append(Fault(path, message))
        for index, kind in enumerate(self._spec.parametrizations):
            try:
                refuse_unconvertible(PARAMETRIZATION_KINDS[kind])
            except ConversionError as error:
                faults.append(Fault(f"parametrizations.{index}", str(error)))
        if self._layers_apart > MOST_LAYERS_APART:
            message = (
                f"'each' is for models of at most {MOST_LAYERS_APART} layers, not "
                f"{self._layers_apart}; allowed is 'shared'"
            )
            faults.append(Fault("compress.layers", message))
        if faults:
            raise SpecRefused(faults)

    def _largest_slots(self) -> dict[str, Slot]:
        """For each parametrization, the largest main slot on which it is defined at all.

        Options and both ends of every range of the architectures are tried. A parametrization that
        is defined on none of them is left out.
        """
        mains = [
            main_slot(architecture.slots(self._signature))
            for kind in self._spec.architectures
            for highest in (False, True)
            for architecture in self._answering(kind, highest=highest)
        ]
        largest: dict[str, Slot] = {}
        for kind in self._spec.parametrizations:
            defined = [slot for slot in mains if _is_defined(PARAMETRIZATION_KINDS[kind], slot)]
            if defined:
                largest[kind] = max(defined, key=lambda slot: slot.smaller_side)
        return largest

    def _answering(self, kind: str, *, highest: bool) -> Iterator[AnyArchitecture]:
        """The architecture at one end of its ranges, with each option, where it fits the task."""

        def draw(source: Source) -> AnyArchitecture:
            return self._draw_architecture(kind, source)[0]

        for architecture in corners(draw, highest=highest):
            try:
                architecture.check(self._signature)
            except SpecError:
                continue
            yield architecture

    def _cut_to_the_largest_slots(self) -> dict[str, Override]:
        """Overrides of parametrizations, cut to what the largest slot holds.

        A range ends where `suggest` cuts; what the user names number by number goes as far as the
        slot holds it.
        """
        cut: dict[str, Override] = {}
        faults: list[Fault] = []
        named = [
            (name, kind, slot)
            for kind, slot in self._largest.items()
            for name in names_by_layer(kind, self._layers_apart)
        ]
        for name, kind, slot in named:
            for highest in (False, True):
                draw = SpaceDraw(name, self._overrides, CornerSource(highest=highest))
                with refusing(name, self._spec.space):
                    held = draw.complete(
                        PARAMETRIZATION_KINDS[kind].suggest(draw, slot, largest=slot.smaller_side)
                    ).cut(slot)
            for field in sorted(draw.asked):
                override, most = draw.override(field), getattr(held, field)
                if not (draw.is_overridden(field) and _is_number(most)):
                    continue
                path = path_of(name, field, self._spec.space)
                match override:
                    case Range(low=low, high=high) if low > most:
                        message = (
                            f"{low} to {high} is more than the largest layer of this study holds; "
                            f"allowed is at most {most}"
                        )
                        faults.append(Fault(path, message))
                    case Range(high=high) if high > most:
                        cut[f"{name}.{field}"] = override.model_copy(update={"high": most})
                    case Range():
                        pass
                    case Options(options=options):
                        faults += _too_large(path, held, slot, field, options)
                    case _:
                        faults += _too_large(path, held, slot, field, (override,))
        if faults:
            # What is named for all layers is wrong in each of them.
            raise SpecRefused(list(dict.fromkeys(faults)))
        return cut

    def _defined_combinations(self) -> dict[str, tuple[str, ...]]:
        combinations: dict[str, tuple[str, ...]] = {}
        faults: list[Fault] = []
        for index, architecture in enumerate(self._spec.architectures):
            refusals = {
                parametrization: self.refusal(
                    Candidate(architecture=architecture, parametrization=parametrization)
                )
                for parametrization in self._spec.parametrizations
            }
            defined = [kind for kind, refusal in refusals.items() if refusal is None]
            if defined:
                combinations[architecture] = tuple(defined)
            else:
                # What the task asks is refused in the same words for every parametrization.
                reasons = dict.fromkeys(filter(None, refusals.values()))
                message = f"no named parametrization fits {architecture!r}: {'; '.join(reasons)}"
                faults.append(Fault(f"architectures.{index}", message))
        if faults:
            raise SpecRefused(faults)
        return combinations

    def _models(self, candidate: Candidate, *, highest: bool) -> Iterator[ModelSpec]:
        """A candidate's models at one end of every range, with each option."""
        return corners(lambda source: self.draw(candidate, source), highest=highest)


def corners(
    draw: Callable[[Source], T], *, highest: bool, given: Mapping[str, Scalar] | None = None
) -> Iterator[T]:
    """What is drawn at one end of every range, once for each combination of options.

    Of options that are numbers only the end is drawn.
    """
    given = given or {}
    recorder = Recorder(CornerSource(highest=highest, choices=given))
    draw(recorder)
    named = {
        name: dimension.options
        for name, dimension in recorder.dimensions.items()
        if isinstance(dimension, ChoiceDimension)
        and name not in given
        and not all(map(_is_number, dimension.options))
    }
    for values in itertools.product(*named.values()):
        choices = {**given, **dict(zip(named, values, strict=True))}
        yield draw(CornerSource(highest=highest, choices=choices))


def note(values: Hyperparameters, kind: str, member: Spec, draw: SpaceDraw) -> None:
    """Keep what a member has in the fields that were asked for."""
    for field in type(member).model_fields:
        if field in draw.asked:
            values[f"{kind}.{field}"] = getattr(member, field)


def _leaves_numbers_alone(field: str) -> bool:
    """Whether a trained network is the same with any value of an architecture's field.

    Dropout acts in training alone, and a plain input matrix is converted as others are.
    """
    return field.endswith("dropout") or field in ("dropout_masks", "structured_inputs")


def _is_defined(variant: type[AnyFamily], slot: Slot) -> bool:
    try:
        variant.check_slot(slot)
    except SlotError:
        return False
    return True


def _can_be_built(model: ModelSpec) -> bool:
    try:
        model.check()
    except SpecError:
        return False
    return True


def _fitted(member: AnyFamily, slot: Slot, *, named: Mapping[str, Scalar | None]) -> AnyFamily:
    """The member cut to a slot, but for the values that the user named and that the slot holds."""
    fitted = member.cut(slot)
    for field, value in named.items():
        wanted = _with(fitted, field, value)
        try:
            wanted.check(slot)
        except SlotError:
            continue
        fitted = wanted
    return fitted


def _too_large(
    path: str,
    held: AnyFamily,
    slot: Slot,
    field: str,
    values: tuple[Scalar | None, ...],
) -> Iterator[Fault]:
    """What the largest layer of the study cannot hold of the values that the user named."""
    for value in values:
        try:
            _with(held, field, value).check(slot)
        except SlotError as error:
            yield Fault(path, f"the largest layer of this study does not hold it: {error}")


def _with(member: AnyFamily, field: str, value: Scalar | None) -> AnyFamily:
    return type(member).model_validate({**member.model_dump(), field: value})


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
