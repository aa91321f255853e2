"""Learning curves: one row per epoch of a trial."""

from collections.abc import Collection, Sequence
from dataclasses import fields

from sqlalchemy import bindparam, func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from storage.batches import batched
from storage.errors import NotFound
from storage.locking import insert, lock_study, storable_integer
from storage.mapping import columns_of, reader
from storage.records import MetricRecord
from storage.tables import MetricRow
from storage.tenants import run

_record = reader(MetricRecord)
_CURVE = (
    select(*columns_of(MetricRecord, MetricRow))
    .where(MetricRow.study_id == bindparam("study"), MetricRow.number == bindparam("trial"))
    .order_by(MetricRow.epoch)
)
_REPORTERS_OF = select(MetricRow.number, MetricRow.epoch, MetricRow.attempt).where(
    MetricRow.study_id == bindparam("study"),
    MetricRow.number.in_(bindparam("trials", expanding=True)),
    MetricRow.epoch.in_(bindparam("epochs", expanding=True)),
)
_VALUES = [field.name for field in fields(MetricRecord)]


class Metrics:
    """The learning curves of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def put(self, study_id: str, number: int, metric: MetricRecord) -> None:
        """Keep one epoch; one that is sent again, by an attempt that resumed, replaces the first.

        Raises:
            NotFound: if there is no such trial.
        """
        self.put_all(study_id, [(number, metric)])

    def put_all(self, study_id: str, metrics: Sequence[tuple[int, MetricRecord]]) -> None:
        """Keep epochs, each as `put` does, with the number of its trial."""
        lock_study(self._session, study_id)
        put = insert(self._session, MetricRow)
        written = put.on_conflict_do_update(
            index_elements=["study_id", "number", "epoch"],
            set_={name: put.excluded[name] for name in _VALUES},
        )
        rows = [{"study_id": study_id, "number": number, **vars(one)} for number, one in metrics]
        try:
            run(self._session, written, rows)
        except IntegrityError as error:
            numbers = ", ".join(sorted({str(number) for number, _ in metrics}))
            raise NotFound(f"study {study_id!r} has no trial {numbers}") from error

    def curve(self, study_id: str, number: int) -> list[MetricRecord]:
        """The trial's epochs in order."""
        rows = run(self._session, _CURVE, {"study": study_id, "trial": number})
        return [_record(row) for row in rows]

    def reporters_of(
        self, study_id: str, numbers: Collection[int], epochs: Collection[int]
    ) -> dict[int, dict[int, int]]:
        """By trial and epoch the number of the attempt whose word about it is kept.

        Of those of the epochs that are kept of those of the trials.
        """
        found: dict[int, dict[int, int]] = {number: {} for number in numbers}
        storable = [epoch for epoch in epochs if storable_integer(epoch)]
        if found and storable:
            of = {"study": study_id, "trials": list(found), "epochs": storable}
            for row in run(self._session, _REPORTERS_OF, of):
                found[row.number][row.epoch] = row.attempt
        return found

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

    def epoch_seconds(self, study_id: str, numbers: Collection[int]) -> dict[int, list[float]]:
        """The seconds of each trained epoch of these trials, from the first on."""
        query = (
            select(MetricRow.number, MetricRow.seconds)
            .where(MetricRow.study_id == study_id, MetricRow.epoch > 0)
            .order_by(MetricRow.number, MetricRow.epoch)
        )
        found: dict[int, list[float]] = {}
        for some in batched(sorted(filter(storable_integer, numbers))):
            for number, seconds in self._session.execute(query.where(MetricRow.number.in_(some))):
                found.setdefault(number, []).append(seconds)
        return found

    def epochs_trained(self, study_id: str) -> int:
        """How many epochs all trials of the study have trained together."""
        query = (
            select(func.count())
            .select_from(MetricRow)
            .where(MetricRow.study_id == study_id, MetricRow.epoch > 0)
        )
        return run(self._session, query).scalar_one()
