"""Configurations that are drawn again: found by their documents, and given the earlier result."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from sqlalchemy.orm import Session

from search.documents.export_kinds import SAMPLES
from search.exports import MADE_ROLES
from search.running import StudyContext, end_trial, still_stands
from search.studies import configuration_of, is_trained_afresh
from search.training.trial_spec import AnyTrialSpec
from storage.endings import TrialCause
from storage.records import TrialOrigin, TrialOutcome, TrialRecord, TrialState
from storage.repositories.artifact_rows import ArtifactRows
from storage.repositories.measurements import Measurements
from storage.repositories.trials import Trials

KEPT_ROLES = ("checkpoint", "report", "conversion", SAMPLES, *MADE_ROLES)
"""What a trial takes over of the one whose result it reuses."""

_OPEN = (TrialState.QUEUED, TrialState.RUNNING, TrialState.PAUSED)


class Duplicates:
    """The repeated configurations of one study."""

    def __init__(self, study: StudyContext) -> None:
        self._study = study
        self._first: dict[str, int] = {}
        self._known = 0

    def first_like(self, spec: AnyTrialSpec, *, number: int) -> int | None:
        """The first of the trials before `number` that has this configuration."""
        if self._known != number:
            with self._study.database.read() as session:
                rows = Trials(session).list(self._study.id)
            self._first = {}
            for row in rows:
                if row.number < number and is_trained_afresh(row):
                    self._first.setdefault(configuration_of(row.spec), row.number)
            self._known = number
        return self._first.get(_configuration(spec))

    def note(self, spec: AnyTrialSpec, *, number: int) -> None:
        """Remember the configuration of a trial that was added; its number is the next one."""
        if number == self._known:
            self._first.setdefault(_configuration(spec), number)
            self._known += 1

    def reuse(self) -> TrialRecord | None:
        """End the first waiting repeat of which an earlier trial is complete, with its result.

        The sampler knows of that one, see Note [Asks and tells].

        Returns:
            The repeat as it ended.
        """
        repeats = [t for t in self._study.trials.open(TrialState.QUEUED) if self._waits(t)]
        with self._study.database.read() as session:
            complete = _first_ones(Trials(session), repeats, TrialState.COMPLETE)
        known = [trial for trial in complete if trial.told_at is not None]
        for repeat in repeats:
            source = next(iter(_alike(repeat, known)), None)
            if source is not None:
                with self._study.database.write() as session:
                    if not still_stands(session, repeat):
                        continue
                    _take_over(session, repeat, source.number)
                    return Trials(session).get(self._study.id, repeat.number)
        return None

    def held(self, trials: Iterable[TrialRecord]) -> set[int]:
        """Numbers of those of some trials that repeat others and are not to be trained now.

        An earlier trial of theirs is complete, or may yet be.
        """
        repeats = [t for t in trials if t.state is TrialState.QUEUED and self._waits(t)]
        if not repeats:
            return set()
        with self._study.database.read() as session:
            hopeful = _first_ones(Trials(session), repeats, *_OPEN, TrialState.COMPLETE)
        return {repeat.number for repeat in repeats if _alike(repeat, hopeful)}

    def waited_for(self) -> set[int]:
        """Numbers of paused trials that a user's trial repeats, and waits for."""
        waiting = self._study.trials.open(TrialState.QUEUED)
        repeats = [t for t in waiting if t.origin == TrialOrigin.USER and self._waits(t)]
        if not repeats:
            return set()
        with self._study.database.read() as session:
            paused = _first_ones(Trials(session), repeats, TrialState.PAUSED)
        return {trial.number for repeat in repeats for trial in _alike(repeat, paused)}

    def _waits(self, trial: TrialRecord) -> bool:
        if self._study.spec.duplicates == "replicate":
            return False
        return trial.repeats is not None and is_trained_afresh(trial)


def _configuration(spec: AnyTrialSpec) -> str:
    return configuration_of(spec.model_dump(mode="json"))


def _first_ones(
    trials: Trials, repeats: Sequence[TrialRecord], *states: TrialState
) -> list[TrialRecord]:
    """Those in one of the states that are what some trials repeat, or repeat the same."""
    if not repeats:
        return []
    roots = {trial.repeats for trial in repeats if trial.repeats is not None}
    return trials.alike(repeats[0].study_id, roots, *states)


def _alike(repeat: TrialRecord, trials: Sequence[TrialRecord]) -> list[TrialRecord]:
    """Those of the trials that came before the repeat with the same configuration."""
    return [
        trial
        for trial in trials
        if trial.number < repeat.number
        and repeat.repeats in (trial.number, trial.repeats)
        and is_trained_afresh(trial)
    ]


def _take_over(session: Session, repeat: TrialRecord, number: int) -> None:
    """End a waiting trial with the result of trial `number`, files included; it trains nothing."""
    trials, artifacts = Trials(session), ArtifactRows(session)
    # The study is locked from here on, so the earlier trial goes on naming its bytes meanwhile.
    source = trials.get(repeat.study_id, number)
    trials.start(repeat.study_id, repeat.number, datetime.now(UTC))
    stored = artifacts.of_trial(repeat.study_id, number)
    for role in KEPT_ROLES:
        if role in stored:
            artifacts.link(repeat.study_id, repeat.number, role, stored[role])
    trials.set_exports(repeat.study_id, repeat.number, source.exports)
    if repeat.measurement_id is None and source.measurement_id is not None:
        measurement = Measurements(session).get(source.measurement_id)
        trials.set_throughput(repeat.study_id, repeat.number, measurement)
    elif repeat.measurement_id is None:
        trials.set_predicted(repeat.study_id, repeat.number, source.predicted)
    end_trial(
        session,
        repeat.study_id,
        repeat.number,
        state=TrialState.COMPLETE,
        outcome=TrialOutcome.of(source, cause=TrialCause.DUPLICATE, detail=str(number)),
    )
