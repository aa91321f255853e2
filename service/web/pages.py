"""Our pages, rendered from their templates."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from models.report import ParameterReport
from search.hypervolumes import HypervolumePoint
from search.importance import Importance
from search.uploads import SUFFIXES
from service.dataset_documents import DatasetDocument
from service.documents import FrontDocument, StudyDocument, TrialDocument
from service.web.growth import growth
from service.web.plot import plot
from service.web.series import series_plot

_METHODS = ("get", "put", "post", "patch", "delete")


class Pages:
    """The templates, read once. Everything that a user wrote is escaped."""

    def __init__(self) -> None:
        self._environment = Environment(
            loader=PackageLoader("service", "web/templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters |= {  # pyright: ignore[reportUnknownMemberType]
            "number": _number,
            "moment": _moment,
            "duration": _duration,
            "ratio": _ratio,
            "size": _size,
        }

    def studies(self, studies: Sequence[StudyDocument], *, next_cursor: str | None) -> str:
        """The list of studies."""
        return self._render("studies.html", studies=studies, next_cursor=next_cursor)

    def study(
        self,
        study: StudyDocument,
        front: FrontDocument,
        trials: Sequence[TrialDocument],
        *,
        changes: Sequence[HypervolumePoint],
        importance: Importance,
        metric: str,
        next_cursor: str | None,
    ) -> str:
        """One study.

        Args:
            study: how far it is.
            front: its points as they stand.
            trials: one page of them.
            changes: how the front's hypervolume grew.
            importance: what each dimension did.
            metric: what its task calls quality.
            next_cursor: where the next page of trials begins, if there is one.
        """
        return self._render(
            "study.html",
            study=study,
            front=front,
            trials=trials,
            metric=metric,
            plot=plot(front, metric=metric),
            growth=growth(changes, epochs_trained=study.progress.epochs_trained),
            importance=[found for found in importance.objectives if found.dimensions],
            next_cursor=next_cursor,
        )

    def datasets(
        self,
        datasets: Sequence[DatasetDocument],
        *,
        refusal: str | None,
        next_cursor: str | None,
    ) -> str:
        """The list of data sets, with the form for another; `refusal` is why the last was not."""
        return self._render(
            "datasets.html",
            datasets=datasets,
            refusal=refusal,
            suffixes=SUFFIXES,
            next_cursor=next_cursor,
        )

    def dataset(self, dataset: DatasetDocument) -> str:
        """One data set."""
        samples = [(sample, series_plot(sample.values)) for sample in dataset.preview]
        return self._render("dataset.html", dataset=dataset, samples=samples)

    def report(self, study_id: str, number: int, report: ParameterReport) -> str:
        """A parameter-count report as one self-contained file."""
        return self._render("report.html", study_id=study_id, number=number, report=report)

    def docs(self, document: Mapping[str, Any]) -> str:
        """Every operation of an OpenAPI document, by tag."""
        groups: dict[str, list[dict[str, Any]]] = {}
        for path, operations in document["paths"].items():
            for method in _METHODS:
                if method in operations:
                    operation = {**operations[method], "method": method.upper(), "path": path}
                    groups.setdefault(operation["tags"][0], []).append(operation)
        return self._render("docs.html", info=document["info"], groups=groups)

    def _render(self, template: str, **values: Any) -> str:
        return self._environment.get_template(template).render(**values)


def _number(value: float | None, digits: int = 4) -> str:
    if value is None:
        return "–"
    if isinstance(value, int) or (abs(value) >= 1000 and digits <= 4):
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def _size(value: int) -> str:
    size, units = float(value), iter(("bytes", "KiB", "MiB", "GiB"))
    unit = next(units)
    for larger in units:
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{value} bytes" if unit == "bytes" else f"{size:.3g} {unit}"


def _ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f} ×"


def _moment(value: datetime | None) -> str:
    return "–" if value is None else value.strftime("%Y-%m-%d %H:%M:%S UTC")


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"
