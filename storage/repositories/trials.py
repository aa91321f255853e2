"""Trials: configurations of a study and what came of them."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any, Literal, NamedTuple, TypeAlias

from sqlalchemy import (
    ColumnElement,
    Executable,
    bindparam,
    case,
    false,
    func,
    null,
    or_,
    select,
    update,
)
from sqlalchemy.orm import InstrumentedAttribute, Session

from storage.batches import batched
from storage.columns import Instant
from storage.cursors import cursor_of, number_behind
from storage.errors import Conflict, NotFound
from storage.locking import (
    add,
    lock_study,
    lock_study_to_decide,
    next_version,
    note_change,
    storable_integer,
)
from storage.mapping import columns_of, reader, values_of
from storage.records import (
    Json,
    MeasurementRecord,
    Page,
    TrialCounts,
    TrialOrigin,
    TrialOutcome,
    TrialRecord,
    TrialState,
)
from storage.repositories.trial_summaries import ShownTrial, TrialSummary
from storage.tables import StudyRow, TrialArtifactRow, TrialRow
from storage.tenants import run

TrialRecords: TypeAlias = list[TrialRecord]

_record = reader(TrialRecord, "artifacts")
_COLUMNS = columns_of(TrialRecord, TrialRow, "artifacts")
_OF_STUDY = TrialRow.study_id == bindparam("study")
_NUMBERED = (
    select(*_COLUMNS)
    .where(_OF_STUDY, TrialRow.number.in_(bindparam("numbers", expanding=True)))
    .order_by(TrialRow.number)
)
_LINKS = select(TrialArtifactRow.number, TrialArtifactRow.role, TrialArtifactRow.sha256).where(
    TrialArtifactRow.study_id == bindparam("study")
)
_LINKS_BETWEEN = _LINKS.where(
    TrialArtifactRow.number.between(bindparam("first"), bindparam("last"))
)
_LINKS_OF = _LINKS.where(TrialArtifactRow.number.in_(bindparam("numbers", expanding=True)))
_SUMMARIES = (
    select(*columns_of(TrialSummary, TrialRow))
    .where(_OF_STUDY, TrialRow.state.in_(bindparam("states", expanding=True)))
    .order_by(TrialRow.number)
)
_LATER = TrialRow.data_version > bindparam("after")
_LATER_SUMMARIES = _SUMMARIES.where(_LATER)
_LATER_OR_NEW_SUMMARIES = _SUMMARIES.where(or_(_LATER, TrialRow.number >= bindparam("first")))
_CHANGED = (
    select(*_COLUMNS)
    .where(
        or_(
            _OF_STUDY & _LATER,
            _OF_STUDY & (TrialRow.number >= bindparam("first")),
        )
    )
    .order_by(TrialRow.number)
)
_OPEN = TrialRow.state.in_([state for state in TrialState if not state.has_ended])
_VERSION = select(StudyRow.data_version + 1).where(StudyRow.id == bindparam("study"))
_TYPES = TrialRow.__table__.columns
_ONE = TrialRow.study_id == bindparam("study"), TrialRow.number == bindparam("trial")
_IS_PAUSED = TrialRow.state == TrialState.PAUSED
_START = (
    update(TrialRow)
    .where(*_ONE, _OPEN)
    .values(
        state=TrialState.RUNNING,
        dispatched=True,
        started_at=func.coalesce(TrialRow.started_at, bindparam("at", type_=Instant())),
        # An attempt that repeats a lost one is to pause where that was; one that thaws is not.
        pausing=case((_IS_PAUSED, null()), else_=TrialRow.pausing),
        detail=case((_IS_PAUSED, null()), else_=TrialRow.detail),
        # Without another version of the study's data, of which it changes nothing.
        data_version=_VERSION.scalar_subquery(),
    )
    .returning(TrialRow.number)
)
_SET_EPOCHS = update(TrialRow).where(*_ONE).values(epochs_trained=bindparam("epochs"))
_SET_STRETCH = (
    update(TrialRow)
    .where(*_ONE, TrialRow.finished_at.is_(None))
    .values(
        stretch=bindparam("chosen", type_=_TYPES["stretch"].type),
        # As above: who knows the earlier row has to read this one.
        data_version=_VERSION.scalar_subquery(),
    )
)
_NOTHING = TrialOutcome()

TrialOrder: TypeAlias = Literal[
    "number", "quality", "parameters", "throughput", "bytes", "latency", "epochs_trained"
]
"""What a table of trials can be ordered by."""

_ORDERS: Mapping[TrialOrder, InstrumentedAttribute[Any]] = {
    "number": TrialRow.number,
    "quality": TrialRow.quality,
    "parameters": TrialRow.parameters,
    "throughput": TrialRow.throughput,
    "bytes": TrialRow.bytes,
    "latency": TrialRow.latency_p50,
    "epochs_trained": TrialRow.epochs_trained,
}

_ENDED = TrialRow.state.not_in([state for state in TrialState if not state.has_ended])
_CONFIRMS = TrialRow.origin.in_([origin for origin in TrialOrigin if origin.follows_search])


_COUNTS = (
    select(
        TrialRow.study_id,
        TrialRow.state,
        func.count(),
        func.count().filter(TrialRow.dispatched, ~_CONFIRMS),
        func.count().filter(_CONFIRMS),
        func.count().filter(TrialRow.told_at.is_(None), TrialRow.finished_at.is_not(None)),
        func.count().filter(TrialRow.repeats.is_not(None)),
    )
    .where(TrialRow.study_id.in_(bindparam("studies", expanding=True)))
    .group_by(TrialRow.study_id, TrialRow.state)
)


class _StateCounts(NamedTuple):
    """Of a study's trials in one state, how many there are, and what of them."""

    state: TrialState
    total: int
    dispatched: int
    confirmations: int
    untold: int
    repeats: int


def _summed(rows: Sequence[_StateCounts]) -> TrialCounts:
    return TrialCounts(
        by_state={row.state: row.total for row in rows},
        dispatched=sum(row.dispatched for row in rows),
        under_way=sum(row.dispatched for row in rows if not row.state.has_ended),
        refused=sum(
            row.total - row.dispatched - row.confirmations
            for row in rows
            if row.state is TrialState.INFEASIBLE
        ),
        confirmations=sum(row.confirmations for row in rows),
        untold=sum(row.untold for row in rows),
        waiting_repeats=sum(row.repeats for row in rows if row.state is TrialState.QUEUED),
    )


class Trials:
    """The trials of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, record: TrialRecord) -> None:
        """Add a trial with all that the record says but its artifacts, which are linked one by one.

        Raises:
            Conflict: if the study has a trial of this number.
            NotFound: if there is no such study.
        """
        lock_study(self._session, record.study_id)
        values = values_of(record, "artifacts")
        if record.state.has_ended:
            values["data_version"] = run(
                self._session, _VERSION, {"study": record.study_id}
            ).scalar()
        missing = f"there is no study {record.study_id!r}"
        is_new = add(self._session, TrialRow, values, missing=missing)
        if not is_new:
            raise Conflict(f"study {record.study_id!r} has a trial {record.number} already")
        if record.state.has_ended:
            note_change(self._session, record.study_id)

    def get(self, study_id: str, number: int) -> TrialRecord:
        """One trial; in a writing session nobody else changes it until the transaction ends.

        Raises:
            NotFound: if there is none.
        """
        lock_study_to_decide(self._session, study_id)
        found = self.find(study_id, number)
        if found is None:
            raise _missing(study_id, number)
        return found

    def find(self, study_id: str, number: int) -> TrialRecord | None:
        """One trial, if there is one."""
        return next(iter(self.numbered(study_id, [number])), None)

    def numbered(self, study_id: str, numbers: Collection[int]) -> TrialRecords:
        """Those of the numbered trials that there are, by number."""
        found: TrialRecords = []
        for some in batched(sorted(filter(storable_integer, numbers))):
            rows = run(self._session, _NUMBERED, {"study": study_id, "numbers": some}).all()
            found += self._records(rows, some)
        return found

    def list(self, study_id: str, *states: TrialState) -> TrialRecords:
        """The study's trials in one of these states (in any, when none is named), by number."""
        query = select(TrialRow).where(TrialRow.study_id == study_id).order_by(TrialRow.number)
        if states:
            query = query.where(TrialRow.state.in_(states))
        return self._records(self._session.scalars(query).all())

    def summaries(
        self,
        study_id: str,
        *states: TrialState,
        after: int | None = None,
        first: int | None = None,
    ) -> Sequence[TrialSummary]:
        """The study's trials in one of these states, by number, in a query that reads little.

        With `after`, those alone whose outcome, throughput or files have changed since the study's
        data had that version, see `StudyRecord.data_version`; with `first`, those from that number
        on as well.
        """
        query = _SUMMARIES
        if after is not None:
            query = _LATER_SUMMARIES if first is None else _LATER_OR_NEW_SUMMARIES
        asked = {"study": study_id, "states": states, "after": after, "first": first}
        return [TrialSummary(*row) for row in run(self._session, query, asked)]

    def specs(self, study_id: str, first: int, last: int) -> dict[int, dict[str, Json]]:
        """The documents of the study's trials from one number to another, by number."""
        rows = self._session.execute(
            select(TrialRow.number, TrialRow.spec).where(
                TrialRow.study_id == study_id, TrialRow.number.between(first, last)
            )
        )
        return {number: spec for number, spec in rows}  # noqa: C416 - rows are no pairs to types

    def changed(
        self, study_id: str, *, after: int, first: int, artifacts: bool = True
    ) -> TrialRecords:
        """The trials from number `first` on, and those that changed since a version of the data.

        Of how far a trial has trained nothing is seen here. Without `artifacts` the records name
        none.
        """
        asked = {"study": study_id, "after": after, "first": first}
        rows = run(self._session, _CHANGED, asked).all()
        return self._records(rows) if artifacts else [_record(row, artifacts={}) for row in rows]

    def shown(self, study_id: str, *, after: int, first: int) -> Sequence[ShownTrial]:
        """Those of `changed`, as a dashboard shows them."""
        of_study = TrialRow.study_id == study_id
        later = or_(
            of_study & (TrialRow.data_version > after), of_study & (TrialRow.number >= first)
        )
        query = select(*columns_of(ShownTrial, TrialRow)).where(later).order_by(TrialRow.number)
        return [ShownTrial(*row) for row in self._session.execute(query)]

    def alike(self, study_id: str, roots: Collection[int], *states: TrialState) -> TrialRecords:
        """The trials in one of these states that are one of the roots, or repeat one, by number."""
        named = or_(TrialRow.number.in_(roots), TrialRow.repeats.in_(roots))
        rows = self._session.scalars(
            select(TrialRow)
            .where(TrialRow.study_id == study_id, TrialRow.state.in_(states), named)
            .order_by(TrialRow.number)
        ).all()
        return self._records(rows)

    def count_of(self, study_id: str, origin: TrialOrigin) -> int:
        """How many of the study's trials were named so."""
        query = select(func.count()).where(TrialRow.study_id == study_id, TrialRow.origin == origin)
        return self._session.scalars(query).one()

    def drawn(self, study_id: str, *, first: int = 0) -> dict[int, dict[str, Json]]:
        """What was drawn for each of the study's trials from number `first` on, by number.

        It is what the sampler knows.
        """
        rows = self._session.execute(
            select(TrialRow.number, TrialRow.drawn)
            .where(TrialRow.study_id == study_id, TrialRow.number >= first)
            .order_by(TrialRow.number)
        )
        return {number: drawn for number, drawn in rows}  # noqa: C416 - rows are no pairs to types

    def page(
        self,
        study_id: str,
        *,
        limit: int,
        cursor: str | None = None,
        state: TrialState | None = None,
    ) -> Page[TrialRecord]:
        """The study's trials by number.

        Raises:
            BadCursor: if the cursor was not given out by this list.
        """
        if limit < 1:
            raise ValueError(f"limit {limit} is not 1 or more")
        query = select(TrialRow).where(TrialRow.study_id == study_id).order_by(TrialRow.number)
        if state is not None:
            query = query.where(TrialRow.state == state)
        if cursor is not None:
            query = query.where(TrialRow.number > number_behind(cursor))
        rows = self._session.scalars(query.limit(limit + 1)).all()
        items = self._records(rows[:limit], [row.number for row in rows[:limit]])
        return Page(
            items=items, next_cursor=cursor_of(items[-1].number) if len(rows) > limit else None
        )

    def ranked(
        self,
        study_id: str,
        *,
        by: TrialOrder,
        descending: bool,
        limit: int,
        offset: int = 0,
        state: TrialState | None = None,
    ) -> TrialRecords:
        """A part of the study's trials by one of their values, for a person who looks at a table.

        Those without the value come last, and equal ones by number. Where trials end meanwhile, the
        next part may repeat or miss one; `page` does not, by number.
        """
        if limit < 1 or offset < 0 or not storable_integer(offset):
            raise ValueError(f"limit {limit} is not 1 or more, or offset {offset} is out of range")
        column = _ORDERS[by]
        query = (
            select(TrialRow)
            .where(TrialRow.study_id == study_id)
            .order_by(column.is_(None), column.desc() if descending else column, TrialRow.number)
        )
        if state is not None:
            query = query.where(TrialRow.state == state)
        rows = self._session.scalars(query.limit(limit).offset(offset)).all()
        return self._records(rows, [row.number for row in rows])

    def counts(self, study_id: str) -> TrialCounts:
        """How many of the study's trials are in each state, and how many the search dispatched."""
        return self.counts_of([study_id])[study_id]

    def counts_of(self, study_ids: Collection[str]) -> Mapping[str, TrialCounts]:
        """The counts of each of the named studies."""
        rows = run(self._session, _COUNTS, {"studies": list(study_ids)})
        by_study: dict[str, list[_StateCounts]] = {study_id: [] for study_id in study_ids}
        for study_id, state, total, dispatched, confirmations, untold, repeats in rows:
            found = _StateCounts(state, total, dispatched, confirmations, untold, repeats)
            by_study[study_id].append(found)
        return {study_id: _summed(counts) for study_id, counts in by_study.items()}

    def start(self, study_id: str, number: int, at: datetime) -> None:
        """Say that an attempt works on the trial; the first one is its start.

        Raises:
            Conflict: if the trial has ended.
            NotFound: if there is no such trial.
        """
        lock_study(self._session, study_id)
        of = {"study": study_id, "trial": number, "at": at}
        if not storable_integer(number) or run(self._session, _START, of).scalar() is None:
            raise self._has_ended(study_id, number, "started")

    def set_epochs(self, study_id: str, number: int, epochs: int) -> None:
        """Keep how many epochs the trial has trained.

        Raises:
            NotFound: if there is no such trial.
        """
        if not self._change(study_id, number, {"epochs_trained": epochs}):
            raise _missing(study_id, number)

    def set_all_epochs(self, study_id: str, epochs: Mapping[int, int]) -> None:
        """Keep how many epochs trials have trained, by number; what is not there is passed over."""
        lock_study(self._session, study_id)
        rows = [
            {"study": study_id, "trial": number, "epochs": count}
            for number, count in sorted(epochs.items())
        ]
        run(self._session, _SET_EPOCHS, rows)

    def set_stopping(self, study_id: str, number: int, stopping: Mapping[str, Any]) -> None:
        """Say that the trial is to stop, and why; it stands there unless it ends otherwise.

        Raises:
            Conflict: if the trial has ended.
            NotFound: if there is no such trial.
        """
        if not self._change(study_id, number, {"stopping": dict(stopping)}, where=_OPEN):
            raise self._has_ended(study_id, number, "stopped")

    def set_stretches(self, study_id: str, stretches: Mapping[int, Mapping[str, Any]]) -> None:
        """Keep what open trials are to train, by number; one that has ended stays as it is."""
        lock_study(self._session, study_id)
        rows = [
            {"study": study_id, "trial": number, "chosen": dict(stretch)}
            for number, stretch in sorted(stretches.items())
        ]
        run(self._session, _SET_STRETCH, rows)

    def set_pausing(self, study_id: str, number: int, pausing: Mapping[str, Any]) -> None:
        """Say that the trial is to pause, and why.

        Raises:
            Conflict: if the trial has ended.
            NotFound: if there is no such trial.
        """
        if not self._change(study_id, number, {"pausing": dict(pausing)}, where=_OPEN):
            raise self._has_ended(study_id, number, "paused")

    def pause(
        self, study_id: str, number: int, *, outcome: TrialOutcome, epochs: int
    ) -> TrialRecord:
        """Say that the trial holds no slot for now; `outcome` is what is known of it so far.

        Raises:
            Conflict: if the trial does not run.
            NotFound: if there is no such trial.
        """
        values: dict[str, Any] = {
            "state": TrialState.PAUSED,
            **vars(outcome),
            "epochs_trained": epochs,
            "data_version": next_version(study_id),
        }
        is_running = TrialRow.state == TrialState.RUNNING
        if not self._change(study_id, number, values, where=is_running):
            raise self._has_ended(study_id, number, "paused")
        note_change(self._session, study_id)
        return self.get(study_id, number)

    def set_throughput(self, study_id: str, number: int, measurement: MeasurementRecord) -> None:
        """Give the trial a measurement's throughput: its own, or that of another of the same shape.

        Raises:
            NotFound: if there is no such trial.
        """
        if not self._change(study_id, number, _throughput(study_id, measurement)):
            raise _missing(study_id, number)
        note_change(self._session, study_id)

    def set_predicted(
        self, study_id: str, number: int, predicted: Mapping[str, Sequence[float]]
    ) -> None:
        """Keep what is predicted of a trial's speed; one that has a prediction keeps that.

        Raises:
            NotFound: if there is no such trial.
        """
        if not self.get(study_id, number).predicted:
            values = {name: [*triple] for name, triple in predicted.items()}
            version = next_version(study_id)
            self._change(study_id, number, {"predicted": values, "data_version": version})

    def note_violation(self, study_id: str, number: int, outcome: TrialOutcome) -> None:
        """Add to an ended trial what the outcome names: that it breaks a limit, as measured later.

        Raises:
            Conflict: if the trial has not ended.
            NotFound: if there is no such trial.
        """
        named = {
            name: value for name, value in vars(outcome).items() if value != vars(_NOTHING)[name]
        }
        values = {**named, "data_version": next_version(study_id)}
        if not self._change(study_id, number, values, where=_ENDED):
            state = self.get(study_id, number).state
            raise Conflict(f"trial {number} of study {study_id!r} is {state.value!r} yet")
        note_change(self._session, study_id)

    def share_throughput(self, study_id: str, measurement: MeasurementRecord) -> None:
        """Give a measurement's throughput to every trial of its shape that has none yet."""
        lock_study(self._session, study_id)
        self._session.execute(
            update(TrialRow)
            .where(
                TrialRow.study_id == study_id,
                TrialRow.shape_key == measurement.shape_key,
                TrialRow.measurement_id.is_(None),
            )
            .values(**_throughput(study_id, measurement))
        )
        note_change(self._session, study_id)

    def end(
        self,
        study_id: str,
        number: int,
        *,
        state: TrialState,
        at: datetime,
        outcome: TrialOutcome = _NOTHING,
        epochs_trained: int | None = None,
    ) -> TrialRecord:
        """Give the trial its outcome, once and for all; `epochs_trained` stays where none is given.

        Raises:
            Conflict: if the trial has ended.
            NotFound: if there is no such trial.
        """
        if not state.has_ended:
            raise ValueError(f"{state.value!r} is no outcome of a trial")
        values: dict[str, Any] = {
            "state": state,
            "finished_at": at,
            **vars(outcome),
        }
        if epochs_trained is not None:
            values["epochs_trained"] = epochs_trained
        if state != TrialState.STOPPED:
            values["stopping"] = None
        lock_study(self._session, study_id)
        given = {f"new_{name}": value for name, value in values.items()}
        of = {"study": study_id, "trial": number, **given}
        known = storable_integer(number)
        row = run(self._session, _ending(tuple(values)), of).one_or_none() if known else None
        if row is None:
            raise self._has_ended(study_id, number, f"ended as {state.value!r}")
        note_change(self._session, study_id)
        return self._records([row])[0]

    def set_bytes(self, study_id: str, number: int, size: int) -> None:
        """Keep how large the trial's file is, which was predicted before it was made.

        Raises:
            NotFound: if there is no such trial.
        """
        self._change(study_id, number, {"bytes": size, "data_version": next_version(study_id)})
        note_change(self._session, study_id)

    def set_exports(self, study_id: str, number: int, exports: Mapping[str, Json]) -> None:
        """Keep what came of making files of the trial, by their roles, beside what is kept.

        Raises:
            NotFound: if there is no such trial.
        """
        kept = self.get(study_id, number).exports
        self._change(
            study_id,
            number,
            {"exports": {**kept, **exports}, "data_version": next_version(study_id)},
        )
        note_change(self._session, study_id)

    def continued_by_open(self, study_id: str) -> set[int]:
        """The numbers of trials that one which has not ended starts from."""
        numbers = self._session.scalars(
            select(TrialRow.continues).where(
                TrialRow.study_id == study_id, _OPEN, TrialRow.continues.is_not(None)
            )
        )
        return {number for number in numbers if number is not None}

    def untold(self, study_id: str) -> TrialRecords:
        """Trials that ended and that the sampler does not know of, in the order of their ends."""
        rows = self._session.scalars(
            select(TrialRow)
            .where(
                TrialRow.study_id == study_id,
                TrialRow.told_at.is_(None),
                TrialRow.finished_at.is_not(None),
            )
            .order_by(TrialRow.finished_at, TrialRow.number)
        ).all()
        return self._records(rows)

    def mark_told(self, study_id: str, number: int, at: datetime) -> bool:
        """Say that the sampler knows the outcome; False when it did already.

        Raises:
            Conflict: if the trial has not ended.
            NotFound: if there is no such trial.
        """
        values = {"told_at": at, "data_version": next_version(study_id)}
        if self._change(study_id, number, values, where=_ENDED & TrialRow.told_at.is_(None)):
            return True
        trial = self.get(study_id, number)
        if not trial.state.has_ended:
            raise Conflict(
                f"trial {number} of study {study_id!r} has not ended: it is {trial.state.value!r}"
            )
        return False

    def _change(
        self,
        study_id: str,
        number: int,
        values: Mapping[str, Any],
        *,
        where: ColumnElement[bool] | None = None,
    ) -> bool:
        """Change one trial's row; whether it is there and as `where` wants it."""
        lock_study(self._session, study_id)
        conditions = _one(study_id, number) if where is None else (*_one(study_id, number), where)
        changed = update(TrialRow).where(*conditions).values(**values).returning(TrialRow.number)
        return run(self._session, changed).scalar() is not None

    def _has_ended(self, study_id: str, number: int, wanted: str) -> Conflict:
        state = self.get(study_id, number).state
        return Conflict(
            f"trial {number} of study {study_id!r} cannot be {wanted}: it ended as {state.value!r}"
        )

    def _records(
        self,
        rows: Sequence[Any],
        linked: Sequence[int] | None = None,
    ) -> TrialRecords:
        """The rows, or what has their columns, with the artifacts that they name: in one query.

        Artifacts are asked for of the trials `linked`; null: of all between the rows.
        """
        if not rows:
            return []
        numbers = [row.number for row in rows]
        asked = {"study": rows[0].study_id, "first": min(numbers), "last": max(numbers)}
        query = _LINKS_BETWEEN if linked is None else _LINKS_OF
        links = run(self._session, query, {**asked, "numbers": linked})
        artifacts: dict[int, dict[str, str]] = {number: {} for number in numbers}
        for number, role, sha256 in links:
            if number in artifacts:
                artifacts[number][role] = sha256
        return [_record(row, artifacts=artifacts[row.number]) for row in rows]


def _one(study_id: str, number: int) -> tuple[ColumnElement[bool], ...]:
    if not storable_integer(number):
        return (false(),)
    return (TrialRow.study_id == study_id, TrialRow.number == number)


@cache
def _ending(names: tuple[str, ...]) -> Executable:
    """Give an open trial its outcome, of which these columns are given."""
    given = {name: bindparam(f"new_{name}", type_=_TYPES[name].type) for name in names}
    ended: Any = update(TrialRow).where(*_ONE, _OPEN)
    return ended.values(data_version=_VERSION.scalar_subquery(), **given).returning(*_COLUMNS)


def _throughput(study_id: str, measurement: MeasurementRecord) -> dict[str, Any]:
    return {
        "data_version": next_version(study_id),
        "throughput": measurement.samples_per_second,
        "throughput_ratio": measurement.ratio,
        "latency_p50": measurement.latency_p50,
        "latency_p99": measurement.latency_p99,
        "measurement_id": measurement.id,
    }


def _missing(study_id: str, number: int) -> NotFound:
    return NotFound(f"study {study_id!r} has no trial {number}")
