"""What figures of a study are made of, read from its rows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from sqlalchemy.orm import Session

from search.documents.objectives import OBJECTIVES, USUAL_OBJECTIVES, Objective, in_order
from search.errors import Fault, Refused
from search.fronts.figures import Figures
from search.fronts.noise import noise_of
from search.fronts.pareto import Front, ObjectiveInfo, objective_infos
from search.graphs.model_outputs import ModelOutputs
from search.studies import space_of
from search.studies.spec import StudySpec
from service.figures.compare import MOST_STUDIES, compare_figure
from service.figures.curves import MOST_CURVES, Across, Scale, curves_figure
from service.figures.front import front_figure
from service.figures.growth import growth_figure
from service.figures.importance import importance_figure
from service.figures.parallel import FEW_AXES, MOST_AXES, MOST_LINES, parallel_figure
from service.figures.references import references_of
from service.figures.shown import ShownStudy
from service.figures.style import Json, Theme, thinned
from storage.records import StudyRecord, TrialOrigin, TrialState
from storage.repositories.metrics import Metrics
from storage.repositories.trials import Trials


@dataclass(frozen=True, kw_only=True)
class FigureChoice:
    """What may be chosen of a figure; each has its own part of it."""

    theme: Theme = "light"
    trials: tuple[int, ...] = ()
    x: Objective | None = None
    y: Objective | None = None
    panels: int = 2
    across: Across = "epoch"
    scale: Scale = "auto"


@dataclass(frozen=True)
class Asked:
    """A study of which a figure is wanted, in one transaction."""

    session: Session
    study: StudyRecord
    figures: Figures
    choice: FigureChoice = FigureChoice()


_Make: TypeAlias = Callable[[Asked], Json]


def infos_by_name(
    spec: StudySpec, further: Sequence[Objective] = ()
) -> dict[Objective, ObjectiveInfo]:
    """What figures of a study offer: its own objectives, then those that every trial has.

    `further` ones come last: trials may have them for a limit, or not at all.
    """
    shown = tuple(dict.fromkeys((*in_order(spec.objectives), *USUAL_OBJECTIVES, *further)))
    found: dict[Objective, ObjectiveInfo] = {
        info.name: info for info in objective_infos(spec.task, shown)
    }
    if isinstance(spec.task, ModelOutputs):
        title = spec.task.compared_by.title
        found["quality"] = found["quality"].model_copy(update={"metric": title})
    return found


def shown_study(asked: Asked) -> ShownStudy:
    """A study as its figures show it."""
    study = asked.study
    spec = StudySpec.model_validate(study.spec)
    front = asked.figures.front(asked.session, study)
    trials = asked.figures.complete(asked.session, study)
    original = next((one.number for one in trials if one.origin == TrialOrigin.ORIGINAL), None)
    named = dict(enumerate(spec.presets))
    if original is not None:
        named[original] = "the original"
    is_network = isinstance(spec.task, ModelOutputs)
    return ShownStudy(
        trials=[trial for trial in trials if trial.origin != TrialOrigin.CONFIRMATION],
        on_front=frozenset(point.trial for point in front.points),
        infos=infos_by_name(spec, OBJECTIVES),
        own=in_order(spec.objectives),
        region=spec.region,
        named=named,
        original=original,
        intervals={
            point.trial: point.quality_interval
            for point in front.points
            if point.quality_interval is not None
        },
        noise=noise_of(spec.task),
        references=references_of(study) if is_network else (),
        is_network=is_network,
        recommended=front.recommendation.trial if front.recommendation else None,
        selected=frozenset(asked.choice.trials),
    )


def worth_a_curve(session: Session, study_id: str, front: Front) -> list[int]:
    """The trials that are at work, and the best of the front."""
    running = [
        trial.number for trial in Trials(session).summaries(study_id, TrialState.RUNNING)[-2:]
    ]
    directions = {info.name: info.direction for info in front.objectives}
    sign = -1.0 if directions.get("quality") == "maximize" else 1.0
    known = sorted(
        (sign * quality, point.trial)
        for point in front.points
        if (quality := point.values["quality"]) is not None
    )
    return [*running, *(trial for _, trial in known)][:6]


def dimensions_on_front(front: Front) -> Mapping[str, int]:
    """Dimension -> how many points of a front have it."""
    # Every trial has one of these.
    found: dict[str, int] = {
        "architecture": len(front.points),
        "parametrization": len(front.points),
    }
    for point in front.points:
        for name in point.hyperparameters:
            found[name] = found.get(name, 0) + 1
    return found


def _front(asked: Asked) -> Json:
    choice = asked.choice
    return front_figure(
        shown_study(asked), theme=choice.theme, x=choice.x, y=choice.y, panels=choice.panels
    )


def _parallel(asked: Asked) -> Json:
    study = shown_study(asked)
    kept = study.on_front | study.selected
    numbers = [trial.number for trial in study.trials]
    wanted = thinned([number for number in numbers if number not in kept], MOST_LINES)
    wanted |= kept & set(numbers)
    records = asked.figures.records(asked.session, asked.study, wanted)
    spec = StudySpec.model_validate(asked.study.spec)
    logarithmic = (
        frozenset[str]()
        if study.is_network
        else frozenset(
            name
            for name, dimension in space_of(spec).dimensions.items()
            if getattr(dimension, "log", False)
        )
    )
    return parallel_figure(
        study,
        {number: record.hyperparameters for number, record in records.items()},
        logarithmic=logarithmic,
        theme=asked.choice.theme,
        most_axes=MOST_AXES if asked.choice.panels > 1 else FEW_AXES,
    )


def _curves(asked: Asked) -> Json:
    session, study, choice = asked.session, asked.study, asked.choice
    shown = choice.trials or worth_a_curve(session, study.id, asked.figures.front(session, study))
    known = Trials(session).numbered(study.id, shown[:MOST_CURVES])
    spec = StudySpec.model_validate(study.spec)
    return curves_figure(
        {trial.number: Metrics(session).curve(study.id, trial.number) for trial in known},
        metric=infos_by_name(spec)["quality"].metric,
        names={trial.number: f"{trial.architecture} × {trial.parametrization}" for trial in known},
        across=choice.across,
        scale=choice.scale,
        columns=choice.panels,
        theme=choice.theme,
        left_out=max(0, len(shown) - MOST_CURVES),
    )


def _growth(asked: Asked) -> Json:
    epochs = asked.figures.tally(asked.session, asked.study).epochs_trained
    changes = asked.figures.hypervolumes(asked.session, asked.study)
    return growth_figure(changes, epochs_trained=epochs, theme=asked.choice.theme)


def _importance(asked: Asked) -> Json:
    importance = asked.figures.importance(asked.session, asked.study)
    front = asked.figures.front(asked.session, asked.study)
    return importance_figure(
        importance.objectives, dimensions_on_front(front), theme=asked.choice.theme
    )


FIGURES: Final[Mapping[str, _Make]] = {
    "front": _front,
    "parallel": _parallel,
    "curves": _curves,
    "growth": _growth,
    "importance": _importance,
}
"""By name, every figure of one study."""


def compared(
    session: Session,
    studies: list[StudyRecord],
    figures: Figures,
    *,
    x: Objective | None,
    y: Objective,
    theme: Theme,
) -> Json:
    """The fronts of several studies in one figure.

    Raises:
        Refused: there are too many of them, or their qualities are not the same metric.
    """
    if len(studies) > MOST_STUDIES:
        message = f"{len(studies)} studies are named; at most {MOST_STUDIES} are compared"
        raise Refused([Fault("studies", message)])
    shown = [(study, shown_study(Asked(session, study, figures))) for study in studies]
    metrics = {
        (one.infos["quality"].metric, one.infos["quality"].unit): study.name for study, one in shown
    }
    if len(metrics) > 1:
        facts = ", ".join(
            f"{metric} ({unit}) of {name!r}" for (metric, unit), name in metrics.items()
        )
        message = f"studies of different metrics are not compared: {facts}; allowed is one metric"
        raise Refused([Fault("studies", message)])
    names = [study.name for study in studies]
    labels = [
        study.name if names.count(study.name) == 1 else f"{study.name} [{study.id[:8]}]"
        for study in studies
    ]
    content = [one for _, one in shown]
    return compare_figure(list(zip(labels, content, strict=True)), x=x, y=y, theme=theme)
