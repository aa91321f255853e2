"""Hyperparameter sources: overrides first, then the sampler."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, TypeVar, get_args

from optuna.trial import BaseTrial
from pydantic import ValidationError

from models.spec import Spec
from search.errors import Fault, SpecRefused
from search.spaces.dimension import (
    ChoiceDimension,
    Dimension,
    IntegerDimension,
    Options,
    Override,
    Range,
    RealDimension,
    Scalar,
)

V = TypeVar("V", bound=Spec)


class UnfitOverride(ValueError):
    """An override does not suit the field it names; carries the field's name."""

    def __init__(self, field: str, message: str) -> None:
        self.field = field
        super().__init__(message)


class OutsideSpace(Exception):
    """What was named is not in a dimension of the space."""


def names_of(dimension: str) -> tuple[str, ...]:
    """What a user may call a dimension, the fullest name first.

    `low_rank.0.d` is of one layer, `low_rank.d` of all of them, `d` of whatever has that field.
    """
    parts = [part for part in dimension.split(".") if not part.isdecimal()]
    of_all = ".".join(parts[1:]) or dimension
    return tuple(dict.fromkeys((dimension, ".".join(parts), of_all)))


def names_by_layer(kind: str, layers: int) -> list[str]:
    """What names a family's fields, before the last dot: its kind, or one name for each layer.

    `layers` is how many layers have dimensions of their own: 0 where all are drawn alike.
    """
    return [f"{kind}.{layer}" for layer in range(layers)] or [kind]


@dataclass(frozen=True)
class Overrides:
    """The user's overrides, each by the full name of every field that it counts for."""

    values: Mapping[str, Override]
    """Full field name -> what the user put in its place; null is something."""
    paths: Mapping[str, str]
    """The same names -> where in the document the user put it."""

    @classmethod
    def resolve(
        cls, given: Mapping[str, Override], names: Mapping[str, Sequence[str]]
    ) -> "Overrides":
        """Look up every field under its names, the fullest first.

        Args:
            given: what the user put under which name.
            names: full field name -> `names_of` it.
        """
        found = {
            field: name
            for field, known in names.items()
            if (name := next((name for name in known if name in given), None)) is not None
        }
        return cls(
            values={field: given[name] for field, name in found.items()},
            paths={field: f"space.{name}" for field, name in found.items()},
        )

    def path_of(self, kind: str, field: str) -> str:
        """Where in the document the user put what decides a field."""
        return self.paths.get(f"{kind}.{field}", f"space.{field}")

    @contextmanager
    def refusing(self, kind: str) -> Generator[None]:
        """Turn what is wrong with an override into a fault with its path in the document.

        Raises:
            SpecRefused: an override does not suit its field.
        """
        try:
            yield
        except UnfitOverride as error:
            fault = Fault(self.path_of(kind, error.field), str(error))
            raise SpecRefused([fault]) from error
        except ValidationError as error:
            raise SpecRefused(
                [
                    Fault(
                        self.path_of(kind, ".".join(map(str, fault["loc"]))),
                        f"{fault['msg']}, not {fault['input']!r}",
                    )
                    for fault in error.errors()
                ]
            ) from error


class Source(Protocol):
    """Answers dimensions: an Optuna trial, or a corner of the space."""

    def answer(self, dimension: Dimension) -> Scalar:
        """One value of the dimension."""
        ...


class TrialSource:
    """Answers by Optuna, whose trial keeps what it answered: asked again, it answers the same."""

    def __init__(self, trial: BaseTrial) -> None:
        self._trial = trial

    def answer(self, dimension: Dimension) -> Scalar:
        """Suggest the dimension under its own name."""
        match dimension:
            case IntegerDimension(name=name, low=low, high=high, log=log, step=step):
                return self._trial.suggest_int(name, low, high, log=log, step=step)
            case RealDimension(name=name, low=low, high=high, log=log, step=step):
                return self._trial.suggest_float(name, low, high, log=log, step=step)
            case ChoiceDimension(name=name, options=options):
                choice = self._trial.suggest_categorical(name, options)
                assert choice is not None
                return choice


class CornerSource:
    """Answers with the lowest or the highest number, and with the options that it is given.

    Where it is given none, with the first.
    """

    def __init__(self, *, highest: bool, choices: Mapping[str, Scalar] | None = None) -> None:
        self._highest = highest
        self._choices = choices or {}

    def answer(self, dimension: Dimension) -> Scalar:
        """One end of the dimension."""
        match dimension:
            case IntegerDimension() | RealDimension():
                return dimension.high if self._highest else dimension.low
            case ChoiceDimension(name=name, options=options):
                if name in self._choices:
                    return self._choices[name]
                numbers = [option for option in options if not isinstance(option, str)]
                if len(numbers) == len(options):
                    return max(numbers) if self._highest else min(numbers)
                return options[0]


class NamedSource:
    """Answers with the values that it is given by dimension."""

    def __init__(self, values: Mapping[str, Scalar]) -> None:
        self._values = values

    def answer(self, dimension: Dimension) -> Scalar:
        """The value given for the dimension.

        Raises:
            OutsideSpace: there is none, or it is not in the dimension.
        """
        value = self._values.get(dimension.name)
        if value is None or not dimension.contains(value):
            raise OutsideSpace(f"{dimension.name} = {value!r}")
        return value


class PinnedSource:
    """Answers with given values by dimension, and passes the other questions on."""

    def __init__(self, values: Mapping[str, Scalar], rest: Source) -> None:
        self._values, self._rest = values, rest

    def answer(self, dimension: Dimension) -> Scalar:
        """The given value where there is one that lies in the dimension."""
        value = self._values.get(dimension.name)
        if value is None or not dimension.contains(value):
            return self._rest.answer(dimension)
        return value


class Recorder:
    """Passes questions on, and keeps each dimension with its answer in the order of asking."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.dimensions: dict[str, Dimension] = {}
        self.answers: dict[str, Scalar] = {}

    def answer(self, dimension: Dimension) -> Scalar:
        """The source's answer."""
        answer = self._source.answer(dimension)
        self.dimensions[dimension.name] = dimension
        self.answers[dimension.name] = answer
        return answer


class SpaceDraw:
    """A `ParameterSampler` for one variant: the user's overrides first, then a source.

    A question about field `m1` of `householder_svd` is dimension `householder_svd.m1`. For one
    layer the kind is `householder_svd.0`. `overrides` has full names, as `Overrides.values` does.
    """

    def __init__(self, kind: str, overrides: Mapping[str, Override], source: Source) -> None:
        self._kind = kind
        self._overrides = overrides
        self._source = source
        self.asked: set[str] = set()
        self.named: dict[str, Scalar | None] = {}
        """Fields whose value the user named: pins, and options that were drawn."""

    def is_overridden(self, field: str) -> bool:
        """Whether the user put anything in the place of this field; null is something."""
        return self._full(field) in self._overrides

    def override(self, field: str) -> Override:
        """What the user put in the place of this field, or None."""
        return self._overrides.get(self._full(field))

    def integer(self, name: str, low: int, high: int, *, log: bool = False, step: int = 1) -> int:
        """Draw an integer, or what the user wants in its place."""
        dimension = IntegerDimension(name=self._full(name), low=low, high=high, log=log, step=step)
        value = self._resolve(name, dimension)
        if not isinstance(value, int | float) or value != int(value):
            raise UnfitOverride(name, f"{dimension.name} is an integer, not {value!r}")
        return int(value)

    def real(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        """Draw a real number, or what the user wants in its place."""
        dimension = RealDimension(name=self._full(name), low=low, high=high, log=log)
        value = self._resolve(name, dimension)
        if not isinstance(value, int | float):
            raise UnfitOverride(name, f"{dimension.name} is a number, not {value!r}")
        return float(value)

    def choice(self, name: str, options: tuple[str, ...]) -> str:
        """Draw one of the options, or of those that the user leaves."""
        dimension = ChoiceDimension(name=self._full(name), options=options)
        value = self._resolve(name, dimension)
        if value not in options:
            allowed = ", ".join(options)
            raise UnfitOverride(name, f"{dimension.name} is one of {allowed}, not {value!r}")
        return str(value)

    def whole_choice(self, name: str, options: tuple[int, ...], *, allowed: tuple[int, ...]) -> int:
        """Draw one of a few whole numbers, or of those that the user names of all allowed ones."""
        full, choices = self._full(name), ", ".join(map(str, allowed))
        override = self.override(name)
        if isinstance(override, Range):
            raise UnfitOverride(name, f"{full} is one of {choices}; no range fits it")
        given = override.options if isinstance(override, Options) else (override,)
        for one in given if self.is_overridden(name) else ():
            # Neither `true` nor 8.0 is a whole number.
            if type(one) is not int or one not in allowed:
                raise UnfitOverride(name, f"{full} is one of {choices}, not {one!r}")
        value = self._resolve(name, ChoiceDimension(name=full, options=options))
        assert isinstance(value, int)
        return value

    def complete(self, spec: V) -> V:
        """The spec with the overrides of fields that its `suggest` did not ask for.

        Raises:
            ValueError: an override does not suit its field (pydantic's ValidationError is one).
        """
        prefix = self._full("")
        named = {name.removeprefix(prefix) for name in self._overrides if name.startswith(prefix)}
        if named <= self.asked:
            return spec
        values: dict[str, Any] = {}
        for field in type(spec).model_fields:
            part = part_of(type(spec), field)
            if part is not None:
                own = getattr(spec, field) or part()
                if found := self._answers(own, prefix=f"{field}."):
                    values[field] = {**own.model_dump(), **found}
        values |= self._answers(spec)
        return type(spec).model_validate({**spec.model_dump(), **values}) if values else spec

    def _answers(self, spec: Spec, *, prefix: str = "") -> dict[str, Scalar | None]:
        """What is in the place of a document's fields, of those that nobody asked for yet."""
        values: dict[str, Scalar | None] = {}
        for name in type(spec).model_fields:
            field = f"{prefix}{name}"
            if field in self.asked or name == "kind" or not self.is_overridden(field):
                continue
            self.asked.add(field)
            values[name] = self._answer_override(
                field, self.override(field), default=getattr(spec, name)
            )
        return values

    def _full(self, field: str) -> str:
        return f"{self._kind}.{field}"

    def _resolve(self, name: str, dimension: Dimension) -> Scalar | None:
        self.asked.add(name)
        if self.is_overridden(name):
            override = self.override(name)
            integral = isinstance(dimension, IntegerDimension)
            if isinstance(dimension, ChoiceDimension) and isinstance(override, Range):
                allowed = ", ".join(map(str, dimension.options))
                raise UnfitOverride(name, f"{dimension.name} is one of {allowed}; no range fits it")
            return self._answer_override(name, override, default=0 if integral else 0.0)
        return answer(self._source, dimension)

    def _answer_override(
        self, field: str, override: Override, *, default: Scalar | None
    ) -> Scalar | None:
        """The override's own value; `default` tells whether the field is an integer."""
        name = self._full(field)
        match override:
            case Range():
                if isinstance(default, str | bool):
                    raise UnfitOverride(field, f"{name} is no number; no range fits it")
                try:
                    dimension = override.dimension(name, integral=isinstance(default, int))
                except ValueError as error:
                    raise UnfitOverride(field, str(error)) from error
                return answer(self._source, dimension)
            case Options(options=options):
                value = answer(self._source, ChoiceDimension(name=name, options=options))
            case _:
                value = override
        self.named[field] = value
        return value


def answer(source: Source, dimension: Dimension) -> Scalar:
    """Ask only where there is something to choose: a single value is no dimension of a search."""
    match dimension:
        case IntegerDimension(low=low, high=high) | RealDimension(low=low, high=high):
            return low if low == high else source.answer(dimension)
        case ChoiceDimension(options=options):
            return options[0] if len(options) == 1 else source.answer(dimension)


@cache
def part_of(variant: type[Spec], field: str) -> type[Spec] | None:
    """The document that a field holds, which may be null; None where it holds no document."""
    annotation = variant.model_fields[field].annotation
    for one in (annotation, *get_args(annotation)):
        if isinstance(one, type) and issubclass(one, Spec):
            return one
    return None


def fields_of(variant: type[Spec]) -> set[str]:
    """The fields that an override may name; of a document in a field its own, behind a dot."""
    found: set[str] = set()
    for field in set(variant.model_fields) - {"kind"}:
        part = part_of(variant, field)
        found |= {field} if part is None else {f"{field}.{name}" for name in part.model_fields}
    return found


def values_in(spec: Spec) -> dict[str, Scalar | None]:
    """What a document has in the fields that an override may name; null for one that is null."""
    found: dict[str, Scalar | None] = {}
    for field in type(spec).model_fields:
        value = getattr(spec, field)
        if isinstance(value, Spec):
            found |= {f"{field}.{name}": one for name, one in values_in(value).items()}
        elif field != "kind":
            found[field] = value
    return found
