"""The one door to artifact stores: from a place to the store that keeps artifacts there."""

from storage.blobs.artifacts import ArtifactStore
from storage.blobs.folder import LocalArtifactStore
from storage.blobs.places import BucketPlace, FolderPlace, Place
from storage.errors import StoreRefused


def open_store(place: Place, *, reserve_bytes: int = 0) -> ArtifactStore:
    """The store at a place; nothing is asked of a server yet.

    So many bytes of a folder's disk are left free for others.

    Raises:
        StoreRefused: the library is missing, or what it needs to know.
    """
    if isinstance(place, FolderPlace):
        return LocalArtifactStore(place.path, reserve_bytes=reserve_bytes)
    return _open_bucket(place)


def _open_bucket(place: BucketPlace) -> ArtifactStore:
    # Artifacts in a folder need no library of Amazon's, and no process imports it.
    try:
        from storage.blobs.bucket import S3ArtifactStore
    except ModuleNotFoundError as error:
        raise StoreRefused(
            f"{place} needs a library that is not installed ({error.name}): "
            "pip install 'reflectory[s3]'"
        ) from error
    return S3ArtifactStore(place)
