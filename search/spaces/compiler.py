"""Compile a study's document to its search space, in one pass.

Each stage is a function of what the stage before it found:

1. `_parse`: what the document names: fields and layers. Unknown names are refused.
2. `_resolve`: each field's override, by its full name. Too many options are refused, and in a study
   that compresses a model what no conversion gives.
3. `_cut`: ranges, cut to what the largest layer of the study holds.
4. `_combine`: which parametrizations are defined on which architecture, and how many parameters
   they have at the ends of their ranges.

`search.spaces.space` describes what comes out, and draws from it.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from models.architectures import AnyArchitecture
from models.compression.fit.convert import refuse_unconvertible
from models.errors import ConversionError, SlotError, SpecError
from models.model import ModelSpec
from models.parametrizations import AnyFamily
from models.spec import Signature, Slot, Spec
from search.documents.nearest import allowed_instead
from search.errors import Fault, SpecRefused
from search.spaces.dimension import Options, Override, Range, Scalar
from search.spaces.draws import (
    CornerSource,
    Overrides,
    SpaceDraw,
    fields_of,
    names_by_layer,
    names_of,
)
from search.spaces.model_space import (
    ALL_BITS,
    ARCHITECTURE_KINDS,
    COMPRESS,
    MODEL,
    PARAMETRIZATION_KINDS,
    TRAINING,
    Candidate,
    Numbers,
    TrialDraws,
    corners,
    is_number,
    main_slot,
    with_value,
)
from search.spaces.space_spec import SpaceSpec
from search.training.compression import MOST_LAYERS_APART, Distillation
from search.training.trial_spec import TrainingSpec

MOST_COMBINATIONS = 4_000
"""Of options that are no numbers, over a whole study: each is drawn before it begins."""

MOST_OPTIONS_LOOKED_AT = 2_000_000
"""Combinations times options: about a second."""

_MOST_UNKNOWN = 20
"""So many names that nothing has are reported: each comes with all that are allowed."""


@dataclass(frozen=True, kw_only=True)
class CompiledSpace:
    """What a document was compiled to."""

    draws: TrialDraws
    counts: Mapping[Candidate, tuple[int, int]]
    """The fewest and the most parameters of each candidate, in spec order."""
    refusals: Mapping[Candidate, str]
    """Why no model can be built of a pair that is no candidate."""


@dataclass(frozen=True, kw_only=True)
class _Parsed:
    """What a document names."""

    spec: SpaceSpec
    signature: Signature
    layers: Mapping[str, list[str]]
    """Parametrization -> what names its fields: its kind, or one name for each layer."""
    layers_apart: int
    """How many layers have dimensions of their own; 0 where all are drawn alike."""
    variants: Mapping[str, type[Spec]]
    """What names fields -> whose fields they are."""
    names: Mapping[str, tuple[str, ...]]
    """Full field name -> all that a user may call the field."""


def compile_space(spec: SpaceSpec) -> CompiledSpace:
    """Compile a document whose task is resolved, and whose model to compress was looked up.

    Raises:
        SpecRefused: the document names something unknown, empty or impossible.
        TaskUnresolved, OriginalUnresolved: nobody looked at the data, or at the model.
    """
    parsed = _parse(spec)
    draws = _resolve(parsed)
    draws = _cut(parsed, draws)
    return _combine(spec, draws)


def _parse(spec: SpaceSpec) -> _Parsed:
    signature = spec.trained_task.signature()
    apart = _layers_apart(spec, signature)
    layers = {kind: names_by_layer(kind, apart) for kind in spec.parametrizations}
    variants: dict[str, type[Spec]] = {}
    variants |= {kind: ARCHITECTURE_KINDS[kind] for kind in spec.architectures}
    for kind, names in layers.items():
        variants |= dict.fromkeys(names, PARAMETRIZATION_KINDS[kind])
    variants[MODEL] = Numbers
    variants[TRAINING] = TrainingSpec
    if spec.compress is not None and spec.compress.distillation:
        variants[COMPRESS] = Distillation
    names = {
        full: names_of(full)
        for name, variant in variants.items()
        for full in (f"{name}.{field}" for field in fields_of(variant))
    }
    _refuse_unknown_names(spec, names)
    return _Parsed(
        spec=spec,
        signature=signature,
        layers=layers,
        layers_apart=apart,
        variants=variants,
        names=names,
    )


def _layers_apart(spec: SpaceSpec, signature: Signature) -> int:
    if spec.compress is None or spec.compress.layers == "shared":
        return 0
    layers = main_slot(spec.compress.original.architecture.slots(signature)).layers
    return layers if layers > 1 else 0


def _refuse_unknown_names(spec: SpaceSpec, names: Mapping[str, tuple[str, ...]]) -> None:
    known = {name for all_of_one in names.values() for name in all_of_one}
    unknown = [name for name in spec.space if name not in known]
    if unknown:
        raise SpecRefused(
            [
                Fault(
                    f"space.{name}",
                    f"no candidate has {name!r}"
                    + allowed_instead(name, sorted(known), rest="a dry run without it has all"),
                )
                for name in unknown[:_MOST_UNKNOWN]
            ]
        )


def _resolve(parsed: _Parsed) -> TrialDraws:
    spec = parsed.spec
    overrides = Overrides.resolve(spec.space, parsed.names)
    _refuse_too_many_options(parsed, overrides)
    if spec.compress is not None:
        architecture = spec.compress.original.architecture
        _refuse_what_no_conversion_gives(parsed, architecture, overrides)
        # What is trained stays as it was: only what leaves its parameters alone is asked for.
        fixed = {
            f"{architecture.kind}.{field}"
            for field in fields_of(type(architecture))
            if not _leaves_parameters_alone(field)
        }
        values = {name: one for name, one in overrides.values.items() if name not in fixed}
        overrides = replace(overrides, values=values)
    return TrialDraws(
        signature=parsed.signature,
        seed=spec.seed,
        overrides=overrides,
        compress=spec.compress,
        layers=parsed.layers,
        bits=ALL_BITS if spec.searches_bits else TrialDraws.bits,
    )


def _refuse_too_many_options(parsed: _Parsed, overrides: Overrides) -> None:
    """Refuse options whose combinations would take long to look at: all are tried."""
    counts = dict.fromkeys(parsed.variants, 1)
    for field, override in overrides.values.items():
        if isinstance(override, Options) and not all(map(is_number, override.options)):
            owner = next(name for name in counts if field.startswith(f"{name}."))
            counts[owner] *= len(override.options)
    of_kinds = [math.prod(counts[name] for name in names) for names in parsed.layers.values()]
    of_architectures = [counts[kind] for kind in parsed.spec.architectures]
    shared = counts[MODEL] * counts[TRAINING] * counts.get(COMPRESS, 1)
    count = sum(of_architectures) * sum(of_kinds) * shared
    given = parsed.spec.space.values()
    options = sum(len(one.options) for one in given if isinstance(one, Options))
    allowed = min(MOST_COMBINATIONS, MOST_OPTIONS_LOOKED_AT // max(1, options))
    if count > allowed:
        message = (
            f"its options that are no numbers make {count} combinations, over all pairs of "
            f"architectures and parametrizations; allowed are {allowed} beside {options} "
            "options in all: name fewer"
        )
        raise SpecRefused([Fault("space", message)])


def _refuse_what_no_conversion_gives(
    parsed: _Parsed, architecture: AnyArchitecture, overrides: Overrides
) -> None:
    """Refuse other architectures than the original's, and forms that it is not converted to."""
    faults: list[Fault] = []
    for field in sorted(fields_of(type(architecture))):
        own, full = getattr(architecture, field), f"{architecture.kind}.{field}"
        if _leaves_parameters_alone(field) or full not in overrides.values:
            continue
        if overrides.values[full] != own:
            path = overrides.path_of(architecture.kind, field)
            message = f"{field} is what the model has, {own!r}; allowed is nothing else"
            faults.append(Fault(path, message))
    for index, kind in enumerate(parsed.spec.parametrizations):
        try:
            refuse_unconvertible(PARAMETRIZATION_KINDS[kind])
        except ConversionError as error:
            faults.append(Fault(f"parametrizations.{index}", str(error)))
    if parsed.layers_apart > MOST_LAYERS_APART:
        message = (
            f"'each' is for models of at most {MOST_LAYERS_APART} layers, not "
            f"{parsed.layers_apart}; allowed is 'shared'"
        )
        faults.append(Fault("compress.layers", message))
    if faults:
        raise SpecRefused(faults)


def _leaves_parameters_alone(field: str) -> bool:
    """Whether a trained network is the same with any value of an architecture's field.

    Dropout acts in training alone, and a plain input matrix is converted as others are.
    """
    return field.endswith("dropout") or field in ("dropout_masks", "structured_inputs")


def _cut(parsed: _Parsed, draws: TrialDraws) -> TrialDraws:
    """Ranges of parametrizations, cut to what the largest slot holds.

    A range ends where `suggest` cuts; what the user names number by number goes as far as the
    slot holds it.
    """
    largest = _largest_slots(parsed.spec, draws)
    ends: dict[str, Override] = {}
    faults: list[Fault] = []
    for kind, slot in largest.items():
        for name in draws.layers[kind]:
            held, asked = _held(draws.overrides, name, kind, slot)
            for field in sorted(asked):
                full, most = f"{name}.{field}", getattr(held, field)
                override = draws.overrides.values.get(full)
                if full not in draws.overrides.values or not is_number(most):
                    continue
                if isinstance(override, Range) and override.low <= most < override.high:
                    ends[full] = override.model_copy(update={"high": most})
                path = draws.overrides.path_of(name, field)
                faults += _too_large(path, held, slot, field, override)
    if faults:
        # What is named for all layers is wrong in each of them.
        raise SpecRefused(list(dict.fromkeys(faults)))
    overrides = replace(draws.overrides, values={**draws.overrides.values, **ends})
    return replace(draws, overrides=overrides, largest=largest)


def _largest_slots(spec: SpaceSpec, draws: TrialDraws) -> dict[str, Slot]:
    """For each parametrization, the largest main slot on which it is defined at all.

    Options and both ends of every range of the architectures are tried. A parametrization that
    is defined on none of them is left out.
    """
    mains = [
        main_slot(architecture.slots(draws.signature))
        for kind in spec.architectures
        for highest in (False, True)
        for architecture in _fitting_architectures(draws, kind, highest=highest)
    ]
    largest: dict[str, Slot] = {}
    for kind in spec.parametrizations:
        defined = [slot for slot in mains if _is_defined(PARAMETRIZATION_KINDS[kind], slot)]
        if defined:
            largest[kind] = max(defined, key=lambda slot: slot.smaller_side)
    return largest


def _fitting_architectures(
    draws: TrialDraws, kind: str, *, highest: bool
) -> Iterator[AnyArchitecture]:
    """The architecture at one end of its ranges, with each option, where it fits the task."""
    for architecture in corners(partial(draws.architecture, kind), highest=highest):
        try:
            architecture.check(draws.signature)
        except SpecError:
            continue
        yield architecture


def _is_defined(variant: type[AnyFamily], slot: Slot) -> bool:
    try:
        variant.check_slot(slot)
    except SlotError:
        return False
    return True


def _held(overrides: Overrides, name: str, kind: str, slot: Slot) -> tuple[AnyFamily, set[str]]:
    """The largest member that a slot holds, and what was asked for it.

    The smallest is drawn, too: an override may suit one end of its field alone.
    """
    variant = PARAMETRIZATION_KINDS[kind]

    def member(*, highest: bool) -> tuple[AnyFamily, set[str]]:
        draw = SpaceDraw(name, overrides.values, CornerSource(highest=highest))
        suggested = variant.suggest(draw, slot, largest=slot.smaller_side)
        return draw.complete(suggested).clamped(slot), draw.asked

    with overrides.refusing(name):
        member(highest=False)
        return member(highest=True)


def _too_large(
    path: str, held: AnyFamily, slot: Slot, field: str, override: Override
) -> Iterable[Fault]:
    """What the largest layer of the study cannot hold of what the user put in a field's place."""
    match override:
        case Range(low=low, high=high):
            most = getattr(held, field)
            if low > most:
                message = (
                    f"{low} to {high} is more than the largest layer of this study holds; "
                    f"allowed is at most {most}"
                )
                yield Fault(path, message)
            return
        case Options(options=options):
            values: tuple[Scalar | None, ...] = options
        case _:
            values = (override,)
    for value in values:
        try:
            with_value(held, field, value).check(slot)
        except SlotError as error:
            yield Fault(path, f"the largest layer of this study does not hold it: {error}")


def _combine(spec: SpaceSpec, draws: TrialDraws) -> CompiledSpace:
    """Every architecture with each parametrization that is defined on it, in spec order."""
    counts: dict[Candidate, tuple[int, int]] = {}
    refusals: dict[Candidate, str] = {}
    combinations: dict[str, tuple[str, ...]] = {}
    faults: list[Fault] = []
    for index, architecture in enumerate(spec.architectures):
        pairs = [
            Candidate(architecture=architecture, parametrization=kind)
            for kind in spec.parametrizations
        ]
        for pair in pairs:
            found = _count(draws, pair)
            if isinstance(found, str):
                refusals[pair] = found
            else:
                counts[pair] = found
        defined = tuple(pair.parametrization for pair in pairs if pair in counts)
        if defined:
            combinations[architecture] = defined
            continue
        # What the task asks is refused in the same words for every parametrization.
        reasons = dict.fromkeys(refusals[pair] for pair in pairs)
        message = f"no named parametrization fits {architecture!r}: {'; '.join(reasons)}"
        faults.append(Fault(f"architectures.{index}", message))
    if faults:
        raise SpecRefused(faults)
    draws = replace(draws, combinations=combinations)
    return CompiledSpace(draws=draws, counts=counts, refusals=refusals)


def _count(draws: TrialDraws, candidate: Candidate) -> tuple[int, int] | str:
    """The fewest and the most parameters of a candidate, or why no model of it can be built.

    Counts grow with every number (a conformance test of `models` says so), so the ends are the
    extremes. Where no model of an end can be built, its count is a bound.
    """
    refusals: list[str] = []
    buildable: dict[bool, list[ModelSpec]] = {True: [], False: []}
    drawn: dict[bool, list[ModelSpec]] = {True: [], False: []}
    for highest in (True, False):
        drawn[highest] = list(corners(partial(draws.model, candidate), highest=highest))
        for model in drawn[highest]:
            try:
                model.check()
            except SpecError as error:
                refusals.append(str(error))
            else:
                buildable[highest].append(model)
    if not buildable[True] and not buildable[False]:
        return refusals[0]
    fewest = (model.parameter_count() for model in buildable[False] or drawn[False])
    most = (model.parameter_count() for model in buildable[True] or drawn[True])
    return min(fewest), max(most)
