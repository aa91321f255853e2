"""The front of a study as text: quality over the first cost, for a terminal."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from string import ascii_lowercase, ascii_uppercase

from search.documents.fronts import ObjectiveInfo
from search.documents.objectives import Objective
from service.api.fronts.schemas import FrontDocument
from service.api.trials.schemas import TrialDocument
from service.commands.shown.tables import shown

_HEIGHT = 16
"""Lines of the plot, without its axes."""
_MOST_WIDTH = 100
_BEATEN = "·"
_LETTERS = ascii_lowercase + ascii_uppercase
_LOGARITHMIC = 8.0
"""From this ratio between the ends on, an axis is logarithmic."""
_TICKS = 4
_GAP = 2


@dataclass(frozen=True)
class _Point:
    x: float
    y: float
    kind: str | None
    """Architecture and parametrization; None: it is not on the front."""


class _Axis:
    """From values to places, the least at 0."""

    def __init__(self, values: Sequence[float], objective: Objective, size: int) -> None:
        low, high = min(values), max(values)
        self._log = low > 0 and high / low >= _LOGARITHMIC
        self._low, self._high = self._scaled(low), self._scaled(high)
        self._objective: Objective = objective
        self._size = size

    def place(self, value: float) -> int:
        """Where a value is, 0 to `size - 1`; the only value is in the middle."""
        span = self._high - self._low
        share = 0.5 if span == 0 else (self._scaled(value) - self._low) / span
        return round(share * (self._size - 1))

    def label(self, place: int) -> str:
        """The value at a place, in its own digits."""
        scaled = self._low + (self._high - self._low) * place / max(1, self._size - 1)
        value = 10**scaled if self._log else scaled
        whole = self._objective in ("parameters", "bytes")
        return shown(round(value) if whole else value, self._objective)

    @property
    def words(self) -> str:
        """What is to be said of the scale."""
        return ", logarithmic" if self._log else ""

    def _scaled(self, value: float) -> float:
        return math.log10(value) if self._log else value


def front_plot(front: FrontDocument, trials: Iterable[TrialDocument], *, width: int) -> str:
    """A plot in `width` columns: letters are points of the front, dots other complete trials.

    Args:
        front: the study's.
        trials: complete ones, those of the front among them.
        width: of the terminal.
    """
    if len(front.objectives) < 2:
        return "a plot takes two objectives, and the study has one"
    up, across = _axes(front.objectives)
    points = _points(front, trials, up, across)
    if not points:
        return "no trial has both values yet"
    letters = _letters(points)
    columns = min(width, _MOST_WIDTH)
    y_axis = _Axis([point.y for point in points], up.name, _HEIGHT)
    y_labels = {row: y_axis.label(row) for row in _ticks(_HEIGHT)}
    margin = max(map(len, y_labels.values())) + 1
    x_axis = _Axis([point.x for point in points], across.name, columns - margin - 1)
    cells = [[" "] * (columns - margin - 1) for _ in range(_HEIGHT)]
    # The front comes last: it hides what it beats.
    for point in sorted(points, key=lambda point: point.kind is not None):
        sign = _BEATEN if point.kind is None else letters[point.kind]
        cells[y_axis.place(point.y)][x_axis.place(point.x)] = sign
    lines = [up.metric]
    for row in reversed(range(_HEIGHT)):
        label = y_labels.get(row, "")
        lines.append(f"{label:>{margin - 1}} {'┤' if label else '│'}{''.join(cells[row])}".rstrip())
    lines += _foot(x_axis, columns - margin - 1, margin)
    lines.append(f"{across.metric}{x_axis.words}".rjust(columns))
    return "\n".join([*lines, *_legend(letters, points, columns)])


def _axes(objectives: Sequence[ObjectiveInfo]) -> tuple[ObjectiveInfo, ObjectiveInfo]:
    """What goes up and what goes across: quality, where it is asked for, and the first other."""
    up = next((one for one in objectives if one.name == "quality"), objectives[0])
    return up, next(one for one in objectives if one.name != up.name)


def _points(
    front: FrontDocument, trials: Iterable[TrialDocument], up: ObjectiveInfo, across: ObjectiveInfo
) -> list[_Point]:
    on_front = {point.trial for point in front.points}
    found: list[_Point] = []
    known = [
        *((one.values, f"{one.architecture} {one.parametrization}") for one in front.points),
        *((one.values, None) for one in trials if one.number not in on_front),
    ]
    for values, kind in known:
        x, y = values.get(across.name), values.get(up.name)
        if x is not None and y is not None and math.isfinite(x) and math.isfinite(y):
            found.append(_Point(float(x), float(y), kind))
    return found


def _letters(points: Iterable[_Point]) -> Mapping[str, str]:
    kinds = sorted({point.kind for point in points if point.kind is not None})
    return {kind: _LETTERS[place % len(_LETTERS)] for place, kind in enumerate(kinds)}


def _ticks(size: int) -> list[int]:
    return sorted({round(share * (size - 1) / (_TICKS - 1)) for share in range(_TICKS)})


def _foot(axis: _Axis, size: int, margin: int) -> list[str]:
    """The axis below, and its labels where they have room."""
    line, labels = ["─"] * size, " " * margin + " "
    for tick in _ticks(size):
        line[tick] = "┬"
        text = axis.label(tick)
        start = min(margin + 1 + tick - len(text) // 2, margin + 1 + size - len(text))
        if start >= len(labels) + (_GAP if labels.strip() else 0):
            labels = labels.ljust(start) + text
        elif not labels.strip():
            labels = " " * max(0, start) + text
    return [f"{' ' * margin}└{''.join(line)}", labels]


def _legend(letters: Mapping[str, str], points: Iterable[_Point], width: int) -> list[str]:
    entries = [f"{letter} {kind}" for kind, letter in letters.items()]
    if any(point.kind is None for point in points):
        entries.append(f"{_BEATEN} not on the front")
    lines = [""]
    for entry in entries:
        room = len(lines[-1]) + len(entry) + _GAP <= width
        if lines[-1] and not room:
            lines.append("")
        lines[-1] += ("  " if lines[-1] else "") + entry
    return lines
