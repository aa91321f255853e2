"""Waiting a moment for the coordinator to run a command."""

import time

from storage.engine import Database
from storage.records import CommandRecord
from storage.repositories.commands import Commands

PATIENCE_SECONDS = 3.0
"""How long an answer waits for the coordinator, which looks for such work every second."""

_PAUSE_SECONDS = 0.05


def wait_for(database: Database, command_id: str, *, seconds: float) -> CommandRecord | None:
    """The command once a trial came of it, or as it stands when the time is over.

    Null as soon as it is gone.
    """
    deadline = time.monotonic() + seconds
    while True:
        with database.read() as session:
            command = Commands(session).find(command_id)
        if command is None or command.trial is not None or time.monotonic() >= deadline:
            return command
        time.sleep(_PAUSE_SECONDS)
