"""One trial of a network of others: how each of its layers is stored."""

import hashlib
import json
from typing import Literal

from pydantic import Field

from models.spec import Spec
from search.graphs.fine_tune import FineTune
from search.graphs.picks import Pick

WHOLE, BITS, STRUCTURE = "original", "bits", "structure"
"""What a trial is called where others name a parametrization: as it was, rounded, or factored."""

NETWORK = "network"
"""What it is called where others name an architecture."""

FORMS = (BITS, STRUCTURE)


class NetworkTrial(Spec):
    """Everything that a trial's file follows from, the network and its data excepted."""

    kind: Literal["network"] = "network"
    picks: dict[str, Pick] = Field(
        description="by layer; layers that are left out stay as they are"
    )
    parameters: int = Field(ge=0, description="numbers that the file stores in its weights")
    dense_parameters: int = Field(ge=0, description="those of the original")
    bytes: int = Field(ge=1, description="of the file, as predicted; exact but for its nodes")
    seed: int = Field(
        ge=0, description="of the study: nothing of a file that is not trained follows from it"
    )
    fine_tune: FineTune | None = Field(
        default=None,
        description="how its numbers are trained further; null: they are those of the fits",
    )

    @property
    def is_original(self) -> bool:
        """Whether it is the network as it was uploaded."""
        return not self.picks

    @property
    def epochs(self) -> int:
        """How many its numbers are trained for."""
        return 0 if self.fine_tune is None else self.fine_tune.epochs

    @property
    def form(self) -> str:
        """`original`, `bits` where numbers are rounded alone, `structure` where any are factors."""
        if self.is_original:
            return WHOLE
        has_structure = any(pick.choice.has_structure for pick in self.picks.values())
        return STRUCTURE if has_structure else BITS

    def parameter_count(self) -> int:
        """Numbers that the file stores in its weights."""
        return self.parameters

    def dense_parameter_count(self) -> int:
        """Those of the original."""
        return self.dense_parameters

    def shape_key(self) -> str:
        """What it has in common with those that take the same time: the factors that run.

        Weights of fewer bits are unpacked once, when a file is loaded, and trained numbers take
        as long as others.
        """
        if self.is_original:
            return WHOLE
        running = {
            name: pick.choice.model_dump(mode="json", exclude={"bits", "group"})
            for name, pick in self.picks.items()
            if pick.choice.runs_factors
        }
        return hashlib.sha256(json.dumps(running, sort_keys=True).encode()).hexdigest()[:16]

    def check(self) -> None:
        """Any picks that were offered can be built."""


def label_of(pick: Pick) -> str:
    """One pick in words."""
    return pick.choice.label if pick.compensated else f"{pick.choice.label}, plain"
