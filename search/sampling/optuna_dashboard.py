"""What Optuna's dashboard shows of a study: our plots, and a note with a link to our own page."""

import re
import time

from search.fronts import Figures, objective_infos
from search.running import StudyContext
from search.sampling.dashboard_plots import plots
from search.sampling.optuna_copy import PAUSE_SECONDS, OptunaCopy
from search.studies import Budget, Limits, StudySpec
from storage.records import StudyRecord
from storage.repositories.studies import Studies


class DashboardSync:
    """The note and the plots of one study, written when its outcomes have changed."""

    def __init__(self, study: StudyContext, copy: OptunaCopy, figures: Figures) -> None:
        self._study = study
        self._copy = copy
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
        drawn = plots(
            complete,
            standing.front,
            quality=quality,
            objectives=spec.objectives,
            limits=spec.limits,
        )
        self._copy.show(note_of(study, spec), drawn)
        self._version, self._shown_at = study.data_version, time.monotonic()


_PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")


def note_of(study: StudyRecord, spec: StudySpec) -> str:
    """The note, as Markdown.

    Its link starts at the server's root, from which the dashboard is served too.
    """
    infos = objective_infos(spec.task, spec.objectives)
    wanted = ", ".join(f"{info.metric} ({info.direction})" for info in infos)
    lines = [
        f"**{_literal(study.name)}**, see [its page in Reflectory](/studies/{study.id}) for the "
        "front, learning curves, reasons and downloads.",
        f"- task: {_literal(spec.task.kind)}",
        f"- objectives: {_literal(wanted)}",
        f"- architectures: {_literal(', '.join(spec.architectures))}",
        f"- parametrizations: {_literal(', '.join(spec.parametrizations))}",
        f"- budget: {_literal(_set(spec.budget))}",
    ]
    if limits := _set(spec.limits):
        lines.append(f"- limits: {_literal(limits)}")
    lines += [
        "",
        "Trials that broke a limit, or could not be trained, have the state *Pruned*, a positive "
        "constraint, and the user attributes `outcome` and `reason`. Values of the user attributes "
        "`effective:...` are those that the model really has. This view is for reading only.",
    ]
    return "\n".join(lines)


def _set(part: Budget | Limits) -> str:
    return ", ".join(f"{name} {value}" for name, value in part if value is not None)


def _literal(text: str) -> str:
    """Text that Markdown shows as it is, whatever a user has written."""
    return _PUNCTUATION.sub(r"\\\1", text)
