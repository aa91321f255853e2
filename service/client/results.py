"""What a study found, from the client: its front, its figures, its files."""

from collections.abc import Iterable
from pathlib import Path
from typing import Literal, TypeAlias
from urllib.parse import quote

from search.documents.fronts import HypervolumePoint
from service.api.paths import study_path
from service.client.downloaded import DownloadedBundle
from service.client.downloads import ToldProgress, whole_zip
from service.client.files import FileCalls, missing_in
from service.client.handles.figures import FigureJson, Theme, figure_query
from service.client.handles.results import Front, Importance
from service.client.transport.steps import Steps, call

Records: TypeAlias = Literal["search", "latest"]
"""Which throughput records a front goes by."""


class ResultCalls(FileCalls):
    """The calls that bring what a study found."""

    @call
    def front(
        self,
        study_id: str,
        *,
        objectives: str | None = None,
        throughput: Records = "search",
        patience: float | None = None,
    ) -> Steps[Front]:
        """The Pareto front so far.

        Args:
            study_id: the study.
            objectives: names joined by commas, such as `quality,parameters`; by default the
                study's own.
            throughput: by the records that the search went by, or by the `latest` of each shape.
            patience: seconds that the server may stay away; by default the client's.
        """
        path, params = f"{study_path(study_id)}/front", {"throughput": throughput}
        if objectives is not None:
            params["objectives"] = objectives
        return (yield from self.ask(Front, "GET", path, params=params, patience=patience))

    @call
    def front_csv(self, study_id: str, *, throughput: Records = "search") -> Steps[str]:
        """The Pareto front so far, as CSV."""
        return (
            yield from self._text(
                f"{study_path(study_id)}/front", format="csv", throughput=throughput
            )
        )

    @call
    def importance(self, study_id: str) -> Steps[Importance]:
        """What each dimension of the space did to each objective, so far."""
        return (yield from self.ask(Importance, "GET", f"{study_path(study_id)}/importance"))

    @call
    def hypervolume(self, study_id: str) -> Steps[list[HypervolumePoint]]:
        """How the hypervolume of the front grew, from change to change."""
        return (
            yield from self.ask(
                list[HypervolumePoint], "GET", f"{study_path(study_id)}/hypervolume"
            )
        )

    @call
    def figure(
        self,
        study_id: str,
        name: str,
        *,
        theme: Theme = "light",
        trials: Iterable[int] = (),
        **options: str | int | None,
    ) -> Steps[FigureJson]:
        """A figure of a study as the pages draw it, for Plotly.

        Args:
            study_id: the study.
            name: `front`, `parallel`, `curves`, `growth` or `importance`.
            theme: colours for a light or a dark page.
            trials: numbers of those that stand out; of `curves` those that are shown.
            options: what the route takes besides, such as `x`, `y` and `panels` of the front.

        Raises:
            Refused: there is no such figure; the problem names those that there are.
        """
        path = f"{study_path(study_id)}/figures/{quote(name, safe='')}"
        query = figure_query(theme, trials, options)
        return (yield from self.ask(FigureJson, "GET", path, params=query))

    @call
    def compared_fronts(
        self,
        study_ids: Iterable[str],
        *,
        theme: Theme = "light",
        x: str | None = None,
        y: str | None = None,
    ) -> Steps[FigureJson]:
        """The fronts of up to 6 studies over the same two objectives, for Plotly.

        Args:
            study_ids: the studies, of one metric.
            theme: colours for a light or a dark page.
            x: the objective across; by default the server's choice.
            y: the objective up; by default quality.

        Raises:
            Refused: their metrics differ, or one of them is not there.
        """
        query = {"studies": ",".join(study_ids), **figure_query(theme, (), {"x": x, "y": y})}
        return (yield from self.ask(FigureJson, "GET", "/v1/figures/compare", params=query))

    @call
    def study_report(self, study_id: str, *, plain: bool = False) -> Steps[str]:
        """The study as one HTML page that needs nothing else: plots, tables, circumstances.

        A plain one has tables alone.
        """
        path = f"{study_path(study_id)}/report"
        return (yield from self._text(path, **({"plain": "true"} if plain else {})))

    @call
    def bundle(
        self, study_id: str, out: Path | str, *, told: ToldProgress | None = None
    ) -> Steps[DownloadedBundle]:
        """Fetch all files of the front's points into the ZIP file `out`, whole or not at all.

        What the server itself lacks is named in the answer's `missing`. `told` is called with the
        bytes so far and in all (null: not known).

        Raises:
            Damaged: what arrived is no whole ZIP file, or a file in it is damaged.
        """
        got = yield from self._download(
            f"{study_path(study_id)}/bundle", out, told, proof=whole_zip
        )
        return DownloadedBundle(**vars(got), missing=missing_in(got.path))
