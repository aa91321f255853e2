"""Following a study until it ends: a live view on a terminal, plain lines elsewhere."""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Protocol

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from search.documents.objectives import OBJECTIVE_KINDS
from search.documents.progress import TrialTotals
from service.api.events.schemas import Event
from service.api.fronts.schemas import FrontDocument
from service.api.studies.schemas import StudyDocument
from service.client import Client, ClientError
from service.client.transport.described import WATCH_PATIENCE
from service.commands.connection import is_terminal
from service.commands.shown.network_tables import (
    NETWORK,
    digits,
    is_of_a_network,
    network_front_table,
)
from service.commands.shown.tables import front_table, shown
from storage.endings import TrialCause

_REFRESH_SECONDS = 0.5
_OUTCOMES = ("complete", "stopped", "infeasible", "failed", "cancelled")
_STYLES = {"complete": "green", "failed": "red", "infeasible": "yellow", "running": "cyan"}


class View(Protocol):
    """What a followed study is shown on."""

    def event(self, event: Event) -> None:
        """Something happened."""
        ...

    def standing(self, study: StudyDocument, front: FrontDocument) -> None:
        """Where the study stands now."""
        ...


def follow(client: Client, study_id: str, view: View) -> StudyDocument:
    """Show a study on a view until it has ended; returns it as it ended."""
    view.standing(client.study(study_id), client.front(study_id))
    shown_at = time.monotonic()
    stale = False
    for event in ticking(client.watch(study_id), _REFRESH_SECONDS):
        if event is not None:
            view.event(event)
            stale = True
        if stale and time.monotonic() - shown_at >= _REFRESH_SECONDS:
            # The events say whether the server stays away for too long.
            with suppress(ClientError):
                view.standing(client.study(study_id), client.front(study_id))
            shown_at = time.monotonic()
            stale = False
    study = client.study(study_id, patience=WATCH_PATIENCE)
    view.standing(study, client.front(study_id, patience=WATCH_PATIENCE))
    return study


def ticking(events: Iterator[Event], seconds: float) -> Iterator[Event | None]:
    """The events, with a null after every so many seconds of silence.

    They are read by a thread, so that Ctrl-C and the clock are noticed while nothing happens.
    """
    feed = queue.Queue[Event | BaseException | None]()

    def read() -> None:
        try:
            for event in events:
                feed.put(event)
            feed.put(None)
        except BaseException as error:
            feed.put(error)
            if not isinstance(error, Exception):
                raise

    threading.Thread(target=read, name="events", daemon=True).start()
    while True:
        try:
            item = feed.get(timeout=seconds)
        except queue.Empty:
            yield None
            continue
        if item is None:
            return
        if isinstance(item, BaseException):
            raise item
        yield item


def open_view(study: StudyDocument) -> AbstractContextManager[View]:
    """The view that fits where the output goes."""
    return LiveView(study) if is_terminal() else nullcontext(LineView())


class LineView:
    """One line per download step, trial's end and change of the study, for logs and pipes."""

    def __init__(self, *, write: Callable[[str], None] = typer.echo) -> None:
        self._metric = "quality"
        self._write = write
        self._tenths: dict[str, int] = {}

    def event(self, event: Event) -> None:
        """Write the event's line, where it deserves one."""
        lines: dict[str, Callable[[Event], str | None]] = {
            "study": self._study,
            "trial": self._trial,
            "download": self._download,
            "attempt_lost": self._attempt_lost,
        }
        line = lines.get(event.kind, lambda _event: None)(event)
        if line is not None:
            self._write(line)

    def standing(self, study: StudyDocument, front: FrontDocument) -> None:
        """Remember the metric's name; lines tell events, not standings."""
        del study
        for objective in front.objectives:
            if objective.name == "quality":
                self._metric = objective.metric

    def _study(self, event: Event) -> str:
        reason = event.payload.get("reason")
        return f"study {event.payload['state']}" + (f": {reason}" if reason else "")

    def _trial(self, event: Event) -> str | None:
        trial = event.payload
        if trial["state"] not in _OUTCOMES:
            return None
        if trial.get("reason") == TrialCause.SUPERSEDED.phrase:
            # A search draws more than it trains: these would be most of the lines.
            return None
        of_network = trial["architecture"] == NETWORK
        model = "" if of_network else f"{trial['architecture']} "
        parts = [
            f"trial {trial['trial']} {trial['state']}",
            f"{model}{trial['parametrization']}",
        ]
        for name, kind in OBJECTIVE_KINDS.items():
            value = trial.get(kind.column)
            # How many numbers a file stores says little where each layer has its own bits.
            if value is None or (of_network and name == "parameters"):
                continue
            # Losses of files that are good are small.
            small = of_network and name == "quality"
            told = digits(value) if small else shown(value, name)
            parts.append(kind.told.format(metric=self._metric, value=told))
        if trial.get("reason"):
            parts.append(trial["reason"])
        return ", ".join(parts)

    def _download(self, event: Event) -> str | None:
        file, received, total = (event.payload[key] for key in ("file", "received", "total"))
        tenth = 10 * received // total if total else 0
        if self._tenths.get(file) == tenth:
            return None
        self._tenths[file] = tenth
        whole = f" of {total:,}" if total else ""
        return f"download {file}: {received:,}{whole} bytes"

    def _attempt_lost(self, event: Event) -> str:
        trial = event.payload.get("trial")
        of = "" if trial is None else f" of trial {trial}"
        kind, number = event.payload["kind"], event.payload["attempt"]
        return f"{kind} attempt {number}{of} was interrupted: {event.payload['reason']}"


class LiveView:
    """A progress bar with the time left, the outcomes so far, downloads, and the front so far."""

    def __init__(self, study: StudyDocument) -> None:
        self._console = Console()
        self._bar = Progress(
            TextColumn("[bold]{task.fields[name]}[/]"),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[steps]}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=self._console,
            expand=True,
        )
        self._downloads = Progress(
            TextColumn("download {task.description}"),
            BarColumn(),
            DownloadColumn(),
            console=self._console,
        )
        self._task = self._bar.add_task(
            "budget", total=1.0, name=escape(study.name), steps="", left=""
        )
        self._files: dict[str, TaskID] = {}
        self._outcomes: RenderableType = ""
        self._table: RenderableType = ""
        self._live = Live(
            console=self._console, get_renderable=self._render, refresh_per_second=4, transient=True
        )

    def __enter__(self) -> "LiveView":
        """Take the lower part of the terminal."""
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Give the terminal back."""
        self._live.stop()

    def event(self, event: Event) -> None:
        """Move a download on; everything else shows in the standing."""
        if event.kind != "download":
            return
        file, received, total = (event.payload[key] for key in ("file", "received", "total"))
        if file not in self._files:
            self._files[file] = self._downloads.add_task(escape(file))
        done = bool(total) and received >= total
        self._downloads.update(
            self._files[file], completed=received, total=total or None, visible=not done
        )

    def standing(self, study: StudyDocument, front: FrontDocument) -> None:
        """Show the counts, the time left and the front."""
        done, total = study.progress.steps
        self._bar.update(
            self._task,
            completed=study.progress.share or 0.0,
            steps=f"{done}/{total}",
            left=_time_left(study),
        )
        self._outcomes = _counts(study.progress.trials, study)
        table = network_front_table(front, {}) if is_of_a_network(front) else front_table(front)
        self._table = table if front.points else ""

    def _render(self) -> RenderableType:
        return Group(self._bar, self._outcomes, self._downloads, self._table)


def _time_left(study: StudyDocument) -> str:
    seconds = study.progress.eta_seconds
    if study.ended or seconds is None:
        return study.state
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02} left"


def _counts(trials: TrialTotals, study: StudyDocument) -> str:
    counts = {name: getattr(trials, name) for name in (*_OUTCOMES, "running", "paused", "queued")}
    parts = [
        f"[{_STYLES.get(name, 'default')}]{count} {name}[/]"
        for name, count in counts.items()
        if count
    ]
    volume = study.progress.hypervolume
    if volume is not None:
        parts.append(f"hypervolume {volume:.3g}")
    return "  ".join(parts)
