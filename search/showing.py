"""Keeping what Optuna's dashboard shows of a study as our tables have it."""

import time

from search.dashboard_note import note_of
from search.dashboard_plots import plots
from search.figures import Figures
from search.mirror import Mirror
from search.pareto import objective_infos
from search.study_context import StudyContext
from storage.studies import Studies

PAUSE_SECONDS = 5.0
"""No more often than this: each time takes a moment, and people look less often."""


class Showing:
    """The note and the plots of one study, written when its outcomes have changed."""

    def __init__(self, study: StudyContext, mirror: Mirror, figures: Figures) -> None:
        self._study = study
        self._mirror = mirror
        self._figures = figures
        self._shown_at: float | None = None
        self._version: int | None = None

    def go_on(self) -> None:
        """Show what has changed, unless something was shown a moment ago."""
        if self._shown_at is None or time.monotonic() - self._shown_at >= PAUSE_SECONDS:
            self.show()

    def show(self) -> None:
        """Show what has changed."""
        with self._study.database.read() as session:
            study = Studies(session).get(self._study.id)
            if study.data_version == self._version:
                return
            standing = self._figures.standing(session, study)
            complete = self._figures.complete(session, study)
        spec = self._study.spec
        (quality,) = objective_infos(spec.task, ["quality"])
        drawn = plots(complete, standing.front, quality=quality, limits=spec.limits)
        self._mirror.show(note_of(study, spec), drawn)
        self._version, self._shown_at = study.data_version, time.monotonic()
