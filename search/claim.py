"""What a coordinator may write: rows of the studies that it has claimed.

Note [Late coordinators]: a coordinator that stood still for longer than its claims hold (a machine
asleep, a process stopped) wakes up in the middle of its work on studies that another has by now.
Every writing transaction on a study therefore proves the claim first, under the study's lock: a
late one changes nothing. Optuna has no such fence. What a late coordinator asked of it has no row,
which the other notices (`MirrorDiverged`); what it tells are the rows' own outcomes.
"""

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from typing import final

from sqlalchemy.orm import Session

from storage.engine import Database
from storage.studies import Studies


@final
class ClaimedDatabase:
    """The database as one coordinator uses it for one study, see Note [Late coordinators]."""

    def __init__(self, database: Database, study_id: str, *, owner: str) -> None:
        self._database = database
        self._study_id = study_id
        self._owner = owner

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
        with self._database.write() as session:
            Studies(session).prove_claim(self._study_id, self._owner)
            yield session
