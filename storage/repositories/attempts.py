"""Attempts: leases on jobs, and the fence that keeps a late worker out."""

import hmac
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Executable,
    Update,
    bindparam,
    case,
    delete,
    func,
    literal,
    select,
    update,
)
from sqlalchemy.orm import Session

from storage.batches import batched
from storage.columns import FiniteFloat, Instant
from storage.endings import AttemptCause
from storage.errors import Conflict, LeaseLost, NotFound
from storage.locking import add, lock_studies_of, lock_study, lock_study_of_to_decide
from storage.mapping import all_columns, columns_of, reader
from storage.records import AttemptKind, AttemptRecord, AttemptState, StudyEnding
from storage.tables import ATTEMPT_IS_OPEN, AttemptRow, StudyRow
from storage.tenants import run

_LEASES = select(AttemptRow.id, AttemptRow.lease_until).where(ATTEMPT_IS_OPEN)
_record = reader(AttemptRecord)
_COLUMNS = all_columns(AttemptRow)
_BY_ID = select(*_COLUMNS).where(AttemptRow.id == bindparam("attempt"))
_BY_IDS = select(*_COLUMNS).where(AttemptRow.id.in_(bindparam("attempts", expanding=True)))
_ENDS: Any = (
    update(AttemptRow)
    .where(AttemptRow.id == bindparam("attempt"))
    .values(
        state=bindparam("new_state"),
        ended_at=bindparam("at"),
        cause=bindparam("why"),
        detail=bindparam("told"),
        device_seconds=bindparam("took"),
    )
)
_END: Executable = _ENDS.returning(*_COLUMNS)
_BEGIN: Executable = (
    update(AttemptRow)
    .where(AttemptRow.id == bindparam("attempt"), AttemptRow.state == AttemptState.ASSIGNED)
    .values(state=AttemptState.RUNNING, started_at=bindparam("at"))
    .returning(AttemptRow.id)
)
_RECALL: Executable = (
    delete(AttemptRow)
    .where(AttemptRow.id == bindparam("attempt"), AttemptRow.state == AttemptState.ASSIGNED)
    .returning(AttemptRow.id)
)
_NUMBERS = select(func.max(AttemptRow.number)).where(
    AttemptRow.study_id == bindparam("study"), AttemptRow.kind == bindparam("of_kind")
)
_LAST = _NUMBERS.where(AttemptRow.trial == bindparam("of_trial"))
_LAST_OF_STUDY = _NUMBERS.where(AttemptRow.trial.is_(None))
_TRAINING = (
    AttemptRow.study_id.in_(bindparam("studies", expanding=True)),
    AttemptRow.kind == AttemptKind.TRAIN,
)
_ENDED_SECONDS = (
    select(AttemptRow.study_id, func.sum(AttemptRow.device_seconds))
    .where(*_TRAINING, AttemptRow.state != AttemptState.RUNNING)
    .group_by(AttemptRow.study_id)
)
# Without their jobs, which are most of the rows: this is asked for every second.
_AT_WORK = select(
    AttemptRow.study_id,
    AttemptRow.device_seconds,
    AttemptRow.slot_share,
    AttemptRow.started_at,
    AttemptRow.stood_still_seconds,
).where(*_TRAINING, AttemptRow.state == AttemptState.RUNNING)


@dataclass(frozen=True, kw_only=True)
class KeptAlive(StudyEnding):
    """What is known of an attempt whose lease was renewed: when it began, and its study's end."""

    started_at: datetime


_kept = reader(KeptAlive)


@dataclass(frozen=True)
class Renewal:
    """What an attempt's worker said last of its lease, see `Attempts.renew`."""

    attempt_id: str
    stood_still_seconds: float
    held_seconds: float | None


@dataclass(frozen=True)
class DeviceTime:
    """How long the training of a study had devices."""

    seconds: float
    by_the_clock: bool
    """Whether an attempt is at work whose worker has not said yet how long it has worked."""


class Attempts:
    """The attempts of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def start(self, record: AttemptRecord, *, token_digest: str) -> None:
        """Add an attempt that runs, or is to; its worker proves itself by the token's digest.

        Raises:
            Conflict: if an attempt of this kind works on the trial, or the id or number was used.
            NotFound: if there is no such study or trial.
        """
        if not record.state.is_open:
            raise ValueError(
                f"an attempt starts as 'assigned' or 'running', not as {record.state.value!r}"
            )
        lock_study(self._session, record.study_id)
        is_new = add(
            self._session,
            AttemptRow,
            {**vars(record), "token_digest": token_digest},
            missing=f"there is no study {record.study_id!r}, or it has no trial {record.trial}",
        )
        if not is_new:
            raise Conflict(
                f"{record.kind.value} attempt {record.number} of trial {record.trial}, study "
                f"{record.study_id!r}, cannot start: another runs, or its id or number was used"
            )

    def authenticate(self, attempt_id: str, token_digest: str) -> AttemptRecord:
        """The running attempt that this token belongs to; in a writing session it stays running.

        Raises:
            LeaseLost: if there is none, whatever the reason: the worker can only stop.
        """
        lock_study_of_to_decide(self._session, attempt_id)
        row = run(self._session, _BY_ID, {"attempt": attempt_id}).one_or_none()
        expected = row.token_digest if row is not None else ""
        belongs = hmac.compare_digest(expected.encode(), token_digest.encode())
        if row is None or not belongs or row.state is not AttemptState.RUNNING:
            raise lost(attempt_id)
        return _record(row)

    def proved(self, tokens: Mapping[str, str]) -> dict[str, AttemptRecord]:
        """Those of some attempts that the token with this digest belongs to, open or ended.

        `tokens` has the digests by attempt. In a writing session that has locked their studies, see
        `lock_studies_of`, they stay as they are.
        """
        found: dict[str, AttemptRecord] = {}
        for some in batched(tokens):
            for row in run(self._session, _BY_IDS, {"attempts": some}):
                if hmac.compare_digest(row.token_digest.encode(), tokens[row.id].encode()):
                    found[row.id] = _record(row)
        return found

    def hand_over(
        self, attempt_id: str, *, token_digest: str, at: datetime, until: datetime
    ) -> Mapping[str, Any]:
        """Have the attempt prove itself by another token from here on; the one before is void.

        One that is assigned counts from `at` how long it waits to begin.

        It waits for no other writer of the study: who hands over has its machine's row, for which
        such writers may wait. Returns the job.

        Raises:
            LeaseLost: if the attempt has ended.
        """
        job = run(
            self._session,
            update(AttemptRow)
            .where(AttemptRow.id == attempt_id, ATTEMPT_IS_OPEN)
            .values(
                token_digest=token_digest,
                lease_until=until,
                started_at=case(
                    (AttemptRow.state == AttemptState.ASSIGNED, literal(at, Instant())),
                    else_=AttemptRow.started_at,
                ),
            )
            .returning(AttemptRow.job),
        ).scalar()
        if job is None:
            raise lost(attempt_id)
        return job

    def states(self, attempt_ids: Collection[str]) -> dict[str, AttemptState]:
        """Where those of these attempts stand that exist."""
        rows = run(
            self._session,
            select(AttemptRow.id, AttemptRow.state).where(AttemptRow.id.in_(attempt_ids)),
        )
        return {row.id: row.state for row in rows}

    def get(self, attempt_id: str) -> AttemptRecord:
        """One attempt; in a writing session nobody else changes it until the transaction ends.

        Raises:
            NotFound: if there is none.
        """
        lock_study_of_to_decide(self._session, attempt_id)
        row = run(self._session, _BY_ID, {"attempt": attempt_id}).one_or_none()
        if row is None:
            raise NotFound(f"there is no attempt {attempt_id!r}")
        return _record(row)

    def renew(
        self,
        attempt_id: str,
        *,
        until: datetime,
        stood_still_seconds: float | None = None,
        held_seconds: float | None = None,
    ) -> None:
        """Prolong the lease.

        Time stood still and time that the slot was held are the attempt's sums so far, by its
        worker's clock; neither they nor the device time that follows from them ever shrink.

        Raises:
            LeaseLost: if the attempt has ended.
        """
        lock_studies_of(self._session, [attempt_id])
        values = {"attempt": attempt_id, "until": until, "stood_still": stood_still_seconds or 0.0}
        if held_seconds is not None:
            values["held"] = held_seconds
        renew = _RENEW if held_seconds is None else _RENEW_HELD
        if run(self._session, renew.returning(AttemptRow.id), values).scalar() is None:
            raise lost(attempt_id)

    def renew_all(self, renewals: Sequence[Renewal], *, until: datetime) -> None:
        """Prolong leases, as `renew` does, in the order of the attempts' ids.

        Those that are over stay so. As `keep_alive` it waits for no other writer of a study.
        """
        ordered = sorted(renewals, key=attrgetter("attempt_id"))
        for held, some in groupby(ordered, key=lambda one: one.held_seconds is not None):
            rows = [
                {
                    "attempt": one.attempt_id,
                    "until": until,
                    "stood_still": one.stood_still_seconds,
                    **({"held": one.held_seconds} if held else {}),
                }
                for one in some
            ]
            run(self._session, _RENEW_HELD if held else _RENEW, rows)

    def keep_alive(
        self,
        attempt_id: str,
        token_digest: str,
        *,
        until: datetime,
        stood_still_seconds: float,
        held_seconds: float | None,
    ) -> KeptAlive:
        """Prolong the lease of the attempt that this token belongs to, as `renew` does.

        What most workers say most of the time, and so one statement that waits for no other writer
        of the study: of all that is decided about a study, nothing rests on how long a lease holds.

        Raises:
            LeaseLost: if there is none, whatever the reason: the worker can only stop.
        """
        of_study = [
            select(column)
            .where(StudyRow.id == AttemptRow.study_id)
            .correlate(AttemptRow)
            .scalar_subquery()
            .label(column.key)
            for column in columns_of(StudyEnding, StudyRow)
        ]
        values = {"attempt": attempt_id, "until": until, "stood_still": stood_still_seconds}
        renew = _RENEW
        if held_seconds is not None:
            values["held"], renew = held_seconds, _RENEW_HELD
        kept = run(
            self._session,
            renew.where(AttemptRow.token_digest == token_digest).returning(
                AttemptRow.started_at, *of_study
            ),
            values,
        ).one_or_none()
        if kept is None:
            raise lost(attempt_id)
        return _kept(kept)

    def end(
        self,
        attempt_id: str,
        *,
        state: AttemptState,
        at: datetime,
        cause: AttemptCause | None = None,
        detail: str | None = None,
    ) -> AttemptRecord:
        """End the attempt, once.

        What it held of its device is what its worker said last, or else what the wall clock says.

        Raises:
            LeaseLost: if it has ended.
        """
        if state.is_open:
            raise ValueError(f"an attempt ends as 'ended' or 'lost', not as {state.value!r}")
        lock_studies_of(self._session, [attempt_id])
        row = run(self._session, _BY_ID, {"attempt": attempt_id}).one_or_none()
        if row is None or row.state is not AttemptState.RUNNING:
            raise lost(attempt_id)
        values = {
            "attempt": attempt_id,
            "new_state": state,
            "at": at,
            "why": cause,
            "told": detail,
            "took": _device_seconds(
                row.device_seconds,
                row.slot_share,
                row.started_at,
                row.stood_still_seconds,
                until=at,
            ),
        }
        return _record(run(self._session, _END, values).one())

    def begin(self, attempt_id: str, *, at: datetime) -> bool:
        """An assigned attempt has its slot since then; False: it is assigned no more."""
        lock_studies_of(self._session, [attempt_id])
        began = {"attempt": attempt_id, "at": at}
        return run(self._session, _BEGIN, began).scalar() is not None

    def recall(self, attempt_id: str) -> bool:
        """Take an attempt away that has not begun, of which nothing stays; False: it has."""
        lock_studies_of(self._session, [attempt_id])
        return run(self._session, _RECALL, {"attempt": attempt_id}).scalar() is not None

    def open(self, study_id: str | None = None) -> list[AttemptRecord]:
        """Attempts that hold a lease, of one study or of all: they run, or are assigned.

        In the order of their ids: who ends several takes their rows as `renew_all` does, and
        neither waits for the other for ever.
        """
        conditions: list[ColumnElement[bool]] = [ATTEMPT_IS_OPEN]
        if study_id is not None:
            conditions.append(AttemptRow.study_id == study_id)
        return sorted(self._where(*conditions), key=attrgetter("id"))

    def running(self, study_id: str | None = None) -> list[AttemptRecord]:
        """Attempts that are at work, of one study or of all."""
        return [row for row in self.open(study_id) if row.state is AttemptState.RUNNING]

    def leases(self) -> dict[str, datetime]:
        """Until when each open attempt, of whatever study, holds its lease, by its id."""
        rows = run(self._session, _LEASES)
        return {row.id: row.lease_until for row in rows}

    def of_trial(
        self, study_id: str, number: int, kind: AttemptKind | None = None
    ) -> list[AttemptRecord]:
        """All attempts on one trial, of one kind or of every kind."""
        conditions = [AttemptRow.study_id == study_id, AttemptRow.trial == number]
        if kind is not None:
            conditions.append(AttemptRow.kind == kind)
        return self._where(*conditions)

    def of_trials(
        self, study_id: str, numbers: Collection[int], kind: AttemptKind
    ) -> dict[int, list[AttemptRecord]]:
        """All attempts of a kind on some trials, by the trial's number."""
        found: dict[int, list[AttemptRecord]] = {number: [] for number in numbers}
        for some in batched(sorted(found)):
            attempts = self._where(
                AttemptRow.study_id == study_id,
                AttemptRow.kind == kind,
                AttemptRow.trial.in_(some),
            )
            for attempt in attempts:
                if attempt.trial is not None:
                    found[attempt.trial].append(attempt)
        return found

    def of_study(self, study_id: str, kind: AttemptKind) -> list[AttemptRecord]:
        """All attempts of a kind in one study."""
        return self._where(AttemptRow.study_id == study_id, AttemptRow.kind == kind)

    def next_number(self, study_id: str, kind: AttemptKind, trial: int | None) -> int:
        """The number of the next attempt at this job; the first is 1."""
        of = {"study": study_id, "of_kind": kind, "of_trial": trial}
        last = run(self._session, _LAST_OF_STUDY if trial is None else _LAST, of).scalar()
        return 1 if last is None else last + 1

    def device_seconds(self, study_id: str, now: datetime) -> float:
        """The seconds of `device_times` of one study."""
        return self.device_times([study_id], now)[study_id].seconds

    def device_times(self, study_ids: Collection[str], now: datetime) -> Mapping[str, DeviceTime]:
        """Device time that training took in each of the named studies: slot share x time.

        What it stood still for measurements does not count. Of an attempt at work it is what its
        worker said last: a wall clock that is set must not use up a budget.
        """
        asked = {"studies": list(study_ids)}
        seconds = dict.fromkeys(study_ids, 0.0)
        for study_id, taken in run(self._session, _ENDED_SECONDS, asked):
            seconds[study_id] = taken or 0.0
        by_the_clock: set[str] = set()
        for study_id, told, share, started_at, stood_still in run(self._session, _AT_WORK, asked):
            seconds[study_id] += _device_seconds(told, share, started_at, stood_still, until=now)
            if told is None:
                by_the_clock.add(study_id)
        return {
            study_id: DeviceTime(taken, study_id in by_the_clock)
            for study_id, taken in seconds.items()
        }

    def _where(self, *conditions: ColumnElement[bool]) -> list[AttemptRecord]:
        rows = run(
            self._session,
            select(*_COLUMNS)
            .where(*conditions)
            .order_by(AttemptRow.study_id, AttemptRow.started_at, AttemptRow.number, AttemptRow.id),
        )
        return [_record(row) for row in rows]


def _renews(held: ColumnElement[float] | None) -> Update:
    """Prolong an attempt's lease; sums never shrink."""
    before, given = AttemptRow.stood_still_seconds, bindparam("stood_still", type_=FiniteFloat())
    stood_still = case((before < given, given), else_=before)
    values: dict[str, Any] = {
        "lease_until": bindparam("until"),
        "stood_still_seconds": stood_still,
    }
    if held is not None:
        known = func.coalesce(AttemptRow.device_seconds, 0.0)
        counted = AttemptRow.slot_share * (held - stood_still)
        values["device_seconds"] = case((known < counted, counted), else_=known)
    return (
        update(AttemptRow)
        .where(AttemptRow.id == bindparam("attempt"), ATTEMPT_IS_OPEN)
        .values(values)
    )


_RENEW = _renews(None)
_RENEW_HELD = _renews(bindparam("held", type_=FiniteFloat()))


def _device_seconds(
    told: float | None,
    share: float,
    started_at: datetime,
    stood_still_seconds: float,
    *,
    until: datetime,
) -> float:
    if told is not None:
        return told
    return share * max(0.0, (until - started_at).total_seconds() - stood_still_seconds)


def lost(attempt_id: str) -> LeaseLost:
    """The error for an attempt that holds no lease."""
    return LeaseLost(f"attempt {attempt_id!r} holds no lease (any more); stop working on it")
