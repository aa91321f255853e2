"""A dimension of a search space, and what a user may put in its place."""

import math
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Discriminator, Field, Tag, model_validator

from models.spec import Spec

Scalar: TypeAlias = bool | int | float | str


class IntegerDimension(Spec):
    """Integers of [low, high], on a grid of `step` or log-uniform."""

    kind: Literal["integer"] = "integer"
    name: str
    low: int
    high: int
    log: bool = False
    step: int = 1

    def contains(self, value: Scalar) -> bool:
        """Whether a value can be drawn."""
        if not isinstance(value, int) or isinstance(value, bool):
            return False
        return self.low <= value <= self.high and (value - self.low) % self.step == 0


class RealDimension(Spec):
    """Real numbers of [low, high], uniform, log-uniform or on a grid of `step`."""

    kind: Literal["real"] = "real"
    name: str
    low: float
    high: float
    log: bool = False
    step: float | None = None

    def contains(self, value: Scalar) -> bool:
        """Whether a value can be drawn."""
        if isinstance(value, bool | str) or not self.low <= value <= self.high:
            return False
        steps = 0.0 if self.step is None else (value - self.low) / self.step
        return math.isclose(steps, round(steps), abs_tol=1e-9)


class ChoiceDimension(Spec):
    """One of several options, without order."""

    kind: Literal["choice"] = "choice"
    name: str
    options: tuple[Scalar, ...]

    def contains(self, value: Scalar) -> bool:
        """Whether a value can be drawn; `True` is not 1."""
        return any(type(value) is type(option) and value == option for option in self.options)


Dimension = Annotated[
    IntegerDimension | RealDimension | ChoiceDimension, Field(discriminator="kind")
]


class Range(Spec):
    """A user's own range for a dimension: `{"low": 1, "high": 32, "log": true}`."""

    low: int | float = Field(description="the least value")
    high: int | float = Field(description="the greatest value, which is drawn too")
    log: bool = Field(default=False, description="whether equal ratios are equally likely")
    step: int | float | None = Field(
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
    """A user's own list of options for a dimension: `{"options": ["before", "after"]}`."""

    options: tuple[Scalar, ...] = Field(min_length=1, description="one of these")

    @model_validator(mode="after")
    def _without_repeats(self) -> "Options":
        if len(set(self.options)) != len(self.options):
            raise ValueError(f"an option is named twice: {list(self.options)}")
        return self


def _tag(value: Any) -> str:
    """Tell an override's three forms apart, so that an error speaks of the one that was meant."""
    if isinstance(value, Options) or (isinstance(value, dict) and "options" in value):
        return "options"
    if isinstance(value, Range | dict):
        return "range"
    return "pin"


Override = Annotated[
    Annotated[Scalar | None, Tag("pin")]
    | Annotated[Range, Tag("range")]
    | Annotated[Options, Tag("options")],
    Discriminator(_tag),
]
