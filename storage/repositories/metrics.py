"""Learning curves: one row per epoch of a trial."""

from collections.abc import Collection

from sqlalchemy import bindparam, func, select
from sqlalchemy.orm import Session

from storage.batches import batched
from storage.locking import added, insert, lock_study, storable_integer
from storage.mapping import columns_of, reader
from storage.records import MetricRecord
from storage.tables import MetricRow
from storage.tenants import run

_record = reader(MetricRecord)
_REPORTERS = select(MetricRow.epoch, MetricRow.attempt).where(
    MetricRow.study_id == bindparam("study"),
    MetricRow.number == bindparam("trial"),
    MetricRow.epoch >= bindparam("first"),
)


class Metrics:
    """The learning curves of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def put(self, study_id: str, number: int, metric: MetricRecord) -> None:
        """Keep one epoch; one that is sent again, by an attempt that resumed, replaces the first.

        Raises:
            NotFound: if there is no such trial.
        """
        lock_study(self._session, study_id)
        added(
            self._session,
            insert(self._session, MetricRow)
            .values(study_id=study_id, number=number, **vars(metric))
            .on_conflict_do_update(
                index_elements=["study_id", "number", "epoch"], set_=dict(vars(metric))
            )
            .returning(MetricRow.study_id),
            missing=f"study {study_id!r} has no trial {number}",
        )

    def curve(self, study_id: str, number: int) -> list[MetricRecord]:
        """The trial's epochs in order."""
        rows = run(
            self._session,
            select(*columns_of(MetricRecord, MetricRow))
            .where(MetricRow.study_id == study_id, MetricRow.number == number)
            .order_by(MetricRow.epoch),
        )
        return [_record(row) for row in rows]

    def reporters(self, study_id: str, number: int, *, since: int) -> dict[int, int]:
        """By epoch, from one on, the number of the attempt whose word about it is kept."""
        if not storable_integer(max(since, 0)):
            return {}
        of = {"study": study_id, "trial": number, "first": since}
        return {row.epoch: row.attempt for row in run(self._session, _REPORTERS, of)}

    def validations(
        self, study_id: str, numbers: Collection[int] | None = None
    ) -> dict[int, dict[int, float]]:
        """The validation metric of all curves of the study: trial number -> epoch -> value.

        Of epochs that were trained: an epoch 0 is none. With `numbers`, of the curves of those
        trials alone.
        """
        query = (
            select(MetricRow.number, MetricRow.epoch, MetricRow.validation)
            .where(MetricRow.study_id == study_id, MetricRow.epoch > 0)
            .order_by(MetricRow.number, MetricRow.epoch)
        )
        queries = [query]
        if numbers is not None:
            chosen = sorted(filter(storable_integer, numbers))
            queries = [query.where(MetricRow.number.in_(some)) for some in batched(chosen)]
        found: dict[int, dict[int, float]] = {}
        for part in queries:
            for number, epoch, validation in self._session.execute(part):
                found.setdefault(number, {})[epoch] = validation
        return found

    def epochs_trained(self, study_id: str) -> int:
        """How many epochs all trials of the study have trained together."""
        query = (
            select(func.count())
            .select_from(MetricRow)
            .where(MetricRow.study_id == study_id, MetricRow.epoch > 0)
        )
        return run(self._session, query).scalar_one()
