"""The artifact store of a process, as its settings name it."""

import logging

from service.settings import Settings
from storage.blobs.artifacts import ArtifactStore
from storage.blobs.stores import open_store
from storage.errors import StoreRefused, StoreUnavailable

_log = logging.getLogger(__name__)


def open_artifacts(settings: Settings) -> ArtifactStore:
    """The store that the settings name; nothing is asked of a server yet.

    Raises:
        StoreRefused: the library for buckets is missing, or what it needs to know.
    """
    return open_store(settings.artifacts_place, reserve_bytes=settings.disk_reserve)


def check_artifacts(settings: Settings) -> None:
    """Prove, before a server starts, that its store lets it in.

    One that does not answer is no reason not to start: studies wait for it.

    Raises:
        StoreRefused: there is no such bucket, or the credentials are none for it.
    """
    store = open_artifacts(settings)
    try:
        store.check_access()
    except StoreRefused:
        raise
    except StoreUnavailable as error:
        _log.warning("the artifact store is away", extra={"reason": str(error)})
