"""One study, to wait for, to steer, and to take results from."""

import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from pydantic import ConfigDict, PrivateAttr

from service.api.events.schemas import Event
from service.api.studies.schemas import StudyDocument
from service.client.downloaded import DownloadedFolder
from service.client.errors import ClientError, StudyFailed
from service.client.exports.runs import Exported, runs_of
from service.client.exports.targets import TARGETS, Target
from service.client.handles.columns import Frame, Record
from service.client.handles.figures import PlotlyFigure, Theme
from service.client.handles.html import table
from service.client.handles.mirrored import MIRRORED, of_study, stream_of_study
from service.client.handles.results import Trials
from service.client.handles.trial import AsyncTrial, Trial, TrialHandle, folder_of
from service.client.handles.waiting import view_of
from service.client.networks import NetworkCalls
from service.client.results import ResultCalls
from service.client.studies import StudyCalls
from service.client.transport.described import Described
from service.client.transport.steps import Awaits, Steps, Stream, Waits, call, each, gathered
from service.client.trials import TrialCalls
from service.data_dir.whole_files import write_whole
from storage.records import StudyState

_T = TypeVar("_T")
_Trial = TypeVar("_Trial", bound=TrialHandle)
_Study = TypeVar("_Study", bound="StudyHandle")

_REFRESH_SECONDS = 0.5


class StudyHandle(StudyDocument):
    """A study and the calls that are about it.

    Its fields are as they were when the study was last asked for: by `refresh`, by `wait`, or by a
    call that changes it.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(ignored_types=MIRRORED, defer_build=True)

    _client: Any = PrivateAttr()

    @classmethod
    def of(cls, client: Described, study: StudyDocument) -> Self:
        """The handle of a study."""
        made = cls.model_construct(**dict(study))
        made._client = client
        return made

    def __repr__(self) -> str:
        """Which study it is, and how far, in a line."""
        done, total = self.progress.steps
        return f"{type(self).__name__}({self.id}, {self.name!r}, {self.state}, {done}/{total})"

    def __str__(self) -> str:
        """The same as `repr`."""
        return repr(self)

    def _repr_html_(self) -> str:
        done, total = self.progress.steps
        rows: dict[str, object] = {
            "id": self.id,
            "name": self.name,
            "state": self.state,
            "reason": self.state_reason,
            "progress": f"{done} of {total}",
            "created": f"{self.created_at:%Y-%m-%d %H:%M} UTC",
            "page": f"{self._client.server}{self.links.page}",
        }
        return table(("study", ""), rows.items())

    @property
    def client(self) -> Any:
        """The client that it was submitted or opened with."""
        return self._client

    @property
    def place(self) -> tuple[str]:
        """The argument that names it in a client's calls."""
        return (self.id,)

    def taken(self, answer: _T) -> _T:
        """What a call's answer is given on as: this study, where it is about this study."""
        if isinstance(answer, StudyDocument) and answer.id == self.id:
            # The document is frozen for others; a handle stands for the study as it is now.
            vars(self).update(dict(answer))
            return self  # pyright: ignore[reportReturnType] -- a study is asked for, and is this one
        return answer

    refresh = of_study(StudyCalls.study)
    pause = of_study(StudyCalls.pause)
    resume = of_study(StudyCalls.resume)
    cancel = of_study(StudyCalls.cancel)
    change_budget = of_study(StudyCalls.change_budget)
    budget = of_study(StudyCalls.change_budget)
    change_labels = of_study(StudyCalls.change_labels)
    change_priority = of_study(StudyCalls.change_priority)
    priority = of_study(StudyCalls.change_priority)
    delete = of_study(StudyCalls.delete)
    deliveries = of_study(StudyCalls.deliveries)
    watch = stream_of_study(StudyCalls.watch)
    enqueue = of_study(TrialCalls.enqueue)
    continue_trial = of_study(TrialCalls.continue_trial)
    front = of_study(ResultCalls.front)
    importance = of_study(ResultCalls.importance)
    hypervolume = of_study(ResultCalls.hypervolume)
    report = of_study(ResultCalls.study_report)
    bundle = of_study(ResultCalls.bundle)
    figure = of_study(ResultCalls.figure)
    network_report = of_study(NetworkCalls.network_report)
    choose_file = of_study(NetworkCalls.choose_file)

    @call
    def wait(self, *, progress: bool = False, patience: float = 120.0) -> Steps[Self]:
        """Wait until the study has ended; returns it as it ended.

        Args:
            progress: show how far it is: a bar on a terminal and in notebooks, lines elsewhere.
            patience: seconds that the server may stay away.

        Raises:
            StudyFailed: it failed or was cancelled.
            Unreachable: the server stayed away for longer.
        """
        with view_of(self.name, progress=progress) as view:
            view.show(self)
            shown_at = time.monotonic()

            def heard(_event: Event) -> Steps[None]:
                nonlocal shown_at
                if progress and time.monotonic() - shown_at >= _REFRESH_SECONDS:
                    # The events say whether the server stays away for too long.
                    with suppress(ClientError):
                        view.show((yield from self._refreshed()))
                    shown_at = time.monotonic()

            events = StudyCalls.watch.steps(self._client, self.id, patience=patience)
            yield from each(events, heard)
            view.show((yield from self._refreshed(patience=patience)))
        if self.state != StudyState.FINISHED:
            raise StudyFailed(self)
        return self

    def _refreshed(self, *, patience: float | None = None) -> Steps[Self]:
        self.taken((yield from StudyCalls.study.steps(self._client, self.id, patience=patience)))
        return self

    @call
    def trials(self, *, outcome: str | None = None) -> Steps[Trials]:
        """All trials in the order of their numbers, or those that ended in one way."""
        found = TrialCalls.trials.steps(self._client, self.id, outcome=outcome)
        return Trials((yield from gathered(found)))

    @call
    def records(self) -> Steps[list[Record]]:
        """All trials as dictionaries; hyperparameters are `params.NAME`."""
        return (yield from StudyHandle.trials.steps(self)).records()

    @call
    def frame(self) -> Steps[Frame]:
        """All trials as a pandas data frame, with the columns of `records`.

        Raises:
            ExtraMissing: pandas is not installed.
        """
        return (yield from StudyHandle.trials.steps(self)).frame()

    @call
    def to_pandas(self) -> Steps[Frame]:
        """The same as `frame`."""
        return (yield from StudyHandle.frame.steps(self))

    @call
    def plot_front(
        self, *, theme: Theme = "light", trials: Iterable[int] = (), **options: str | int | None
    ) -> Steps[PlotlyFigure]:
        """The Pareto front as a figure of Plotly, the same that the study's page shows.

        Args:
            theme: colours for a light or a dark page.
            trials: numbers of those that stand out.
            options: `x`, `y` and `panels`, see `Client.figure`.

        Raises:
            ExtraMissing: plotly is not installed.
        """
        return (yield from self._plotted("front", theme, trials, options))

    @call
    def plot_parallel(
        self, *, theme: Theme = "light", trials: Iterable[int] = ()
    ) -> Steps[PlotlyFigure]:
        """Hyperparameters and objectives of all trials as parallel coordinates.

        Raises:
            ExtraMissing: plotly is not installed.
        """
        return (yield from self._plotted("parallel", theme, trials, {}))

    @call
    def plot_curves(
        self,
        trials: Iterable[int] = (),
        *,
        theme: Theme = "light",
        **options: str | int | None,
    ) -> Steps[PlotlyFigure]:
        """Learning curves of some trials, by default of those at work and the best.

        Args:
            trials: their numbers.
            theme: colours for a light or a dark page.
            options: `across` and `scale`, see `Client.figure`.

        Raises:
            ExtraMissing: plotly is not installed.
        """
        return (yield from self._plotted("curves", theme, trials, options))

    @call
    def plot_growth(self, *, theme: Theme = "light") -> Steps[PlotlyFigure]:
        """How the hypervolume of the front grew.

        Raises:
            ExtraMissing: plotly is not installed.
        """
        return (yield from self._plotted("growth", theme, (), {}))

    @call
    def plot_importance(self, *, theme: Theme = "light") -> Steps[PlotlyFigure]:
        """What each hyperparameter did to each objective.

        Raises:
            ExtraMissing: plotly is not installed.
        """
        return (yield from self._plotted("importance", theme, (), {}))

    def _plotted(
        self, name: str, theme: Theme, trials: Iterable[int], options: dict[str, str | int | None]
    ) -> Steps[PlotlyFigure]:
        found = yield from ResultCalls.figure.steps(
            self._client, self.id, name, theme=theme, trials=trials, **options
        )
        return found.plotly()

    @call
    def export(self, *, to: Target, place: str | Path | None = None) -> Steps[Exported]:
        """Write a run for each trial that has begun: hyperparameters, curves, values and tags.

        What was written before is brought up to date, and nothing is there twice.

        Args:
            to: `mlflow`, `wandb` or `tensorboard`.
            place: an MLflow tracking URI, a W&B project or a folder for TensorBoard; by default
                what MLflow is set to, `reflectory`, and `./tensorboard`.

        Raises:
            ValueError: there is no such target.
            ExtraMissing: the package of the target is not installed.
        """
        if to not in TARGETS:
            raise ValueError(f"to is {to!r}; allowed are {', '.join(TARGETS)}")
        yield from self._refreshed()
        runs = yield from runs_of(self._client, self)
        where = None if place is None else str(place)
        return Exported(to, TARGETS[to](runs, where), len(runs))

    @call
    def download(self, out: Path | str = ".") -> Steps[DownloadedFolder]:
        """Write the front as `front.csv`, and the files of each point into `out/trial-N`.

        Points whose checkpoints were not kept are left out, as `retention` says.

        Raises:
            Damaged: what arrived is no whole ZIP file, or a file in it is damaged.
            Unfinished: a file was not made in time.
        """
        folder = Path(out)
        folder.mkdir(parents=True, exist_ok=True)
        front = yield from ResultCalls.front.steps(self._client, self.id)
        text = yield from ResultCalls.front_csv.steps(self._client, self.id)
        write_whole(folder / "front.csv", text, private=False)
        whole = DownloadedFolder(folder, (folder / "front.csv",), ())
        for point in front.points:
            if point.links.folder or point.links.checkpoint:
                place = folder / f"trial-{point.trial}"
                got = yield from folder_of(self._client, self.id, point.trial, place, None)
                whole = whole.and_also(got)
        return whole


def _trial_of(kind: type[_Trial]):
    @call
    def trial(self: StudyHandle, number: int) -> Steps[_Trial]:
        """One trial, with its files and its whole specification."""
        found = yield from TrialCalls.trial.steps(self.client, self.id, number)
        return kind.of(self.client, self.id, found)

    return trial


def _best_of(kind: type[_Trial]):
    @call
    def best(
        self: StudyHandle, *, max_quality_loss: float | None = None, max_loss: float | None = None
    ) -> Steps[_Trial]:
        """The trial to take, see `Front.best`.

        Raises:
            ValueError: the loss is negative, or the front is empty so far.
        """
        front = yield from ResultCalls.front.steps(self.client, self.id)
        point = front.best(max_quality_loss=max_quality_loss, max_loss=max_loss)
        if point is None:
            raise ValueError(f"the front of study {self.id} is empty: no trial is complete")
        found = yield from TrialCalls.trial.steps(self.client, self.id, point.trial)
        return kind.of(self.client, self.id, found)

    return best


class Study(StudyHandle, Waits):
    """A study of `Client`."""

    trial = _trial_of(Trial)
    best = _best_of(Trial)

    def perform(self, steps: Steps[_T]) -> _T:
        """The answer of a call, when it is there."""
        return self._client.perform(steps)

    def give(self, stream: Stream[_T]) -> Any:
        """What a call gives, one after the other."""
        return self._client.give(stream)


class AsyncStudy(StudyHandle, Awaits):
    """A study of `AsyncClient`."""

    trial = _trial_of(AsyncTrial)
    best = _best_of(AsyncTrial)

    def perform(self, steps: Steps[_T]) -> Any:
        """The answer of a call, to be awaited."""
        return self._client.perform(steps)

    def give(self, stream: Stream[_T]) -> Any:
        """What a call gives, for `async for`."""
        return self._client.give(stream)
