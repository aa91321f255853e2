"""The search space of a study: its candidates, their dimensions, and one draw of them."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from pydantic import Field

from models.errors import SpecError
from models.model import ModelSpec
from models.parametrizations import Dense
from models.spec import Spec
from search.compression import Compression, Distillation
from search.dimension import ChoiceDimension, Dimension, Scalar
from search.draws import (
    NamedSource,
    OutsideSpace,
    Recorder,
    Source,
    SpaceDraw,
    answer,
    fields_of,
    refusing,
)
from search.errors import Fault, SpecRefused
from search.layers import layers_apart, named_members, names_by_layer
from search.limits import impossible
from search.model_space import (
    ARCHITECTURE_KINDS,
    PARAMETRIZATION_KINDS,
    Candidate,
    Hyperparameters,
    ModelSpace,
    corners,
    note,
)
from search.presets import PRESETS, Preset
from search.spec import StudySpec
from search.trial import TrainingSpec, TrialSpec

_TRAINING = "training"
_COMPRESS = "compress"


@dataclass(frozen=True, kw_only=True)
class DrawnTrial:
    """One configuration: the document, what was drawn for it, and the values that the model has."""

    candidate: Candidate
    spec: TrialSpec
    hyperparameters: Hyperparameters
    """Full field name -> value, cut to what the layers hold; pins included."""
    drawn: dict[str, Scalar]
    """Dimension name -> value as the sampler knows it; empty for a preset outside the space."""


class ParameterRange(Spec):
    """The fewest and the most trainable numbers that a trial of the study can have."""

    low: int
    high: int


class SpaceDescription(Spec):
    """What a dry run tells: the dimensions, the candidates and the range of parameter counts."""

    dimensions: tuple[Dimension, ...]
    candidates: tuple[dict[str, str], ...]
    parameter_range: ParameterRange
    known_trials: int = Field(
        default=0, description="how many trials of the studies in `warm_start` lie in the space"
    )


class SearchSpace:
    """The space of one study. Everything in it is static, so that a sampler can model it jointly.

    Raises:
        SpecRefused: the spec names something unknown, empty or impossible.
    """

    def __init__(self, spec: StudySpec) -> None:
        self._spec = spec
        self._signature = spec.task.signature()
        self._refuse_unknown_names()
        self._models = ModelSpace(spec)
        self._refuse_presets()
        self._refuse_other_lengths()
        self.parameter_range = self._parameter_range()
        self._refuse_sampler()

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """Every architecture with each parametrization that is defined on it, in spec order."""
        return self._models.candidates

    @property
    def dimensions(self) -> Mapping[str, Dimension]:
        """Every dimension of the space by name."""
        return self._dimensions

    @cached_property
    def _dimensions(self) -> Mapping[str, Dimension]:
        found: dict[str, Dimension] = {}
        for candidate in self.candidates:
            choices: dict[str, Scalar] = {
                "architecture": candidate.architecture,
                "parametrization": candidate.parametrization,
                f"{candidate.architecture}.parametrization": candidate.parametrization,
            }

            def record(source: Source) -> None:
                recorder = Recorder(source)
                self.draw(recorder)
                found.update(recorder.dimensions)

            for _ in corners(record, highest=True, given=choices):
                pass
        return found

    def draw(self, source: Source) -> DrawnTrial:
        """One configuration by the source's answers."""
        recorder = Recorder(source)
        architecture = str(
            answer(
                recorder,
                ChoiceDimension(name="architecture", options=tuple(self._models.combinations)),
            )
        )
        options = self._models.combinations[architecture]
        shared = len(set(self._models.combinations.values())) == 1
        name = "parametrization" if shared else f"{architecture}.parametrization"
        parametrization = str(answer(recorder, ChoiceDimension(name=name, options=options)))
        candidate = Candidate(architecture=architecture, parametrization=parametrization)

        hyperparameters: Hyperparameters = {}
        model = self._models.draw(candidate, recorder, hyperparameters)
        draw = SpaceDraw(_TRAINING, self._spec.space, recorder)
        with refusing(_TRAINING, self._spec.space):
            training = draw.complete(TrainingSpec.suggest(draw))
        note(hyperparameters, _TRAINING, training, draw)
        compression = self._draw_compression(recorder, hyperparameters)
        return DrawnTrial(
            candidate=candidate,
            spec=TrialSpec(
                model=model, training=training, seed=self._spec.seed, compression=compression
            ),
            hyperparameters=hyperparameters,
            drawn=dict(recorder.answers),
        )

    def preset(self, name: str) -> DrawnTrial:
        """The configuration of a preset, on the study's task and with its seed.

        It has drawn values only where all of it lies in the space: a part of the dimensions would
        split the sampler's joint model.
        """
        preset = PRESETS[name]
        spec = TrialSpec(
            model=self._preset_model(preset), training=preset.training, seed=self._spec.seed
        )
        candidate = Candidate(
            architecture=preset.architecture.kind, parametrization=preset.parametrization.kind
        )
        place = self.place(spec)
        return DrawnTrial(
            candidate=candidate,
            spec=spec,
            hyperparameters=_values(spec),
            drawn={} if place is None else place.drawn,
        )

    def original(self) -> DrawnTrial:
        """The model that the study compresses, as it is; it has no drawn values.

        Raises:
            OriginalUnresolved: nobody looked at the model yet.
            ValueError: the study compresses none.
        """
        compression = self._compression(None)
        if self._spec.compress is None or compression is None:
            raise ValueError("the study compresses no model")
        model = ModelSpec(
            architecture=self._spec.compress.original.architecture,
            parametrization=Dense(),
            signature=self._signature,
        )
        spec = TrialSpec(
            model=model,
            training=TrainingSpec(),
            seed=self._spec.seed,
            compression=compression.model_copy(update={"is_original": True}),
        )
        candidate = Candidate(
            architecture=model.architecture.kind, parametrization=model.parametrization.kind
        )
        fields = {
            f"{model.architecture.kind}.{field}": getattr(model.architecture, field)
            for field in type(model.architecture).model_fields
            if field != "kind"
        }
        return DrawnTrial(candidate=candidate, spec=spec, hyperparameters=fields, drawn={})

    def place(self, spec: TrialSpec) -> DrawnTrial | None:
        """The draw that gives exactly this configuration, whatever its seed, if there is one."""
        model = spec.model
        answers = {name: value for name, value in _values(spec).items() if value is not None}
        answers["architecture"] = model.architecture.kind
        for name in ("parametrization", f"{model.architecture.kind}.parametrization"):
            answers[name] = model.parametrization.family
        try:
            drawn = self.draw(NamedSource(answers))
        except OutsideSpace:
            return None
        return drawn if _but_for_the_seed(drawn.spec) == _but_for_the_seed(spec) else None

    def describe(self) -> SpaceDescription:
        """The whole space, as a dry run shows it."""
        return SpaceDescription(
            dimensions=tuple(self.dimensions.values()),
            candidates=tuple(
                {"architecture": c.architecture, "parametrization": c.parametrization}
                for c in self.candidates
            ),
            parameter_range=self.parameter_range,
        )

    def _draw_compression(
        self, source: Source, hyperparameters: Hyperparameters
    ) -> Compression | None:
        compress = self._spec.compress
        if compress is None or not compress.distillation:
            return self._compression(None)
        draw = SpaceDraw(_COMPRESS, self._spec.space, source)
        with refusing(_COMPRESS, self._spec.space):
            distillation = draw.complete(Distillation.suggest(draw))
        note(hyperparameters, _COMPRESS, distillation, draw)
        return self._compression(distillation)

    def _compression(self, distillation: Distillation | None) -> Compression | None:
        compress = self._spec.compress
        if compress is None:
            return None
        return Compression(
            sha256=compress.original.sha256,
            calibration_samples=compress.calibration_samples,
            distillation=distillation,
        )

    def _preset_model(self, preset: Preset) -> ModelSpec:
        return ModelSpec(
            architecture=preset.architecture,
            parametrization=preset.parametrization,
            signature=self._signature,
        )

    def _variants(self) -> Iterator[tuple[str, type[Spec]]]:
        for kind in self._spec.architectures:
            yield kind, ARCHITECTURE_KINDS[kind]
        for kind in self._spec.parametrizations:
            yield kind, PARAMETRIZATION_KINDS[kind]
            for name in names_by_layer(kind, layers_apart(self._spec)):
                yield name, PARAMETRIZATION_KINDS[kind]
        yield _TRAINING, TrainingSpec
        if self._spec.compress is not None and self._spec.compress.distillation:
            yield _COMPRESS, Distillation

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

    def _refuse_presets(self) -> None:
        faults: list[Fault] = []
        named, trials = len(self._spec.presets), self._spec.budget.trials
        if named > trials:
            message = f"{named} presets are more than the {trials} trials of budget.trials"
            faults.append(Fault("presets", message))
        for index, name in enumerate(self._spec.presets):
            try:
                self._preset_model(PRESETS[name]).check()
            except SpecError as error:
                faults.append(Fault(f"presets.{index}", f"{name!r} does not fit the task: {error}"))
        if faults:
            raise SpecRefused(faults)

    def _refuse_other_lengths(self) -> None:
        """Refuse to measure at a length at which one of the models does not run."""
        wanted, own = self._spec.throughput.sequence_length, self._signature.sequence_length
        if wanted is None or wanted == own:
            return
        kinds = [
            *self._models.combinations,
            *(PRESETS[name].architecture.kind for name in self._spec.presets),
        ]
        fixed = dict.fromkeys(kind for kind in kinds if not ARCHITECTURE_KINDS[kind].any_length)
        if fixed:
            message = (
                f"at {wanted} steps {', '.join(fixed)} cannot run, only at the task's own; "
                f"allowed is null or {own}"
            )
            raise SpecRefused([Fault("throughput.sequence_length", message)])

    def _refuse_sampler(self) -> None:
        fault = self._spec.sampler.fault(self, self._spec.objectives)
        if fault is not None:
            raise SpecRefused([Fault("sampler", fault)])
        most, trials = self._spec.sampler.most_trials(), self._spec.budget.trials
        if most is not None and trials > most:
            kind = self._spec.sampler.kind
            message = f"{trials} is more than {kind} keeps up with; allowed are at most {most}"
            raise SpecRefused([Fault("budget.trials", message)])

    def _parameter_range(self) -> ParameterRange:
        ends = {
            str(candidate): (
                min(self._models.counts(candidate, highest=False)),
                max(self._models.counts(candidate, highest=True)),
            )
            for candidate in self.candidates
        }
        smallest = min(ends, key=lambda candidate: ends[candidate][0])
        faults = impossible(self._spec.limits, least_count=ends[smallest][0], smallest=smallest)
        if faults:
            raise SpecRefused(faults)
        named = (self._preset_model(PRESETS[name]) for name in self._spec.presets)
        counts = [*itertools.chain(*ends.values()), *(model.parameter_count() for model in named)]
        if self._spec.compress is not None:
            counts.append(self.original().spec.model.parameter_count())
        return ParameterRange(low=min(counts), high=max(counts))


def _but_for_the_seed(spec: TrialSpec) -> tuple[ModelSpec, TrainingSpec, Compression | None]:
    return (spec.model, spec.training, spec.compression)


def _values(spec: TrialSpec) -> Hyperparameters:
    """Every field of a configuration by its full name."""
    model = spec.model
    members: list[tuple[str, Spec]] = [
        (model.architecture.kind, model.architecture),
        *named_members(model.parametrization),
        (_TRAINING, spec.training),
    ]
    if spec.compression is not None and spec.compression.distillation is not None:
        members.append((_COMPRESS, spec.compression.distillation))
    return {
        f"{kind}.{field}": getattr(member, field)
        for kind, member in members
        for field in type(member).model_fields
        if field != "kind"
    }


def describe(spec: StudySpec) -> SpaceDescription:
    """What a study would search, without storing anything.

    Raises:
        SpecRefused: an unknown override, an empty range, an impossible pin or limit.
    """
    return SearchSpace(spec).describe()
