"""Every way through a space: the options on which other dimensions follow, and what follows."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from search.samplers.sampler import Space
from search.spaces import ChoiceDimension, Dimension, DrawnTrial, Scalar


@dataclass(frozen=True)
class Way:
    """One way through a space."""

    options: Mapping[str, Scalar]
    """The answers that may decide what else is asked, by dimension."""
    dimensions: Mapping[str, Dimension]
    """All that is asked on this way, in order."""
    first: DrawnTrial
    """The configuration of these options, and of the first value of everything else."""


def ways(space: Space) -> Iterator[Way]:
    """Every way through a space, by its options in their order."""
    path: list[int] = []
    while True:
        source = _Path(path)
        drawn = space.draw(source)
        yield Way(source.options, source.dimensions, drawn)
        turns = source.turns
        while turns and turns[-1][0] + 1 == turns[-1][1]:
            turns.pop()
        if not turns:
            return
        path = [*(index for index, _ in turns[:-1]), turns[-1][0] + 1]


class _Path:
    """Answers options by a path of indices, everything else with its first value.

    After its end, a path goes on with first options.
    """

    def __init__(self, path: Sequence[int]) -> None:
        self._path = path
        self.options: dict[str, Scalar] = {}
        self.dimensions: dict[str, Dimension] = {}
        self.turns: list[tuple[int, int]] = []
        """Index and number of options of each turn that was taken."""

    def answer(self, dimension: Dimension) -> Scalar:
        self.dimensions[dimension.name] = dimension
        if not isinstance(dimension, ChoiceDimension):
            return dimension.low
        if not _decides(dimension):
            return dimension.options[0]
        depth = len(self.turns)
        index = self._path[depth] if depth < len(self._path) else 0
        self.turns.append((index, len(dimension.options)))
        self.options[dimension.name] = dimension.options[index]
        return dimension.options[index]


def _decides(dimension: ChoiceDimension) -> bool:
    """Whether other dimensions may follow from its value; from a number's, none does."""
    return not all(
        isinstance(option, int | float) and not isinstance(option, bool)
        for option in dimension.options
    )
