"""Asynchronous successive halving over several objectives."""

from collections.abc import Sequence
from typing import Literal

import moocore  # pyright: ignore[reportMissingTypeStubs]
import numpy as np
from pydantic import Field

from models.spec import Spec
from search.stopping.curves import Decision, Standings, Vector, go_on, rungs, standing_before

_FIRST = 0x6670
"""Keeps the draw of a front's first point apart from others of the same seed."""


class MoAsha(Spec):
    """MO-ASHA (Schmucker et al. 2021, arXiv 2106.12639), its stopping variant.

    After every rung's epoch a trial goes on if it is in the first 1/eta of all that have come as
    far. They are ordered by non-dominated sorting; within a front by an epsilon-net, each time the
    point that is farthest from those before it, on axes scaled to the rung's spread.
    """

    kind: Literal["mo_asha"] = "mo_asha"
    min_epochs: int = Field(default=1, ge=1, le=100_000, description="the epochs of the first rung")
    eta: int = Field(
        default=3,
        ge=2,
        le=1_000,
        description="one of `eta` goes on from a rung to one `eta` times as high",
    )

    def rungs(self, epochs: int) -> tuple[int, ...]:
        """The epochs of a trial's `epochs` after which it is judged."""
        return rungs(self.min_epochs, self.eta, epochs=epochs)

    def decide(self, standings: Standings, number: int, epoch: int) -> Decision:
        """Whether a trial that has trained `epoch` epochs is stopped; deterministic."""
        if epoch not in self.rungs(standings.epochs):
            return go_on("it is not judged after this epoch")
        rivals = standings.at_rung(epoch)
        random = np.random.default_rng(
            np.random.SeedSequence([standings.seed, epoch, len(rivals), _FIRST])
        )
        points = np.array([curve.at(epoch) for curve in rivals])
        numbers = [rivals[index].number for index in order(points, random)]
        place = numbers.index(number) + 1
        last = -(-len(rivals) // self.eta)
        better = standings.better(standings.curves[number], epoch)
        why = f"is number {place} of {len(rivals)}, of which the first {last} go on"
        return Decision(stop=place > last, why=why + standing_before(better), better=better)


def order(points: Vector, random: np.random.Generator) -> list[int]:
    """Indices of points `[N, objectives]`, all minimised, from the best to the worst."""
    low, high = points.min(axis=0), points.max(axis=0)
    scaled = (points - low) / np.where(high > low, high - low, 1.0)
    ranks = moocore.pareto_rank(points)
    ordered: list[int] = []
    for rank in np.unique(ranks):
        ordered += epsilon_net(scaled, np.flatnonzero(ranks == rank).tolist(), random)
    return ordered


def epsilon_net(points: Vector, front: Sequence[int], random: np.random.Generator) -> list[int]:
    """The front's indices, each time the one that is farthest from those before it.

    The first is drawn; of equally far ones the lowest index comes first.
    """
    net = [front[int(random.integers(len(front)))]]
    rest = sorted(set(front) - set(net))
    distances = np.linalg.norm(points[rest] - points[net[0]], axis=1)
    while rest:
        farthest = int(distances.argmax())
        net.append(rest.pop(farthest))
        distances = np.delete(distances, farthest)
        distances = np.minimum(distances, np.linalg.norm(points[rest] - points[net[-1]], axis=1))
    return net
