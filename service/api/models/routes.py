"""Trained models of users: upload, look at, download, delete."""

from anyio import to_thread
from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from search.training.model_reading import ModelOptions
from service.api.models.schemas import AnyModelDetail, ModelPage
from service.api.models.sources import source_of
from service.api.paths import model_path
from service.api.resources import Held, PageCursor, PageLimit
from service.api.stored_files import Wanted, file_responses, stored_file
from service.api.uploads.taken import answer, form_schema, take
from service.http.problems import documented
from storage.records import ArtifactRecord
from storage.repositories.uploads import UploadedModels

PREFIX = "/v1/models"
"""Paths under which a request's body may be as large as an upload."""

router = APIRouter(prefix=PREFIX, tags=["models"])


_FORM = form_schema(
    ModelOptions,
    file="safetensors: a checkpoint of ours, or the state dict of plain nn.RNN, nn.LSTM, nn.GRU "
    "and nn.Linear layers; or an ONNX file (.onnx) of any network, without external data",
)


@router.post(
    "",
    status_code=201,
    responses={
        200: {"model": AnyModelDetail, "description": "The same file was there already"},
        **documented(400, 403, 413, 422, 507),
    },
    openapi_extra=_FORM,
)
async def upload_model(request: Request, held: Held, response: Response) -> AnyModelDetail:
    """Upload a trained model; the same file, read in the same way, is stored once.

    It is a safetensors file and never a pickle, with numbers of type float16, bfloat16, float32 or
    float64, which are stored as float32; or an ONNX file, which is stored as it was sent and read
    with limits of memory and time. The end of the file's name tells which, or else its content.
    """
    taken = await take(request, held, held.model_intake)
    model = answer(response, taken, model_path(taken.record.id))
    return await to_thread.run_sync(lambda: source_of(model).detail())


@router.get("", responses=documented(403, 422))
def list_models(held: Held, limit: PageLimit = 50, cursor: PageCursor = None) -> ModelPage:
    """Uploaded models, newest first."""
    with held.database.read() as session:
        page = UploadedModels(session).page(limit=limit, cursor=cursor)
    return ModelPage(
        items=tuple(source_of(model).document() for model in page.items),
        next_cursor=page.next_cursor,
    )


@router.get("/{model_id}", responses=documented(403, 404))
def describe_model(model_id: str, held: Held) -> AnyModelDetail:
    """What an uploaded model is: its architecture, tensors and tasks, or its graph and layers."""
    with held.database.read() as session:
        model = UploadedModels(session).get(model_id)
    return source_of(model).detail()


@router.get(
    "/{model_id}/checkpoint",
    response_class=StreamingResponse,
    responses={
        **file_responses("safetensors with the spec in its metadata, or ONNX as it was sent"),
        **documented(403, 404, 416, 422),
    },
)
def get_model_checkpoint(model_id: str, held: Held, wanted: Wanted) -> Response:
    """The model as a checkpoint of our own form, or its ONNX file; `ETag` is its SHA-256."""
    with held.database.read() as session:
        model = UploadedModels(session).get(model_id)
    artifact = ArtifactRecord(sha256=model.sha256, size=model.size, created_at=model.created_at)
    return stored_file(held, artifact, wanted, filename=source_of(model).filename)


@router.delete("/{model_id}", status_code=204, responses=documented(403, 404, 409))
def delete_model(model_id: str, held: Held) -> None:
    """Delete a model; no study that has not ended may compress it."""
    held.model_intake.delete(model_id)
