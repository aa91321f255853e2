"""What a study found, as values: a front, a list of trials, importances."""

from search.documents import fronts
from service.api.fronts.schemas import FrontDocument, PointDocument
from service.api.trials.schemas import TrialDocument
from service.client.handles.columns import Frame, Record, frame_of, record_of_point, record_of_trial
from service.client.handles.html import table

_SHOWN = (
    "trial",
    "architecture",
    "parametrization",
    "quality",
    "test_quality",
    "parameters",
    "throughput",
    "throughput_ratio",
)
"""Columns of a front and of trials in a notebook."""
_MOST_ROWS = 60
_HALF = _MOST_ROWS // 2


class Front(FrontDocument):
    """A Pareto front that can be asked for its best point, and shown as a table."""

    def __repr__(self) -> str:
        """How many points it has."""
        return f"Front({_counted(len(self.points), 'point')})"

    def _repr_html_(self) -> str:
        records = [record_of_point(point) for point in self.ranked()]
        return _html(records, f"Pareto front: {_counted(len(records), 'point')}")

    def records(self) -> list[Record]:
        """The points as dictionaries, best first; hyperparameters are `params.NAME`."""
        return [record_of_point(point) for point in self.ranked()]

    def frame(self) -> Frame:
        """The points as a data frame, best first.

        Raises:
            ExtraMissing: pandas is not installed.
        """
        return frame_of(self.records())

    def to_pandas(self) -> Frame:
        """The same as `frame`."""
        return self.frame()

    def best(
        self, *, max_quality_loss: float | None = None, max_loss: float | None = None
    ) -> PointDocument | None:
        """The point to take; None while the front is empty.

        Without a loss it is the best one in the first objective. With one it is the cheapest point
        whose quality is at most that much worse than the best on the front. Cheapest is by the
        study's first objective beside quality, or by parameters. Of equally cheap points the one
        of the better quality is taken, then that with the lower number.

        Args:
            max_quality_loss: in units of the quality metric, 0 or more: 0.01 of an accuracy is one
                in a hundred samples.
            max_loss: another name of it.

        Raises:
            ValueError: the loss is negative, or both names are given.
        """
        if max_loss is not None:
            if max_quality_loss is not None:
                raise ValueError("max_loss is another name of max_quality_loss: give one of them")
            max_quality_loss = max_loss
        if max_quality_loss is None:
            return super().best()
        if not max_quality_loss >= 0:
            raise ValueError(f"max_quality_loss is {max_quality_loss}; allowed are 0 and more")
        quality = next((one for one in self.objectives if one.name == "quality"), None)
        sign = -1.0 if quality is not None and quality.direction == "minimize" else 1.0
        known = [
            (sign * point.values.quality, point)
            for point in self.points
            if point.values.quality is not None
        ]
        if not known:
            return None
        least = max(value for value, _ in known) - max_quality_loss
        # What was measured as 0.95 may be stored a rounding error below it.
        least -= 1e-9 * max(1.0, abs(least))
        near = [(value, point) for value, point in known if value >= least]
        return min(near, key=lambda one: (self._cost(one[1]), -one[0], one[1].trial))[1]

    def _cost(self, point: PointDocument) -> float:
        costs = [one for one in self.objectives if one.name != "quality"]
        if not costs:
            return float(point.values.parameters)
        value: float | None = point.values[costs[0].name]
        if value is None:
            return float("inf")
        return -value if costs[0].direction == "maximize" else value


class Trials(list[TrialDocument]):
    """Trials in the order of their numbers."""

    def __repr__(self) -> str:
        """How many there are."""
        return f"Trials({_counted(len(self), 'trial')})"

    def _repr_html_(self) -> str:
        return _html(self.records(), _counted(len(self), "trial"), "outcome")

    def records(self) -> list[Record]:
        """The trials as dictionaries; hyperparameters are `params.NAME`."""
        return [record_of_trial(trial) for trial in self]

    def frame(self) -> Frame:
        """The trials as a data frame.

        Raises:
            ExtraMissing: pandas is not installed.
        """
        return frame_of(self.records())

    def to_pandas(self) -> Frame:
        """The same as `frame`."""
        return self.frame()


class Importance(fronts.Importance):
    """Importances that are shown as a table."""

    def __repr__(self) -> str:
        """Of which objectives."""
        names = ", ".join(one.objective.metric for one in self.objectives)
        return f"Importance({names})"

    def _repr_html_(self) -> str:
        rows = [
            (one.objective.metric, found.dimension, found.importance, found.trials, found.trend)
            for one in self.objectives
            for found in one.dimensions
        ]
        headings = ("objective", "dimension", "importance", "trials", "trend")
        return table(headings, rows, caption="Hyperparameter importance")


def _html(records: list[Record], caption: str, *more: str) -> str:
    headings = (*_SHOWN, *more)
    rows = [[record[name] for name in headings] for record in records]
    if len(rows) > _MOST_ROWS:
        rows = [*rows[:_HALF], ["…"] * len(headings), *rows[-_HALF:]]
    return table(headings, rows, caption=caption)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
