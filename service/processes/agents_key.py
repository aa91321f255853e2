"""The key of agents that the service itself starts."""

import logging
from contextlib import suppress
from datetime import UTC, datetime
from typing import final

from service.auth.api_keys import NewKey, create_key, revoke_key
from storage.accounts.keys import Keys
from storage.engine import Database
from storage.errors import NotFound
from storage.records import LOCAL

_log = logging.getLogger(__name__)


@final
class AgentsKey:
    """The key with the scope `work` that agents of ours show, where the server asks for keys.

    It is made when it is first needed, and ends with the process that started them.
    """

    def __init__(self, database: Database, *, name: str) -> None:
        self._database = database
        self._name = name
        self._made: NewKey | None = None

    def text(self) -> str | None:
        """The key itself; null while no key was ever made, for then the server asks for none."""
        with self._database.read() as session:
            keys = Keys(session)
            if self._made is not None and keys.valid_ones(
                [self._made.record.id], at=datetime.now(UTC)
            ):
                return self._made.text
            if not keys.any():
                return None
        self._made = create_key(self._database.of(LOCAL), name=self._name, scopes=("work",))
        _log.info("a key was made for agents", extra={"key": self._made.record.id})
        return self._made.text

    def revoke(self) -> None:
        """Let it open nothing any more."""
        if self._made is not None:
            with suppress(NotFound):
                revoke_key(self._database.of(LOCAL), self._made.record.id)
