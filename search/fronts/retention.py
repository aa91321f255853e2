"""What is kept of trials that ended, and when bytes leave the store."""

import logging
from collections.abc import Mapping, Sequence
from typing import final

from sqlalchemy.exc import SQLAlchemyError

from search.background import Background
from search.documents.export_kinds import CHECKPOINT, SAMPLES
from search.exports import MADE_ROLES
from search.fronts.dominance import front_of
from search.fronts.pareto import objective_infos
from search.fronts.unmeasured import may_be_on_front, may_come_forward
from search.studies import StudySpec, needed_checkpoints
from storage.batches import batched
from storage.blobs.artifacts import ArtifactStore
from storage.engine import Database
from storage.errors import NotFound, StorageError
from storage.garbage_collect import garbage_collect
from storage.records import StudyState, TrialState
from storage.repositories.artifact_rows import ArtifactRows
from storage.repositories.studies import Studies
from storage.repositories.trial_summaries import AnyTrial
from storage.repositories.trials import Trials

_log = logging.getLogger(__name__)

RESUME = "resume"
"""The role of what a further attempt of the same trial goes on from."""

_PAUSE_SECONDS = 5.0
_SWEEPS_SECONDS = 600.0
_LONGEST_UPLOAD_SECONDS = 3600.0
"""Bytes without a row that are younger may be about to get theirs; see Note [Named bytes stay]."""

_WITH_A_CHECKPOINT = (CHECKPOINT, SAMPLES, *MADE_ROLES)
"""Roles that are kept or go together."""

_BATCH = 200
"""How many artifacts one transaction removes: others wait for it meanwhile."""


@final
class Retention(Background):
    """A thread of the coordinator that takes away what nobody needs any more.

    The state to resume from goes when its trial has ended. Checkpoints, with the files
    made of them and what those are judged by, stay by the study's `retention`; reports always stay.
    Several may do this side by side.
    """

    def __init__(self, database: Database, store: ArtifactStore) -> None:
        super().__init__("retention")
        self._database = database
        self._store = store
        self._complete: dict[str, int] = {}
        """How many trials of a study were complete when it was last looked at."""
        self._versions: dict[str, int] = {}
        """Of all studies' data, when they were looked at."""

    def tidy(self) -> int:
        """Take away, once, what ended trials need no more; returns how many artifacts that were."""
        dropped = 0
        with self._database.read() as session:
            ended = ArtifactRows(session).of_ended_trials(RESUME)
        for batch in batched(ended, _BATCH):
            dropped += self._drop({where: [RESUME] for where in batch})
        with self._database.read() as session:
            versions = Studies(session).versions()
        for study_id, version in versions.items():
            if self._versions.get(study_id) != version:
                dropped += self._apply_policy(study_id)
        self._versions = versions
        return dropped

    def sweep(self, *, older_than_seconds: float = _LONGEST_UPLOAD_SECONDS) -> int:
        """Remove bytes that no row names, and pieces of such; returns how many of the former.

        Such bytes are left by a process that was killed between storing them and naming them.
        """
        self._store.sweep()
        swept = 0
        for digests in batched(self._store.digests(older_than_seconds=older_than_seconds), _BATCH):
            swept += garbage_collect(self._database, self._store, digests)
        if swept:
            _log.info("swept artifacts without a row", extra={"artifacts": swept})
        return swept

    def _work(self) -> None:
        passes = 0
        while not self._closing.is_set():
            try:
                self.tidy()
                if passes % int(_SWEEPS_SECONDS / _PAUSE_SECONDS) == 0:
                    self.sweep()
            except (StorageError, SQLAlchemyError, OSError) as error:
                # The next pass finds the same again.
                _log.warning("tidying failed", extra={"reason": str(error).partition("\n")[0]})
            passes += 1
            self._closing.wait(_PAUSE_SECONDS)

    def _apply_policy(self, study_id: str) -> int:
        with self._database.read() as session:
            try:
                study = Studies(session).get(study_id)
            except NotFound:
                return 0
            spec = StudySpec.model_validate(study.spec)
            if spec.retention.keep == "all":
                return 0
            count = Trials(session).counts(study_id).by_state.get(TrialState.COMPLETE, 0)
            if not study.state.has_ended and self._complete.get(study_id) == count:
                return 0
            complete = Trials(session).summaries(study_id, TrialState.COMPLETE)
            kept = kept_by(spec, complete) | needed_checkpoints(session, study_id)
            if spec.retention.keep == "front" and study.state != StudyState.FINISHED:
                infos = objective_infos(spec.task, spec.objectives)
                kept |= {trial.number for trial in may_be_on_front(complete, infos)}
                if spec.limits.are_on_speed:
                    kept |= {trial.number for trial in may_come_forward(complete, infos)}
            stored = ArtifactRows(session).of_roles(study_id, _WITH_A_CHECKPOINT)
        to_drop: dict[tuple[str, int], list[str]] = {}
        for trial in complete:
            roles = stored.get(trial.number)
            if roles and trial.number not in kept:
                to_drop[study_id, trial.number] = roles
        dropped = sum(
            self._drop({where: to_drop[where] for where in b}) for b in batched(to_drop, _BATCH)
        )
        self._complete[study_id] = count
        return dropped

    def _drop(self, parts: Mapping[tuple[str, int], Sequence[str]]) -> int:
        """Take away rows, then the bytes that no other row names."""
        digests: list[str] = []
        for study_id in sorted({study_id for study_id, _ in parts}):
            with self._database.write() as session:
                try:
                    Studies(session).get(study_id)
                except NotFound:
                    continue
                # Somebody may have asked to go on from one of them since it was looked at.
                needed = needed_checkpoints(session, study_id)
                digests += ArtifactRows(session).unlink(
                    study_id,
                    {
                        number: [role for role in roles if role == RESUME or number not in needed]
                        for (study, number), roles in parts.items()
                        if study == study_id
                    },
                )
        garbage_collect(self._database, self._store, digests)
        return len(digests)


def kept_by(spec: StudySpec, complete: Sequence[AnyTrial]) -> set[int]:
    """The complete trials whose checkpoints a study's `retention` keeps."""
    retention, infos = spec.retention, objective_infos(spec.task, spec.objectives)
    if retention.keep == "all":
        return {trial.number for trial in complete}
    quality = objective_infos(spec.task, ("quality",))[0]
    sign = 1.0 if quality.direction == "minimize" else -1.0
    best = sorted(
        (sign * trial.quality, trial.number) for trial in complete if trial.quality is not None
    )
    kept = {number for _, number in best[: retention.top]}
    if retention.keep == "front":
        kept |= {trial.number for trial in front_of(complete, infos)}
    return kept
