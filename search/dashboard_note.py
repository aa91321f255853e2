"""What Optuna's dashboard says of a study in words: what was asked, and where our own page is."""

import re

from search.pareto import objective_infos
from search.spec import Budget, Limits, StudySpec
from storage.records import StudyRecord

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
