"""Clients of S3: how patient they are, and what is asked again after a fault on the way."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import boto3.session
import stamina
from botocore.config import Config
from botocore.exceptions import ResponseStreamingError

from storage.blobs.bucket_errors import BROKEN_WAYS, our_errors
from storage.blobs.places import BucketPlace

if TYPE_CHECKING:
    from types_boto3_s3.client import S3Client
    from types_boto3_s3.type_defs import GetObjectOutputTypeDef

_CONNECTIONS = 32


def clients_of(place: BucketPlace) -> "tuple[S3Client, S3Client]":
    """A client for bytes, which are worth waiting for, and one for questions.

    A question is often asked while a transaction waits, so that one that nobody answers is given up
    after 7 s; a request with bytes after half a minute. Both are tried again in between.

    Raises:
        StoreRefused: the profile that the environment names is not there, or the like.
    """
    with our_errors(str(place)):
        session = boto3.session.Session()
        return (
            _client(session, place, connect_seconds=3, read_seconds=10, tries=3),
            _client(session, place, connect_seconds=2, read_seconds=3, tries=2),
        )


@stamina.retry(on=ResponseStreamingError, attempts=3, wait_initial=0.2, wait_jitter=0.1)
def read_whole(
    ask: "Callable[[], GetObjectOutputTypeDef]",
) -> "tuple[bytes, GetObjectOutputTypeDef]":
    """The body of what `ask` is answered, and the answer; asked again when the body breaks off.

    The clients repeat by themselves what fails before the body begins.
    """
    answer = ask()
    try:
        return answer["Body"].read(), answer
    except BROKEN_WAYS as error:
        raise ResponseStreamingError(error=error) from error


def _client(
    session: boto3.session.Session,
    place: BucketPlace,
    *,
    connect_seconds: int,
    read_seconds: int,
    tries: int,
) -> "S3Client":
    # The types of all other services, which nobody installs, are unknown.
    return session.client(  # pyright: ignore[reportUnknownMemberType]
        "s3",
        endpoint_url=place.endpoint,
        region_name=place.region,
        config=Config(
            connect_timeout=connect_seconds,
            read_timeout=read_seconds,
            retries={"mode": "standard", "total_max_attempts": tries},
            max_pool_connections=_CONNECTIONS,
            signature_version="s3v4",
            # A name before the host's is Amazon's way; other servers rarely have such names.
            s3={"addressing_style": "auto" if place.endpoint is None else "path"},
            # We send SHA-256 wherever it counts; not every server knows what is sent by default.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        ),
    )
