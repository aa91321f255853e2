"""Which steps a call takes, by how its matrices were cut; and its forward pass."""

from collections.abc import Callable, Mapping

from models.backends.triton.launches import Results, Run, Steps
from models.backends.triton.thin import ThinSteps
from models.backends.triton.tiles import ThinTiles, Tiles, WholeTiles
from models.backends.triton.whole import WholeSteps

_STEPS: Mapping[type[Tiles], Callable[[Run], Steps]] = {
    WholeTiles: WholeSteps,
    ThinTiles: ThinSteps,
}


def steps_of(run: Run) -> Steps:
    """How a call goes through its steps."""
    return _STEPS[type(run.tiles)](run)


def run_forward(run: Run, results: Results, *, keep: bool) -> None:
    """Go through all steps, writing into the results."""
    given, steps = run.given, steps_of(run)
    h = given.h0.float().clone()
    c = None if given.c0 is None else given.c0.float().clone()
    for start, stop in run.chunks():
        steps.forward(start, stop, h, c, results, keep=keep)
    results.last_h.copy_(h)
    if c is not None:
        results.last_c.copy_(c)
