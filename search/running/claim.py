"""What a coordinator may write: rows of the studies that it has claimed.

See Note [Late coordinators] in `search/README.md`.
"""

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import final

from sqlalchemy.orm import Session

from storage.engine import Database
from storage.repositories.studies import Studies


@final
class ClaimedDatabase:
    """The database as one coordinator uses it for one study, see Note [Late coordinators]."""

    def __init__(
        self, database: Database, study_id: str, *, owner: str, wrote: Callable[[], None]
    ) -> None:
        """`wrote` is called after each writing session, whatever came of it."""
        self._database = database
        self._study_id = study_id
        self._owner = owner
        self._wrote = wrote

    def read(self) -> AbstractContextManager[Session]:
        """See `Database.read`; everybody may."""
        return self._database.read()

    @contextmanager
    def write(self) -> Generator[Session]:
        """A session that writes, as `Database.write`, while the study is ours.

        Raises:
            ClaimLost: another coordinator has the study.
            DatabaseUnavailable: if the database does not answer, or other writers keep it busy.
        """
        try:
            with self._database.write() as session:
                Studies(session).prove_claim(self._study_id, self._owner)
                yield session
        finally:
            self._wrote()
