"""Which stored bytes are named by which rows; they are in the store before a row names them."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import attrgetter

from sqlalchemy import and_, bindparam, delete, exists, func, or_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from storage.batches import batched
from storage.errors import NotFound
from storage.locking import (
    insert,
    lock_key,
    lock_study,
    next_version,
    note_change,
    storable_integer,
)
from storage.mapping import columns_of, reader
from storage.records import ArtifactRecord, TrialState
from storage.tables import (
    ArtifactRow,
    AttemptLogRow,
    DatasetRow,
    TrialArtifactRow,
    TrialRow,
    UploadedModelRow,
)
from storage.tenants import run

# Any number will do; every transaction that adds or takes away names of artifacts waits for it.
_NAMING_LOCK = 0x6E616D65

_record = reader(ArtifactRecord)
_BEFORE = select(TrialArtifactRow.number, TrialArtifactRow.role, TrialArtifactRow.sha256).where(
    TrialArtifactRow.study_id == bindparam("study"),
    TrialArtifactRow.number.in_(bindparam("trials", expanding=True)),
)
_ENDED = select(TrialRow.number).where(
    TrialRow.study_id == bindparam("study"),
    TrialRow.number.in_(bindparam("trials", expanding=True)),
    TrialRow.state.in_([state for state in TrialState if state.has_ended]),
)
_DROP_UNUSED = delete(ArtifactRow).where(
    ArtifactRow.sha256.in_(bindparam("digests", expanding=True)),
    ~exists().where(TrialArtifactRow.sha256 == ArtifactRow.sha256),
    ~exists().where(
        or_(
            DatasetRow.sha256 == ArtifactRow.sha256,
            DatasetRow.test_sha256 == ArtifactRow.sha256,
            DatasetRow.container_sha256 == ArtifactRow.sha256,
        )
    ),
    ~exists().where(UploadedModelRow.sha256 == ArtifactRow.sha256),
    ~exists().where(AttemptLogRow.sha256 == ArtifactRow.sha256),
)
_OF_TRIAL = (
    select(TrialArtifactRow.role, *columns_of(ArtifactRecord, ArtifactRow))
    .join(ArtifactRow, ArtifactRow.sha256 == TrialArtifactRow.sha256)
    .where(
        TrialArtifactRow.study_id == bindparam("study"),
        TrialArtifactRow.number == bindparam("trial"),
    )
)
_SIZES = select(ArtifactRow.sha256, ArtifactRow.size).where(
    ArtifactRow.sha256.in_(bindparam("digests", expanding=True))
)


class ArtifactRows:
    """The artifact rows of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def link(self, study_id: str, number: int, role: str, artifact: ArtifactRecord) -> list[str]:
        """Let stored bytes play a part for a trial, in place of what played it before.

        See Note [Named bytes stay]: afterwards, in the same transaction, the caller looks whether
        the bytes are still stored.

        Returns:
            The digests of what played it before, whose rows are gone unless others use them.

        Raises:
            NotFound: if there is no such trial.
        """
        return self.link_all(study_id, {(number, role): artifact})

    def link_all(
        self, study_id: str, artifacts: Mapping[tuple[int, str], ArtifactRecord]
    ) -> list[str]:
        """Link several, each as `link` does, by the number of its trial and its role."""
        lock_study(self._session, study_id)
        self.lock_names()
        numbers = sorted({number for number, _ in artifacts})
        of = {"study": study_id, "trials": numbers}
        before: list[str] = []
        for number, role, sha256 in run(self._session, _BEFORE, of):
            artifact = artifacts.get((number, role))
            if artifact is not None and artifact.sha256 != sha256:
                before.append(sha256)
        self.add_all(artifacts.values())
        put = insert(self._session, TrialArtifactRow)
        linked = put.on_conflict_do_update(
            index_elements=["study_id", "number", "role"], set_={"sha256": put.excluded.sha256}
        )
        rows = [
            {"study_id": study_id, "number": number, "role": role, "sha256": artifact.sha256}
            for (number, role), artifact in artifacts.items()
        ]
        try:
            run(self._session, linked, rows)
        except IntegrityError as error:
            raise NotFound(f"study {study_id!r} has no trial {numbers[0]}") from error
        self.drop_unused(before)
        # Nothing follows yet from what a trial stores while it trains.
        ended = run(self._session, _ENDED, of).scalars().all()
        if ended:
            self._note_changes(study_id, ended)
        return before

    def unlink(self, study_id: str, roles: Mapping[int, Collection[str]]) -> list[str]:
        """Take these roles from trials of a study, and the rows of what nothing else names.

        Returns:
            The digests of what they were.
        """
        lock_study(self._session, study_id)
        self.lock_names()
        digests = list[str]()
        alike: dict[tuple[str, ...], list[int]] = {}
        for number in sorted(roles):
            alike.setdefault(tuple(sorted(roles[number])), []).append(number)
        for those, numbers in alike.items():
            for some in batched(numbers):
                digests += self._session.scalars(
                    delete(TrialArtifactRow)
                    .where(
                        TrialArtifactRow.study_id == study_id,
                        TrialArtifactRow.number.in_(some),
                        TrialArtifactRow.role.in_(those),
                    )
                    .returning(TrialArtifactRow.sha256)
                )
        self.drop_unused(digests)
        if digests:
            self._note_changes(study_id, sorted(roles))
        return digests

    def of_ended_trials(self, role: str) -> list[tuple[str, int]]:
        """Trials that have ended and have something of this role, as study and number."""
        ended = [state for state in TrialState if state.has_ended]
        rows = self._session.execute(
            select(TrialArtifactRow.study_id, TrialArtifactRow.number)
            .join(
                TrialRow,
                and_(
                    TrialRow.study_id == TrialArtifactRow.study_id,
                    TrialRow.number == TrialArtifactRow.number,
                ),
            )
            .where(TrialArtifactRow.role == role, TrialRow.state.in_(ended))
            .order_by(TrialArtifactRow.study_id, TrialArtifactRow.number)
        )
        return [(study_id, number) for study_id, number in rows]

    def of_roles(self, study_id: str, roles: Collection[str]) -> dict[int, list[str]]:
        """Which of these roles the study's trials have, by number, of those that have any."""
        rows = self._session.execute(
            select(TrialArtifactRow.number, TrialArtifactRow.role)
            .where(TrialArtifactRow.study_id == study_id, TrialArtifactRow.role.in_(roles))
            .order_by(TrialArtifactRow.number, TrialArtifactRow.role)
        )
        found: dict[int, list[str]] = {}
        for number, role in rows:
            found.setdefault(number, []).append(role)
        return found

    def of_trial(self, study_id: str, number: int) -> dict[str, ArtifactRecord]:
        """The trial's artifacts by role."""
        if not storable_integer(number):
            return {}
        rows = run(self._session, _OF_TRIAL, {"study": study_id, "trial": number})
        return {row.role: _record(row) for row in rows}

    def sizes(self, digests: Collection[str]) -> dict[str, int]:
        """Bytes of stored artifacts, by their digests."""
        found: dict[str, int] = {}
        for some in batched(sorted(set(digests))):
            rows = run(self._session, _SIZES, {"digests": some})
            found |= {row.sha256: row.size for row in rows}
        return found

    def bytes_of(self, study_id: str) -> int:
        """Bytes of all files of a study's trials; what several of them name counts once."""
        named = select(TrialArtifactRow.sha256).where(TrialArtifactRow.study_id == study_id)
        total = select(func.sum(ArtifactRow.size)).where(ArtifactRow.sha256.in_(named))
        return int(self._session.scalar(total) or 0)

    def add(self, artifact: ArtifactRecord) -> None:
        """Note that there are such bytes; harmless when repeated."""
        self.add_all([artifact])

    def add_all(self, artifacts: Iterable[ArtifactRecord]) -> None:
        """Note several, as `add` does; at least one."""
        new = insert(self._session, ArtifactRow).on_conflict_do_nothing()
        # In one order, for others may bring the same bytes.
        rows = [dict(vars(one)) for one in sorted(artifacts, key=attrgetter("sha256"))]
        run(self._session, new, rows)

    def digests(self) -> list[str]:
        """The digests of all bytes that rows name."""
        return list(self._session.scalars(select(ArtifactRow.sha256)))

    def lock_names(self) -> None:
        """Let no other transaction that asks for the same go on until this one ends.

        See Note [Named bytes stay] in the README.
        """
        lock_key(self._session, _NAMING_LOCK)

    def _note_changes(self, study_id: str, numbers: Sequence[int]) -> None:
        for some in batched(numbers):
            self._session.execute(
                update(TrialRow)
                .where(TrialRow.study_id == study_id, TrialRow.number.in_(some))
                .values(data_version=next_version(study_id))
            )
        note_change(self._session, study_id)

    def drop_unused(self, digests: Collection[str]) -> None:
        """Take away the rows of those artifacts that nothing of anybody names."""
        for some in batched(digests):
            # Past the ORM, which would look at one tenant's rows alone.
            self._session.connection().execute(_DROP_UNUSED, {"digests": some})

    def unnamed(self, digests: Collection[str]) -> list[str]:
        """Those of the digests that no row names, in their order."""
        named: set[str] = set()
        for some in batched(digests):
            stored = select(ArtifactRow.sha256).where(ArtifactRow.sha256.in_(some))
            named.update(self._session.scalars(stored))
        return [digest for digest in digests if digest not in named]
