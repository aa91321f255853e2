"""How much a site carries, from what its calls cost.

An attempt at work says something in three ways: an epoch's report with the state to resume from, a
heartbeat when nothing else was said for a third of the lease, and at its end its files and its last
word, for which another attempt is asked and started. Each costs its receiver processor time, and a
process of Python has one core.
"""

from dataclasses import dataclass

from tests.benchmarks.capacity.costs import Costs


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What each attempt does, on average."""

    epoch_seconds: float
    epochs: int
    lease_seconds: float = 30.0
    listeners: int = 0
    """Who listens to each study's events."""
    resume_seconds: float = 2.0
    """At most so long between two states to resume from; there is one per epoch at most."""

    @property
    def trial_seconds(self) -> float:
        """From its first epoch to its end."""
        return self.epochs * self.epoch_seconds

    @property
    def heartbeats_per_epoch(self) -> float:
        """Heartbeats between two reports."""
        return float(int(self.epoch_seconds / (self.lease_seconds / 3)))

    @property
    def states_per_epoch(self) -> float:
        """States to resume from; short epochs share one."""
        return min(1.0, self.epoch_seconds / self.resume_seconds)


@dataclass(frozen=True, kw_only=True)
class Load:
    """Cores that one attempt takes of each process, on average."""

    api: float
    database: float
    coordinator: float

    def most(self, *, cores: float = 0.7) -> "dict[str, float]":
        """How many attempts one process of each kind carries.

        At 70 % of a core, answers wait a few times their own length; beyond it, much longer.
        PostgreSQL has a process for each connection, and counts for one core here: the locks of a
        study, not its processors, are what it runs out of.
        """
        return {
            name: cores / share
            for name, share in (
                ("API process", self.api),
                ("PostgreSQL core", self.database),
                ("coordinator", self.coordinator),
            )
        }


def load_of(work: Workload, costs: Costs, *, turnover_seconds: float) -> Load:
    """What an attempt takes; `turnover_seconds`: an ask, a dispatch and a tell of a coordinator."""
    calls = costs.calls
    report, beat = calls["epoch report"], calls["heartbeat"]
    state, job = calls["state to resume from"], calls["job"]
    end = calls["completion with its files"]

    def share(kind: str) -> float:
        each = (
            getattr(report, kind)
            + work.states_per_epoch * getattr(state, kind)
            + work.heartbeats_per_epoch * getattr(beat, kind)
        )
        once = getattr(job, kind) + getattr(end, kind)
        return each / work.epoch_seconds + once / work.trial_seconds

    heard = work.listeners * costs.event * (1 / work.epoch_seconds + 2 / work.trial_seconds)
    return Load(
        api=share("api") + heard,
        database=share("database"),
        coordinator=turnover_seconds / work.trial_seconds,
    )
