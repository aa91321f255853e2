"""Which HTTP status each error of the packages below is answered with, and who does it."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match, Mount

from models.errors import (
    CheckpointError,
    ConversionError,
    ExportError,
    GraphRefused,
    InputError,
    InterpreterError,
    ModelError,
    RoundingError,
    SignatureError,
    SlotError,
    SpecError,
    ToolMissing,
)
from search.errors import (
    DataError,
    ExecutorError,
    MachineRefused,
    OriginalUnresolved,
    Refused,
    ReportRefused,
    SearchError,
    SpecRefused,
    TaskUnresolved,
    TrainingDiverged,
    UnknownName,
    WorkerRefused,
)
from search.logs import bound
from service.http.problem_document import Problem, ProblemFault, ReachedQuota
from service.http.problem_pages import PageOfProblem, wants_page
from service.http.problems import problem_response
from service.http.request_watch import REQUEST_ID, ids_of
from service.http.validation import faults
from storage.errors import (
    ArtifactDamaged,
    ArtifactNotFound,
    BadCursor,
    BadStoreUrl,
    ClaimLost,
    Conflict,
    DatabaseUnavailable,
    IdempotencyConflict,
    LeaseLost,
    NotFound,
    QuotaReached,
    SchemaMismatch,
    StorageError,
    StoredBytesDamaged,
    StoredBytesReached,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
    TooManyAtOnce,
    UnstorableValue,
)

_log = logging.getLogger(__name__)

_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


@dataclass(frozen=True)
class Answer:
    """How one class of errors is answered."""

    status: HTTPStatus
    kind: str
    """The problem's `type`, after `urn:reflectory:`."""
    title: str
    path: str | None = None
    """The part of a request that is at fault, where that is always the same."""


_OURS = HTTPStatus.INTERNAL_SERVER_ERROR
_WRONG = HTTPStatus.UNPROCESSABLE_ENTITY
_AWAY = HTTPStatus.SERVICE_UNAVAILABLE

ANSWERS: Mapping[type[Exception], Answer] = {
    ModelError: Answer(_OURS, "model", "A model could not be built"),
    SpecError: Answer(_WRONG, "model-spec", "The model cannot be built"),
    SignatureError: Answer(_WRONG, "signature", "The architecture does not fit the task"),
    SlotError: Answer(_WRONG, "slot", "The parametrization does not fit"),
    InputError: Answer(_WRONG, "input", "The input does not fit"),
    CheckpointError: Answer(_WRONG, "checkpoint", "No valid checkpoint"),
    ConversionError: Answer(_WRONG, "conversion", "The weights cannot be converted"),
    GraphRefused: Answer(_WRONG, "graph", "The ONNX file is not taken"),
    InterpreterError: Answer(_WRONG, "interpreter", "The ONNX file cannot be trained further"),
    RoundingError: Answer(_WRONG, "rounding", "The numbers are not rounded"),
    ToolMissing: Answer(_OURS, "tool-missing", "The server lacks a program to make this file"),
    ExportError: Answer(_OURS, "export", "The model has no such file"),
    SearchError: Answer(_OURS, "search", "The search failed"),
    SpecRefused: Answer(_WRONG, "spec-refused", "The spec cannot be run"),
    Refused: Answer(_WRONG, "refused", "The document is not taken"),
    ReportRefused: Answer(_WRONG, "report-refused", "A worker said what cannot be"),
    UnknownName: Answer(HTTPStatus.NOT_FOUND, "unknown-name", "The papers have no such thing"),
    DataError: Answer(_AWAY, "data", "The task's data is not there"),
    TaskUnresolved: Answer(_OURS, "internal", "The task was not looked at"),
    OriginalUnresolved: Answer(_OURS, "model-unresolved", "The model was not looked at"),
    TrainingDiverged: Answer(_WRONG, "diverged", "Training diverged"),
    WorkerRefused: Answer(HTTPStatus.CONFLICT, "worker-refused", "The lease is over"),
    MachineRefused: Answer(HTTPStatus.CONFLICT, "machine-refused", "The machine is not taken"),
    ExecutorError: Answer(_AWAY, "executor", "No attempt can start"),
    StorageError: Answer(_OURS, "storage", "The storage failed"),
    NotFound: Answer(HTTPStatus.NOT_FOUND, "not-found", "No such thing"),
    Conflict: Answer(HTTPStatus.CONFLICT, "conflict", "The present state forbids this"),
    IdempotencyConflict: Answer(
        _WRONG,
        "idempotency-conflict",
        "The idempotency key was used before",
        path="Idempotency-Key",
    ),
    QuotaReached: Answer(HTTPStatus.CONFLICT, "quota", "A quota is reached"),
    StoredBytesReached: Answer(HTTPStatus.INSUFFICIENT_STORAGE, "quota", "A quota is reached"),
    TooManyAtOnce: Answer(HTTPStatus.TOO_MANY_REQUESTS, "quota", "A quota is reached"),
    LeaseLost: Answer(HTTPStatus.CONFLICT, "lease-lost", "The lease is over"),
    ClaimLost: Answer(HTTPStatus.CONFLICT, "claim-lost", "Another coordinator has the study"),
    BadCursor: Answer(_WRONG, "bad-cursor", "No cursor of this list", path="cursor"),
    UnstorableValue: Answer(_WRONG, "unstorable", "A value cannot be stored"),
    ArtifactNotFound: Answer(HTTPStatus.NOT_FOUND, "no-artifact", "No such file"),
    StoreFull: Answer(HTTPStatus.INSUFFICIENT_STORAGE, "store-full", "The store has no room"),
    StoreUnavailable: Answer(_AWAY, "store", "The artifact store does not answer"),
    StoreRefused: Answer(_AWAY, "store-refused", "The artifact store lets nobody in"),
    BadStoreUrl: Answer(_WRONG, "store-url", "The URL names no artifact store"),
    ArtifactDamaged: Answer(_WRONG, "damaged", "The bytes are damaged"),
    StoredBytesDamaged: Answer(_OURS, "damaged-artifact", "The stored file is damaged"),
    SchemaMismatch: Answer(_AWAY, "schema", "The tables are of another version"),
    DatabaseUnavailable: Answer(_AWAY, "database", "The database does not answer"),
}


def answer_of(error: Exception) -> Answer:
    """The answer of the error's own class, or else of its nearest ancestor."""
    for ancestor in type(error).__mro__:
        if ancestor in ANSWERS:
            return ANSWERS[ancestor]
    raise LookupError(f"{type(error).__name__} is no error of the packages below")


def add_error_handlers(app: FastAPI) -> None:
    """Answer every error with a problem document."""
    for root in (ModelError, SearchError, StorageError):
        app.add_exception_handler(root, _known_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _invalid_request)
    app.add_exception_handler(Exception, _unexpected_error)


def problem_of(error: Exception) -> Response:
    """The answer to an error of the packages below."""
    answer = answer_of(error)
    is_over_quota = isinstance(error, QuotaReached)
    if answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR and not is_over_quota:
        _log.error("a request failed", exc_info=error)
    detail = str(error) or answer.title
    found = [] if answer.path is None else [ProblemFault(path=answer.path, message=detail)]
    if isinstance(error, Refused):
        found = [ProblemFault(path=fault.path, message=fault.message) for fault in error.faults]
    return problem_response(
        answer.status,
        detail,
        errors=found,
        kind=f"urn:reflectory:{answer.kind}",
        title=answer.title,
        reached=_reached(error),
        headers={"Retry-After": str(error.seconds)} if isinstance(error, TooManyAtOnce) else None,
    )


def count_refusal(app: FastAPI, error: Exception) -> None:
    """Count the error in `/metrics` if it refuses what is over a quota."""
    if isinstance(error, QuotaReached):
        app.state.resources.metrics.requests.over_quota(error.quota)


def _reached(error: Exception) -> ReachedQuota | None:
    if not isinstance(error, QuotaReached):
        return None
    return ReachedQuota(quota=error.quota, used=error.used, limit=error.limit)


def _known_error(request: Request, error: Exception) -> Response:
    count_refusal(request.app, error)
    with bound(**ids_of(request.scope)):
        return problem_of(error)


def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    detail = str(error.detail)
    if isinstance(error.__cause__, UnicodeDecodeError):
        detail = f"the body is not JSON in UTF-8: {error.__cause__}"
    # The framework's own detail is the bare phrase, which says nothing about this request.
    if detail == status.phrase:
        detail = f"{request.method} {request.url.path}: {status.description or status.phrase}"
    headers = dict(error.headers or {})
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = ", ".join(_allowed(request))
    return problem_response(status, detail, headers=headers)


def _allowed(request: Request) -> Iterable[str]:
    """All methods of a path, which may be those of several routes; the framework names one's."""
    routes = [route for route in request.app.routes if not isinstance(route, Mount)]
    found = [
        method
        for method in _METHODS
        if any(
            route.matches({**request.scope, "method": method})[0] == Match.FULL for route in routes
        )
    ]
    # Files that are mounted are only read.
    found = found or ["GET"]
    return [*found, "HEAD"] if "GET" in found else found


def _invalid_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = faults(error.errors(), body=error.body, schema=_body_schema(request))
    return problem_response(
        HTTPStatus.UNPROCESSABLE_ENTITY,
        "; ".join(
            f"{fault.path}: {fault.message}" if fault.path else fault.message for fault in found
        ),
        errors=found,
        kind="urn:reflectory:invalid-request",
        title="The request is not valid",
    )


def _unexpected_error(request: Request, _error: Exception) -> Response:
    # Starlette raises the error again after this answer, and the server logs it.
    answer = problem_response(
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "the server met an error that it did not expect; its log has the details",
        # This answer comes from further out than all others.
        headers={REQUEST_ID: request.scope[REQUEST_ID]},
    )
    if not wants_page(request.scope, request.headers):
        return answer
    page_of: PageOfProblem = request.app.state.page_of_problem
    page = page_of(Problem.model_validate_json(bytes(answer.body)), request.scope)
    page.headers[REQUEST_ID] = request.scope[REQUEST_ID]
    return page


def _body_schema(request: Request) -> Mapping[str, Any] | None:
    """The schema of this operation's body, inside the document that its references lead into."""
    document = request.app.openapi()
    route = request.scope.get("route")
    operation = (
        document["paths"].get(getattr(route, "path", None), {}).get(request.method.lower(), {})
    )
    content = operation.get("requestBody", {}).get("content", {}).get("application/json")
    return None if content is None else {**document, **content["schema"]}
