"""Views of studies of a network of others, read from rows."""

from sqlalchemy.orm import Session

from models.spec import kind_of
from search.graphs.metrics import Agreement
from search.graphs.model_outputs import ModelOutputs
from search.studies.spec import StudySpec
from service.api.fronts.schemas import FrontDocument
from service.figures.references import references_of
from service.rendering.network_view import NetworkView
from storage.records import StudyRecord
from storage.repositories.trials import Trials
from storage.repositories.uploads import Datasets

_AGREEMENT = kind_of(Agreement)


def network_view(
    session: Session, study: StudyRecord, spec: StudySpec, front: FrontDocument
) -> NetworkView | None:
    """What is shown of a study of a network; None for all others."""
    if not isinstance(spec.task, ModelOutputs):
        return None
    tested = {
        point.trial: Trials(session).get(study.id, point.trial).test_metrics
        for point in front.points
    }
    return NetworkView(
        task=spec.task,
        data=Datasets(session).of_study(study.spec),
        agreements={
            number: found[_AGREEMENT] for number, found in tested.items() if _AGREEMENT in found
        },
        references=references_of(study),
    )
