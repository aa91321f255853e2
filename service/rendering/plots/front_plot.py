"""The plot of a front over two objectives; a point's colour is its value of another one.

It shows more than the front: what else is complete, dense models, the papers' systems, and, over
parameters and throughput, the dense baselines that points of the front were measured beside.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from search.documents.objectives import OBJECTIVE_KINDS, Objective
from search.documents.region import Region
from search.fronts.dominance import front_of, value_of
from search.fronts.pareto import ObjectiveInfo
from search.graphs.network_trial import BITS
from service.figures.references import Reference
from service.rendering.network_words import SHORT_FORMS
from service.rendering.plots.axes import Axis, Tick, axis, label, log_axis, loss_axis
from service.rendering.plots.colours import UNKNOWN, on_scale
from storage.records import TrialOrigin
from storage.repositories.trial_summaries import TrialSummary

WIDTH, HEIGHT = 640, 400
LEFT, RIGHT, TOP, BOTTOM = 80, 104, 16, 56

Shape: TypeAlias = Literal["circle", "diamond", "square", "triangle"]

_LABEL = 18.0
"""How much room a trial's number needs beside its mark, each way."""

_OF_BASELINES: frozenset[Objective] = frozenset({"parameters", "throughput"})
"""What is known of dense baselines, which are measured and never trained."""

_OF_REFERENCES: frozenset[Objective] = frozenset({"quality", "bytes"})
"""What is known of files that other tools make of the same network."""

_MOST_OTHERS = 500
"""How many complete trials are shown that are not on the front, the newest of them."""


@dataclass(frozen=True, kw_only=True)
class PlotWords:
    """What marks stand for, in studies of one sort."""

    diamond_for: str
    """The parametrization whose trials are diamonds."""
    diamond: str
    square: str
    baseline: str
    """What throughput is compared with, in the genitive."""
    has_baselines: bool
    """Whether each trial has a dense baseline of its own, which is drawn beside it."""
    model: Callable[[TrialSummary], str]
    """A trial's model in words."""


OF_MODELS = PlotWords(
    diamond_for="dense",
    diamond="a dense model",
    square="a system of the papers, or the original",
    baseline="its dense baseline's",
    has_baselines=True,
    model=lambda trial: f"{trial.architecture} × {trial.parametrization}",
)
OF_NETWORKS = PlotWords(
    diamond_for=BITS,
    diamond="layers in fewer bits alone",
    square="the original",
    baseline="the original's",
    has_baselines=False,
    model=lambda trial: SHORT_FORMS[trial.parametrization],
)


@dataclass(frozen=True)
class Mark:
    """A trial, where it stands in the picture."""

    x: float
    y: float
    shape: Shape
    """What it is: a drawn configuration, a dense model, or a system of the papers."""
    colour: str | None
    """By another objective; null off the front."""
    trial: int
    text: str
    outside: bool
    """Whether it lies outside the region of interest."""
    number_at: tuple[float, float] | None = None
    """Where its number stands; null where there is no room for it."""


@dataclass(frozen=True)
class Baseline:
    """The dense baseline that a point was measured beside, and the line between the two."""

    x: float
    y: float
    to_x: float
    to_y: float
    text: str


@dataclass(frozen=True)
class ReferenceMark:
    """What another tool makes of the same network, where it stands in the picture."""

    x: float
    y: float
    name: str
    text: str


@dataclass(frozen=True)
class Swatch:
    """One step of the colour scale."""

    y: float
    colour: str
    label: str


@dataclass(frozen=True)
class RegionShown:
    """Where the region of interest ends, as far as the picture shows it."""

    words: str
    outside: str
    """A path round all that lies outside; empty where nothing in the picture does."""
    lines: tuple[tuple[float, float, float, float], ...]
    """`x1, y1, x2, y2` of each end."""


@dataclass(frozen=True)
class FrontPlot:
    """Everything that the picture shows."""

    marks: tuple[Mark, ...]
    """The front; what is drawn last."""
    others: tuple[Mark, ...]
    baselines: tuple[Baseline, ...]
    stairs: str
    """`x,y x,y ...`: the best that is known of either axis for each value of the other."""
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    x_label: str
    y_label: str
    scale_label: str
    scale: tuple[Swatch, ...]
    outside: int
    """How many complete trials lie beyond the axes, which fit the front."""
    region: RegionShown | None
    """Null where every value interests."""
    words: PlotWords = OF_MODELS
    references: tuple[ReferenceMark, ...] = ()
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    top: int = TOP
    bottom: int = HEIGHT - BOTTOM

    @property
    def shapes(self) -> frozenset[Shape]:
        """Those that occur, so that a legend names no other."""
        return frozenset(mark.shape for mark in (*self.marks, *self.others))


def front_plot(
    trials: Sequence[TrialSummary],
    on_front: frozenset[int],
    *,
    infos: Mapping[Objective, ObjectiveInfo],
    x: Objective,
    y: Objective,
    presets: Mapping[int, str] | None = None,
    region: Region,
    words: PlotWords = OF_MODELS,
    references: Sequence[Reference] = (),
) -> FrontPlot | None:
    """The picture of a front; null while no point of it has a value on both axes.

    Args:
        trials: the complete ones; confirmations are not shown, they repeat points of the front.
        on_front: numbers of those on the study's front.
        infos: the study's objectives and then the usual ones, as its task calls them; colours are
            by the first that is on no axis.
        x: the objective of the x axis.
        y: that of the y axis.
        presets: number of a trial -> the name of the papers' system that it is. An original is
            named likewise.
        region: the study's region of interest.
        words: what marks stand for.
        references: what other tools make of the same network; shown over bytes and quality.
    """
    named = dict(presets or {})
    named |= {
        trial.number: "the original" for trial in trials if trial.origin == TrialOrigin.ORIGINAL
    }
    shown = [
        trial
        for trial in trials
        if trial.origin != TrialOrigin.CONFIRMATION
        and value_of(trial, x) is not None
        and value_of(trial, y) is not None
    ]
    points = [trial for trial in shown if trial.number in on_front]
    if not points:
        return None
    # The papers' systems are there to be compared with: the axes make room for them.
    framed = [*points, *(trial for trial in shown if trial.number in named)]
    has_baselines = words.has_baselines and {x, y} <= _OF_BASELINES
    beside = _measured_baselines(points) if has_baselines else {}
    known = references if {x, y} <= _OF_REFERENCES else ()
    other = [*beside.values(), *(one.values for one in known)]
    across = _axis(framed, other, infos[x], start=LEFT, end=WIDTH - RIGHT)
    up = _axis(framed, other, infos[y], start=HEIGHT - BOTTOM, end=TOP)
    thirds: list[Objective] = [name for name in infos if name not in (x, y)]
    third = thirds[0]
    scale = _Scale.of(points, infos[third])
    frame = _Frame(x, y, across, up, infos, named, region, words)
    beyond = [trial for trial in shown if trial.number not in on_front]
    inside = [trial for trial in beyond if frame.holds(trial)]
    marks = [frame.mark(trial, scale.colour(value_of(trial, third))) for trial in points]
    return FrontPlot(
        marks=tuple(_numbered(marks)),
        others=tuple(frame.mark(trial, None) for trial in inside[-_MOST_OTHERS:]),
        baselines=tuple(
            frame.baseline(trial, baseline)
            for trial in points
            if (baseline := beside.get(trial.number))
        ),
        stairs=_stairs(framed, (infos[x], infos[y]), across, up),
        x_ticks=across.ticks,
        y_ticks=up.ticks,
        x_label=_axis_label(infos[x], across),
        y_label=_axis_label(infos[y], up),
        scale_label=infos[third].metric,
        scale=scale.swatches(),
        outside=len(beyond) - len(inside),
        region=frame.region_shown() if region.ends else None,
        words=words,
        references=tuple(map(frame.reference, known)),
    )


@dataclass(frozen=True)
class _Frame:
    """Where the axes put trials."""

    x: Objective
    y: Objective
    across: Axis
    up: Axis
    infos: Mapping[Objective, ObjectiveInfo]
    named: Mapping[int, str]
    region: Region
    words: PlotWords

    def holds(self, trial: TrialSummary) -> bool:
        return self.across.holds(_value(trial, self.x)) and self.up.holds(_value(trial, self.y))

    def region_shown(self) -> RegionShown:
        x, y = self.across, self.up
        boxes: list[str] = []
        lines: list[tuple[float, float, float, float]] = []
        axes: tuple[tuple[Objective, Axis], ...] = ((self.x, x), (self.y, y))
        for objective, axis_of_it in axes:
            if objective not in self.region.ends:
                continue
            end, bound = self.region.ends[objective]
            at = axis_of_it.nearest(bound)
            beyond = axis_of_it.end if end == "at_most" else axis_of_it.start
            if axis_of_it is x:
                box, line = _box((at, beyond), (y.start, y.end)), (at, y.start, at, y.end)
            else:
                box, line = _box((x.start, x.end), (at, beyond)), (x.start, at, x.end, at)
            boxes += [box] if at != beyond else []
            lines += [line] if axis_of_it.holds(bound) else []
        names: dict[Objective, str] = {name: info.metric for name, info in self.infos.items()}
        return RegionShown(self.region.words(names), "".join(boxes), tuple(lines))

    def mark(self, trial: TrialSummary, colour: str | None) -> Mark:
        outside = self.region.is_outside(trial)
        return Mark(
            x=self.across.place(_value(trial, self.x)),
            y=self.up.place(_value(trial, self.y)),
            shape=_shape(trial, self.named, self.words),
            colour=colour,
            trial=trial.number,
            text=_describe(trial, self.infos, self.named, self.words)
            + "\noutside the region of interest" * outside,
            outside=outside,
        )

    def reference(self, reference: Reference) -> ReferenceMark:
        quality = self.infos["quality"].metric
        return ReferenceMark(
            x=self.across.place(reference.values[self.x]),
            y=self.up.place(reference.values[self.y]),
            name=reference.name,
            text=f"{reference.name}, for comparison\n{quality} {reference.quality:,.4f}\n"
            f"{reference.bytes:,} bytes",
        )

    def baseline(self, trial: TrialSummary, baseline: Mapping[Objective, float]) -> Baseline:
        return Baseline(
            x=self.across.place(baseline[self.x]),
            y=self.up.place(baseline[self.y]),
            to_x=self.across.place(_value(trial, self.x)),
            to_y=self.up.place(_value(trial, self.y)),
            text=f"dense baseline of trial {trial.number}\n"
            f"{baseline['parameters']:,.0f} parameters\n"
            f"{baseline['throughput']:,.0f} samples/s",
        )


def _box(across: tuple[float, float], up: tuple[float, float]) -> str:
    """A path round a rectangle, always in the same sense: so two that overlap fill it once."""
    (left, right), (top, bottom) = sorted(across), sorted(up)
    return f"M{left} {top}H{right}V{bottom}H{left}z"


@dataclass(frozen=True)
class _Scale:
    """The colours of another objective: by ratios where the axis would be logarithmic."""

    axis: Axis | None

    @classmethod
    def of(cls, trials: Sequence[TrialSummary], info: ObjectiveInfo) -> "_Scale":
        known = [trial for trial in trials if value_of(trial, info.name) is not None]
        if not known:
            return cls(None)
        return cls(_axis(known, [], info, start=HEIGHT - BOTTOM - 12.0, end=TOP + 40.0))

    def colour(self, value: float | None) -> str:
        if self.axis is None or value is None:
            return UNKNOWN
        return on_scale(self._share(self.axis.place(value)))

    def swatches(self) -> tuple[Swatch, ...]:
        if self.axis is None:
            return ()
        return tuple(
            Swatch(y=tick.at, colour=on_scale(self._share(tick.at)), label=tick.label)
            for tick in self.axis.ticks
        )

    def _share(self, y: float) -> float:
        assert self.axis is not None
        return (y - self.axis.start) / (self.axis.end - self.axis.start)


def _axis(
    trials: Sequence[TrialSummary],
    beside: Sequence[Mapping[Objective, float]],
    info: ObjectiveInfo,
    *,
    start: float,
    end: float,
) -> Axis:
    kind = OBJECTIVE_KINDS[info.name]
    values = [_value(trial, info.name) for trial in trials]
    values += [other[info.name] for other in beside]
    # Counts are compared by their ratios, however near to each other they are.
    drawn = log_axis if kind.logarithmic else axis
    if kind.direction is None and info.direction == "minimize":
        drawn = loss_axis
    return drawn(values, start=start, end=end, say=kind.tick or label)


def _axis_label(info: ObjectiveInfo, along: Axis) -> str:
    unit = f", {info.unit}" if OBJECTIVE_KINDS[info.name].has_unit else ""
    return f"{info.metric}{unit}{' (logarithmic)' if along.logarithmic else ''}"


def _value(trial: TrialSummary, objective: Objective) -> float:
    value = value_of(trial, objective)
    assert value is not None
    return value


def _shape(trial: TrialSummary, presets: Mapping[int, str], words: PlotWords) -> Shape:
    if trial.number in presets:
        return "square"
    return "diamond" if trial.parametrization == words.diamond_for else "circle"


def _describe(
    trial: TrialSummary,
    infos: Mapping[Objective, ObjectiveInfo],
    presets: Mapping[int, str],
    words: PlotWords,
) -> str:
    """What a pointer or a reader of the screen is told, one thing a line."""
    name = f" ({presets[trial.number]})" if trial.number in presets else ""
    lines = [f"trial {trial.number}{name}: {words.model(trial)}"]
    for kind in OBJECTIVE_KINDS.values():
        value = kind.value(trial)
        if value is not None:
            told = kind.told.format(metric=infos["quality"].metric, value=kind.shown(value))
            lines.append(told)
    if trial.throughput_ratio is not None:
        lines.append(f"{trial.throughput_ratio:.2f} × {words.baseline} throughput")
    return "\n".join(lines)


def _numbered(marks: Sequence[Mark]) -> Iterator[Mark]:
    """The marks, each with a place for its number that no other mark or number takes."""
    taken = [(mark.x, mark.y) for mark in marks]
    for mark in marks:
        for dx, dy in ((12.0, -12.0), (-12.0, -12.0), (12.0, 14.0), (-12.0, 14.0)):
            place = (round(mark.x + dx, 1), round(mark.y + dy, 1))
            free = all(
                abs(place[0] - x) >= _LABEL or abs(place[1] - y) >= _LABEL * 0.75
                for x, y in taken
                if (x, y) != (mark.x, mark.y)
            )
            if free and LEFT < place[0] < WIDTH - RIGHT and TOP < place[1] < HEIGHT - BOTTOM:
                taken.append(place)
                yield replace(mark, number_at=place)
                break
        else:
            yield mark


def _measured_baselines(
    trials: Sequence[TrialSummary],
) -> dict[int, Mapping[Objective, float]]:
    """What is known of each trial's dense baseline, which was measured beside it, never trained."""
    return {
        trial.number: {
            "parameters": float(trial.dense_parameters),
            "throughput": trial.throughput / trial.throughput_ratio,
        }
        for trial in trials
        if trial.parametrization != "dense" and trial.throughput and trial.throughput_ratio
    }


def _stairs(
    trials: Sequence[TrialSummary], infos: Sequence[ObjectiveInfo], across: Axis, up: Axis
) -> str:
    """The edge of what the trials dominate, of the two objectives alone."""
    x, y = infos
    best = {(_value(trial, x.name), _value(trial, y.name)) for trial in front_of(trials, infos)}
    corners: list[tuple[float, float]] = []
    worse_of_y = min if y.direction == "maximize" else max
    worse_of_x = min if x.direction == "maximize" else max
    for place in sorted(best):
        if corners:
            before = corners[-1]
            corners.append((worse_of_x(before[0], place[0]), worse_of_y(before[1], place[1])))
        corners.append(place)
    return " ".join(f"{across.place(a)},{up.place(b)}" for a, b in corners)
