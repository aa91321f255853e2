"""What pages show of a study of a network of others that studies of models have not."""

from collections.abc import Mapping
from dataclasses import dataclass

from search.graphs.metrics import AnyMetric
from search.graphs.model_outputs import ModelOutputs
from service.figures.references import Reference
from service.figures.shown import NETWORK_FORMS
from storage.records import DatasetRecord


@dataclass(frozen=True, kw_only=True)
class NetworkView:
    """One study of a network, all of one transaction."""

    task: ModelOutputs
    data: DatasetRecord | None
    """What its answers are compared on, unless it is gone."""
    agreements: Mapping[int, float]
    """Point of the front -> its agreement with the original on the test part, where that is known.
    """
    references: tuple[Reference, ...]

    @property
    def metric(self) -> AnyMetric:
        """What is compared."""
        return self.task.compared_by

    @property
    def forms(self) -> Mapping[str, str]:
        """What trials are called, by what stands where others have a parametrization."""
        return NETWORK_FORMS

    def times_smaller(self, size: float | None) -> float | None:
        """How many times smaller a file is than the original's."""
        return None if not size else self.task.known.file_bytes / size
