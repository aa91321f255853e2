"""The region of interest: which values of a study's objectives its user would take.

It is no limit: trials beyond it are trained and stored like all others. Hypervolumes are measured
from its ends, by samplers and in what is shown.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeAlias, cast, final

from pydantic import (
    Discriminator,
    Field,
    SerializerFunctionWrapHandler,
    Tag,
    TypeAdapter,
    model_serializer,
    model_validator,
)

from models.spec import Spec
from search.documents.objectives import OBJECTIVE_KINDS, OBJECTIVES, Direction, Objective, Valued
from search.documents.readable import number

End: TypeAlias = Literal["at_least", "at_most"]

ENDS: Mapping[Direction, End] = {"maximize": "at_least", "minimize": "at_most"}
"""What a bound is called, by the objective's direction."""

_WORDS: Mapping[End, str] = {"at_least": "from", "at_most": "up to"}


class Bound(Spec):
    """The value of an objective from which on it interests; without one every value does."""

    at_least: float | None = Field(
        default=None,
        gt=0,
        le=10**18,
        description="of what is maximised, the least value that interests; never a limit, but "
        "where hypervolume is measured from",
    )
    at_most: float | None = Field(
        default=None,
        gt=0,
        le=10**18,
        description="of what is minimised, the largest value that interests; never a limit, but "
        "where hypervolume is measured from",
    )

    @model_validator(mode="before")
    @classmethod
    def _has_known_keys(cls, document: object) -> object:
        if isinstance(document, Mapping):
            unknown = [name for name in cast(Mapping[str, object], document) if name not in _WORDS]
            if unknown:
                raise ValueError(f"unknown key {unknown[0]!r}; allowed are {' or '.join(_WORDS)}")
        return cast(object, document)

    @model_validator(mode="after")
    def _has_one_end(self) -> "Bound":
        if self.at_least is not None and self.at_most is not None:
            raise ValueError(
                f"at_least {self.at_least:g} and at_most {self.at_most:g} are two bounds; allowed "
                "is at_least on what is maximised, or at_most on what is minimised"
            )
        return self

    @model_serializer(mode="wrap")
    def _as_it_is_sent(self, dump: SerializerFunctionWrapHandler) -> dict[str, int | float]:
        # Whole numbers stay counts.
        ends = {name: value for name, value in dump(self).items() if value is not None}
        return {name: int(end) if end.is_integer() else end for name, end in ends.items()}

    @property
    def end(self) -> tuple[End, float] | None:
        """Which end it is, and where; null where every value interests."""
        if self.at_least is not None:
            return "at_least", self.at_least
        return None if self.at_most is None else ("at_most", self.at_most)


def _form(objectives: object) -> Literal["names", "bounds"]:
    return "bounds" if isinstance(objectives, Mapping) else "names"


Objectives: TypeAlias = Annotated[
    Annotated[tuple[Objective, ...], Tag("names"), Field(min_length=1, max_length=len(OBJECTIVES))]
    | Annotated[
        Mapping[Objective, Bound], Tag("bounds"), Field(min_length=1, max_length=len(OBJECTIVES))
    ],
    Discriminator(_form),
]
"""The objectives of a study, iterated by name in either form; see `Region.of`."""

_OBJECTIVES: TypeAdapter[Objectives] = TypeAdapter(Objectives)


@final
@dataclass(frozen=True)
class Region:
    """Where an objective has a bound, and which."""

    ends: Mapping[Objective, tuple[End, float]] = field(
        default_factory=dict[Objective, tuple[End, float]]
    )

    @classmethod
    def of(cls, objectives: Objectives) -> "Region":
        """That of a study's objectives; without any bound it is everything."""
        if not isinstance(objectives, Mapping):
            return cls()
        return cls({name: bound.end for name, bound in objectives.items() if bound.end is not None})

    @classmethod
    def of_document(cls, spec: Mapping[str, Any]) -> "Region":
        """That of a stored spec, of which nothing else is read."""
        objectives = spec.get("objectives")
        return cls() if objectives is None else cls.of(_OBJECTIVES.validate_python(objectives))

    def value(self, objective: Objective) -> float | None:
        """The bound on an objective; null where there is none."""
        end = self.ends.get(objective)
        return None if end is None else end[1]

    def is_outside(self, trial: Valued) -> bool:
        """Whether one of the values that a trial has (so far) lies beyond its bound."""
        for objective, (end, bound) in self.ends.items():
            value = OBJECTIVE_KINDS[objective].value(trial)
            if value is not None and (value < bound if end == "at_least" else value > bound):
                return True
        return False

    def words(self, names: Mapping[Objective, str] | None = None) -> str:
        """In words: `quality from 0.9, parameters up to 20,000`; empty where it is everything.

        `names` are what objectives are called, where that is not their own name.
        """
        found: list[str] = []
        for objective, (end, bound) in self.ends.items():
            kind = OBJECTIVE_KINDS[objective]
            shown = number(bound) if kind.tick is None else kind.tick(bound)
            unit = f" {kind.unit}" if kind.has_unit else ""
            name = (names or {}).get(objective, objective)
            found.append(f"{name} {_WORDS[end]} {shown}{unit}")
        return ", ".join(found)
