"""The front: trials over two objectives, and over a third one beside them."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from search.documents.objectives import OBJECTIVE_KINDS, Objective
from search.fronts.dominance import front_of
from service.figures.shown import ShownStudy
from service.figures.style import (
    Figure,
    Json,
    Theme,
    axis_title,
    finite,
    is_logarithmic,
    lines,
    nothing,
    ordered_colours,
    ordered_symbols,
    span,
    text,
    thinned,
)
from storage.repositories.trial_summaries import TrialSummary

_At: TypeAlias = tuple[float, float]
_Key = TypeVar("_Key")

MOST_POINTS: Final = 600
"""How many trials are drawn that are neither on the front, named nor selected."""

_OF_BASELINES: Final[frozenset[Objective]] = frozenset({"parameters", "throughput"})
"""What is known of dense baselines, which are measured and never trained."""
_OF_REFERENCES: Final[frozenset[Objective]] = frozenset({"quality", "bytes"})
"""What is known of files that other tools make of the same network."""


def front_figure(
    study: ShownStudy,
    *,
    theme: Theme = "light",
    x: Objective | None = None,
    y: Objective | None = None,
    panels: int = 2,
) -> Json:
    """Trials over two objectives; the third is a second panel, or the size of marks.

    Args:
        study: what is shown.
        theme: of the page.
        x: the objective of the first panel's x axis; by default the study's first cost.
        y: of the y axis, which both panels share; by default quality.
        panels: 1 or 2.
    """
    across, up = study.axes(x, y)
    title = f"Front: {study.infos[up].metric} over {study.infos[across].metric}"
    thirds: list[Objective] = [name for name in study.own if name not in (across, up)]
    shown = [trial for trial in study.trials if _place(study, trial, (across, up)) is not None]
    if not shown:
        why = "No trial has a value of both yet." if study.trials else "No trial is complete yet."
        return nothing(theme, title, why)
    drawn = _drawn(study, shown)
    figure = Figure(theme, title)
    shared: list[Objective] = [across, *(thirds[:1] if panels == 2 else [])]
    size = thirds[0] if thirds and panels == 1 else None
    _legends(figure, study, drawn)
    for place, objective in enumerate(shared):
        _Panel(figure, study, objective, up, place, len(shared), size).draw(shown, drawn)
    _say(figure, study, shown, drawn, size)
    # One panel is for narrow pages, where a title beside its entries would push them out of sight.
    side: Json = {} if panels == 2 else {"side": "top"}
    figure.layout |= {
        "dragmode": "zoom",
        "hovermode": "closest",
        "height": 480 if panels == 2 else 560,
        "legend": {
            "orientation": "h",
            "y": -0.2,
            "x": 0,
            "yanchor": "top",
            "title": _by(study) | side,
        },
        "legend2": {
            "orientation": "h",
            "y": -0.32 if panels == 2 else -0.46,
            "x": 0,
            "yanchor": "top",
            "itemclick": False,
            "itemdoubleclick": False,
            "title": {"text": "Architecture: "} | side,
        },
    }
    found = figure.json()
    found["config"]["modeBarButtonsToAdd"] = ["select2d", "lasso2d"]
    return found


def _by(study: ShownStudy) -> Json:
    return {"text": "Stored as: " if study.is_network else "Parametrization: "}


def _drawn(study: ShownStudy, shown: Sequence[TrialSummary]) -> list[TrialSummary]:
    """The front, the named and the selected ones, and so many others, evenly by number."""
    kept = study.on_front | study.selected | study.named.keys()
    others = thinned([one.number for one in shown if one.number not in kept], MOST_POINTS)
    return [trial for trial in shown if trial.number in kept or trial.number in others]


def _place(
    study: ShownStudy, trial: TrialSummary, axes: tuple[Objective, Objective]
) -> tuple[float, float] | None:
    x, y = (finite(study.value(trial, name)) for name in axes)
    return None if x is None or y is None else (x, y)


def _legends(figure: Figure, study: ShownStudy, drawn: Sequence[TrialSummary]) -> None:
    """One legend of colours, which hides, and one of symbols: points themselves have neither."""
    for name, colour in ordered_colours(map(study.colour_name, drawn)).items():
        figure.data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "x": [None],
                "y": [None],
                "name": text(name),
                "legendgroup": name,
                "marker": {"color": colour, "size": 10},
                "hoverinfo": "skip",
            }
        )
    if study.is_network:
        return
    for name, symbol in ordered_symbols(trial.architecture for trial in drawn).items():
        figure.data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "x": [None],
                "y": [None],
                "name": text(name),
                "legend": "legend2",
                "marker": {"color": figure.shades.quiet, "size": 10, "symbol": symbol},
                "hoverinfo": "skip",
            }
        )


@dataclass(frozen=True)
class _Panel:
    """One pair of axes; all panels share the y axis."""

    figure: Figure
    study: ShownStudy
    x: Objective
    y: Objective
    place: int
    count: int
    size: Objective | None

    @property
    def axis(self) -> str:
        """The name of its x axis."""
        return "x" if self.place == 0 else f"x{self.place + 1}"

    def draw(self, shown: Sequence[TrialSummary], drawn: Sequence[TrialSummary]) -> None:
        """Everything between the axes."""
        here = [trial for trial in drawn if self._at(trial) is not None]
        framed = [
            trial
            for trial in here
            if trial.number in self.study.on_front or trial.number in self.study.named
        ] or here
        baselines = dict(self._baselines(framed))
        places = [
            *(at for trial in framed if (at := self._at(trial))),
            *baselines.values(),
            *self._references().values(),
        ]
        if not here:
            places = []
        logarithmic = self._lay_axes(places)
        self._band(logarithmic)
        self._region(places)
        self._stairs([trial for trial in shown if self._at(trial) is not None])
        sizes = self._sizes(here)
        for name, colour in ordered_colours(map(self.study.colour_name, drawn)).items():
            group = [trial for trial in here if self.study.colour_name(trial) == name]
            others = [trial for trial in group if trial.number not in self.study.on_front]
            points = [trial for trial in group if trial.number in self.study.on_front]
            if others:
                self.figure.data.append(self._points(others, name, colour, sizes, drawn))
            if points:
                trace = self._points(points, name, colour, sizes, drawn)
                self.figure.data.append(trace | (self._errors(points) if self._has_errors else {}))
        self._stars(here)
        self._beside(baselines, here)

    def _at(self, trial: TrialSummary) -> tuple[float, float] | None:
        return _place(self.study, trial, (self.x, self.y))

    def _lay_axes(self, places: Sequence[tuple[float, float]]) -> bool:
        infos, layout = self.study.infos, self.figure.layout
        across, up = ([place[side] for place in places] for side in (0, 1))
        wide_x, wide_y = is_logarithmic(infos[self.x], across), is_logarithmic(infos[self.y], up)
        gap = 0.05
        width = (1 - gap * (self.count - 1)) / self.count
        start = self.place * (width + gap)
        layout[f"{self.axis.replace('x', 'xaxis')}"] = self.figure.axis(
            axis_title(infos[self.x]) + (" (log)" if wide_x else ""),
            **_scale(wide_x, span(across, logarithmic=wide_x)),
            domain=[start, start + width],
        )
        if self.place == 0:
            layout["yaxis"] = self.figure.axis(
                axis_title(infos[self.y]) + (" (log)" if wide_y else ""),
                **_scale(wide_y, span(up, logarithmic=wide_y)),
            )
        return wide_y

    def _points(
        self,
        trials: Sequence[TrialSummary],
        name: str,
        colour: str,
        sizes: Mapping[int, float],
        drawn: Sequence[TrialSummary],
    ) -> Json:
        study = self.study
        symbols = ordered_symbols(trial.architecture for trial in drawn)
        on_front = [trial.number in study.on_front for trial in trials]
        places = [at for trial in trials if (at := self._at(trial))]
        trace: Json = {
            "type": "scatter",
            "mode": "markers",
            "name": text(name),
            "legendgroup": name,
            "showlegend": False,
            "xaxis": self.axis,
            "x": [x for x, _ in places],
            "y": [y for _, y in places],
            "customdata": [trial.number for trial in trials],
            "hovertext": [lines(study.words(trial)) for trial in trials],
            "hoverinfo": "text",
            "marker": {
                "color": colour,
                "symbol": [
                    symbols[trial.architecture] + ("" if front else "-open")
                    for trial, front in zip(trials, on_front, strict=True)
                ],
                "size": [
                    sizes.get(trial.number, 11 if front else 7)
                    for trial, front in zip(trials, on_front, strict=True)
                ],
                "opacity": [
                    0.45 if study.region.is_outside(trial) else 1.0 if front else 0.7
                    for trial, front in zip(trials, on_front, strict=True)
                ],
                "line": {"width": 1.2},
            },
            "unselected": {"marker": {"opacity": 0.2}},
        }
        if study.selected:
            trace["selectedpoints"] = [
                place for place, trial in enumerate(trials) if trial.number in study.selected
            ]
        return trace

    @property
    def _has_errors(self) -> bool:
        return self.y == "quality"

    def _errors(self, trials: Sequence[TrialSummary]) -> Json:
        """How far points of the front may be off: over seeds, or else by the validation samples."""
        above: list[float | None] = []
        below: list[float | None] = []
        for trial in trials:
            quality = trial.quality
            high = low = None
            if quality is not None and trial.number in self.study.on_front:
                interval = self.study.intervals.get(trial.number)
                if interval is not None:
                    low, high = max(0.0, quality - interval[0]), max(0.0, interval[1] - quality)
                elif self.study.noise is not None:
                    low = high = self.study.noise.half_width(quality)
            above.append(finite(high))
            below.append(finite(low))
        if not any(above):
            return {}
        bars = {"type": "data", "symmetric": False, "array": above, "arrayminus": below}
        return {"error_y": {**bars, "thickness": 1, "width": 3}}

    def _sizes(self, trials: Sequence[TrialSummary]) -> dict[int, float]:
        """Marks of 7 to 18 pixels by the third objective, the larger the better."""
        if self.size is None:
            return {}
        kind, info = OBJECTIVE_KINDS[self.size], self.study.infos[self.size]
        known = {
            trial.number: value
            for trial in trials
            if (value := finite(self.study.value(trial, self.size))) is not None
        }
        if not known:
            return {}
        sign = 1 if info.direction == "maximize" else -1
        wide = is_logarithmic(info, list(known.values())) and kind.known != "trained"
        scaled = {
            number: sign * (math.log10(value) if wide else value) for number, value in known.items()
        }
        low, high = min(scaled.values()), max(scaled.values())
        width = high - low
        if not width or not math.isfinite(width):
            return {}
        return {number: 7 + 11 * (one - low) / width for number, one in scaled.items()}

    def _stairs(self, trials: Sequence[TrialSummary]) -> None:
        """The edge of what is known, of the two objectives alone."""
        x, y = self.study.infos[self.x], self.study.infos[self.y]
        framed = [
            trial
            for trial in trials
            if trial.number in self.study.on_front or trial.number in self.study.named
        ]
        best = {at for trial in front_of(framed, (x, y)) if (at := self._at(trial))}
        worse_x = min if x.direction == "maximize" else max
        worse_y = min if y.direction == "maximize" else max
        corners: list[tuple[float, float]] = []
        for place in sorted(best):
            if corners:
                before = corners[-1]
                corners.append((worse_x(before[0], place[0]), worse_y(before[1], place[1])))
            corners.append(place)
        self.figure.data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "xaxis": self.axis,
                "x": [a for a, _ in corners],
                "y": [b for _, b in corners],
                "showlegend": False,
                "hoverinfo": "skip",
                "line": {"color": self.figure.shades.quiet, "width": 1.5, "dash": "dash"},
            }
        )

    def _stars(self, here: Sequence[TrialSummary]) -> None:
        """The original as a star, and the papers' systems by name."""
        named = [trial for trial in here if trial.number in self.study.named]
        if not named:
            return
        places = [at for trial in named if (at := self._at(trial))]
        stars = [trial.number == self.study.original for trial in named]
        self.figure.data.append(
            {
                "type": "scatter",
                "mode": "markers+text",
                "xaxis": self.axis,
                "x": [x for x, _ in places],
                "y": [y for _, y in places],
                "customdata": [trial.number for trial in named],
                "text": [text(self.study.named[trial.number]) for trial in named],
                "textposition": "top center",
                "textfont": {"size": 11, "color": self.figure.shades.quiet},
                "hovertext": [lines(self.study.words(trial)) for trial in named],
                "hoverinfo": "text",
                "showlegend": False,
                "marker": {
                    "symbol": ["star" if star else "circle-open" for star in stars],
                    "size": [16 if star else 15 for star in stars],
                    "color": self.figure.shades.warn,
                    "line": {"width": 1.2},
                },
            }
        )

    def _band(self, logarithmic: bool) -> None:
        """The qualities that differ from the best by no more than chance explains."""
        noise, study = self.study.noise, self.study
        known = [
            quality
            for trial in study.trials
            if trial.number in study.on_front and (quality := finite(trial.quality)) is not None
        ]
        if noise is None or self.y != "quality" or not known or logarithmic:
            return
        best = max(known) if study.infos["quality"].direction == "maximize" else min(known)
        self.figure.shapes.append(
            {
                "type": "rect",
                "xref": f"{self.axis} domain",
                "x0": 0,
                "x1": 1,
                "yref": "y",
                "y0": noise.floor(best),
                "y1": best,
                "fillcolor": self.figure.shades.accent,
                "opacity": 0.1,
                "line": {"width": 0},
                "layer": "below",
            }
        )
        if self.place == 0:
            self.figure.annotations.append(
                {
                    "xref": "paper",
                    "x": 0,
                    "xanchor": "left",
                    "yref": "y",
                    "y": best,
                    "yanchor": "bottom",
                    "showarrow": False,
                    "text": "within noise of the best",
                    "font": {"size": 11, "color": self.figure.shades.quiet},
                }
            )

    def _region(self, places: Sequence[tuple[float, float]]) -> None:
        """Where the region of interest ends; what is outside is shaded."""
        far = 1e12
        for side, objective in enumerate((self.x, self.y)):
            if objective not in self.study.region.ends or not places:
                continue
            end, bound = self.study.region.ends[objective]
            wide = is_logarithmic(self.study.infos[objective], [place[side] for place in places])
            beyond = bound * (far if end == "at_most" else 1 / far) if wide else bound
            if not wide:
                beyond = far if end == "at_most" else -far
            along, other = ("x", "y") if side == 0 else ("y", "x")
            own = self.axis if side == 0 else "y"
            across = "y domain" if side == 0 else f"{self.axis} domain"
            base: Json = {
                f"{along}ref": own,
                f"{other}ref": across,
                f"{other}0": 0,
                f"{other}1": 1,
                "name": "region",
            }
            shade = {"fillcolor": self.figure.shades.quiet, "opacity": 0.12, "line": {"width": 0}}
            self.figure.shapes += [
                {"type": "rect", **base, f"{along}0": bound, f"{along}1": beyond, **shade}
                | {"layer": "below"},
                {"type": "line", **base, f"{along}0": bound, f"{along}1": bound}
                | {"line": {"color": self.figure.shades.warn, "width": 1.5, "dash": "dash"}},
            ]

    def _baselines(
        self, trials: Sequence[TrialSummary]
    ) -> Iterator[tuple[int, tuple[float, float]]]:
        """What is known of the dense baselines that points were measured beside."""
        if self.study.is_network or not {self.x, self.y} <= _OF_BASELINES:
            return
        for trial in trials:
            on_front = trial.number in self.study.on_front
            speed, ratio = trial.throughput, trial.throughput_ratio
            if on_front and trial.parametrization != "dense" and speed and ratio:
                found: Mapping[Objective, float] = {
                    "parameters": float(trial.dense_parameters),
                    "throughput": speed / ratio,
                }
                yield trial.number, (found[self.x], found[self.y])

    def _references(self) -> dict[str, tuple[float, float]]:
        if not {self.x, self.y} <= _OF_REFERENCES:
            return {}
        return {one.name: (one.values[self.x], one.values[self.y]) for one in self.study.references}

    def _beside(
        self, baselines: Mapping[int, tuple[float, float]], here: Sequence[TrialSummary]
    ) -> None:
        """Dense baselines, tied to their points, and what other tools make of the network."""
        quiet = self.figure.shades.quiet
        known = {trial.number: at for trial in here if (at := self._at(trial))}
        if baselines:
            ties = [
                place
                for number, at in baselines.items()
                for place in (known[number], at, (None, None))
            ]
            self.figure.data += [
                {
                    "type": "scatter",
                    "mode": "lines",
                    "xaxis": self.axis,
                    "x": [x for x, _ in ties],
                    "y": [y for _, y in ties],
                    "line": {"color": quiet, "width": 1, "dash": "dot"},
                    "hoverinfo": "skip",
                    "showlegend": False,
                },
                self._marks(
                    "dense baseline",
                    "x-thin-open",
                    baselines,
                    lambda number: f"dense baseline of trial {number}",
                ),
            ]
        references = self._references()
        if references:
            self.figure.data.append(
                self._marks("another tool, for comparison", "triangle-down", references, str)
                | {
                    "mode": "markers+text",
                    "text": list(map(text, references)),
                    "textposition": "bottom center",
                    "textfont": {"size": 11, "color": quiet},
                }
            )

    def _marks(
        self, name: str, symbol: str, places: Mapping[_Key, _At], words: Callable[[_Key], str]
    ) -> Json:
        return {
            "type": "scatter",
            "mode": "markers",
            "name": name,
            "legendgroup": name,
            "showlegend": self.place == 0,
            "xaxis": self.axis,
            "x": [x for x, _ in places.values()],
            "y": [y for _, y in places.values()],
            "hovertext": [text(words(key)) for key in places],
            "hoverinfo": "text",
            "marker": {
                "symbol": symbol,
                "size": 9,
                "color": self.figure.shades.quiet,
                "line": {"width": 1.5},
            },
        }


def _scale(logarithmic: bool, wanted: list[float] | None) -> Json:
    found: Json = {"type": "log" if logarithmic else "linear"}
    if wanted is not None:
        found["range"] = wanted
    if logarithmic:
        # Within a decade or two every mark has its value, not its first digit alone.
        found |= {"exponentformat": "SI", "minexponent": 4}
        if wanted is not None and wanted[1] - wanted[0] < 3:
            found["dtick"] = "D2"
    elif wanted is not None and max(map(abs, wanted)) < 0.01:
        # 2e-4 rather than 200µ, which has no unit.
        found["exponentformat"] = "e"
    return found


def _say(
    figure: Figure,
    study: ShownStudy,
    shown: Sequence[TrialSummary],
    drawn: Sequence[TrialSummary],
    size: Objective | None,
) -> None:
    """Sentences below the picture: every trial is drawn, or counted here."""
    points = sum(trial.number in study.on_front for trial in drawn)
    figure.caption.append(
        f"Drawn: {len(drawn):,} of {len(study.trials):,} complete trials. Filled: the {points:,} "
        "of the front."
    )
    if len(shown) < len(study.trials):
        figure.caption.append(
            f"{len(study.trials) - len(shown):,} without a value of both axes are not."
        )
    if len(drawn) < len(shown):
        figure.caption.append(
            f"{len(shown) - len(drawn):,} that others dominate are left out, evenly by number."
        )
    if size is not None:
        info = study.infos[size]
        better = "more" if info.direction == "maximize" else "less"
        figure.caption.append(f"Larger marks have {better} {info.metric}.")
    if study.region.ends:
        names: dict[Objective, str] = {name: info.metric for name, info in study.infos.items()}
        figure.caption.append(
            f"Shaded: outside the region of interest, {study.region.words(names)}."
        )
    figure.caption.append("Double-click shows all.")
