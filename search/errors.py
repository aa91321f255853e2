"""Errors of the search package.

SearchError
├── Refused             a document is not taken; each fault names path, value and what is allowed
│   ├── SpecRefused     the study spec cannot be run: change the named part
│   └── ReportRefused   a worker said what cannot be: its attempt ends as failed
├── UnknownName         the papers have no table, row or system of this name: take another
├── DataError           a data file is missing or damaged: put the named file right
├── BadResults          a line of a file of trainings is none: put it right, or take it out
├── TaskUnresolved      a task was asked about data that nobody looked at: a bug of ours
├── OriginalUnresolved  the same of a model that a study compresses: a bug of ours
├── TrainingDiverged    a loss or a gradient is NaN or Inf: the trial is infeasible
├── WorkerRefused       the server does not take this worker's word any more: stop
├── MachineRefused      the server does not take this machine: join again, or as the message says
└── ExecutorError       an attempt could not be started: try again, then give up
"""

from collections.abc import Sequence
from dataclasses import dataclass


class SearchError(Exception):
    """Root of every error that `search` raises on purpose."""


@dataclass(frozen=True)
class Fault:
    """One thing wrong with a document: where, what was wrong, the value and what is allowed."""

    path: str
    """Dotted, as in the document: `space.householder_svd.m1.low`."""
    message: str


class Refused(SearchError, ValueError):
    """A document that is not taken.

    Every fault names its path, its value and what is allowed.
    """

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(f"{fault.path}: {fault.message}" for fault in self.faults))


class SpecRefused(Refused):
    """A study spec that cannot be run."""


class ReportRefused(Refused):
    """What a worker said of its attempt cannot be."""


class UnknownName(SearchError):
    """The papers have no table, row or system of a name; the message tells those that are near."""


class DataError(SearchError):
    """A data file is missing, damaged or could not be fetched; the message names the file."""


class TaskUnresolved(SearchError):
    """A task was asked for what follows from its data before `resolved` looked at them."""


class OriginalUnresolved(SearchError):
    """A study was asked about the model that it compresses before that was looked up."""


class TrainingDiverged(SearchError):
    """A loss, a gradient or a prediction is NaN or Inf; the configuration is at fault."""


class WorkerRefused(SearchError):
    """The server refused this worker's lease token; another attempt has the trial, or it ended."""


class MachineRefused(SearchError):
    """A worker machine is not one of the site's, or not as it says; the message says what to do."""


class ExecutorError(SearchError):
    """An attempt's process could not be started."""
