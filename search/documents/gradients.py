"""Gradients of single updates, as learning curves tell of them."""

from pydantic import Field

from models.spec import Spec


class ProbedGradient(Spec):
    """The norms of a gradient at both ends, of one update's batch; see `EpochReport`."""

    update: int = Field(ge=1, description="counted from the trial's first one")
    first: float | None = Field(
        ge=0, description="|dL/dh| before the first step or layer; null where it is not finite"
    )
    last: float | None = Field(ge=0, description="the same after the last one")
