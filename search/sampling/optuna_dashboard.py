"""What Optuna's dashboard shows of a study: our plots, and a note with a link to our own page."""

import re
from typing import Any

from sqlalchemy.orm import Session

from search.fronts import Figures, objective_infos
from search.sampling.dashboard_plots import plots
from search.studies import Budget, Limits, StudySpec
from storage.records import StudyRecord

# The dashboard's own forms of a plot and of a note, which it writes in pieces of 2045 characters,
# and puts together again. One piece is whole as well.
_PLOT = "dashboard:plot_data:{name}:0"
_NOTE = "dashboard:note_str:0"
_NOTE_VERSION = "dashboard:note_ver"


def shown_beside_trials(
    session: Session, study: StudyRecord, spec: StudySpec, figures: Figures
) -> dict[str, Any]:
    """The study's note and plots, as system attributes that the dashboard knows."""
    (quality,) = objective_infos(spec.task, ["quality"])
    drawn = plots(
        figures.complete(session, study),
        figures.standing(session, study).front,
        quality=quality,
        objectives=spec.objectives,
        limits=spec.limits,
        region=spec.region,
    )
    return {
        _NOTE: note_of(study, spec),
        _NOTE_VERSION: 1,
        **{_PLOT.format(name=name): plot for name, plot in drawn.items()},
    }


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
    if region := spec.region.words({info.name: info.metric for info in infos}):
        lines.append(f"- region of interest: {_literal(region)}")
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
