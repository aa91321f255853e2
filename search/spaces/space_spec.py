"""What of a study's document spans its search space."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from search.spaces.dimension import Override
from search.tasks import AnyTask
from search.training.compression import Compress


class SpaceSpec(Protocol):
    """The fields of a study's document that its space follows from, as in `search.studies.spec`.

    A protocol, so that what compiles spaces needs no document of studies.
    """

    @property
    def trained_task(self) -> AnyTask:
        """Resolved: its signature sets the ends of ranges."""
        ...

    @property
    def architectures(self) -> Sequence[str]:
        """Kinds, in the order of the document."""
        ...

    @property
    def parametrizations(self) -> Sequence[str]:
        """Kinds, in the order of the document."""
        ...

    @property
    def space(self) -> Mapping[str, Override]:
        """The user's overrides, by the names that the user gave the fields."""
        ...

    @property
    def presets(self) -> Sequence[str]:
        """Names of configurations that the study begins with."""
        ...

    @property
    def compress(self) -> Compress | None:
        """The model that every trial starts from, with its facts; null: there is none."""
        ...

    @property
    def searches_bits(self) -> bool:
        """Whether numbers of fewer bits are tried unless the user names the bits."""
        ...

    @property
    def seed(self) -> int:
        """The seed of every trial."""
        ...
