"""Collections from the client: submit, look at, steer, and compare over data sets."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from pydantic import BaseModel

from service.api.collections.schemas import (
    CollectionDocument,
    CollectionDryRun,
    CollectionEntry,
    CollectionPage,
    RanksDocument,
    ResultsDocument,
)
from service.api.paths import COLLECTIONS, collection_path
from service.client.studies import spec_document
from service.client.transport.described import Described
from service.client.transport.steps import Steps, Stream, call, stream


class CollectionCalls(Described):
    """The calls for several tasks or data sets at once."""

    @call
    def submit_collection(
        self, spec: Mapping[str, Any] | BaseModel, *, idempotency_key: str | None = None
    ) -> Steps[CollectionDocument]:
        """Store a study for each of several tasks or data sets: all of them, or none.

        The same key with the same document gives the same collection; one is made where none is
        given, so that repeating after a fault stores nothing twice.

        Args:
            spec: a study's document whose `task.name` or `task.id` is a list, or which has `tasks`.
            idempotency_key: as with `submit`.
        """
        headers = {"Idempotency-Key": idempotency_key or uuid.uuid4().hex}
        return (
            yield from self.ask(
                CollectionDocument, "POST", COLLECTIONS, body=spec_document(spec), headers=headers
            )
        )

    @call
    def dry_run_collection(self, spec: Mapping[str, Any] | BaseModel) -> Steps[CollectionDryRun]:
        """Describe what the studies of a collection would search, and store nothing."""
        params = {"dry_run": "true"}
        return (
            yield from self.ask(
                CollectionDryRun, "POST", COLLECTIONS, body=spec_document(spec), params=params
            )
        )

    @stream
    def collections(self) -> Stream[CollectionEntry]:
        """All collections, newest first."""
        yield from self.pages(CollectionPage, COLLECTIONS, {})

    @call
    def collection(
        self, collection_id: str, *, patience: float | None = None
    ) -> Steps[CollectionDocument]:
        """One collection, and where each of its studies stands.

        Args:
            collection_id: the collection.
            patience: seconds that the server may stay away; by default the client's.
        """
        path = collection_path(collection_id)
        return (yield from self.ask(CollectionDocument, "GET", path, patience=patience))

    @call
    def collection_results(self, collection_id: str) -> Steps[ResultsDocument]:
        """The best trial and the front of each data set, so far."""
        path = f"{collection_path(collection_id)}/results"
        return (yield from self.ask(ResultsDocument, "GET", path))

    @call
    def collection_table(self, collection_id: str, *, format: str = "markdown") -> Steps[str]:
        """The same as text: `csv`, or `markdown` with the ranks."""
        path = f"{collection_path(collection_id)}/results"
        return (yield from self._text(path, format=format))

    @call
    def collection_ranks(
        self, collection_id: str, *, kinds: Sequence[str] = ()
    ) -> Steps[RanksDocument]:
        """Mean ranks of kinds of models over the data sets, and tests of their differences.

        Args:
            collection_id: the collection.
            kinds: which are compared, as `gru dense`; by default all that any study trained.

        Raises:
            Refused: no study trained such a kind.
        """
        query = urlencode([("kinds", kind) for kind in kinds])
        path = f"{collection_path(collection_id)}/ranks?{query}"
        return (yield from self.ask(RanksDocument, "GET", path))

    @call
    def pause_collection(self, collection_id: str) -> Steps[CollectionDocument]:
        """Pause all studies of a collection. Asking twice is harmless."""
        path = f"{collection_path(collection_id)}/pause"
        return (yield from self.ask(CollectionDocument, "POST", path))

    @call
    def resume_collection(self, collection_id: str) -> Steps[CollectionDocument]:
        """Resume all paused studies of a collection. Asking twice is harmless."""
        path = f"{collection_path(collection_id)}/resume"
        return (yield from self.ask(CollectionDocument, "POST", path))

    @call
    def cancel_collection(self, collection_id: str) -> Steps[CollectionDocument]:
        """End all studies of a collection at once. Asking twice is harmless."""
        path = f"{collection_path(collection_id)}/cancel"
        return (yield from self.ask(CollectionDocument, "POST", path))

    @call
    def delete_collection(self, collection_id: str) -> Steps[None]:
        """Delete a collection with all of its studies, which have ended."""
        yield from self._remove(collection_path(collection_id))
