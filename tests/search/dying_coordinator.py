"""A coordinator that is killed at a chosen point between Optuna and our rows.

A program, with what `run` takes as a JSON document: the real coordinator, which dies of SIGKILL at
the point when it comes to the trial of that number; with the point `never` it works until it is
stopped. With the point `slow` it lives, and the sampler takes its time: `THINKING_SECONDS` for each
suggestion, and for those of a study named `stuck`, from that number on, until there is a file
`released`. With the point `faulty` such suggestions raise an error instead.
"""

import json
import signal
import sys
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

import optuna
from sqlalchemy.orm import Session

from search.agents.executors.remote import RemoteExecutor
from search.dispatch.coordinator import Coordinator, Folders
from search.dispatch.runs import study_run
from search.sampling.optuna_study import OptunaStudy
from search.spaces.dimension import Dimension, Scalar
from storage.engine import Database
from storage.records import TrialRecord

THINKING_SECONDS = 0.4
"""Longer than a trial of one epoch."""


class CalmDatabase(Database):
    """Nobody stands still in the middle of a transaction: SQLite would let nobody else write."""

    writing = threading.Lock()

    @contextmanager
    def write(self) -> Generator[Session]:
        """See `Database.write`."""
        with self.writing, super().write() as session:
            yield session


def die() -> None:
    """As `kill -9` would have it: nothing is flushed, closed or told. Or stand still instead."""
    with CalmDatabase.writing:
        # To this thread: a signal to the process may reach another first, and this one goes on.
        signal.pthread_kill(threading.get_ident(), DyingOptunaStudy.sign)


class DyingOptunaStudy(OptunaStudy):
    """Optuna's side, reached for the last time."""

    point = "never"
    number = 0
    sign = signal.SIGKILL
    released = Path()

    def ask(self) -> optuna.Trial:
        """Think, or die between Optuna's trial and our row."""
        number = len(self.trials)
        if self.point == "slow":
            time.sleep(THINKING_SECONDS)
            while self._is_stuck(number):
                time.sleep(0.05)
        if self.point == "faulty" and self._is_stuck(number):
            raise RuntimeError("the sampler met a case that nobody foresaw")
        asked = super().ask()
        if number == self.number and self.point == "asked":
            die()
        return asked

    def _is_stuck(self, number: int) -> bool:
        return "stuck" in self._name and number >= self.number and not self.released.exists()

    def give(
        self, asked: optuna.Trial, values: Mapping[str, Scalar], dimensions: Mapping[str, Dimension]
    ) -> None:
        """Die when a trial has its values, but no row."""
        super().give(asked, values, dimensions)
        if asked.number == self.number and self.point == "given":
            die()

    def tell(self, trial: TrialRecord) -> None:
        """Die before Optuna is told, or after and before our row says so."""
        # When the study is made of its rows it is told again what it was told.
        if trial.told_at is None and trial.number == self.number and self.point == "ended":
            die()
        super().tell(trial)
        if trial.told_at is None and trial.number == self.number and self.point == "told":
            die()


def run(
    point: str,
    number: int,
    *,
    folder: Path,
    owner: str = "test",
    lease_seconds: float,
    sign: int = signal.SIGKILL,
) -> None:
    """Coordinate until killed."""
    DyingOptunaStudy.released = folder / "released"
    DyingOptunaStudy.point, DyingOptunaStudy.number = point, number
    DyingOptunaStudy.sign = signal.Signals(sign)
    study_run.OptunaStudy = DyingOptunaStudy
    database = CalmDatabase(f"sqlite:///{folder / 'reflectory.db'}")
    executor = RemoteExecutor(
        database, owner=owner, lease_seconds=lease_seconds, logs=folder / "logs"
    )
    folders = Folders(
        data=None, cache=folder / "cache", locks=folder / "locks", alive=folder / "alive"
    )
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    Coordinator(
        database,
        executor,
        optuna_url=f"sqlite:///{folder / 'optuna.db'}",
        owner=owner,
        folders=folders,
        lease_seconds=lease_seconds,
    ).run(stop)


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    run(**given | {"folder": Path(given["folder"])})
