"""Waiting a moment for the coordinator to run an errand."""

import time

from storage.engine import Database
from storage.errands import Errands
from storage.records import ErrandRecord

PATIENCE_SECONDS = 3.0
"""How long an answer waits for the coordinator, which looks for such work every second."""

_PAUSE_SECONDS = 0.05


def wait_for(database: Database, errand_id: str, *, seconds: float) -> ErrandRecord | None:
    """The errand once a trial came of it, or as it stands when the time is over.

    Null as soon as it is gone.
    """
    deadline = time.monotonic() + seconds
    while True:
        with database.read() as session:
            errand = Errands(session).find(errand_id)
        if errand is None or errand.trial is not None or time.monotonic() >= deadline:
            return errand
        time.sleep(_PAUSE_SECONDS)
