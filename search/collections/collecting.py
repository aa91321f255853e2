"""Submit a collection, or try one: all of its studies are checked before any is stored."""

import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TypeVar

from search.collections.collection_spec import CollectedStudy, CollectionSpec
from search.documents.spaces import DryRun
from search.errors import Fault, SpecRefused
from search.studies import MemoryPlace, StudySpec, check, digest_of, store
from search.studies import dry_run as dry_run_of_study
from search.tasks import DataSources
from storage.accounts.audit import Audit
from storage.accounts.quotas import Quotas
from storage.engine import Database
from storage.records import CollectionRecord, CollectionStudyRecord, StudyRecord
from storage.repositories import Collections, Datasets, UploadedModels

_T = TypeVar("_T")


def submit_collection(
    database: Database,
    spec: CollectionSpec,
    *,
    sources: DataSources,
    idempotency_key: str | None = None,
    places: Sequence[MemoryPlace] = (),
) -> CollectionRecord:
    """Store a collection with all of its studies, or nothing.

    The same key with the same document gives the same collection. `places` are the slots that serve
    the studies, as far as they are known.

    Raises:
        SpecRefused: one of the studies cannot be run; each fault names its data set.
        IdempotencyConflict: the key came with another document before.
        NotFound: a data set or a model was deleted meanwhile.
        QuotaReached: the tenant would have more studies in progress than it may have.
    """
    digest = digest_of(spec)
    if idempotency_key is not None:
        with database.read() as session:
            known = Collections(session).find_idempotent(idempotency_key, digest)
        if known is not None:
            return known
    checked = _of_each(
        _titled(database, spec),
        lambda study: check(database, study, sources=sources, places=places),
    )
    collection_id, now = secrets.token_hex(6), datetime.now(UTC)
    budget = spec.collection_budget
    with database.write() as session:
        collection = Collections(session).create(
            id=collection_id,
            name=spec.name,
            source=spec.model_dump(mode="json", exclude_none=True),
            budget=None if budget is None else budget.model_dump(mode="json", exclude_none=True),
            at=now,
            idempotency_key=idempotency_key,
            body_digest=digest,
        )
        if collection.id != collection_id:
            return collection
        # All locks before that of the quota.
        for _, study in checked:
            document = study.spec.model_dump(mode="json")
            Datasets(session).hold_for(document)
            UploadedModels(session).hold_for(document)
        Quotas(session).make_room("studies", adding=len(checked))
        stored = [(one, store(session, study, at=now)) for one, study in checked]
        Collections(session).add_studies(_members(collection_id, stored))
        Audit(session).note("collection.submitted", collection_id, name=spec.name)
        return collection


def try_collection(
    database: Database,
    spec: CollectionSpec,
    *,
    sources: DataSources,
    places: Sequence[MemoryPlace] = (),
) -> Mapping[str, DryRun]:
    """What each study of a collection would search, by its row; nothing is stored.

    Raises:
        SpecRefused: see `submit_collection`.
    """
    found = _of_each(
        _titled(database, spec),
        lambda study: dry_run_of_study(database, study, sources=sources, places=places),
    )
    return {one.row: described for one, described in found}


def _titled(database: Database, spec: CollectionSpec) -> list[CollectedStudy]:
    """The studies; uploads go by their names where these tell them apart, or else by their ids."""
    with database.read() as session:
        uploads = [
            Datasets(session).of_study({"task": one.spec.task.model_dump(mode="json")})
            for one in spec.studies
        ]
    names = Counter(upload.name for upload in uploads if upload is not None)
    rows = {one.row for one in spec.studies}
    return [
        one
        if upload is None or names[upload.name] > 1 or upload.name in rows
        else spec.titled(one, upload.name)
        for one, upload in zip(spec.studies, uploads, strict=True)
    ]


def _members(
    collection_id: str, studies: Sequence[tuple[CollectedStudy, StudyRecord]]
) -> list[CollectionStudyRecord]:
    return [
        CollectionStudyRecord(
            collection_id=collection_id,
            study_id=study.id,
            position=position,
            row=one.row,
            seed=one.spec.seed,
        )
        for position, (one, study) in enumerate(studies)
    ]


def _of_each(
    studies: Sequence[CollectedStudy], make: Callable[[StudySpec], _T]
) -> list[tuple[CollectedStudy, _T]]:
    """What becomes of each study.

    Raises:
        SpecRefused: with the faults of all.
    """
    made: list[tuple[CollectedStudy, _T]] = []
    refused: list[tuple[CollectedStudy, SpecRefused]] = []
    for one in studies:
        try:
            made.append((one, make(one.spec)))
        except SpecRefused as error:
            refused.append((one, error))
    if refused:
        raise SpecRefused(_faults(refused, of=len(studies)))
    return made


def _faults(refused: Sequence[tuple[CollectedStudy, SpecRefused]], *, of: int) -> list[Fault]:
    """The faults of several studies; one that all have alike stands once, and is no data set's."""
    rows: dict[Fault, list[str]] = {}
    for one, error in refused:
        for fault in error.faults:
            place = ".".join(map(str, one.place.of(tuple(fault.path.split(".")))))
            rows.setdefault(Fault(place, fault.message), []).append(one.row)
    return [
        fault if len(names) == of else Fault(fault.path, f"{', '.join(names)}: {fault.message}")
        for fault, names in rows.items()
    ]
