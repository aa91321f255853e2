"""A slot's process: it does one job after another, with all that they share kept warm.

What one job leaves behind must not reach the next: whatever a job could have changed is put back
before the next one begins, and a process that has seen trouble takes none.
"""

import logging
import os
import random
import sys
import warnings
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from contextvars import Context
from multiprocessing.connection import Connection
from typing import Any, Final, final

import numpy as np
import torch

from models.backends.vendor import allow_tf32
from models.math.precision import denormals_as_zero
from search.agents.executor import AttemptTicket
from search.agents.network_work import OpenedNetworks
from search.agents.slots.attempt_logs import ByAttempt, formatter_of
from search.agents.slots.shares import Shares
from search.agents.slots.slot_frames import Frame
from search.agents.slots.slot_line import SlotLine
from search.agents.slots.stack import Stack, Told
from search.agents.slots.wear import Wear
from search.agents.warm_data import WarmData
from search.agents.worker import DONE, FAILED, do
from search.errors import WorkerRefused
from search.logs import bind_for_good
from search.measuring.measurement_lock import MeasurementLock
from search.training.jobs import LoneJob, TrainJob
from search.training.stacks import KnownWidths

_log = logging.getLogger(__name__)

_SHARE_OF_DATA: Final = 4
"""A task's data are kept if they take no more than this part of the slot's memory."""
_DEFAULT_MEMORY: Final = 2 << 30


Logging = Callable[[AttemptTicket, str], AbstractContextManager[None]]
"""Has what is said meanwhile go to a file, by its path, but what attempts log themselves."""


@contextmanager
def _in_its_log(ticket: AttemptTicket, log: str) -> Generator[None]:
    """Have all that this process writes go to the attempt's log, also what comes after it."""
    _write_to(log)
    _configure_logging(ticket)
    yield
    sys.stdout.flush()
    sys.stderr.flush()


def serve_slot(first: AttemptTicket, pipe: Connection, *, logged: Logging = _in_its_log) -> int:
    """Do the jobs that come through the pipe; returns this process's exit code.

    They are done one by one, but that trials may be trained together, see Note [Stacks] in
    `search/README.md`. `first` is what the process was forked for: its slot, its threads and its
    memory.
    """
    line = SlotLine(pipe)
    slot = _Slot(line, WarmData((first.memory or _DEFAULT_MEMORY) // _SHARE_OF_DATA), logged)
    while (frame := line.next_job()) is not None:
        code = slot.do(frame)
        if code is not None:
            return code
    return DONE


@final
class _Slot:
    def __init__(self, line: SlotLine, data: WarmData, logged: Logging) -> None:
        self._line = line
        self._data = data
        self._logged = logged
        self._wear = Wear()
        self._widths = KnownWidths()
        self._networks = OpenedNetworks()
        self._restore = _random_numbers()

    def do(self, frame: Frame) -> int | None:
        """Do one job; returns the code with which this process is to end, null while it lives."""
        told = Told.of(frame)
        self._restore()
        # Fields that are bound while it runs are the job's own.
        return Context().run(self._do, told)

    def _do(self, told: Told) -> int | None:
        # Trained, measured and compared in full single precision, see Note [TF32].
        allow_tf32(allowed=False)
        with (
            self._logged(told.ticket, told.log),
            warnings.catch_warnings(),
            # So that a model and its dense baseline pay the same for what vanishes.
            denormals_as_zero(),
            MeasurementLock(told.ticket.lock_folder) as lock,
        ):
            try:
                if isinstance(told.job, TrainJob):
                    stack = Stack(
                        self._line,
                        lock,
                        data=self._data,
                        widths=self._widths,
                        wear=self._wear,
                        as_begun=self._restore,
                    )
                    return stack.train(told, told.job)
                return self._do_alone(told.job, told.ticket, lock)
            except WorkerRefused as refusal:
                _log.warning("stopped without a word: %s", refusal)
                return DONE

    def _do_alone(self, job: LoneJob, ticket: AttemptTicket, lock: MeasurementLock) -> int | None:
        """Do a job beside which no other is done."""
        line = self._line.begin(
            ticket.attempt_id,
            held=Shares(),
            stood_still=Shares(lambda: lock.stood_still_seconds),
        )
        self._wear.begin()
        completion = do(job, ticket, line=line, hold=line, lock=lock, networks=self._networks)
        self._wear.end(completion, was_last=True)
        lives = self._wear.takes_more
        code = FAILED if completion.outcome == "failed" else DONE
        self._line.over(line)
        line.say_end(completion, code=code, frees=lives, lives=lives)
        return None if lives else code


def _configure_logging(ticket: AttemptTicket) -> None:
    """Have all that is logged in this process go where the ticket says, as it says.

    What an attempt logs itself goes to its own log, see `ByAttempt`.
    """
    if ticket.log_format == "json":
        bind_for_good(**ticket.log_fields)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter_of(ticket))
    logging.basicConfig(level=logging.INFO, handlers=[ByAttempt(handler)], force=True)
    # A line for each request says nothing that our own lines do not.
    logging.getLogger("httpx2").setLevel(logging.WARNING)


def _write_to(log: str) -> None:
    """Have what this process writes go to another file."""
    sys.stdout.flush()
    sys.stderr.flush()
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)


def _random_numbers() -> Callable[[], None]:
    """Remember where the generators of this process stand; what is returned puts them back."""
    in_torch, in_python = torch.get_rng_state(), random.getstate()
    in_numpy: Any = np.random.get_state()

    def restore() -> None:
        torch.set_rng_state(in_torch)
        random.setstate(in_python)
        np.random.set_state(in_numpy)

    return restore
