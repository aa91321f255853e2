"""Waiting a moment for the coordinator to run an errand."""

import time

from storage.engine import Database
from storage.errands import Errands

_PAUSE_SECONDS = 0.05


def wait_for(database: Database, errand_id: str, *, seconds: float) -> bool:
    """Whether the errand was run before the time was over."""
    deadline = time.monotonic() + seconds
    while True:
        with database.read() as session:
            if not Errands(session).is_open(errand_id):
                return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(_PAUSE_SECONDS)
