"""Artifacts as objects of a bucket: Amazon S3, or a server that speaks its protocol.

An artifact is the object `<prefix>sha256/<digest>`. S3 shows an object when all of it has arrived,
so that one that is found is whole. Writing the same bytes again replaces them by themselves:
no condition is needed, and the object's age begins anew, which keeps it from a sweep. Each part is
sent with its SHA-256, for the server to check, and each read is checked here.

The client is boto3. obstore (0.12) would bring other clouds' buckets along, but it neither lists
nor aborts the uploads that a killed writer left unfinished, so that `sweep` could not end them; its
presigned URLs have no room for a file's name; it reads no AWS profile; and what a server said is
found only within a text that also names the host.
"""

import base64
import hashlib
import io
import logging
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, BinaryIO, cast, final

from botocore.exceptions import ClientError

from storage.batches import batched
from storage.blobs.artifacts import DIGEST, ArtifactStore, not_found
from storage.blobs.blocks import BLOCK_BYTES, BlockList, BlockReader, block_count
from storage.blobs.bucket_client import clients_of, read_whole
from storage.blobs.bucket_errors import is_absent, our_errors, status_of
from storage.blobs.places import BucketPlace
from storage.errors import (
    ArtifactDamaged,
    ArtifactNotFound,
    StorageError,
    StoredBytesDamaged,
    StoreUnavailable,
)

if TYPE_CHECKING:
    from types_boto3_s3.type_defs import CompletedPartTypeDef, GetObjectOutputTypeDef

logger = logging.getLogger(__name__)

_OUT_OF_RANGE = 416
_PROVEN_SECONDS = 10.0
"""How long a proof holds that something can be stored; meanwhile it is enough that S3 answers."""

_DELETED_AT_ONCE = 500
"""S3 takes 1000 keys in a request, and each artifact may have two."""

_LONGEST_UPLOAD_SECONDS = 24 * 3600.0


@final
class S3ArtifactStore:
    """Artifacts in a bucket; one may be used from several threads, and not across a fork."""

    def __init__(self, place: BucketPlace) -> None:
        """Prepare to speak to the bucket when it is first needed.

        Credentials are found as every AWS program finds them: in the environment, a profile, or the
        role of the machine.

        Raises:
            StoreRefused: the profile that the environment names is not there, or the like.
        """
        self._place = place
        self._bucket = place.bucket
        self._artifacts = f"{place.prefix}sha256/"
        self._lists = f"{place.prefix}blocks/"
        self._proven_at: float | None = None
        self._was_used = False
        self._bytes, self._asked = clients_of(place)

    def __str__(self) -> str:
        """The bucket and the prefix."""
        return str(self._place)

    def open_reader(self, artifact_id: str) -> BinaryIO:
        """See `ArtifactStore`; of large artifacts each block is checked when it is read."""
        key = self._key(artifact_id)
        first, size = self._block(key, artifact_id, 0)
        if size <= BLOCK_BYTES:
            digest = hashlib.sha256(first).hexdigest()
            if digest != artifact_id:
                raise StoredBytesDamaged(
                    f"the stored artifact {artifact_id} has the digest {digest}"
                )
            return io.BytesIO(first)

        def fetch(number: int) -> bytes:
            return self._block(key, artifact_id, number)[0]

        blocks = self._block_list(artifact_id, size)
        if blocks is None:
            blocks = self._listed_anew(artifact_id, size, fetch)
        reader = BlockReader(artifact_id, size, blocks, fetch, first=first)
        return cast("BinaryIO", io.BufferedReader(reader))

    def write(self, artifact_id: str, content_body: BinaryIO) -> None:
        """See `ArtifactStore`; never more than a few blocks are in memory."""
        if not DIGEST.fullmatch(artifact_id):
            raise ArtifactDamaged(f"{artifact_id[:80]!r} is not the SHA-256 of any bytes")
        first = _filled(content_body)
        following = _filled(content_body) if len(first) == BLOCK_BYTES else b""
        if following:
            self._write_blocks(artifact_id, first, following, content_body)
            return
        _check(artifact_id, hashlib.sha256(first).hexdigest())
        self._put(self._key(artifact_id), first)

    def remove(self, artifact_id: str) -> None:
        """See `ArtifactStore`."""
        self.size(artifact_id)
        self.remove_all([artifact_id])

    def remove_all(self, artifact_ids: Sequence[str]) -> int:
        """See `ArtifactStore`; S3 does not say which of them were there."""
        removed = 0
        for batch in batched(filter(DIGEST.fullmatch, artifact_ids), _DELETED_AT_ONCE):
            keys = [key for one in batch for key in (self._key(one), f"{self._lists}{one}")]
            with our_errors(str(self)):
                answer = self._asked.delete_objects(
                    Bucket=self._bucket,
                    Delete={"Objects": [{"Key": key} for key in keys], "Quiet": True},
                )
            for fault in answer.get("Errors", []):
                raise StoreUnavailable(f"{self} does not remove: {fault.get('Code', 'no reason')}")
            removed += len(batch)
        return removed

    def size(self, artifact_id: str) -> int:
        """See `ArtifactStore`."""
        with our_errors(str(self)), _absent_as_ours(artifact_id):
            found = self._asked.head_object(Bucket=self._bucket, Key=self._key(artifact_id))
        return found["ContentLength"]

    def link(self, artifact_id: str, *, filename: str, seconds: int) -> str | None:
        """See `ArtifactStore`: a presigned URL, made without asking the server."""
        with our_errors(str(self)):
            return self._asked.generate_presigned_url(
                "get_object",
                Params={
                    "Bucket": self._bucket,
                    "Key": self._key(artifact_id),
                    "ResponseContentDisposition": f'attachment; filename="{filename}"',
                },
                ExpiresIn=seconds,
            )

    def check_access(self) -> None:
        """Prove that the bucket is there and lets us look into it.

        Raises:
            StoreRefused: it is not, or does not.
        """
        with our_errors(str(self)):
            self._asked.head_bucket(Bucket=self._bucket)

    def check_room(self) -> None:
        """See `ArtifactStore`: now and then an object is written, else the bucket only answers."""
        proven = self._proven_at
        if proven is not None and time.monotonic() - proven < _PROVEN_SECONDS:
            self.check_access()
            return
        self._proven_at = None
        with our_errors(str(self)):
            self._asked.put_object(Bucket=self._bucket, Key=f"{self._place.prefix}probe", Body=b"?")
        self._proven_at = time.monotonic()

    def is_new(self) -> bool:
        """Whether there is no artifact; not asked again once there was one."""
        if not self._was_used:
            with our_errors(str(self)):
                found = self._asked.list_objects_v2(
                    Bucket=self._bucket, Prefix=self._artifacts, MaxKeys=1
                )
            self._was_used = found["KeyCount"] > 0
        return not self._was_used

    def digests(self, *, older_than_seconds: float = 0.0) -> Iterator[str]:
        """See `ArtifactStore`; ages are by the server's clock, to the second."""
        before = datetime.now(UTC) - timedelta(seconds=older_than_seconds)
        for name, written_at in self._names(self._artifacts):
            if DIGEST.fullmatch(name) and written_at <= before:
                yield name

    def sweep(self, *, older_than_seconds: float = _LONGEST_UPLOAD_SECONDS) -> int:
        """Remove parts of uploads that nobody finished, and lists of blocks without an artifact."""
        before = datetime.now(UTC) - timedelta(seconds=older_than_seconds)
        swept = 0
        for key, upload in self._unfinished(before):
            swept += self._abort(key, upload)
        for name, written_at in self._names(self._lists):
            if written_at > before:
                continue
            try:
                self.size(name)
            except ArtifactNotFound:
                swept += self.remove_all([name])
        if swept:
            logger.info("swept unfinished artifacts", extra={"pieces": swept})
        return swept

    def _write_blocks(
        self, artifact_id: str, first: bytes, following: bytes, rest: BinaryIO
    ) -> None:
        key = self._key(artifact_id)
        with our_errors(str(self)):
            upload = self._bytes.create_multipart_upload(
                Bucket=self._bucket, Key=key, ChecksumAlgorithm="SHA256"
            )["UploadId"]
        whole, size, digests = hashlib.sha256(), 0, b""
        parts: list[CompletedPartTypeDef] = []
        try:
            for number, block in enumerate(_blocks(first, following, rest), start=1):
                parts.append(self._put_part(key, upload, number, block))
                whole.update(block)
                size += len(block)
                digests += hashlib.sha256(block).digest()
            _check(artifact_id, whole.hexdigest())
            # Before the artifact appears, see Note [Blocks].
            blocks = BlockList(artifact_id, size, digests)
            self._put(f"{self._lists}{artifact_id}", blocks.to_bytes())
            with our_errors(str(self)):
                self._bytes.complete_multipart_upload(
                    Bucket=self._bucket, Key=key, UploadId=upload, MultipartUpload={"Parts": parts}
                )
        except BaseException:
            self._abort(key, upload)
            raise

    def _put_part(self, key: str, upload: str, number: int, block: bytes) -> "CompletedPartTypeDef":
        checksum = _checksum(block)
        with our_errors(str(self)):
            taken = self._bytes.upload_part(
                Bucket=self._bucket,
                Key=key,
                UploadId=upload,
                PartNumber=number,
                Body=block,
                ChecksumSHA256=checksum,
            )
        return {"PartNumber": number, "ETag": taken["ETag"], "ChecksumSHA256": checksum}

    def _put(self, key: str, content: bytes) -> None:
        with our_errors(str(self)):
            self._bytes.put_object(
                Bucket=self._bucket,
                Key=key,
                Body=content,
                ChecksumSHA256=_checksum(content),
            )

    def _abort(self, key: str, upload: str) -> bool:
        """Let S3 forget an upload; one that it keeps is swept another time."""
        try:
            with our_errors(str(self)):
                self._asked.abort_multipart_upload(Bucket=self._bucket, Key=key, UploadId=upload)
        except StorageError as error:
            logger.warning("an upload was not aborted", extra={"reason": str(error)})
            return False
        return True

    def _block(self, key: str, artifact_id: str, number: int) -> tuple[bytes, int]:
        """A block, and how many bytes the artifact has in all."""
        start = number * BLOCK_BYTES
        part = f"bytes={start}-{start + BLOCK_BYTES - 1}"

        def get() -> "GetObjectOutputTypeDef":
            return self._bytes.get_object(Bucket=self._bucket, Key=key, Range=part)

        with our_errors(str(self)), _absent_as_ours(artifact_id):
            try:
                block, answer = read_whole(get)
            except ClientError as error:
                # Of no bytes there is no first one; of fewer than there were, no later one.
                if status_of(error) == _OUT_OF_RANGE:
                    return b"", 0
                raise
        return block, int(answer["ContentRange"].rpartition("/")[2])

    def _block_list(self, artifact_id: str, size: int) -> BlockList | None:
        """The list as it was written; none if there is none, or no good one."""

        def get() -> "GetObjectOutputTypeDef":
            return self._bytes.get_object(Bucket=self._bucket, Key=f"{self._lists}{artifact_id}")

        with our_errors(str(self)):
            try:
                return BlockList.parse(artifact_id, size, read_whole(get)[0])
            except ClientError as error:
                if is_absent(error):
                    return None
                raise

    def _listed_anew(self, artifact_id: str, size: int, fetch: Callable[[int], bytes]) -> BlockList:
        """The list of the blocks as they are, once their digest is proven."""
        whole, digests = hashlib.sha256(), b""
        for number in range(block_count(size)):
            block = fetch(number)
            whole.update(block)
            digests += hashlib.sha256(block).digest()
        if whole.hexdigest() != artifact_id:
            raise ArtifactDamaged(
                f"the stored artifact {artifact_id} has the digest {whole.hexdigest()}"
            )
        blocks = BlockList(artifact_id, size, digests)
        self._put(f"{self._lists}{artifact_id}", blocks.to_bytes())
        return blocks

    def _names(self, prefix: str) -> Iterator[tuple[str, datetime]]:
        """What stands behind a prefix in the keys that have it, and when it was written."""
        pages = self._asked.get_paginator("list_objects_v2")
        with our_errors(str(self)):
            for page in pages.paginate(Bucket=self._bucket, Prefix=prefix):
                for item in page.get("Contents", []):
                    if "Key" in item and "LastModified" in item:
                        yield item["Key"].removeprefix(prefix), item["LastModified"]

    def _unfinished(self, before: datetime) -> list[tuple[str, str]]:
        pages = self._asked.get_paginator("list_multipart_uploads")
        with our_errors(str(self)):
            return [
                (upload["Key"], upload["UploadId"])
                for page in pages.paginate(Bucket=self._bucket, Prefix=self._artifacts)
                for upload in page.get("Uploads", [])
                if "Key" in upload
                and "UploadId" in upload
                and "Initiated" in upload
                and upload["Initiated"] <= before
            ]

    def _key(self, artifact_id: str) -> str:
        if not DIGEST.fullmatch(artifact_id):
            raise not_found(artifact_id)
        return f"{self._artifacts}{artifact_id}"


@contextmanager
def _absent_as_ours(artifact_id: str) -> Generator[None]:
    try:
        yield
    except ClientError as error:
        if not is_absent(error):
            raise
        raise not_found(artifact_id) from error


def _check(artifact_id: str, digest: str) -> None:
    if digest != artifact_id:
        raise ArtifactDamaged(f"the bytes sent as {artifact_id} have the digest {digest}")


def _checksum(content: bytes) -> str:
    """The SHA-256 as S3 is given it."""
    return base64.b64encode(hashlib.sha256(content).digest()).decode()


def _blocks(first: bytes, following: bytes, rest: BinaryIO) -> Iterator[bytes]:
    yield first
    block = following
    while block:
        yield block
        block = _filled(rest) if len(block) == BLOCK_BYTES else b""


def _filled(stream: BinaryIO) -> bytes:
    """A whole block, however slowly the stream gives it; less only at its end."""
    pieces: list[bytes] = []
    left = BLOCK_BYTES
    while left > 0 and (piece := stream.read(left)):
        pieces.append(piece)
        left -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


if TYPE_CHECKING:
    # A mistake in the methods above is a type error here.
    _: ArtifactStore = S3ArtifactStore(BucketPlace("bucket"))
