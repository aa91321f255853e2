"""The search space of a study: its candidates, their dimensions, and one draw of them."""

from collections.abc import Mapping, Sequence
from functools import cached_property

from models.model import ModelSpec
from models.parametrizations import Dense
from models.spec import Spec
from search.documents.spaces import ParameterRange, SpaceDescription
from search.papers import PRESETS
from search.spaces.compiler import compile_space
from search.spaces.dimension import Dimension
from search.spaces.draws import NamedSource, OutsideSpace, Source, values_in
from search.spaces.model_space import (
    COMPRESS,
    MODEL,
    TRAINING,
    Candidate,
    DrawnTrial,
    Hyperparameters,
    Numbers,
    named_members,
)
from search.spaces.space_spec import SpaceSpec
from search.training.trial_spec import TrainingSpec, TrialSpec


class SearchSpace:
    """The space of one study. Everything in it is static, so that a sampler can model it jointly.

    What else a study asks of its space is checked when it is submitted
    (`search.studies.submission`).

    Raises:
        SpecRefused: the spec names something unknown, empty or impossible.
    """

    def __init__(self, spec: SpaceSpec) -> None:
        self._spec = spec
        self._compiled = compile_space(spec)

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """Every architecture with each parametrization that is defined on it, in spec order."""
        return tuple(self._compiled.counts)

    @property
    def smallest(self) -> tuple[str, int]:
        """The candidate that can have the fewest parameters, and how many these are."""
        fewest = {candidate: low for candidate, (low, _) in self._compiled.counts.items()}
        smallest = min(fewest, key=fewest.__getitem__)
        return str(smallest), fewest[smallest]

    @property
    def refusals(self) -> Mapping[Candidate, str]:
        """Why no model can be built of a pair that is no candidate."""
        return self._compiled.refusals

    @property
    def dimensions(self) -> Mapping[str, Dimension]:
        """Every dimension of the space by name."""
        return self._highest[0]

    @cached_property
    def parameter_range(self) -> ParameterRange:
        """The parameters of all candidates, and of the configurations that the study names."""
        counts = [count for ends in self._compiled.counts.values() for count in ends]
        counts += [self.preset_model(name).parameter_count() for name in self._spec.presets]
        if self._spec.compress is not None:
            counts.append(self.original().spec.model.parameter_count())
        return ParameterRange(low=min(counts), high=max(counts))

    @cached_property
    def _highest(self) -> tuple[Mapping[str, Dimension], Sequence[DrawnTrial]]:
        return self._compiled.draws.ends(highest=True)

    def ends(self, *, highest: bool) -> Sequence[DrawnTrial]:
        """Configurations at one end of every range, each candidate's with each of its options."""
        return self._highest[1] if highest else self._compiled.draws.ends(highest=False)[1]

    def named(self) -> Sequence[DrawnTrial]:
        """Configurations that the study names: its presets, or the model that it compresses."""
        presets = [self.preset(name) for name in self._spec.presets]
        return presets if self._spec.compress is None else [self.original()]

    def draw(self, source: Source) -> DrawnTrial:
        """One configuration by the source's answers."""
        return self._compiled.draws.trial(source)

    def preset_model(self, name: str) -> ModelSpec:
        """The model of a preset, on the study's task."""
        preset = PRESETS[name]
        return ModelSpec(
            architecture=preset.architecture,
            parametrization=preset.parametrization,
            signature=self._compiled.draws.signature,
        )

    def preset(self, name: str) -> DrawnTrial:
        """The configuration of a preset, on the study's task and with its seed.

        It has drawn values only where all of it lies in the space: a part of the dimensions would
        split the sampler's joint model.
        """
        model = self.preset_model(name)
        spec = TrialSpec(model=model, training=PRESETS[name].training, seed=self._spec.seed)
        place = self.place(spec)
        return DrawnTrial(
            candidate=_candidate_of(model),
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
        compression = self._compiled.draws.compression(None)
        if self._spec.compress is None or compression is None:
            raise ValueError("the study compresses no model")
        model = ModelSpec(
            architecture=self._spec.compress.original.architecture,
            parametrization=Dense(),
            signature=self._compiled.draws.signature,
        )
        spec = TrialSpec(
            model=model,
            training=TrainingSpec(),
            seed=self._spec.seed,
            compression=compression.model_copy(update={"is_original": True}),
        )
        fields = _named_fields([(model.architecture.kind, model.architecture)])
        return DrawnTrial(
            candidate=_candidate_of(model), spec=spec, hyperparameters=fields, drawn={}
        )

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
        same_but_for_the_seed = drawn.spec.model_copy(update={"seed": spec.seed}) == spec
        return drawn if same_but_for_the_seed else None

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


def describe(spec: SpaceSpec) -> SpaceDescription:
    """What a document spans, without storing anything.

    Raises:
        SpecRefused: an unknown override, an empty range or an impossible pin.
    """
    return SearchSpace(spec).describe()


def _candidate_of(model: ModelSpec) -> Candidate:
    return Candidate(
        architecture=model.architecture.kind, parametrization=model.parametrization.kind
    )


def _values(spec: TrialSpec) -> Hyperparameters:
    """Every field of a configuration by its full name."""
    members: list[tuple[str, Spec]] = [
        (spec.model.architecture.kind, spec.model.architecture),
        *named_members(spec.model.parametrization),
        (MODEL, Numbers(bits=spec.model.bits)),
        (TRAINING, spec.training),
    ]
    if spec.compression is not None and spec.compression.distillation is not None:
        members.append((COMPRESS, spec.compression.distillation))
    return _named_fields(members)


def _named_fields(members: Sequence[tuple[str, Spec]]) -> Hyperparameters:
    return {
        f"{name}.{field}": value
        for name, member in members
        for field, value in values_in(member).items()
    }
