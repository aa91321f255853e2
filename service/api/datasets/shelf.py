"""Users' data sets, as tasks ask for them."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, TypeVar

from search.errors import DataError
from search.tasks.sources import DatasetShelf
from search.uploads.arrays import NO_ARRAYS, NO_SAMPLES
from search.uploads.dataset_metadata import ArrayFacts, DatasetFacts
from service.api.datasets.documents import facts_in
from storage.blobs.artifacts import ArtifactStore
from storage.engine import Database
from storage.errors import ArtifactDamaged, ArtifactNotFound, NotFound
from storage.records import DatasetRecord
from storage.repositories.uploads import Datasets

_Facts = TypeVar("_Facts", DatasetFacts, ArrayFacts)


class StoredDatasets:
    """The data sets of a database, with their bytes in an artifact store."""

    def __init__(self, database: Database, store: ArtifactStore) -> None:
        self._database = database
        self._store = store

    def facts(self, dataset_id: str) -> DatasetFacts:
        """See `DatasetShelf`."""
        return self._facts(dataset_id, DatasetFacts, NO_SAMPLES)

    def arrays(self, dataset_id: str) -> ArrayFacts:
        """See `DatasetShelf`."""
        return self._facts(dataset_id, ArrayFacts, NO_ARRAYS)

    def digest(self, dataset_id: str) -> str:
        """See `DatasetShelf`."""
        return self._get(dataset_id).container_sha256

    @contextmanager
    def open(self, dataset_id: str) -> Generator[BinaryIO]:
        """See `DatasetShelf`."""
        digest = self.digest(dataset_id)
        try:
            reader = self._store.open_reader(digest)
        except (ArtifactNotFound, ArtifactDamaged) as error:
            raise DataError(
                f"the bytes of data set {dataset_id!r} cannot be had: {error}; upload it again"
            ) from error
        with reader:
            yield reader

    def _facts(self, dataset_id: str, wanted: type[_Facts], otherwise: str) -> _Facts:
        facts = facts_in(self._get(dataset_id))
        if not isinstance(facts, wanted):
            raise DataError(otherwise)
        return facts

    def _get(self, dataset_id: str) -> DatasetRecord:
        try:
            with self._database.read() as session:
                return Datasets(session).get(dataset_id)
        except NotFound as error:
            raise DataError(
                f"there is no data set {dataset_id!r}; upload it, or name one of those that "
                "GET /v1/datasets lists"
            ) from error


if TYPE_CHECKING:
    # A mistake in the methods above is a type error here.
    _: type[DatasetShelf] = StoredDatasets
