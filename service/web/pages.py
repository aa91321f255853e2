"""Our pages, rendered from their templates."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from models.report import ParameterReport
from search.tasks import Metric
from search.uploads import SUFFIXES
from service.dataset_documents import DatasetDocument
from service.documents import StudyDocument, TrialDetail
from service.web.colours import SERIES
from service.web.curves import Panel
from service.web.filters import FILTERS
from service.web.series import series_plot
from service.web.study_report import StudyReport
from service.web.study_view import StudyView
from storage.records import MetricRecord, StudyRecord, StudyState, TrialState

ASSETS = Path(__file__).parent / "assets"
"""What pages load beside themselves."""

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
        self._environment.filters |= FILTERS  # pyright: ignore[reportUnknownMemberType]
        # Ours, and so no text to be escaped.
        self._style = Markup((ASSETS / "style.css").read_text(encoding="utf-8"))
        self._environment.globals["colours"] = SERIES  # pyright: ignore[reportUnknownMemberType]

    def studies(
        self,
        studies: Sequence[StudyDocument],
        *,
        chosen: StudyState | None,
        next_cursor: str | None,
    ) -> str:
        """The list of studies, of those in one state or of all."""
        return self._render(
            "studies.html",
            studies=studies,
            states=[state.value for state in StudyState],
            chosen=chosen,
            next_cursor=next_cursor,
        )

    def study(self, view: StudyView) -> str:
        """One study."""
        return self._render("study.html", view=view, outcomes=[state.value for state in TrialState])

    def trial(
        self,
        study: StudyRecord,
        trial: TrialDetail,
        *,
        metric: Metric,
        preset: str | None,
        epochs: Sequence[MetricRecord],
        panels: Sequence[Panel],
    ) -> str:
        """One trial of a study; `preset` is the papers' system that it is, if it is one."""
        return self._render(
            "trial.html",
            study=study,
            trial=trial,
            metric=metric,
            preset=preset,
            epochs=epochs,
            panels=panels,
        )

    def study_report(self, report: StudyReport) -> str:
        """A study as one self-contained file."""
        return self._render(
            "study_report.html", report=report, style=self._style, now=datetime.now(UTC)
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

    def login(self, place: str, *, known_as: str | None, refusal: str | None) -> str:
        """The form for a key, which leads to `place`.

        `known_as` is the key with which the browser is logged in, `refusal` why the last one was
        not taken.
        """
        return self._render("login.html", next=place, known_as=known_as, refusal=refusal)

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
