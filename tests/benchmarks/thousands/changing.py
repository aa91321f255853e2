"""What happens to a study between two looks at it."""

from dataclasses import replace
from datetime import UTC, datetime

from search.running.trial_endings import announce_trial
from storage.engine import Database
from storage.records import TrialState
from storage.repositories.trials import Trials


def change(database: Database, study_id: str) -> None:
    """Have one more complete trial in a study."""
    with database.write() as session:
        trials = Trials(session)
        number = trials.counts(study_id).total
        last = trials.ranked(
            study_id, by="number", descending=True, limit=1, state=TrialState.COMPLETE
        )[0]
        now = datetime.now(UTC)
        quality = min(1.0, (last.quality or 0.0) + 1 / 400)
        further = replace(last, number=number, quality=quality, finished_at=now, told_at=now)
        trials.add(further)
        announce_trial(session, further, at=now)
