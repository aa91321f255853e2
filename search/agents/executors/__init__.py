"""Slot providers: where an attempt runs, and how it is started, ended and noticed.

An executor knows nothing of studies. It is given a ticket and a slot, has the slot's machine told,
and says how the attempt ended. Everything else travels between the machine's agent and the API.
`search.agents.executors.slots` tells what this machine has to offer.
"""

from search.agents.executor import AttemptTicket, Executor, Exit, Slot

__all__ = [
    "AttemptTicket",
    "Executor",
    "Exit",
    "Slot",
]
