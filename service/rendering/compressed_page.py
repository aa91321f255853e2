"""What the report of a network's file tells: its figures, its layers, its speed."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from search.exports.network_folder import CompressedFacts
from search.graphs.network_report import LayerReport, NetworkReport, PartReport
from search.graphs.network_trial import label_of
from search.graphs.picks import Pick


@dataclass(frozen=True, kw_only=True)
class CompressedPage:
    """One file of a network, for its report and for the page of its trial."""

    facts: CompressedFacts
    report: NetworkReport

    @property
    def parts(self) -> Mapping[str, PartReport]:
        """The parts of the data, by what they are for."""
        return {"choosing": self.report.choosing, "test": self.report.test}

    @property
    def layers(self) -> Iterator[tuple[LayerReport, str]]:
        """Each layer with its choice in words."""
        for layer in self.report.layers:
            pick = Pick(choice=layer.choice, compensated=layer.compensated)
            yield layer, label_of(pick)

    @property
    def times_smaller(self) -> float:
        """How many times smaller the file is than the original's."""
        return self.report.bytes_before / self.report.bytes_after

    @property
    def speeds(self) -> tuple[Mapping[str, Any], ...]:
        """Measurements beside the original."""
        return self.facts.speeds
