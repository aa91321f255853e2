"""The three questions a spec may ask the source of its hyperparameters."""

from typing import Protocol


class ParameterSampler(Protocol):
    """Define-by-run sampling, without knowing who samples.

    The answers come from an Optuna trial, from a recorder that describes the search space, or from
    a test. A name is a field's own name (`m1`); what implements this adds the variant's kind to it.
    The bounds of a name must be the same whenever it is asked within a study, whatever was drawn
    before.
    """

    def integer(self, name: str, low: int, high: int, *, log: bool = False, step: int = 1) -> int:
        """Draw an integer of [low, high]."""
        ...

    def real(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        """Draw a real number of [low, high]."""
        ...

    def choice(self, name: str, options: tuple[str, ...]) -> str:
        """Draw one of the options."""
        ...
