"""The plot of a growing hypervolume as plain geometry, which a template writes down as SVG."""

from collections.abc import Sequence
from dataclasses import dataclass

from search.fronts.hypervolumes import HypervolumePoint
from service.rendering.plots.axes import Tick, linear_axis

WIDTH, HEIGHT = 640, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 16, 16, 52


@dataclass(frozen=True)
class Step:
    """A moment at which the front changed."""

    x: float
    y: float
    label: str


@dataclass(frozen=True)
class Growth:
    """Everything that the picture shows."""

    points: str
    """`x,y x,y ...` of the stepped line."""
    steps: tuple[Step, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    width: int = WIDTH
    height: int = HEIGHT
    left: int = _LEFT
    right: int = WIDTH - _RIGHT
    top: int = _TOP
    bottom: int = HEIGHT - _BOTTOM


def growth(changes: Sequence[HypervolumePoint], *, epochs_trained: int) -> Growth | None:
    """The hypervolume over the epochs that all trials trained; null before two changes are known.

    It stays where it is from one change of the front to the next, and until now.
    """
    known = [
        (change, change.epochs_trained) for change in changes if change.epochs_trained is not None
    ]
    if len(known) < 2:
        return None
    x = linear_axis(
        [epochs for _, epochs in known] + [epochs_trained], start=_LEFT, end=WIDTH - _RIGHT
    )
    y = linear_axis([change.hypervolume for change, _ in known], start=HEIGHT - _BOTTOM, end=_TOP)
    steps = tuple(
        Step(x=x.place(epochs), y=y.place(change.hypervolume), label=_describe(change))
        for change, epochs in known
    )
    ends = [*(step.x for step in steps[1:]), x.place(max(epochs_trained, known[-1][1]))]
    return Growth(
        points=" ".join(
            f"{step.x},{step.y} {end},{step.y}" for step, end in zip(steps, ends, strict=True)
        ),
        steps=steps,
        x_ticks=tuple(tick for tick in x.ticks if tick.at >= x.place(0)),
        y_ticks=y.ticks,
    )


def _describe(change: HypervolumePoint) -> str:
    by = "" if change.trial is None else f"trial {change.trial}: "
    return f"{by}{change.hypervolume:.4g} after {change.epochs_trained} epochs"
