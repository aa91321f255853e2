"""Everything that one store holds, copied into another: to move house, or to keep a second copy."""

from collections.abc import Callable
from dataclasses import dataclass

from storage.blobs.artifacts import ArtifactStore
from storage.errors import ArtifactDamaged, ArtifactNotFound


@dataclass(frozen=True)
class Copied:
    """How a copy stands."""

    total: int
    """Artifacts that the source held when the copy began."""
    copied: int = 0
    present: int = 0
    """Artifacts that the target had already."""
    gone: int = 0
    """Artifacts that were removed from the source meanwhile."""
    size: int = 0
    """Bytes that were copied."""
    damaged: tuple[str, ...] = ()
    """Artifacts that are damaged in the source, and so are not in the target."""

    @property
    def done(self) -> int:
        """Artifacts that were looked at."""
        return self.copied + self.present + self.gone + len(self.damaged)


def copy_artifacts(
    source: ArtifactStore, target: ArtifactStore, *, told: Callable[[Copied], None]
) -> Copied:
    """Copy what is not there yet; done again after an interruption, it goes on where it was.

    Every artifact is checked against its digest as it is read, and again as it is written. Those
    that are there with the right size were whole when they appeared, and are left alone.

    Args:
        source: only read; it may be in use meanwhile.
        target: nothing is removed from it.
        told: a function, called after each artifact.

    Raises:
        StoreUnavailable: one of the stores does not answer.
        StoreFull: the target takes no more.
    """
    digests = sorted(source.digests())
    so_far = Copied(total=len(digests))
    for digest in digests:
        so_far = _copied(source, target, digest, so_far)
        told(so_far)
    return so_far


def _copied(source: ArtifactStore, target: ArtifactStore, digest: str, so_far: Copied) -> Copied:
    counts = {"copied": so_far.copied, "present": so_far.present, "gone": so_far.gone}
    size, damaged = so_far.size, so_far.damaged
    try:
        bytes_there = source.size(digest)
        if _size_in(target, digest) == bytes_there:
            counts["present"] += 1
        else:
            with source.open_reader(digest) as reader:
                target.write(digest, reader)
            counts["copied"] += 1
            size += bytes_there
    except ArtifactNotFound:
        counts["gone"] += 1
    except ArtifactDamaged:
        damaged = (*damaged, digest)
    return Copied(total=so_far.total, size=size, damaged=damaged, **counts)


def _size_in(store: ArtifactStore, digest: str) -> int | None:
    try:
        return store.size(digest)
    except ArtifactNotFound:
        return None
