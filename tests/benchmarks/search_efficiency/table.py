"""Learning curves of all configurations of a small space, and how they are read from their file."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.benchmarks.search_efficiency.spaces import SPACES, Space, Structure

MULTIPLY_ADDS_PER_SECOND = 1e9
"""What throughputs are reckoned with where they are not measured."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Curves of all configurations: a structure with a learning rate.

    Letters: S structures, R learning rates, K seeds, E epochs.
    """

    space: Space
    structures: tuple[Structure, ...]
    accuracy: NDArray[np.float64]
    """[S, R, K, E], validation accuracy of the best epoch so far."""
    parameters: NDArray[np.int64]
    """[S], trainable numbers."""
    samples_per_second: NDArray[np.float64]
    """[S], measured or reckoned, as the space says."""
    epoch_seconds: NDArray[np.float64]
    """[S], training on the machine as it was: of each seed's median epoch the shortest."""
    torch_version: str
    diverged_in: NDArray[np.uint16]
    """[S, R, K], the epoch in which training diverged, 0 where it did not; from there on the
    accuracy is the baseline's."""
    noise: float = 0.0
    """Standard deviation of what is added to each accuracy that a search is told."""

    @property
    def seeds(self) -> int:
        """How often each configuration was trained."""
        return self.accuracy.shape[2]

    @property
    def epochs(self) -> int:
        """Of a full training."""
        return self.accuracy.shape[3]

    @property
    def configurations(self) -> int:
        """Structures times learning rates."""
        return self.accuracy.shape[0] * self.accuracy.shape[1]

    @property
    def least_error(self) -> float:
        """What errors below are raised to: one validation sample's share."""
        return 1 / self.space.validation_samples

    def slowed(self, parametrization: str) -> "Table":
        """The same with one family's curves time-warped: slow to start, and the same in the end.

        After epoch e such a trial stands where it stood after e^2 / E, linearly between epochs and
        from the metric's baseline before the first.
        """
        epochs = np.arange(self.epochs + 1.0)
        warped = epochs[1:] ** 2 / self.epochs
        slow = [each.parametrization == parametrization for each in self.structures]
        accuracy = self.accuracy.copy()
        baseline = self.space.metric.baseline
        accuracy[slow] = np.apply_along_axis(
            lambda curve: np.interp(warped, epochs, [baseline, *curve]), 3, accuracy[slow]
        )
        return replace(self, accuracy=accuracy)

    def with_a_third_infeasible(self) -> "Table":
        """The same where about a third of the configurations diverge in their first epoch.

        Those are the largest models with the largest learning rate, and all of the last
        parametrization that has sizes: what a search can learn.
        """
        space = self.space
        family = [kind for kind in space.parametrizations if len(space.levels_of(kind)) > 1][-1]
        fails = np.zeros(self.accuracy.shape[:2], bool)
        fails[:, -1] = [each.hidden_size == max(space.sizes) for each in self.structures]
        fails[[each.parametrization == family for each in self.structures]] = True
        diverged_in = np.where(fails[..., None], np.uint16(1), self.diverged_in)
        return replace(
            self, accuracy=_fallen(self.accuracy, diverged_in, space), diverged_in=diverged_in
        )


def read(space: Space, path: Path | None = None) -> Table:
    """A stored table, from its own file unless another is named.

    Raises:
        ValueError: the file was made of another space.
    """
    path = path or space.file
    with np.load(path, allow_pickle=False) as stored:
        correct = stored["correct"]
        known = space.structures()
        expected = len(known), len(space.learning_rates), len(stored["seeds"]), space.epochs
        if correct.shape != expected:
            raise ValueError(
                f"{path.name} holds curves of {correct.shape} structures, learning rates, seeds "
                f"and epochs; {space.name} has {expected}"
            )
        # Tables from before trainings were known to diverge have none that did.
        diverged_in = stored.get("diverged_in", np.zeros(correct.shape[:3], np.uint16))
        best = np.maximum.accumulate(correct / space.validation_samples, axis=3)
        return Table(
            space=space,
            structures=known,
            accuracy=_fallen(best, diverged_in, space),
            parameters=stored["parameters"],
            samples_per_second=_throughput(space, stored),
            epoch_seconds=stored["epoch_seconds"].min(axis=0),
            torch_version=str(stored["torch_version"]),
            diverged_in=diverged_in,
        )


def stored_tables() -> tuple[str, ...]:
    """Names of the spaces whose tables are there."""
    return tuple(name for name, space in SPACES.items() if space.file.exists())


def _fallen(
    accuracy: NDArray[np.float64], diverged_in: NDArray[np.uint16], space: Space
) -> NDArray[np.float64]:
    """Accuracies `[S, R, K, E]` with the baseline's from where training diverged on."""
    epochs = np.arange(1, space.epochs + 1)
    first = np.where(diverged_in > 0, diverged_in, space.epochs + 1)
    return np.where(epochs >= first[..., None], space.metric.baseline, accuracy)


def _throughput(space: Space, stored: Mapping[str, NDArray[np.float64]]) -> NDArray[np.float64]:
    if space.is_measured:
        return stored["samples_per_second"]
    return MULTIPLY_ADDS_PER_SECOND / stored["multiply_adds"]
