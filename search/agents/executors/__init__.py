"""Slot providers: where an attempt's process runs, and how it is started, ended and noticed.

An executor knows nothing of studies. It is given a ticket and a slot, runs
`search.agents.worker.run` in a process of its own there, and says how that process ended.
Everything else travels between the worker and the HTTP API. `search.agents.executors.slots` tells
what this machine has to offer.
"""

from search.agents.executor import AttemptTicket, Executor, Exit, Slot
from search.agents.executors.local import LocalExecutor

__all__ = [
    "AttemptTicket",
    "Executor",
    "Exit",
    "LocalExecutor",
    "Slot",
]
