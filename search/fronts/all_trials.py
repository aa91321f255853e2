"""All trials of studies as a process remembers them, of which it reads what has changed.

See Note [Remembered trials] in `search/README.md`.
"""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, final

from sqlalchemy.orm import Session

from storage.records import StudyRecord
from storage.repositories.trial_summaries import ShownTrial
from storage.repositories.trials import Trials

_STUDIES: Final = 8
"""Of so many studies, those that were asked for last, trials are remembered."""


@dataclass
class _Remembered:
    version: int = -1
    trials: dict[int, ShownTrial] = field(default_factory=dict[int, ShownTrial])
    in_order: tuple[ShownTrial, ...] = ()
    lock: threading.Lock = field(default_factory=threading.Lock)


@final
class AllTrials:
    """What tables of trials are sorted and filtered by. Threads may share this."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, _Remembered] = OrderedDict()

    def of(self, session: Session, study: StudyRecord) -> Sequence[ShownTrial]:
        """All of them by number, as of the session's version of the study."""
        with self._lock:
            known = self._known.setdefault(study.id, _Remembered())
            self._known.move_to_end(study.id)
            while len(self._known) > _STUDIES:
                self._known.popitem(last=False)
        with known.lock:
            if known.version > study.data_version:
                # A session that sees what was before reads all of it by itself.
                known = _Remembered()
            # A trial that starts changes without another version of the study's data.
            found = Trials(session).shown(study.id, after=known.version, first=len(known.trials))
            if found:
                known.trials |= {trial.number: trial for trial in found}
                known.in_order = tuple(known.trials[number] for number in sorted(known.trials))
            known.version = study.data_version
            return known.in_order
