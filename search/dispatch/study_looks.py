"""How a coordinator's studies stand, read when something was committed."""

from collections.abc import Hashable, Mapping, Set
from typing import final

from search.running import Look
from storage.engine import Database
from storage.records import CommandKind, StudyRecord
from storage.repositories.commands import Commands
from storage.repositories.studies import Studies


@final
class StudyLooks:
    """A look at each study, all in one read; of those that stand as before nothing is read."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._changes = database.changes()
        self._looks: Mapping[str, Look] = {}
        self._marks: Mapping[str, Hashable] = {}
        """Of each study of which there is a look, when it was looked at."""
        self._committed: Hashable | None = None
        self._looked_at: Hashable | None = None
        """What was committed at the last look, with the studies that were ours then."""

    def committed(self) -> Hashable | None:
        """What is committed now, equal for as long as nothing is; null: unknown."""
        return self._changes.look()

    def has_news(self) -> bool:
        """Whether anything was committed since the last look."""
        return self.committed() != self._committed

    def wait(self, seconds: float) -> None:
        """Wait until anything is committed, for so long at most, or until `wake`."""
        self._changes.wait(seconds)

    def wake(self) -> None:
        """End a wait; called by any thread."""
        self._changes.wake()

    def close(self) -> None:
        """Look no more."""
        self._changes.close()

    @property
    def all(self) -> Mapping[str, Look]:
        """By study, of those that there was a row of."""
        return self._looks

    def look(self, ours: Set[str]) -> bool:
        """Look at these studies, which are ours; whether anything may have changed."""
        committed = self.committed()
        looked_at = None if committed is None else (committed, frozenset(ours))
        if looked_at is not None and looked_at == self._looked_at:
            return False
        before, self._looks, self._looked_at, self._committed = self._looks, {}, None, committed
        studies: dict[str, StudyRecord] = {}
        asked: Mapping[str, Set[CommandKind]] = {}
        marks: Mapping[str, Hashable] = {}
        if ours:
            with self._database.read() as session:
                marks = Studies(session).marks(ours)
                same = {one for one in before if marks.get(one) == self._marks[one]}
                studies = {one: before[one].study for one in same}
                if changed := marks.keys() - same:
                    studies |= {one.id: one for one in Studies(session).with_ids(changed)}
                asked = Commands(session).asked()
        self._looks = {
            study.id: Look(study, study.data_version, asked.get(study.id, frozenset()))
            for study in studies.values()
        }
        self._marks = {study_id: marks[study_id] for study_id in studies}
        self._looked_at = looked_at
        return True
