"""Candidates of a search space, and how one configuration of them is drawn from a source.

Ranges are static over a study: a parametrization's end with the largest main slot that it is
defined on, and what is drawn is cut to the slot at hand.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias, TypeVar, get_args

from pydantic import Field

from models.architectures import ARCHITECTURES, AnyArchitecture
from models.errors import SlotError
from models.model import ModelSpec, NumberBits, shape_words
from models.parametrizations import (
    PARAMETRIZATIONS,
    AnyFamily,
    AnyParametrization,
    PerLayer,
)
from models.spec import Signature, Slot, Spec, kind_of
from search.spaces.dimension import ChoiceDimension, Dimension, Scalar
from search.spaces.draws import (
    CornerSource,
    Overrides,
    Recorder,
    Source,
    SpaceDraw,
    answer,
    values_in,
)
from search.training.compression import Compress, Compression, Distillation
from search.training.trial_spec import TrainingSpec, TrialSpec

T = TypeVar("T")

Hyperparameters: TypeAlias = dict[str, Scalar | None]

ARCHITECTURE_KINDS = {kind_of(variant): variant for variant in ARCHITECTURES}
PARAMETRIZATION_KINDS = {kind_of(variant): variant for variant in PARAMETRIZATIONS}

MODEL = "model"
TRAINING = "training"
COMPRESS = "compress"
"""What names the fields of `Numbers`, `TrainingSpec` and `Distillation`, before the dot."""

ALL_BITS: tuple[NumberBits, ...] = get_args(NumberBits)


class Numbers(Spec):
    """What a model's numbers are stored as, whatever it is made of.

    With fewer bits than 32 they are integers times scales. Training is that of 32 bits, but for
    its last `training.quantised_epochs`; what is validated, kept and given out is rounded.
    """

    bits: NumberBits = Field(
        default=ModelSpec.model_fields["bits"].default,
        description=ModelSpec.model_fields["bits"].description,
    )


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """An architecture with a parametrization that is defined on its slots."""

    architecture: str
    parametrization: str

    def __str__(self) -> str:
        return f"{self.architecture} with {self.parametrization}"


@dataclass(frozen=True, kw_only=True)
class DrawnTrial:
    """One configuration: the document, what was drawn for it, and the values that the model has."""

    candidate: Candidate
    spec: TrialSpec
    hyperparameters: Hyperparameters
    """Full field name -> value, cut to what the layers hold; pins included."""
    drawn: dict[str, Scalar]
    """Dimension name -> value as the sampler knows it; empty for a preset outside the space."""

    @cached_property
    def parameters(self) -> int:
        """All trainable numbers."""
        return self.spec.parameter_count()

    @cached_property
    def dense_parameters(self) -> int:
        """Those of its dense baseline."""
        return self.spec.dense_parameter_count()

    @cached_property
    def shape(self) -> str:
        """What it has in common with those that take the same time."""
        return shape_words(self.spec.model.model_dump(mode="json"))


@dataclass(frozen=True, kw_only=True)
class TrialDraws:
    """Draws configurations of a study's candidates, under the user's overrides."""

    signature: Signature
    seed: int
    overrides: Overrides
    compress: Compress | None
    layers: Mapping[str, Sequence[str]]
    """Parametrization -> what names its fields: its kind, or one name for each layer."""
    largest: Mapping[str, Slot] = field(default_factory=dict[str, Slot])
    """Parametrization -> the largest main slot on which it is defined at all."""
    combinations: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Architecture -> the parametrizations that are defined on it, in spec order."""
    bits: tuple[NumberBits, ...] = (Numbers().bits,)
    """What a model's bits are drawn from where the user names none; one of them is no dimension."""

    def trial(self, source: Source) -> DrawnTrial:
        """One configuration by the source's answers."""
        recorder = Recorder(source)
        candidate = self._candidate(recorder)
        hyperparameters: Hyperparameters = {}
        model = self.model(candidate, recorder, hyperparameters)
        draw = SpaceDraw(TRAINING, self.overrides.values, recorder)
        with self.overrides.refusing(TRAINING):
            training = draw.complete(TrainingSpec.suggest(draw))
        _note(hyperparameters, TRAINING, training, draw)
        distillation = self._distillation(recorder, hyperparameters)
        return DrawnTrial(
            candidate=candidate,
            spec=TrialSpec(
                model=model,
                training=training,
                seed=self.seed,
                compression=self.compression(distillation),
            ),
            hyperparameters=hyperparameters,
            drawn=dict(recorder.answers),
        )

    def ends(self, *, highest: bool) -> tuple[Mapping[str, Dimension], Sequence[DrawnTrial]]:
        """Every dimension that is asked for at one end of all ranges, and what is drawn there."""
        found: dict[str, Dimension] = {}

        def record(source: Source) -> DrawnTrial:
            recorder = Recorder(source)
            drawn = self.trial(recorder)
            found.update(recorder.dimensions)
            return drawn

        drawn: list[DrawnTrial] = []
        for architecture, kinds in self.combinations.items():
            for kind in kinds:
                choices: dict[str, Scalar] = {
                    "architecture": architecture,
                    "parametrization": kind,
                    f"{architecture}.parametrization": kind,
                }
                drawn += corners(record, highest=highest, given=choices)
        return found, drawn

    def model(
        self,
        candidate: Candidate,
        source: Source,
        hyperparameters: Hyperparameters | None = None,
    ) -> ModelSpec:
        """One model of a candidate; every field that was asked for is noted."""
        architecture, asked = self._architecture(candidate.architecture, source)
        slot = main_slot(architecture.slots(self.signature))
        kind = candidate.parametrization
        names = self.layers[kind]
        one = replace(slot, layers=slot.layers // len(names))
        drawn = [self._member(name, kind, one, source) for name in names]
        numbers, bits = self._numbers(source)
        if hyperparameters is not None:
            _note(hyperparameters, candidate.architecture, architecture, asked)
            for name, (member, draw) in zip(names, drawn, strict=True):
                _note(hyperparameters, name, member, draw)
            _note(hyperparameters, MODEL, numbers, bits)
        return ModelSpec(
            architecture=architecture,
            parametrization=_together(
                [member for member, _ in drawn], drawn=any(draw.asked for _, draw in drawn)
            ),
            signature=self.signature,
            bits=numbers.bits,
        )

    def architecture(self, kind: str, source: Source) -> AnyArchitecture:
        """One architecture of a kind; the original's own in a study that compresses a model."""
        return self._architecture(kind, source)[0]

    def compression(self, distillation: Distillation | None) -> Compression | None:
        """What a trial of a study that compresses a model begins with."""
        if self.compress is None:
            return None
        return Compression(
            sha256=self.compress.original.sha256,
            calibration_samples=self.compress.calibration_samples,
            distillation=distillation,
        )

    def _candidate(self, source: Source) -> Candidate:
        options = tuple(self.combinations)
        architecture = str(answer(source, ChoiceDimension(name="architecture", options=options)))
        options = self.combinations[architecture]
        shared = len(set(self.combinations.values())) == 1
        name = "parametrization" if shared else f"{architecture}.parametrization"
        parametrization = str(answer(source, ChoiceDimension(name=name, options=options)))
        return Candidate(architecture=architecture, parametrization=parametrization)

    def _architecture(self, kind: str, source: Source) -> tuple[AnyArchitecture, SpaceDraw]:
        draw = SpaceDraw(kind, self.overrides.values, source)
        with self.overrides.refusing(kind):
            if self.compress is not None:
                return draw.complete(self.compress.original.architecture), draw
            return draw.complete(ARCHITECTURE_KINDS[kind].suggest(draw, self.signature)), draw

    def _member(
        self, name: str, kind: str, slot: Slot, source: Source
    ) -> tuple[AnyFamily, SpaceDraw]:
        """A member of a family for a slot, and what was asked for it by a name."""
        draw = SpaceDraw(name, self.overrides.values, source)
        largest = self.largest.get(kind, slot).smaller_side
        with self.overrides.refusing(name):
            suggested = PARAMETRIZATION_KINDS[kind].suggest(draw, slot, largest=largest)
            member = _clamped(draw.complete(suggested), slot, named=draw.named)
        return member, draw

    def _numbers(self, source: Source) -> tuple[Numbers, SpaceDraw]:
        draw = SpaceDraw(MODEL, self.overrides.values, source)
        if len(self.bits) == 1 and not draw.is_overridden("bits"):
            return Numbers(bits=self.bits[0]), draw
        with self.overrides.refusing(MODEL):
            bits = draw.whole_choice("bits", self.bits, allowed=ALL_BITS)
            return Numbers.model_validate({"bits": bits}), draw

    def _distillation(
        self, source: Source, hyperparameters: Hyperparameters
    ) -> Distillation | None:
        if self.compress is None or not self.compress.distillation:
            return None
        draw = SpaceDraw(COMPRESS, self.overrides.values, source)
        with self.overrides.refusing(COMPRESS):
            distillation = draw.complete(Distillation.suggest(draw))
        _note(hyperparameters, COMPRESS, distillation, draw)
        return distillation


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
        and not all(map(is_number, dimension.options))
    }
    for values in itertools.product(*named.values()):
        choices = {**given, **dict(zip(named, values, strict=True))}
        yield draw(CornerSource(highest=highest, choices=choices))


def main_slot(slots: Mapping[str, Slot]) -> Slot:
    """The slot that ranges follow; whatever else there is is cut to fit."""
    return next(iter(slots.values()))


def named_members(parametrization: AnyParametrization) -> list[tuple[str, AnyFamily]]:
    """The members of families that make a parametrization up, by what names their fields."""
    if isinstance(parametrization, PerLayer):
        members = enumerate(parametrization.layers)
        return [(f"{member.kind}.{layer}", member) for layer, member in members]
    return [(parametrization.kind, parametrization)]


def with_value(member: AnyFamily, field: str, value: Scalar | None) -> AnyFamily:
    """The member with another value of a field."""
    return type(member).model_validate({**member.model_dump(), field: value})


def is_number(value: object) -> bool:
    """Whether a value is one of a range's; `True` is not 1."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _together(members: Sequence[AnyFamily], *, drawn: bool) -> AnyParametrization:
    """The parametrization of all layers: a single member, or one for each layer.

    Where nothing was drawn of any, they are alike, and the first one is that of all.
    """
    return PerLayer(layers=tuple(members)) if drawn and len(members) > 1 else members[0]


def _note(values: Hyperparameters, kind: str, member: Spec, draw: SpaceDraw) -> None:
    """Keep what a member has in the fields that were asked for."""
    for name, value in values_in(member).items():
        if name in draw.asked:
            values[f"{kind}.{name}"] = value


def _clamped(member: AnyFamily, slot: Slot, *, named: Mapping[str, Scalar | None]) -> AnyFamily:
    """The member clamped to a slot, but for what the user named and the slot holds."""
    clamped = member.clamped(slot)
    for name, value in named.items():
        wanted = with_value(clamped, name, value)
        try:
            wanted.check(slot)
        except SlotError:
            continue
        clamped = wanted
    return clamped
