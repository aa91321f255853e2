"""Files that other tools make of a study's network: points that no trial of it is."""

from collections.abc import Mapping

from pydantic import TypeAdapter

from models.spec import Spec
from search.documents.objectives import Objective
from storage.records import StudyRecord


class Reference(Spec):
    """One file, compared with the original on the choosing part as trials are."""

    name: str
    bytes: int
    quality: float
    agreement: float | None = None

    @property
    def values(self) -> Mapping[Objective, float]:
        """What it costs, and what it keeps."""
        return {"bytes": float(self.bytes), "quality": self.quality}


_REFERENCES: TypeAdapter[tuple[Reference, ...]] = TypeAdapter(tuple[Reference, ...])


def references_of(study: StudyRecord) -> tuple[Reference, ...]:
    """Those that preparing a study made; none before that."""
    return _REFERENCES.validate_python((study.prepared or {}).get("references") or ())
