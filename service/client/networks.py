"""Networks of others from the client: reports of their smaller files, and which to take."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from models.spec import Spec
from search.documents.objectives import Objective
from service.api.fronts.schemas import FrontDocument, PointDocument
from service.api.paths import trial_path
from service.api.studies.schemas import StudyDocument
from service.client.errors import Refused
from service.client.results import ResultCalls
from service.client.studies import StudyCalls
from service.client.transport.described import refusal
from service.client.transport.steps import Steps, call
from service.client.trials import TrialCalls

AGREES = 0.99
"""The share of the original's decisions that a file is to keep where a study limits nothing."""

_AGREEMENT = "agreement"
_TASK = "model_outputs"


class LayerOfFile(Spec):
    """How one layer is stored in a file."""

    name: str
    operator: str
    shape: tuple[int, ...]
    bytes_before: int
    bytes_after: int
    choice: Mapping[str, Any]
    """`kind`, and what that has: `bits`, `rank`, ..."""
    compensated: bool
    local_error: float
    """The share of the energy of the layer's outputs that is lost, 0 to 1."""
    sensitivity: float
    """Loss of the whole network that is predicted for each local error."""
    predicted_share: float
    """Of the predicted loss of the file, 0 to 1."""
    multiply_adds_before: float
    multiply_adds_after: float


class MetricOfFile(Spec):
    """One metric in one part of the data."""

    metric: Mapping[str, Any]
    """`kind`, and how its answers are read."""
    value: float
    original: float
    low: float | None
    """Of the 95 % interval over samples; null: the metric is no share."""
    high: float | None

    @property
    def kind(self) -> str:
        """Its name."""
        return str(self.metric.get("kind"))


class PartOfFile(Spec):
    """What was measured on one part of the data."""

    samples: int
    metrics: tuple[MetricOfFile, ...]
    worst: tuple[int, ...]
    """Places, from 0, of the worst samples in the user's data, the worst one first."""

    def metric(self, kind: str) -> MetricOfFile | None:
        """The metric of this name; None where it is not reported."""
        return next((one for one in self.metrics if one.kind == kind), None)


class ReportOfFile(Spec):
    """The report of one trial of a study that compresses a network of others."""

    layers: tuple[LayerOfFile, ...]
    bytes_before: int
    """Of the original file."""
    bytes_after: int
    multiply_adds_before: float
    multiply_adds_after: float
    predicted_loss: float
    choosing: PartOfFile
    """The part of the data that trials are chosen by."""
    test: PartOfFile
    """The part that nothing was chosen by."""
    warnings: tuple[str, ...]

    @property
    def agreement(self) -> MetricOfFile | None:
        """The share of the original's decisions that are kept, on the choosing part, if any."""
        return self.choosing.metric(_AGREEMENT)


@dataclass(frozen=True)
class ChosenFile:
    """The file of a front that a rule takes."""

    point: PointDocument
    rule: str
    """Which one, in words: `the smallest that keeps 99 % of the original's decisions`."""

    @property
    def trial(self) -> int:
        """The number of its trial."""
        return self.point.trial


class NetworkCalls(StudyCalls, ResultCalls, TrialCalls):
    """The calls for studies of the task `model_outputs`."""

    @call
    def network_report(self, study_id: str, number: int) -> Steps[ReportOfFile]:
        """The report of a trial's file and of each of its layers.

        Raises:
            Refused: there is no such trial, or it has no report (yet), or the study has another
                task.
        """
        yield from self._study_of_network(study_id)
        return (yield from self._report_of_file(study_id, number))

    @call
    def network_reports(
        self, study_id: str, front: FrontDocument | None = None
    ) -> Steps[dict[int, ReportOfFile]]:
        """The reports of a front's points by trial; those that have none are left out.

        Raises:
            Refused: there is no such study, or it has another task.
        """
        yield from self._study_of_network(study_id)
        if front is None:
            front = yield from ResultCalls.front.steps(self, study_id)
        points = front.points
        found: dict[int, ReportOfFile] = {}
        for point in points:
            try:
                found[point.trial] = yield from self._report_of_file(study_id, point.trial)
            except Refused as error:
                if error.problem.status != HTTPStatus.NOT_FOUND:
                    raise
        return found

    @call
    def choose_file(
        self, study_id: str, reports: Mapping[int, ReportOfFile] | None = None
    ) -> Steps[ChosenFile | None]:
        """The file of the front to take; None while it has none but the original.

        Points keep the study's limits. With a limit on agreement, or without limits, it is the
        smallest that agrees (99 % without limits); else, and where none agrees, the one that loses
        least. "Smallest" is by the study's second objective, so that it may be the fastest.

        Args:
            study_id: the study.
            reports: by trial, what `network_reports` gave; None: they are asked for.

        Raises:
            Refused: there is no such study, or it has another task.
        """
        study = yield from self._study_of_network(study_id)
        front = yield from ResultCalls.front.steps(self, study_id)
        limits: Mapping[str, float | None] = study.spec.get("limits") or {}
        given = {name for name, value in limits.items() if value is not None}
        if reports is None:
            reports = yield from NetworkCalls.network_reports.steps(self, study_id, front)
        return chosen_file(front, reports, limited_by=given, agreement=limits.get(_AGREEMENT))

    def _study_of_network(self, study_id: str) -> Steps[StudyDocument]:
        """The study, if it compresses a network of others.

        Raises:
            Refused: its task is another one.
        """
        study = yield from StudyCalls.study.steps(self, study_id)
        task = study.spec.get("task", {}).get("kind")
        if task != _TASK:
            raise refusal(
                f"the task of study {study_id} is {task}; reports of files and their choice are "
                f"for studies of the task {_TASK}. Of others, `front` and `best` name the trial to "
                "take, and `report` has the parameters of a trial"
            )
        return study

    def _report_of_file(self, study_id: str, number: int) -> Steps[ReportOfFile]:
        path = f"{trial_path(study_id, number)}/report"
        return (yield from self.ask(ReportOfFile, "GET", path, params={"format": "json"}))


def chosen_file(
    front: FrontDocument,
    reports: Mapping[int, ReportOfFile],
    *,
    limited_by: set[str],
    agreement: float | None,
) -> ChosenFile | None:
    """What `Client.choose_file` answers, of a front and its reports.

    Args:
        front: the study's.
        reports: by trial.
        limited_by: names of the limits that the study has.
        agreement: its limit on agreement; None: there is none.
    """
    original = None if front.original is None else front.original.trial
    points = [point for point in front.points if point.trial != original and not point.outside]
    points = points or [point for point in front.points if point.trial != original]
    if not points:
        return None
    least = AGREES if agreement is None else agreement
    agreeing = [one for one in points if _agreement(reports.get(one.trial)) >= least]
    if agreeing and (agreement is not None or not limited_by):
        superlative, cost = _smallest(front)
        chosen = min(agreeing, key=cost)
        return ChosenFile(
            chosen, f"the {superlative} that keeps {100 * least:g} % of the original's decisions"
        )
    quality = next((one for one in front.objectives if one.name == "quality"), None)
    if quality is None:
        superlative, cost = _smallest(front)
        return ChosenFile(min(points, key=cost), f"the {superlative} of the front")
    sign = -1.0 if quality.direction == "maximize" else 1.0
    chosen = min(points, key=lambda one: sign * (one.values["quality"] or 0.0))
    within = " within the limits" if limited_by else ""
    measured = any(report.agreement is not None for report in reports.values())
    none = f"; none keeps {100 * least:g} %" if measured and not agreeing and not limited_by else ""
    best = "highest" if sign < 0 else "lowest"
    return ChosenFile(chosen, f"the {best} {quality.metric}{within}{none}")


def _agreement(report: ReportOfFile | None) -> float:
    """The share of decisions that are kept; 0 where it is not known."""
    found = None if report is None else report.agreement
    return 0.0 if found is None else found.value


_SMALLEST: Mapping[Objective, str] = {
    "bytes": "smallest",
    "parameters": "one of the fewest parameters",
    "latency": "fastest",
    "throughput": "fastest",
}


def _smallest(front: FrontDocument) -> tuple[str, Callable[[PointDocument], float]]:
    """What the first cost of a front is called at its best, and the cost."""
    costs = [one for one in front.objectives if one.name != "quality"]
    if not costs:
        return "smallest", lambda point: float(point.bytes.get("onnx", 0))
    first = costs[0]
    sign = -1.0 if first.direction == "maximize" else 1.0
    return _SMALLEST[first.name], lambda point: sign * (point.values[first.name] or 0.0)
