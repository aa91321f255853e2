"""What rows say of a trial whose folder is wanted."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from models.model import ModelSpec
from search.documents.catalog import Metric
from search.exports.outcomes import ExportOutcome
from storage.records import ArtifactRecord


@dataclass(frozen=True, kw_only=True)
class FolderFacts:
    """What rows say of a trial, of one transaction."""

    study: str
    """Its name."""
    trial: int
    task: str
    """Its title."""
    model: ModelSpec
    metric: Metric
    quality: float | None
    test_quality: float | None
    samples: Mapping[str, int]
    """Of each split, by name; empty where the data were never looked at."""
    parameters: int
    dense_parameters: int
    speeds: tuple[Mapping[str, Any], ...]
    """Records of throughput measurements: of each runtime and device the one that counts."""
    artifacts: Mapping[str, ArtifactRecord]
    """Role -> what is stored."""
    missing: Mapping[str, str]
    """Role -> why it is not."""
    outcomes: Mapping[str, ExportOutcome]
    """Role -> what came of making it."""
