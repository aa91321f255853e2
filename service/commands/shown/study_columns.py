"""The columns of a list of studies; nothing heavy is imported, so that `list` starts at once."""

from collections.abc import Sequence

from service.api.studies.schemas import StudyDocument
from service.commands.given.references import SHORT
from service.commands.shown.listing import Column, age, count, moment

STUDIES: Sequence[Column[StudyDocument]] = (
    Column("id", lambda study: study.id, lambda study: study.id[:SHORT], wide=False),
    Column("id", lambda study: study.id, narrow=False),
    Column("name", lambda study: study.name, is_cut=True),
    Column("state", lambda study: str(study.state)),
    Column("progress", lambda study: _share(study), lambda study: _progress(study), number=True),
    Column("complete", lambda study: study.progress.trials.complete, number=True, narrow=False),
    Column(
        "front",
        lambda study: study.progress.front_points,
        lambda study: count(study.progress.front_points),
        number=True,
    ),
    Column("task", lambda study: str(study.spec.get("task", {}).get("kind")), narrow=False),
    Column("priority", lambda study: study.spec.get("priority", 0), number=True, narrow=False),
    Column(
        "age",
        lambda study: -study.created_at.timestamp(),
        lambda study: age(study.created_at),
        number=True,
        wide=False,
    ),
    Column(
        "created",
        lambda study: study.created_at,
        lambda study: moment(study.created_at),
        narrow=False,
    ),
)


def _progress(study: StudyDocument) -> str:
    done, total = study.progress.steps
    return f"{done}/{total}"


def _share(study: StudyDocument) -> float:
    done, total = study.progress.steps
    return done / total if total else 0.0
