"""Collections: several tasks or data sets at once, with an ordinary study for each."""

from collections.abc import Callable
from typing import Annotated, Literal

from fastapi import APIRouter, Header, Query, Response

from search.collections import CollectionSpec, submit_collection, try_collection
from search.dispatch.claim_policy import places_for
from search.studies import commands, removal
from search.studies import states as studies
from service.api.collections.documents import (
    collection_document,
    collection_entries,
    members_of,
    ranks_document,
    results_document,
)
from service.api.collections.schemas import (
    CollectionDocument,
    CollectionDryRun,
    CollectionPage,
    RanksDocument,
    ResultsDocument,
    SetDryRun,
)
from service.api.collections.tables import MARKDOWN, results_csv, results_markdown
from service.api.fronts.csv_tables import CSV
from service.api.paths import COLLECTIONS, collection_path
from service.api.resources import Held, PageCursor, PageLimit, Resources
from service.api.stored_files import text
from service.api.waiting import PATIENCE_SECONDS, wait_for
from service.http.problems import documented
from service.webhooks.addresses import refuse_unreachable
from storage.accounts.audit import Audit
from storage.errors import Conflict
from storage.repositories.collections import Collections
from storage.repositories.studies import listed

router = APIRouter(prefix=COLLECTIONS, tags=["collections"])


@router.post(
    "",
    name="submit_collection",
    status_code=202,
    responses={
        200: {"model": CollectionDryRun, "description": "Dry run: what would be searched"},
        **documented(403, 404, 409, 413, 422),
    },
)
def submit(
    spec: CollectionSpec,
    held: Held,
    response: Response,
    dry_run: Annotated[
        bool, Query(description="check and describe the spaces; store nothing")
    ] = False,
    idempotency_key: Annotated[
        str | None,
        Header(
            min_length=1,
            max_length=200,
            description="repeating a request with the same key and document gives the same "
            "collection",
        ),
    ] = None,
) -> CollectionDocument | CollectionDryRun:
    """Submit a study for each of several tasks or data sets: all of them, or none.

    The document is that of a study, whose `task.name` (of uploads, `task.id`) is a list, or which
    has a list `tasks` instead. `budget` holds for each study, `collection_budget` for all together.
    """
    one = spec.studies[0].spec
    refuse_unreachable(one, allow_private=held.settings.webhook_private)
    with held.database.read() as session:
        places = places_for(session, one.resources, lease_seconds=held.settings.lease_seconds)
    if dry_run:
        response.status_code = 200
        found = try_collection(held.database, spec, sources=held.sources, places=places)
        return CollectionDryRun(
            studies=tuple(SetDryRun(row=row, study=study) for row, study in found.items())
        )
    collection = submit_collection(
        held.database,
        spec,
        sources=held.sources,
        idempotency_key=idempotency_key,
        places=places,
    )
    response.headers["Location"] = collection_path(collection.id)
    return _now(collection.id, held)


@router.get("", responses=documented(403, 422))
def list_collections(
    held: Held, limit: PageLimit = 50, cursor: PageCursor = None
) -> CollectionPage:
    """Collections, newest first."""
    with held.database.read() as session:
        page = Collections(session).page(limit=limit, cursor=cursor)
        return CollectionPage(
            items=collection_entries(session, page.items), next_cursor=page.next_cursor
        )


@router.get("/{collection_id}", responses=documented(403, 404))
def get_collection(collection_id: str, held: Held) -> CollectionDocument:
    """One collection, and where each of its studies stands."""
    return _now(collection_id, held)


@router.get(
    "/{collection_id}/results",
    response_model=ResultsDocument,
    responses={
        200: {"content": text("text/csv", "text/markdown")},
        **documented(403, 404, 422),
    },
)
def get_results(
    collection_id: str,
    held: Held,
    format: Annotated[
        Literal["json", "csv", "markdown"],
        Query(description="`csv` has the best trial of each data set, `markdown` the ranks too"),
    ] = "json",
) -> ResultsDocument | Response:
    """The best trial and the front of each data set, so far or in the end."""
    with held.database.read() as session:
        collection = Collections(session).get(collection_id)
        results = results_document(session, collection, held.figures)
        if format == "json":
            return results
        if format == "csv":
            return Response(results_csv(results), media_type=CSV)
        ranks = ranks_document(session, collection, held.figures)
    return Response(results_markdown(results, ranks), media_type=MARKDOWN)


@router.get("/{collection_id}/ranks", responses=documented(403, 404, 422))
def get_ranks(
    collection_id: str,
    held: Held,
    kinds: Annotated[
        list[str] | None,
        Query(
            description="the kinds of models to compare, as `gru dense`; by default all that any "
            "study trained",
            examples=["gru dense"],
        ),
    ] = None,
) -> RanksDocument:
    """Mean ranks of kinds of models (architecture and parametrization) over the data sets.

    Within a data set a kind is ranked by the best validation quality among its trials; the test
    quality of that trial is reported. A data set that lacks a kind is left out for all. Kinds
    differ by Friedman's test, and in pairs by Wilcoxon's, or by signs
    where data sets have different metrics, adjusted by Holm (Demsar, JMLR 7, 2006).
    """
    with held.database.read() as session:
        collection = Collections(session).get(collection_id)
        return ranks_document(session, collection, held.figures, kinds or ())


@router.post("/{collection_id}/pause", responses=documented(403, 404))
def pause_collection(collection_id: str, held: Held) -> CollectionDocument:
    """Pause all studies of a collection that have not ended. Asking twice is harmless."""
    by = held.asker.label
    return _with_each(collection_id, held, lambda one: commands.pause(held.database, one, by=by))


@router.post("/{collection_id}/resume", responses=documented(403, 404))
def resume_collection(collection_id: str, held: Held) -> CollectionDocument:
    """Resume all paused studies of a collection. Asking twice is harmless."""
    return _with_each(collection_id, held, lambda one: commands.resume(held.database, one))


@router.post("/{collection_id}/cancel", responses=documented(403, 404))
def cancel_collection(collection_id: str, held: Held) -> CollectionDocument:
    """End all studies of a collection at once; what is complete stays.

    Asking twice is harmless.
    """
    by = held.asker.label
    return _with_each(collection_id, held, lambda one: studies.cancel(held.database, one, by=by))


@router.delete("/{collection_id}", status_code=204, responses=documented(403, 404, 409))
def delete_collection(collection_id: str, held: Held) -> Response:
    """Delete a collection with all of its studies, which must have ended.

    A deletion that breaks off is completed by the next one.
    """
    with held.database.read() as session:
        collection = Collections(session).get(collection_id)
        members, found = members_of(session, collection)
    going = [one.study_id for one in members if not found[one.study_id].state.has_ended]
    if going:
        raise Conflict(
            f"collection {collection_id!r} has not ended: {listed(going)} go on; cancel it first, "
            "and delete it when it has ended"
        )
    left: list[str] = []
    for member in members:
        removed = removal.delete(held.database, held.store, member.study_id)
        left.append(removed.command_id)
        for attempt in removed.attempts:
            (held.settings.logs_dir / f"{attempt}.log").unlink(missing_ok=True)
    with held.database.write() as session:
        Collections(session).delete(collection_id)
        Audit(session).note("collection.deleted", collection_id, name=collection.name)
    for command_id in left[-1:]:
        wait_for(held.database, command_id, seconds=PATIENCE_SECONDS)
    return Response(status_code=204)


def _with_each(
    collection_id: str, held: Resources, change: Callable[[str], object]
) -> CollectionDocument:
    """The collection after a change of each study."""
    with held.database.read() as session:
        Collections(session).get(collection_id)
        members = Collections(session).members([collection_id])[collection_id]
    for member in members:
        change(member.study_id)
    return _now(collection_id, held)


def _now(collection_id: str, held: Resources) -> CollectionDocument:
    with held.database.read() as session:
        collection = Collections(session).get(collection_id)
        return collection_document(session, collection, held.figures)
