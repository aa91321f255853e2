"""What modules may be asked to do between their forward passes."""

from abc import ABC, abstractmethod


class Projected(ABC):
    """A module whose parameters are projected to where they belong after an optimizer step."""

    @abstractmethod
    def project_(self) -> None:
        """Project the parameters, in place."""


class CachesForms(ABC):
    """A module that can keep what it makes of its parameters, for inference."""

    @abstractmethod
    def cache(self) -> None:
        """Make it now and keep it; what the modules below make is kept already."""

    @abstractmethod
    def clear(self) -> None:
        """Keep it no longer."""
