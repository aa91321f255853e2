"""What a study found, from the client: its front, its figures, its files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeAlias
from urllib.parse import quote

from search.documents.fronts import HypervolumePoint, Importance
from service.api.figures.schemas import FigureDocument
from service.api.fronts.schemas import FrontDocument
from service.api.paths import study_path
from service.client.downloaded import DownloadedBundle
from service.client.downloads import ToldProgress, whole_zip
from service.client.files import FileCalls, missing_in

Records: TypeAlias = Literal["search", "latest"]
"""Which throughput records a front goes by."""


class ResultCalls(FileCalls):
    """The calls that bring what a study found."""

    def front(
        self, study_id: str, *, objectives: str | None = None, throughput: Records = "search"
    ) -> FrontDocument:
        """The Pareto front so far.

        Args:
            study_id: the study.
            objectives: names joined by commas, such as `quality,parameters`; by default the
                study's own.
            throughput: by the records that the search went by, or by the `latest` of each shape.
        """
        params = {"throughput": throughput}
        if objectives is not None:
            params["objectives"] = objectives
        return self._ask(FrontDocument, "GET", f"{study_path(study_id)}/front", params=params)

    def front_csv(self, study_id: str, *, throughput: Records = "search") -> str:
        """The Pareto front so far, as CSV."""
        return self._text(f"{study_path(study_id)}/front", format="csv", throughput=throughput)

    def importance(self, study_id: str) -> Importance:
        """What each dimension of the space did to each objective, so far."""
        return self._ask(Importance, "GET", f"{study_path(study_id)}/importance")

    def hypervolume(self, study_id: str) -> list[HypervolumePoint]:
        """How the hypervolume of the front grew, from change to change."""
        return self._ask(list[HypervolumePoint], "GET", f"{study_path(study_id)}/hypervolume")

    def study_report(self, study_id: str, *, plain: bool = False) -> str:
        """The study as one HTML page that needs nothing else: figures, tables, circumstances.

        A plain one has tables alone, and no script.
        """
        return self._text(f"{study_path(study_id)}/report", plain=str(plain).lower())

    def figure(self, study_id: str, name: str, **options: str) -> FigureDocument:
        """A figure of a study as the pages draw it, for Plotly; `options` are the route's own.

        Raises:
            Refused: there is no such figure; the problem names those that there are.
        """
        path = f"{study_path(study_id)}/figures/{quote(name, safe='')}"
        return self._ask(FigureDocument, "GET", path, params=options)

    def compare_figure(self, study_ids: Sequence[str], **options: str) -> FigureDocument:
        """The fronts of up to six studies in one figure, for Plotly.

        Raises:
            Refused: a study is not there, or their metrics differ.
        """
        params = {"studies": ",".join(study_ids), **options}
        return self._ask(FigureDocument, "GET", "/v1/figures/compare", params=params)

    def bundle(
        self, study_id: str, out: Path, *, told: ToldProgress | None = None
    ) -> DownloadedBundle:
        """Fetch all files of the front's points into the ZIP file `out`, whole or not at all.

        What the server itself lacks is named in the answer's `missing`. `told` is called with the
        bytes so far and in all (null: not known).

        Raises:
            Damaged: what arrived is no whole ZIP file, or a file in it is damaged.
        """
        got = self._download(f"{study_path(study_id)}/bundle", out, told, proof=whole_zip)
        return DownloadedBundle(**vars(got), missing=missing_in(out))
