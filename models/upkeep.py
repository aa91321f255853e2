"""What modules may be asked to do between their forward passes."""

from abc import ABC, abstractmethod


class Settling(ABC):
    """A module whose parameters are brought back to where they belong after an optimizer step."""

    @abstractmethod
    def settle_(self) -> None:
        """Bring the parameters back, in place."""


class Holding(ABC):
    """A module that can keep what it makes of its parameters, for inference."""

    @abstractmethod
    def hold(self) -> None:
        """Make it now and keep it; what the modules below make is kept already."""

    @abstractmethod
    def release(self) -> None:
        """Keep it no longer."""
