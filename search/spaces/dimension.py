"""A dimension of a search space, and what a user may put in its place."""

import math
from typing import Annotated, Any, TypeAlias, cast

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from models.spec import Spec
from search.documents.spaces import (
    ChoiceDimension,
    Dimension,
    IntegerDimension,
    RealDimension,
    Scalar,
)

__all__ = [
    "LARGEST_WHOLE",
    "MOST_OPTIONS",
    "ChoiceDimension",
    "Dimension",
    "GivenScalar",
    "IntegerDimension",
    "Number",
    "Options",
    "Override",
    "Range",
    "RealDimension",
    "Scalar",
]

MOST_OPTIONS = 10_000
"""Options of one dimension: as many as a JSON body has values."""

LARGEST_WHOLE = 2**53
"""Up to here every whole number is a float, too."""


def _refuse_huge(value: int | float) -> int | float:
    if isinstance(value, int) and abs(value) > LARGEST_WHOLE:
        raise ValueError(
            f"a whole number of {value.bit_length()} bits is too large; allowed is 53 at most"
        )
    return value


def _refuse_huge_scalar(value: Scalar) -> Scalar:
    return value if isinstance(value, str) else _refuse_huge(value)


Number: TypeAlias = Annotated[int | float, AfterValidator(_refuse_huge)]
GivenScalar: TypeAlias = Annotated[Scalar, AfterValidator(_refuse_huge_scalar)]
"""What a user names."""


class Range(Spec):
    """A user's own range for a dimension: `{"low": 1, "high": 32, "log": true}`."""

    low: Number = Field(description="the least value")
    high: Number = Field(description="the greatest value, which is drawn too")
    log: bool = Field(default=False, description="whether equal ratios are equally likely")
    step: Number | None = Field(
        default=None, gt=0, description="values are this far apart, from `low` on"
    )

    @model_validator(mode="after")
    def _holds_something(self) -> "Range":
        if self.low > self.high:
            raise ValueError(f"the range is empty: low {self.low} is above high {self.high}")
        if self.log and self.low <= 0:
            raise ValueError(f"a logarithmic range needs low > 0, not {self.low}")
        if self.log and self.step is not None:
            raise ValueError(f"a logarithmic range has no step (step is {self.step})")
        return self

    @property
    def integral(self) -> bool:
        """Whether every number of the range is an integer by the way it is written."""
        return all(not isinstance(number, float) for number in (self.low, self.high, self.step))

    def dimension(self, name: str, *, integral: bool) -> IntegerDimension | RealDimension:
        """The dimension that this range describes.

        Raises:
            ValueError: an integer is searched, and the range is not written in integers.
        """
        if not integral:
            return RealDimension(
                name=name,
                low=float(self.low),
                high=float(self.high),
                log=self.log,
                step=None if self.step is None else float(self.step),
            )
        numbers = (self.low, self.high, 1 if self.step is None else self.step)
        if any(number != math.floor(number) for number in numbers):
            raise ValueError(
                f"{name} is an integer; low {self.low}, high {self.high} and step {numbers[2]} "
                "must be whole"
            )
        low, high, step = (int(number) for number in numbers)
        # Optuna warns about a grid whose last point is not `high`: end on the last point instead.
        return IntegerDimension(
            name=name, low=low, high=high - (high - low) % step, log=self.log, step=step
        )


class Options(Spec):
    """A user's own list of options for a dimension: `{"options": [16, 32]}`, or `[16, 32]`."""

    options: tuple[GivenScalar, ...] = Field(
        min_length=1, max_length=MOST_OPTIONS, description="one of these"
    )

    @model_validator(mode="before")
    @classmethod
    def _of_list(cls, value: Any) -> Any:
        return {"options": cast(list[object], value)} if isinstance(value, list) else value

    @model_validator(mode="after")
    def _without_repeats(self) -> "Options":
        if len(set(self.options)) != len(self.options):
            raise ValueError(f"an option is named twice: {list(self.options)}")
        return self


def _tag(value: Any) -> str:
    """Tell an override's three forms apart, so that an error speaks of the one that was meant."""
    if isinstance(value, Options | list) or (isinstance(value, dict) and "options" in value):
        return "options"
    if isinstance(value, Range | dict):
        return "range"
    return "pin"


Override = Annotated[
    Annotated[GivenScalar | None, Tag("pin")]
    | Annotated[Range, Tag("range")]
    | Annotated[Options, Tag("options")],
    Discriminator(_tag),
]
