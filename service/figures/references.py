"""Files that other tools make of a study's network: points that no trial of it is."""

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import TypeAdapter

from search.documents.objectives import Objective
from search.graphs.reference_documents import ReferenceFile
from storage.records import StudyRecord

_FILES: TypeAdapter[tuple[ReferenceFile, ...]] = TypeAdapter(tuple[ReferenceFile, ...])


@dataclass(frozen=True)
class Reference:
    """One file, compared with the original on the choosing part as trials are."""

    name: str
    bytes: int
    quality: float
    agreement: float | None = None

    @property
    def values(self) -> Mapping[Objective, float]:
        """What it costs, and what it keeps."""
        return {"bytes": float(self.bytes), "quality": self.quality}


def references_of(study: StudyRecord) -> tuple[Reference, ...]:
    """Those that preparing a study made and measured; none before that."""
    found = _FILES.validate_python((study.prepared or {}).get("references") or ())
    return tuple(
        Reference(one.name, one.bytes, one.quality, one.agreement)
        for one in found
        if one.bytes is not None and one.quality is not None
    )
