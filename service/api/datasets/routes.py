"""Data sets: upload, look at, delete."""

from fastapi import APIRouter, Request, Response

from search.uploads.dataset_metadata import ReadingOptions
from search.uploads.uploads import SUFFIXES
from service.api.datasets.documents import dataset_document
from service.api.datasets.schemas import DatasetDocument, DatasetPage
from service.api.paths import dataset_path
from service.api.resources import Held, PageCursor, PageLimit
from service.api.uploads.taken import answer, form_schema, take
from service.http.problems import documented
from storage.repositories.uploads import Datasets

PREFIX = "/v1/datasets"
"""Paths under which a request's body may be as large as an upload."""

router = APIRouter(prefix=PREFIX, tags=["datasets"])


_FORM = form_schema(
    ReadingOptions,
    file=f"one of {', '.join(SUFFIXES)}",
    test="an official test part, of the same format",
)


@router.post(
    "",
    status_code=201,
    responses={
        200: {"model": DatasetDocument, "description": "The same files were there already"},
        **documented(400, 403, 413, 422, 507),
    },
    openapi_extra=_FORM,
)
async def upload_dataset(request: Request, held: Held, response: Response) -> DatasetDocument:
    """Upload a data set; the same files, read in the same way, are stored once."""
    taken = await take(request, held, held.intake)
    return dataset_document(answer(response, taken, dataset_path(taken.record.id)))


@router.get("", responses=documented(403, 422))
def list_datasets(held: Held, limit: PageLimit = 50, cursor: PageCursor = None) -> DatasetPage:
    """Data sets, newest first."""
    with held.database.read() as session:
        page = Datasets(session).page(limit=limit, cursor=cursor)
    return DatasetPage(
        items=tuple(dataset_document(dataset) for dataset in page.items),
        next_cursor=page.next_cursor,
    )


@router.get("/{dataset_id}", responses=documented(403, 404))
def describe_dataset(dataset_id: str, held: Held) -> DatasetDocument:
    """What a data set holds: shapes, classes, missing values, its first samples, or its arrays."""
    with held.database.read() as session:
        return dataset_document(Datasets(session).get(dataset_id))


@router.delete("/{dataset_id}", status_code=204, responses=documented(403, 404, 409))
def delete_dataset(dataset_id: str, held: Held) -> None:
    """Delete a data set; it must not be in use by a study that has not ended."""
    held.intake.delete(dataset_id)
