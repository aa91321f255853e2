"""Who searches a public table: the project's samplers, and other projects' where installed."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from search.documents.region import ENDS, Region
from search.samplers import AnySampler, FreezeThaw, KnownCost, Nsga2, Random, Tpe
from search.spaces import ChoiceDimension
from tests.benchmarks.public_tables.search import Evaluation, Searcher
from tests.benchmarks.public_tables.studies import StudySearch
from tests.benchmarks.public_tables.tables import PublicTable
from tests.benchmarks.search_efficiency import botorch_peer, neps_peer, smac_peer
from tests.benchmarks.search_efficiency.peers import Observed, Peer, PeerSpace, to_unit

MakeSearcher = Callable[[PublicTable, int], Searcher]
"""A search of a table, from a seed."""


class PeerSearch:
    """A peer as it is asked here; there are no curves, so that every evaluation is finished."""

    def __init__(self, table: PublicTable, peer: Peer) -> None:
        self._table, self._peer = table, peer

    def propose(self, evaluations: Sequence[Evaluation]) -> int:
        """Ask the peer."""
        return self._peer.propose(
            [
                Observed(
                    row=each.row,
                    error=math.log(float(self._table.error_of(np.array([each.quality]))[0])),
                    is_running=False,
                    is_finished=True,
                    epochs=1,
                )
                for each in evaluations
            ]
        )

    def refuse(self) -> None:
        """Tell the peer."""
        self._peer.refuse()


def peer_space(table: PublicTable) -> PeerSpace:
    """A public table as peers are given it: options one-hot, numbers by their place."""
    columns: list[list[float]] = []
    for name, dimension in table.dimensions.items():
        own = [values[name] for values in table.values]
        if isinstance(dimension, ChoiceDimension):
            columns += [[float(value == option) for value in own] for option in dimension.options]
        else:
            columns.append([float(value) for value in own])
    baseline = table.error_of(np.array([table.metric.baseline]))
    return PeerSpace(
        dimensions=table.dimensions,
        conditions={},
        values=table.values,
        features=to_unit(np.array(columns).T),
        costs=table.costs,
        is_exact=table.is_exact,
        reference_error=math.log(float(baseline[0])),
    )


def by_spec(sampler: AnySampler) -> MakeSearcher:
    """A sampler as a study's document names it."""
    return lambda table, seed: StudySearch(table, sampler, seed=seed)


def in_better_half(sampler: AnySampler) -> MakeSearcher:
    """The sampler in a study that says that qualities from the table's median on interest."""

    def make(table: PublicTable, seed: int) -> StudySearch:
        median = float(np.median(table.errors))
        quality = median if table.metric.direction == "minimize" else 1 - median
        region = Region({"quality": (ENDS[table.metric.direction], quality)})
        return StudySearch(table, sampler, seed=seed, region=region)

    return make


def by_peer(make: Callable[[PeerSpace, int], Peer]) -> MakeSearcher:
    """Another project's search."""
    return lambda table, seed: PeerSearch(table, make(peer_space(table), seed))


OURS: dict[str, MakeSearcher] = {
    "known_cost": by_spec(KnownCost()),
    "freeze_thaw": by_spec(FreezeThaw()),
    "freeze_thaw (better half)": in_better_half(FreezeThaw()),
}
"""What is compared with every other."""

CONTESTANTS: dict[str, MakeSearcher] = {
    "random": by_spec(Random()),
    "nsga2": by_spec(Nsga2()),
    "tpe": by_spec(Tpe()),
    **OURS,
}
if botorch_peer.is_installed():
    CONTESTANTS["botorch"] = by_peer(botorch_peer.Botorch)
if smac_peer.is_installed():
    CONTESTANTS["smac"] = by_peer(smac_peer.Smac)
if neps_peer.is_installed():
    CONTESTANTS["primo"] = by_peer(neps_peer.Primo)
