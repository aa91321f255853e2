"""Quotas: how much a tenant may have, what it has, and the refusal of what would be more.

See Note [Quotas] in the README.
"""

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, delete, func, select, union
from sqlalchemy.orm import InstrumentedAttribute, Session

from storage.errors import QuotaReached, StoredBytesReached
from storage.locking import insert, lock_key
from storage.records import CommandKind, StudyState, TrialState
from storage.tables import (
    ATTEMPT_RUNS,
    ArtifactRow,
    AttemptLogRow,
    AttemptRow,
    CommandRow,
    DatasetRow,
    StudyRow,
    TenantQuotaRow,
    TrialArtifactRow,
    TrialRow,
    UploadedModelRow,
)
from storage.tenant_quota import QUOTA_NAMES, UNLIMITED, QuotaName, TenantQuota
from storage.tenants import ACROSS_TENANTS, tenant_of

QUOTAS: Final = "quotas"
"""Key in `Session.info`: what a tenant may have for whom nothing else is set; see `Database`."""

_LOCK: Final = 0x71756F74
"""Any number will do; the first of two by which a tenant's lock is named."""

_IN_PROGRESS = [state for state in StudyState if not state.has_ended]

_ADVICE: Mapping[QuotaName, str] = {
    "studies": "cancel one or wait until one ends",
    "queued_trials": "wait until some have run, or cancel a study",
    "slots": "wait until one of its attempts ends",
    "stored_bytes": "delete studies, data sets or models that are not needed",
}


class Quotas:
    """The quotas of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def of(self, tenant: str) -> TenantQuota:
        """What a tenant may have."""
        return self.all([tenant])[tenant]

    def all(self, tenants: Iterable[str]) -> dict[str, TenantQuota]:
        """What each of these tenants may have."""
        named = set(tenants)
        defaults: TenantQuota = self._session.info.get(QUOTAS, UNLIMITED)
        rows = self._session.scalars(
            select(TenantQuotaRow).where(TenantQuotaRow.tenant.in_(named))
        ).all()
        set_for = {row.tenant: _over(defaults, row) for row in rows}
        return {tenant: set_for.get(tenant, defaults) for tenant in named}

    def overridden(self) -> dict[str, dict[str, int | float | None]]:
        """What was set for tenants in place of the defaults, by tenant; null is no limit."""
        rows = self._session.scalars(select(TenantQuotaRow).order_by(TenantQuotaRow.tenant))
        return {row.tenant: _set_by(row) for row in rows}

    def override(self, tenant: str, given: Mapping[str, int | float | None]) -> None:
        """Set exactly these limits and this weight for a tenant; nothing: the defaults again."""
        self._session.execute(delete(TenantQuotaRow).where(TenantQuotaRow.tenant == tenant))
        if given:
            limits = {name: value for name, value in given.items() if name != "weight"}
            self._session.execute(
                insert(self._session, TenantQuotaRow).values(
                    tenant=tenant, weight=given.get("weight"), limits=limits
                )
            )

    def used(self, name: QuotaName, tenant: str) -> int:
        """How much of it a tenant has, of what rows decide."""
        counted = _COUNTS[name](tenant)
        return sum(self._session.scalar(one) or 0 for one in counted)

    def is_full(self, name: QuotaName, tenant: str) -> bool:
        """Whether a tenant has all that it may have, of what rows decide."""
        limit = self.of(tenant).limit(name)
        return limit is not None and self.used(name, tenant) >= limit

    @contextmanager
    def bytes_added(self) -> Generator[None]:
        """Go on only if the tenant may store what the block adds rows for.

        The transaction holds `ArtifactRows.lock_names`, so that nobody else adds any meanwhile.

        Raises:
            StoredBytesReached: it is too much.
        """
        whose = tenant_of(self._session)
        limit = self.of(whose).stored_bytes
        before = 0 if limit is None else self.used("stored_bytes", whose)
        yield
        after = 0 if limit is None else self.used("stored_bytes", whose)
        if limit is not None and after > max(limit, before):
            raise refusal("stored_bytes", used=before, limit=limit, adding=after - before)

    def make_room(
        self,
        name: QuotaName,
        *,
        tenant: str | None = None,
        adding: int = 1,
        is_added: bool = False,
    ) -> None:
        """Go on only if the tenant may have so much more, which nobody else adds meanwhile.

        To be called after all other locks of the transaction were taken; `is_added` says that the
        transaction's rows have it already.

        Raises:
            QuotaReached: it would be too much.
        """
        whose = tenant_of(self._session) if tenant is None else tenant
        limit = self.of(whose).limit(name)
        if limit is None:
            return
        lock_key(self._session, _LOCK, func.hashtext(whose))
        used = self.used(name, whose) - (adding if is_added else 0)
        if used + adding > limit:
            raise refusal(name, used=used, limit=limit, adding=adding)


def refusal(name: QuotaName, *, used: int, limit: int, adding: int = 1) -> QuotaReached:
    """The error for so much more of something of which rows decide."""
    kind = StoredBytesReached if name == "stored_bytes" else QuotaReached
    wanted = "" if adding <= 1 else f" and {adding} more were asked for"
    return kind(
        f"quota {name}: the tenant has {used} of {limit}{wanted}; {_ADVICE[name]}, "
        "or have the operator raise it (`reflectory quota set`)",
        quota=name,
        used=used,
        limit=limit,
    )


def _over(defaults: TenantQuota, row: TenantQuotaRow) -> TenantQuota:
    return replace(defaults, **_set_by(row))  # pyright: ignore[reportArgumentType]


def _set_by(row: TenantQuotaRow) -> dict[str, int | float | None]:
    """Limits of a name that this version does not know are passed over."""
    limits: dict[str, int | float | None] = {
        name: value
        for name in QUOTA_NAMES
        if name in row.limits and (isinstance(value := row.limits[name], int) or value is None)
    }
    return limits if row.weight is None else {**limits, "weight": row.weight}


def _studies(tenant: str) -> list[Select[int]]:
    return [_counted(StudyRow.id).where(*_in_progress_of(tenant))]


def _queued_trials(tenant: str) -> list[Select[int]]:
    return [
        _counted(TrialRow.number)
        .join(StudyRow, StudyRow.id == TrialRow.study_id)
        .where(*_in_progress_of(tenant), TrialRow.state == TrialState.QUEUED),
        _counted(CommandRow.id)
        .join(StudyRow, StudyRow.id == CommandRow.study_id)
        .where(
            *_in_progress_of(tenant),
            CommandRow.kind == CommandKind.ENQUEUE,
            CommandRow.trial.is_(None),
        ),
    ]


def _slots(tenant: str) -> list[Select[int]]:
    """Slots with attempts, of which a stack has several; a measurement lock is none."""
    return [
        select(func.count(AttemptRow.slot.distinct()))
        .execution_options(**ACROSS_TENANTS)
        .join(StudyRow, StudyRow.id == AttemptRow.study_id)
        .where(
            ATTEMPT_RUNS,
            AttemptRow.slot_share > 0,
            StudyRow.tenant == tenant,
        )
    ]


def _stored_bytes(tenant: str) -> list[Select[int]]:
    studies = select(StudyRow.id).where(StudyRow.tenant == tenant)
    uploads = [
        select(column).where(DatasetRow.tenant == tenant, column.is_not(None))
        for column in (DatasetRow.sha256, DatasetRow.test_sha256, DatasetRow.container_sha256)
    ]
    named = union(
        select(TrialArtifactRow.sha256).where(TrialArtifactRow.study_id.in_(studies)),
        select(AttemptLogRow.sha256).where(AttemptLogRow.study_id.in_(studies)),
        select(UploadedModelRow.sha256).where(UploadedModelRow.tenant == tenant),
        *uploads,
    ).subquery()
    total = (
        select(func.coalesce(func.sum(ArtifactRow.size), 0))
        .join(named, named.c.sha256 == ArtifactRow.sha256)
        .execution_options(**ACROSS_TENANTS)
    )
    return [total]


def _in_progress_of(tenant: str) -> tuple[ColumnElement[bool], ...]:
    return StudyRow.tenant == tenant, StudyRow.state.in_(_IN_PROGRESS)


def _counted(column: InstrumentedAttribute[Any]) -> Select[int]:
    return select(func.count(column)).execution_options(**ACROSS_TENANTS)


_COUNTS: Mapping[QuotaName, Callable[[str], list[Select[int]]]] = {
    "studies": _studies,
    "queued_trials": _queued_trials,
    "slots": _slots,
    "stored_bytes": _stored_bytes,
}
