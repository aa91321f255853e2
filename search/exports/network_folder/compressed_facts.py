"""What rows say of a trial of a network of others whose folder is wanted."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from search.graphs.model_outputs import ModelOutputs
from search.graphs.network_trial import NetworkTrial
from storage.records import ArtifactRecord


@dataclass(frozen=True, kw_only=True)
class CompressedFacts:
    """What rows say of a trial, of one transaction."""

    study: str
    """Its name."""
    trial: int
    network: str
    """The name of the upload; its id where that is gone."""
    data: str
    """Likewise."""
    task: ModelOutputs
    spec: NetworkTrial
    samples: Mapping[str, int]
    """Of each part by name: train (calibration), validation (choosing) and test."""
    speeds: tuple[Mapping[str, Any], ...]
    """Records of throughput measurements: of each runtime and device the one that counts."""
    artifacts: Mapping[str, ArtifactRecord]
    """Role -> what is stored."""
    missing: Mapping[str, str]
    """Role -> why it is not."""
