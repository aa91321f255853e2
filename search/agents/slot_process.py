"""A slot's process: it does one job after another, with all that they share kept warm.

What one job leaves behind must not reach the next: whatever a job could have changed is put back
before the next one begins, and a process that has seen trouble takes none.
"""

import gc
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
from pydantic import TypeAdapter

from models.backends.vendor import allow_tf32
from models.math.precision import denormals_as_zero
from search.agents.executor import AttemptTicket
from search.agents.slots.slot_line import Frame, SlotLine
from search.agents.warm_data import WarmData
from search.agents.worker import DONE, FAILED, TERMINATED, Terminated, configure_logging, do
from search.errors import WorkerRefused
from search.linux import resident_bytes
from search.measuring.measurement_lock import MeasurementLock
from search.training.jobs import Completion, Job

_log = logging.getLogger(__name__)

MOST_JOBS: Final = 64
"""How many jobs one process does."""
MOST_GROWTH_BYTES: Final = 256 << 20
"""How much larger it may have become since its first job."""
_SHARE_OF_DATA: Final = 4
"""A task's data are kept if they take no more than this part of the slot's memory."""
_DEFAULT_MEMORY: Final = 2 << 30

_JOB: TypeAdapter[Job] = TypeAdapter(Job)
_TICKET: TypeAdapter[AttemptTicket] = TypeAdapter(AttemptTicket)


Logging = Callable[[AttemptTicket, str], AbstractContextManager[None]]
"""Has what an attempt says meanwhile go to a file, by its path."""


@contextmanager
def _in_its_log(ticket: AttemptTicket, log: str) -> Generator[None]:
    """Have all that this process writes go to the attempt's log, also what comes after it."""
    _write_to(log)
    configure_logging(ticket)
    yield
    sys.stdout.flush()
    sys.stderr.flush()


def serve_slot(first: AttemptTicket, pipe: Connection, *, logged: Logging = _in_its_log) -> int:
    """Do the jobs that come through the pipe, one by one; returns this process's exit code.

    `first` is what the process was forked for: its slot, its threads and its memory.
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
        self._done = 0
        self._first_bytes = 0
        self._restore = _random_numbers()

    def do(self, frame: Frame) -> int | None:
        """Do one job; returns the code with which this process is to end, null while it lives."""
        ticket = _TICKET.validate_python(frame["ticket"])
        self._restore()
        # Fields that are bound while it runs are the job's own.
        return Context().run(self._do, ticket, _JOB.validate_python(frame["job"]), frame["log"])

    def _do(self, ticket: AttemptTicket, job: Job, log: str) -> int | None:
        # Trained, measured and compared in full single precision, see Note [TF32].
        allow_tf32(allowed=False)
        line = self._line
        with (
            self._logged(ticket, log),
            warnings.catch_warnings(),
            # So that a model and its dense baseline pay the same for what vanishes.
            denormals_as_zero(),
            MeasurementLock(ticket.lock_folder) as lock,
        ):
            line.begin(ticket.attempt_id, stood_still_seconds=lambda: lock.stood_still_seconds)
            try:
                completion = do(job, ticket, line=line, hold=line, lock=lock, data=self._data)
            except Terminated:
                _log.info("stopped by SIGTERM; another attempt can go on from here")
                return TERMINATED
            except WorkerRefused as refusal:
                _log.warning("stopped without a word: %s", refusal)
                return DONE
        self._done += 1
        lives = self._takes_another(completion)
        line.end(completion, lives=lives)
        if lives:
            return None
        return FAILED if completion.outcome == "failed" else DONE

    def _takes_another(self, completion: Completion) -> bool:
        if completion.outcome == "failed" or self._done >= MOST_JOBS:
            return False
        if (completion.reason or "").startswith("out of memory"):
            return False
        now = resident_bytes()
        self._first_bytes = self._first_bytes or now
        if now - self._first_bytes > MOST_GROWTH_BYTES:
            gc.collect()
            return resident_bytes() - self._first_bytes <= MOST_GROWTH_BYTES
        return True


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
