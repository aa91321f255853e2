"""Our pages, rendered from their templates."""

import json
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Self, get_args

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from models.compression import ConversionReport
from models.math.activations import Activation
from search.documents.objectives import OBJECTIVES
from search.documents.papers import TableDocument, TableEntry, VerdictKind
from search.documents.spaces import SpaceDescription
from search.errors import Fault
from search.studies.catalog import catalog
from search.uploads.uploads import SUFFIXES
from service.api.collections.schemas import (
    CollectionDocument,
    CollectionEntry,
    RanksDocument,
    ResultsDocument,
)
from service.api.datasets.schemas import DatasetDocument
from service.api.devices.schemas import DeviceDocument
from service.api.models.schemas import (
    ModelDetail,
    ModelDocument,
    NetworkDetail,
    NetworkDocument,
)
from service.api.studies.schemas import StudyDocument
from service.api.trials.reports import TrialReport
from service.api.trials.schemas import TrialDetail
from service.figures.shown import NETWORK_FORMS
from service.http.problem_document import Problem
from service.rendering.comparison import Comparison
from service.rendering.compressed_page import CompressedPage
from service.rendering.filters import FILTERS
from service.rendering.form.estimate import Estimate
from service.rendering.form.form_fields import FormFields
from service.rendering.form.goals import FEW_PARAMETERS, GOALS, Goal
from service.rendering.form.range_text import usual_text
from service.rendering.form.spec_form import Values, touched
from service.rendering.plotly_bundle import plotly_bundle
from service.rendering.series import SERIES, series_plot
from service.rendering.study_report import StudyReport
from service.rendering.study_view import StudyView
from service.rendering.trial_files import TrialFile
from storage.records import MetricRecord, StudyRecord, StudyState, TrialState, UploadedModelRecord

ASSETS = Path(__file__).parent / "assets"
"""What pages load beside themselves."""

MOST_COMPARED = 6
"""How many studies one page compares."""

REPORT_SCRIPT = (ASSETS / "report.js").read_text(encoding="utf-8")
"""What draws the figures of a report, inside it."""

_DATASET_PAGES: Mapping[str, str] = {"samples": "dataset.html", "arrays": "arrays.html"}
_DATASET_CELLS: Mapping[str, str] = {
    "samples": "counts_of_samples.html",
    "arrays": "counts_of_arrays.html",
}
"""Templates by what an upload holds."""

_MODEL_PAGES: Mapping[str, str] = {
    "reflectory": "model.html",
    "torch": "model.html",
    "onnx": "network.html",
}
_MODEL_CELLS: Mapping[str, str] = {
    "reflectory": "cells_of_model.html",
    "torch": "cells_of_model.html",
    "onnx": "cells_of_network.html",
}
"""Templates by what was sent."""


class Pages:
    """The templates, read once. Everything that a user wrote is escaped."""

    def __init__(self) -> None:
        self._logged_in = False
        self._environment = _templates()
        # Ours, and so no text to be escaped.
        sheets = (ASSETS / name for name in ("style.css", "explorer.css"))
        self._style = Markup("\n".join(sheet.read_text(encoding="utf-8") for sheet in sheets))

    def of(self, *, logged_in: bool) -> Self:
        """The same templates for a reader who is logged in, or is not."""
        pages = copy(self)
        pages._logged_in = logged_in
        return pages

    def studies(
        self,
        studies: Sequence[StudyDocument],
        *,
        asked: Mapping[str, str],
        next_cursor: str | None,
    ) -> str:
        """The list of studies that were asked for by `text`, `state` and `tag`."""
        return self._render(
            "studies.html",
            studies=studies,
            states=[state.value for state in StudyState],
            asked={name: asked.get(name, "") for name in ("text", "state", "tag")},
            most_compared=MOST_COMPARED,
            next_cursor=next_cursor,
        )

    def compare(
        self,
        comparison: Comparison,
        *,
        query: str,
        others: Sequence[StudyRecord],
        chosen: Sequence[str],
    ) -> str:
        """Fronts side by side, `query` being theirs; `others` are what may be chosen instead."""
        return self._render(
            "compare.html",
            comparison=comparison,
            query=query,
            others=others,
            chosen=chosen,
            most_compared=MOST_COMPARED,
        )

    def devices(self, devices: Sequence[DeviceDocument], *, names: Mapping[str, str]) -> str:
        """All devices; `names` are those of the studies that run there."""
        return self._render("devices.html", devices=devices, names=names)

    def study_edit(
        self,
        study: StudyDocument,
        given: Mapping[str, str],
        *,
        refused: Mapping[str, str] | None = None,
    ) -> str:
        """The form for a study's labels, as `given`; `refused` has faults by their fields."""
        return self._render("study_edit.html", study=study, given=given, refused=refused or {})

    def study_delete(self, study: StudyDocument, *, size: int) -> str:
        """The question whether a study is to be deleted, with files of so many bytes."""
        trials = study.progress.trials
        count = sum(getattr(trials, state.value) for state in TrialState)
        return self._render("study_delete.html", study=study, trials=count, size=size)

    def study(self, view: StudyView) -> str:
        """One study."""
        template = "study.html" if view.network is None else "network_study.html"
        return self._render(template, view=view, outcomes=[state.value for state in TrialState])

    def trial(
        self,
        study: StudyRecord,
        trial: TrialDetail,
        *,
        metric: str,
        compressed: CompressedPage | None,
        is_network: bool,
        region: str,
        preset: str | None,
        model: UploadedModelRecord | None,
        conversion: ConversionReport | None,
        epochs: Sequence[MetricRecord],
        files: Iterable[TrialFile],
    ) -> str:
        """One trial of a study.

        Args:
            study: the study.
            trial: the trial.
            metric: what quality is called.
            compressed: of a network of others, what is said of its file, where there is one.
            is_network: whether the trial is one of a network of others.
            region: which values interest the study's user, in words.
            preset: the papers' system that it is, if it is one.
            model: the uploaded model that the study compresses, unless it is gone.
            conversion: what that lost when it became the trial's.
            epochs: its learning curve.
            files: what can be downloaded of it, and what cannot.
        """
        return self._render(
            "network_trial.html" if is_network else "trial.html",
            study=study,
            trial=trial,
            metric=metric,
            compressed=compressed,
            forms=NETWORK_FORMS,
            baseline="original" if is_network else "dense baseline",
            region=region,
            preset=preset,
            model=model,
            conversion=conversion,
            epochs=epochs,
            files=list(files),
            bits=_bits(trial.spec),
        )

    def form(
        self,
        form: FormFields,
        values: Values,
        *,
        beside: Mapping[str, Sequence[str]],
        others: Sequence[Fault],
        found: SpaceDescription | None,
        spec: Mapping[str, Any] | None,
        goal: tuple[Goal, Mapping[str, Any]] | None,
        estimate: Estimate,
        uploads: Mapping[str, Mapping[str, str]],
    ) -> str:
        """The form of a study.

        Args:
            form: what it asks for.
            values: what was filled in.
            beside: field -> what is wrong with it.
            others: what is wrong elsewhere.
            found: what a check has found that all is well with.
            spec: the document that was checked.
            goal: what was just filled in, with its part of the document.
            estimate: how long the study may take.
            uploads: field -> id -> title of the uploads that it may name.
        """
        return self._render(
            "form.html",
            form=form,
            values=values,
            beside=beside,
            others=others,
            places=_places(form, beside),
            found=None if found is None else found.model_dump(mode="json"),
            spec=spec,
            goal=goal,
            goals=GOALS,
            few_parameters=FEW_PARAMETERS,
            estimate=estimate,
            touched=touched(form, values, beside),
            uploads=uploads,
            objectives=OBJECTIVES,
            presets=catalog().presets,
        )

    def papers(self, tables: Sequence[TableEntry]) -> str:
        """The list of the papers' tables."""
        return self._render("papers.html", tables=tables, kinds=get_args(VerdictKind))

    def paper_table(self, table: TableDocument) -> str:
        """One table with its rows."""
        return self._render("paper_table.html", table=table)

    def collections(
        self, collections: Sequence[CollectionEntry], *, next_cursor: str | None
    ) -> str:
        """The list of collections."""
        return self._render("collections.html", collections=collections, next_cursor=next_cursor)

    def collection(
        self, collection: CollectionDocument, results: ResultsDocument, ranks: RanksDocument
    ) -> str:
        """One collection."""
        return self._render(
            "collection.html",
            collection=collection,
            budget=collection.collection_budget or {},
            sets={one.study: one for one in results.sets},
            ranks=ranks,
        )

    def documentation(self, path: str, title: str, text: Markup) -> str:
        """One page of the documentation."""
        return self._render("documentation.html", path=path, title=title, text=text)

    def study_report(self, report: StudyReport) -> str:
        """A study as one self-contained file."""
        template = "study_report.html" if report.network is None else "network_study_report.html"
        return self._render(
            template,
            report=report,
            style=self._style,
            # Not executed, and so no script to the policy; nothing in it ends the element.
            figures=Markup(_json_of(report)),
            bundle=Markup(plotly_bundle().script) if report.figures else "",
            script=Markup(REPORT_SCRIPT),
            now=datetime.now(UTC),
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
            cells=_DATASET_CELLS,
            refusal=refusal,
            suffixes=SUFFIXES,
            next_cursor=next_cursor,
        )

    def dataset(self, dataset: DatasetDocument) -> str:
        """One data set."""
        samples = [(sample, series_plot(sample.values)) for sample in dataset.preview]
        template = _DATASET_PAGES[dataset.options.holds]
        return self._render(template, dataset=dataset, samples=samples)

    def models(
        self,
        models: Sequence[ModelDocument | NetworkDocument],
        *,
        refusal: str | None,
        next_cursor: str | None,
    ) -> str:
        """The list of models, with the form for another; `refusal` is why the last was not."""
        return self._render(
            "models.html",
            models=models,
            cells=_MODEL_CELLS,
            refusal=refusal,
            nonlinearities=get_args(Activation),
            next_cursor=next_cursor,
        )

    def model(self, model: ModelDetail | NetworkDetail) -> str:
        """One uploaded model."""
        return self._render(_MODEL_PAGES[model.source], model=model)

    def report(self, study_id: str, number: int, report: TrialReport) -> str:
        """A trial's report as one self-contained file."""
        return self._render("report.html", study_id=study_id, number=number, report=report)

    def compressed_report(self, study_id: str, page: CompressedPage) -> str:
        """The report of a network's file as one self-contained file."""
        return self._render(
            "compressed_report.html", study_id=study_id, page=page, style=self._style
        )

    def login(
        self,
        place: str,
        *,
        known_as: str | None = None,
        browsers: int = 0,
        refusal: str | None = None,
    ) -> str:
        """The form for a key, which leads to `place`.

        `known_as` is the key with which the browser is logged in, as so many `browsers` are;
        `refusal` why the last one was not taken.
        """
        return self._render(
            "login.html",
            logged_in=known_as is not None,
            next=place,
            known_as=known_as,
            browsers=browsers,
            refusal=refusal,
        )

    def problem(self, problem: Problem, back: Mapping[str, str]) -> str:
        """What went wrong; `back` has titles of links by where they lead."""
        return self._render("problem.html", problem=problem, back=back)

    def docs(self) -> str:
        """The API's operations, which a script reads off the OpenAPI document."""
        return self._render("docs.html")

    def _render(self, template: str, **values: Any) -> str:
        known = {"logged_in": self._logged_in, **values}
        return self._environment.get_template(template).render(**known)


def _json_of(report: StudyReport) -> str:
    """A report's figures as JSON that can stand in an element of a page."""
    found = [figure.themes for figure in report.figures]
    return json.dumps(found, separators=(",", ":")).replace("<", "\\u003c")


def _bits(spec: Mapping[str, Any]) -> int:
    """Of each stored number of a trial's matrices; those of a network have each layer's own."""
    match spec.get("model"):
        case {"bits": int(bits)}:
            return bits
        case _:
            return 32


def _places(form: FormFields, names: Iterable[str]) -> dict[str, str]:
    """Where in the form a field begins: a group of choices at its first."""
    first = {
        "task": f"task-{form.tasks[0].kind}",
        "architectures": f"architectures-{form.architectures[0].kind}",
        "parametrizations": f"parametrizations-{form.parametrizations[0].kind}",
        "objectives": f"objectives-{OBJECTIVES[0]}",
        "sampler": "sampler-usual",
        "early_stopping": "early_stopping-none",
    }
    return {name: first.get(name, name).replace(":", "-").replace(".", "-") for name in names}


@cache
def _templates() -> Environment:
    """Compiled once per process, however many applications it makes."""
    environment = Environment(
        loader=PackageLoader("service", "rendering/templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {**FILTERS, "usual_text": usual_text}  # pyright: ignore[reportUnknownMemberType]
    environment.globals["colours"] = SERIES  # pyright: ignore[reportUnknownMemberType]
    environment.globals["plotly"] = plotly_bundle()  # pyright: ignore[reportUnknownMemberType]
    return environment
