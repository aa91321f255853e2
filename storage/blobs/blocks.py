"""Large artifacts read from afar: in blocks, each checked before a byte of it is handed out.

See Note [Blocks] in the README.
"""

import hashlib
import io
from collections.abc import Callable
from typing import TYPE_CHECKING, final

from storage.errors import StoredBytesDamaged

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

BLOCK_BYTES = 8 << 20
"""The size of each block but the last: enough for a network to be busy, little for a memory."""

_DIGEST_BYTES = 32

Fetch = Callable[[int], bytes]
"""The block of a number, counted from zero."""


def block_count(size: int) -> int:
    """How many blocks so many bytes are."""
    return -(-size // BLOCK_BYTES)


@final
class BlockList:
    """The digests of an artifact's blocks, in their order."""

    def __init__(self, artifact_id: str, size: int, digests: bytes) -> None:
        self._artifact_id = artifact_id
        self._size = size
        self._digests = digests

    @classmethod
    def parse(cls, artifact_id: str, size: int, stored: bytes) -> "BlockList | None":
        """The list that `to_bytes` gave; none if these bytes are not the list of this artifact."""
        found = cls(artifact_id, size, stored[:-_DIGEST_BYTES])
        return found if found.to_bytes() == stored and found._is_complete() else None

    def to_bytes(self) -> bytes:
        """The digests, and behind them that of all that they depend on."""
        about = f"{self._artifact_id} {self._size} {BLOCK_BYTES} ".encode()
        return self._digests + hashlib.sha256(about + self._digests).digest()

    def check(self, number: int, block: bytes) -> None:
        """Prove that these bytes are the block of this number.

        Raises:
            StoredBytesDamaged: they are not.
        """
        start = number * _DIGEST_BYTES
        if hashlib.sha256(block).digest() != self._digests[start : start + _DIGEST_BYTES]:
            raise StoredBytesDamaged(
                f"block {number} of the stored artifact {self._artifact_id}, {len(block)} bytes, "
                "is not what was written"
            )

    def _is_complete(self) -> bool:
        return len(self._digests) == _DIGEST_BYTES * block_count(self._size)


@final
class BlockReader(io.RawIOBase):
    """An artifact's bytes, fetched block by block as they are read; one block is held."""

    def __init__(
        self, artifact_id: str, size: int, blocks: BlockList, fetch: Fetch, *, first: bytes
    ) -> None:
        """Read from the first byte on; `first` is block 0, which was fetched to learn the size.

        Raises:
            StoredBytesDamaged: block 0 is not what was written.
        """
        super().__init__()
        self._artifact_id = artifact_id
        self._size = size
        self._blocks = blocks
        self._fetch = fetch
        self._place = 0
        self._held = (-1, b"")
        self._whole = hashlib.sha256()
        self._hashed = 0
        """Blocks that the digest of the whole has seen: the first ones, in their order."""
        self._hold(0, first)

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is, at the cost of at most one block."""
        return True

    def tell(self) -> int:
        """The place of the next byte."""
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Go to a place; nothing is fetched before the next read."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}[whence]
        if start + offset < 0:
            raise ValueError(f"there is no byte {start + offset}")
        self._place = start + offset
        return self._place

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        """Read to the end of a block at most.

        Raises:
            StoredBytesDamaged: what is stored is not what was written.
        """
        if self._place >= self._size:
            return 0
        number, start = divmod(self._place, BLOCK_BYTES)
        if self._held[0] != number:
            # Let go of the one before, or two would be held while the next one comes.
            self._held = (-1, b"")
            self._hold(number, self._fetch(number))
        into = memoryview(buffer).cast("B")
        piece = self._held[1][start : start + len(into)]
        into[: len(piece)] = piece
        self._place += len(piece)
        return len(piece)

    def _hold(self, number: int, block: bytes) -> None:
        self._blocks.check(number, block)
        if number == self._hashed:
            self._whole.update(block)
            self._hashed += 1
            if self._hashed == block_count(self._size):
                self._check_whole()
        self._held = (number, block)

    def _check_whole(self) -> None:
        digest = self._whole.hexdigest()
        if digest != self._artifact_id:
            raise StoredBytesDamaged(
                f"the stored artifact {self._artifact_id} has the digest {digest}"
            )
