"""What S3 and the way to it say, as the errors of this package; no message names a host."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import cast

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    PartialCredentialsError,
)

from storage.errors import (
    ArtifactDamaged,
    StorageError,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
)

BROKEN_WAYS = (ConnectionError, HTTPClientError, IncompleteReadError)
"""Faults of the way to a server, not of what it says."""

_FULL = frozenset(
    {"QuotaExceeded", "InsufficientStorage", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded"}
)
_DAMAGED = frozenset({"BadDigest", "InvalidDigest", "XAmzContentChecksumMismatch"})
_BUSY = frozenset(
    {"SlowDown", "RequestTimeout", "Throttling", "TooManyRequests", "OperationAborted"}
)
_REGION = frozenset(
    {"PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"}
)
_ABSENT = frozenset({"NoSuchKey", "NotFound", "404"})


def code_of(error: ClientError) -> str:
    """The server's own word for what is wrong; a status where it has none."""
    return str(cast("dict[str, object]", error.response.get("Error", {})).get("Code", ""))


def status_of(error: ClientError) -> int:
    """The answer's HTTP status."""
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def is_absent(error: ClientError) -> bool:
    """Whether the server says that there is no such object, in a bucket that there may be."""
    return code_of(error) in _ABSENT


@contextmanager
def our_errors(place: str) -> Generator[None]:
    """Raise what S3 says about a place as one of our errors.

    Raises:
        StoreUnavailable: the server does not answer, or is overloaded.
        StoreRefused: it answers, and does not let us in: credentials, bucket or region.
        StoreFull: a quota is used up.
        ArtifactDamaged: bytes did not arrive as they were sent.
    """
    try:
        yield
    except ClientError as error:
        raise _answered(place, error) from error
    except BROKEN_WAYS as error:
        raise StoreUnavailable(f"{place} does not answer: {type(error).__name__}") from error
    except (NoCredentialsError, PartialCredentialsError) as error:
        raise StoreRefused(
            f"{place} needs credentials, and none are found: set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, a profile, or a role of this machine"
        ) from error
    except BotoCoreError as error:
        raise StoreRefused(f"{place} cannot be asked: {type(error).__name__}") from error


def _answered(place: str, error: ClientError) -> StorageError:
    code, status = code_of(error), status_of(error)
    if code in _FULL or status == 507:
        return StoreFull(f"{place} has no room: {code}")
    if code in _DAMAGED:
        return ArtifactDamaged(f"bytes sent to {place} arrived as others: {code}")
    if code in _BUSY or status >= 500 or status == 429:
        return StoreUnavailable(f"{place} does not answer as it should: {code or status}")
    if code == "NoSuchBucket" or is_absent(error):
        return StoreRefused(f"there is no bucket for {place}; make it first")
    if code in _REGION or status == 301:
        return StoreRefused(f"{place} is in another region; name it in the URL as region=")
    if status in (401, 403):
        return StoreRefused(
            f"{place} refuses these credentials ({code or status}); they need to list the bucket, "
            "and to read, write and delete objects in it"
        )
    return StoreRefused(f"{place} refuses what is asked ({code or status})")
