"""Studies as the API answers with them."""

from datetime import datetime
from typing import Any, Self

from pydantic import Field

from models.spec import Spec
from search.documents.progress import StudyProgress
from service.api.paths import dashboard_path, study_path
from service.api.schema import ByName
from storage.records import StudyState

ENDED = frozenset(state for state in StudyState if state.has_ended)


class StudyLinks(ByName):
    """Where the parts of a study are; paths on this server."""

    study: str
    trials: str
    front: str
    bundle: str
    hypervolume: str
    importance: str
    report: str = Field(description="one HTML file, for people")
    events: str
    cancel: str
    webhooks: str
    page: str = Field(description="for people")
    dashboard: str = Field(description="the study in Optuna's own")

    @classmethod
    def of(cls, study_id: str) -> Self:
        """The links of one study."""
        path = study_path(study_id)
        return cls(
            study=path,
            trials=f"{path}/trials",
            front=f"{path}/front",
            bundle=f"{path}/bundle",
            hypervolume=f"{path}/hypervolume",
            importance=f"{path}/importance",
            report=f"{path}/report",
            events=f"{path}/events",
            cancel=f"{path}/cancel",
            webhooks=f"{path}/webhooks",
            page=f"/studies/{study_id}",
            dashboard=dashboard_path(study_id),
        )


class StudyDocument(Spec):
    """A study: what was asked for, where it stands and how far it is."""

    id: str
    name: str = Field(description="what it is called now; the spec has the name it was sent with")
    tags: tuple[str, ...] = ()
    notes: str = ""
    state: StudyState
    state_reason: str | None
    spec: dict[str, Any]
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    progress: StudyProgress
    links: StudyLinks
    stored_bytes: int | None = Field(
        default=None, description="of all files of its trials; null but where one study is asked"
    )

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen in it."""
        return self.state in ENDED


class StudyPage(Spec):
    """Studies, newest first."""

    items: tuple[StudyDocument, ...]
    next_cursor: str | None
