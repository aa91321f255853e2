"""Bytes named by their digest, in a folder or a bucket; knows nothing of rows."""

from storage.blobs.artifacts import (
    DIGEST,
    ArtifactStore,
    full_told,
    restore_if_missing,
    store_stream,
)
from storage.blobs.copies import Copied, copy_artifacts
from storage.blobs.folder import LocalArtifactStore
from storage.blobs.places import FORMS, BucketPlace, FolderPlace, Place, place_of
from storage.blobs.stores import open_store

__all__ = [
    "DIGEST",
    "FORMS",
    "ArtifactStore",
    "BucketPlace",
    "Copied",
    "FolderPlace",
    "LocalArtifactStore",
    "Place",
    "copy_artifacts",
    "full_told",
    "open_store",
    "place_of",
    "restore_if_missing",
    "store_stream",
]
