"""Errors of the storage package.

StorageError
├── NotFound                 no such row: the caller named something that does not exist
├── Conflict                 the row exists in a state that forbids this: read it again, then decide
│   ├── IdempotencyConflict  the key was used before with another body
│   ├── LeaseLost            the lease ended or belongs to another attempt: stop working on it
│   └── ClaimLost            another coordinator has the study: leave it alone
├── QuotaReached             the tenant has all that it may have: end or remove something first
│   ├── StoredBytesReached   of stored bytes: delete something, then send it again
│   └── TooManyAtOnce        of what goes on at once, or within a minute: come again soon
├── BadCursor                a page cursor that no page gave out: begin again without one
├── UnstorableValue          no column holds it (NaN, a time without a zone): the caller is at fault
├── ArtifactNotFound         no such bytes in the artifact store
├── ArtifactDamaged          bytes do not have the digest that names them: send them again
│   └── StoredBytesDamaged   those in the store do not any more: bring them back from a backup
├── StoreFull                the store has no room left: make some, then send it again
├── StoreUnavailable         the store did not answer, or its folder is gone: try again later
│   └── StoreRefused         it does not let us in: mend credentials, bucket or the installation
├── BadStoreUrl              a URL that names no artifact store: correct it
├── SchemaMismatch           tables of another version than the program: migrate or update it
└── DatabaseUnavailable      the database did not answer: try again later
"""


class StorageError(Exception):
    """Root of every error that `storage` raises on purpose."""


class NotFound(StorageError):
    """No such row; the caller named something that does not exist."""


class Conflict(StorageError):
    """The row's state forbids this; read it again, then decide."""


class IdempotencyConflict(Conflict):
    """The idempotency key was used before with another body; use a new key."""


class LeaseLost(Conflict):
    """The lease ran out or a newer attempt holds it; stop working on it."""


class ClaimLost(Conflict):
    """The study was claimed by another coordinator, or by none; leave it alone."""


class QuotaReached(StorageError):
    """The tenant has all that it may have of `quota`; end or remove something, then ask again."""

    def __init__(self, message: str, *, quota: str, used: int, limit: int) -> None:
        super().__init__(message)
        self.quota = quota
        self.used = used
        self.limit = limit


class StoredBytesReached(QuotaReached):
    """The tenant's stored bytes are used up; delete something, then send the bytes again."""


class TooManyAtOnce(QuotaReached):
    """So many of the tenant's go on already, or came within a minute; come again soon."""

    def __init__(
        self, message: str, *, quota: str, used: int, limit: int, seconds: int = 5
    ) -> None:
        super().__init__(message, quota=quota, used=used, limit=limit)
        self.seconds = seconds


class BadCursor(StorageError, ValueError):
    """The cursor was not given out by this list; begin again without one."""


class UnstorableValue(StorageError, ValueError):
    """No column holds this value (NaN, infinity, a time without a zone); the caller is at fault."""


class ArtifactNotFound(StorageError):
    """No such bytes in the artifact store."""


class ArtifactDamaged(StorageError):
    """Bytes do not have the digest that names them; send them again."""


class StoredBytesDamaged(ArtifactDamaged):
    """What is stored is not what was written; a backup may have it."""


class StoreFull(StorageError):
    """The artifact store has no room left; make some, then send the bytes again."""


class StoreUnavailable(StorageError):
    """The artifact store did not answer, or its folder is gone; try again later."""


class StoreRefused(StoreUnavailable):
    """The store does not let us in; mend the credentials, the bucket or the installation."""


class BadStoreUrl(StorageError, ValueError):
    """The URL names no artifact store, or holds credentials; correct it."""


class SchemaMismatch(StorageError):
    """The tables are of another version than this program; migrate, or install the newer one."""


class DatabaseUnavailable(StorageError):
    """The database did not answer; try again later."""
