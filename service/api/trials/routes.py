"""Trials: what was tried, what came of it, and its files."""

from http import HTTPStatus
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Path, Query, Response
from fastapi.responses import HTMLResponse, StreamingResponse
from pydantic import AfterValidator

from models.exports.files import FileForm, Quantization
from models.report import ParameterReport
from search.dispatch.runs.remeasuring import measure_again
from search.documents.export_kinds import DENSE, ONNX_STREAM
from search.documents.region import Region
from search.exports import C_NAME, OnnxVariant, missing_files
from search.exports.folder import CARD
from search.graphs.network_report import NetworkReport
from search.graphs.network_trial import NetworkTrial
from search.studies.named_trials import NamedTrial, enqueue
from search.training.trial_spec import trial_spec_of
from service.api.folders import FolderMaker, folder_zip
from service.api.fronts.csv_tables import CSV, trials_csv
from service.api.resources import Held, PageCursor, PageLimit, Resources
from service.api.rows import from_row
from service.api.stored_files import Wanted, file_responses, stored_file, text
from service.api.trials.attempt_logs import attempt_log, sent_log
from service.api.trials.documents import (
    enqueued_document,
    measure_document,
    trial_detail,
    trial_document,
)
from service.api.trials.making import (
    RETRY_SECONDS,
    being_made,
    made_c_files,
    made_file,
    make_all,
    onnx_role,
)
from service.api.trials.reports import TrialReport, conversion_of, network_csv, trial_report
from service.api.trials.schemas import (
    EnqueuedDocument,
    EpochDocument,
    ExportDocument,
    MeasureDocument,
    TrialDetail,
    TrialPage,
)
from service.api.waiting import PATIENCE_SECONDS, wait_for
from service.figures.numbers import read_numbers, readable_numbers
from service.http.entity_tags import NOT_MODIFIED, IfNoneMatch, is_named
from service.http.kept_answers import Kept
from service.http.problems import documented
from service.http.written_streams import WrittenStream
from storage.errors import ArtifactNotFound
from storage.records import ArtifactRecord, AttemptKind, TrialOrigin, TrialState
from storage.repositories.artifact_rows import ArtifactRows
from storage.repositories.attempt_logs import AttemptLogs
from storage.repositories.attempts import Attempts
from storage.repositories.metrics import Metrics
from storage.repositories.studies import Studies
from storage.repositories.trials import Trials

router = APIRouter(prefix="/v1/studies/{study_id}/trials", tags=["trials"])

Number = Annotated[int, Path(ge=0, description="the trial's number within its study")]


def _made_responses(description: str) -> dict[int | str, dict[str, Any]]:
    """What a route answers whose file is made when it is first asked for."""
    return {
        **file_responses(description),
        202: {
            "description": "The file is being made; `Retry-After` says when to ask again",
            "model": ExportDocument,
        },
        **documented(403, 404, 409, 416, 422),
    }


@router.get(
    "",
    response_model=TrialPage,
    responses={
        200: {"content": text("text/csv")},
        **NOT_MODIFIED,
        **documented(403, 404, 422),
    },
)
def list_trials(
    study_id: str,
    held: Held,
    _kept: Kept,
    limit: PageLimit = 50,
    cursor: PageCursor = None,
    outcome: Annotated[TrialState | None, Query(description="only trials that stand so")] = None,
    format: Annotated[
        Literal["json", "csv"], Query(description="csv: all of them at once, on no pages")
    ] = "json",
    numbers: Annotated[
        str,
        AfterValidator(readable_numbers),
        Query(max_length=20_000, description="of csv: only these trials, such as `3,7-12`"),
    ] = "",
) -> TrialPage | StreamingResponse:
    """Trials by number; refused draws are among them, as infeasible."""
    if format == "csv":
        with held.database.read() as session:
            region = Region.of_document(Studies(session).get(study_id).spec)
        lines = trials_csv(
            held.database,
            study_id,
            state=outcome,
            region=region,
            numbers=frozenset(read_numbers(numbers)),
        )
        return WrittenStream(lines, media_type=CSV)
    with held.database.read() as session:
        region = Region.of_document(Studies(session).get(study_id).spec)
        page = Trials(session).page(study_id, limit=limit, cursor=cursor, state=outcome)
        shown = [trial.number for trial in page.items]
        attempts = Attempts(session).of_trials(study_id, shown, AttemptKind.TRAIN)
    items = [trial_document(trial, attempts[trial.number], region) for trial in page.items]
    return TrialPage(items=tuple(items), next_cursor=page.next_cursor)


@router.post(
    "",
    status_code=202,
    responses={
        202: {
            "description": "The trial's number; `Location` is where it is. A null number comes "
            "with `Retry-After`: no coordinator has made the trial yet"
        },
        **documented(403, 404, 409, 422),
    },
)
def enqueue_trial(
    study_id: str,
    named: NamedTrial,
    held: Held,
    response: Response,
    idempotency_key: Annotated[
        str | None,
        Header(
            min_length=1,
            max_length=200,
            description="repeating a request with the same key and trial gives the same trial",
        ),
    ] = None,
) -> EnqueuedDocument:
    """Try a configuration of your own before all that wait, or go on from another trial.

    It counts in `budget.trials`, and is tried beyond it where that is full: a finished study runs
    on for it. 409: the study was cancelled or failed, another budget of it is used up, or the trial
    to continue is not complete or stopped, or its checkpoint was not kept.
    """
    command = enqueue(held.database, study_id, named, idempotency_key=idempotency_key)
    command = wait_for(held.database, command.id, seconds=PATIENCE_SECONDS) or command
    document = enqueued_document(command)
    if document.links.trial is None:
        response.headers["Retry-After"] = RETRY_SECONDS
    else:
        response.headers["Location"] = document.links.trial
    return document


@router.get("/{number}", responses={**NOT_MODIFIED, **documented(403, 404, 422)})
def get_trial(study_id: str, number: Number, held: Held, _kept: Kept) -> TrialDetail:
    """One trial, with its whole specification and its throughput records."""
    with held.database.read() as session:
        return trial_detail(session, study_id, number)


@router.post(
    "/{number}/measure",
    status_code=202,
    responses={
        202: {"description": "`Location` is the trial, which lists the record when it is there"},
        **documented(403, 404, 409, 422),
    },
)
def measure_trial(study_id: str, number: Number, held: Held, response: Response) -> MeasureDocument:
    """Measure a trial's throughput again: alone, as its study measures, on the same device model.

    It makes a further record. The search and the front go on by the one that they used
    (`?throughput=latest` on the front takes the newest). Asking while one is waited for asks once;
    finished studies can be asked, those that are paused measure when they go on. 409: the trial was
    not trained and never measured.
    """
    again = measure_again(held.database, study_id, number)
    document = measure_document(study_id, number, again)
    response.headers["Location"] = document.links.trial
    return document


@router.get("/{number}/metrics", responses={**NOT_MODIFIED, **documented(403, 404, 422)})
def get_metrics(study_id: str, number: Number, held: Held, _kept: Kept) -> list[EpochDocument]:
    """The learning curve, by epoch."""
    with held.database.read() as session:
        Trials(session).get(study_id, number)
        curve = Metrics(session).curve(study_id, number)
    return [from_row(EpochDocument, row) for row in curve]


@router.get(
    "/{number}/checkpoint",
    response_class=StreamingResponse,
    responses={
        **file_responses("safetensors, with the spec in its metadata"),
        **documented(403, 404, 416, 422),
    },
)
def get_checkpoint(study_id: str, number: Number, held: Held, wanted: Wanted) -> Response:
    """The trained model of the trial's best epoch; `ETag` is its SHA-256."""
    artifact = _artifact(held, study_id, number, "checkpoint")
    return stored_file(held, artifact, wanted, filename=f"{study_id}-{number}.safetensors")


@router.get(
    "/{number}/onnx",
    response_class=StreamingResponse,
    responses=_made_responses("ONNX, with the spec in its metadata"),
)
def get_onnx(
    study_id: str,
    number: Number,
    held: Held,
    wanted: Wanted,
    raw: Annotated[
        bool,
        Query(
            description="the network alone: what it reads to what it gives, without scaling, "
            "layouts, lengths and labels"
        ),
    ] = False,
    guard: Annotated[
        bool, Query(description="a batch may be empty, which costs 2 to 9 % of the speed")
    ] = False,
    form: Annotated[
        FileForm | None,
        Query(
            description="node: whole matrices, made when the file is loaded; loop: products "
            "through factors; auto: the faster one; left out: as the study's `export.form` says"
        ),
    ] = None,
    quantization: Annotated[
        Quantization,
        Query(
            description="of a model of 8 or 4 bits: qdq writes `DequantizeLinear`, which some "
            "runtimes look for, in place of casts and products; of 4 bits the file has opset 21"
        ),
    ] = "none",
) -> Response:
    """The trained model as an ONNX file; `ETag` is its SHA-256.

    It is made of the checkpoint when it is first asked for, and stored only after onnxruntime has
    computed with it what the model computes. Files that the queries ask for are made, checked and
    stored likewise, beside the study's own.
    """
    variant = OnnxVariant(raw=raw, guard=guard, form=form, quantization=quantization)
    role = onnx_role(held, study_id, number, variant)
    # `onnx.raw` is had as ID-N.raw.onnx.
    kind, _, words = role.partition(".")
    suffix = f"{words}.{kind}" if words else kind
    return made_file(held, study_id, number, wanted, role=role, suffix=suffix)


@router.get(
    "/{number}/onnx_stream",
    response_class=StreamingResponse,
    responses=_made_responses("ONNX, whose states go in and come out"),
)
def get_onnx_stream(study_id: str, number: Number, held: Held, wanted: Wanted) -> Response:
    """The trained model as an ONNX file that reads a sequence in pieces; `ETag` is its SHA-256.

    It takes `input` `[batch, steps, features]` and the states `state_0`, ... `[layers, batch, n]`,
    and gives `output` and `next_state_0`, ..., which the next piece is given. The first states
    stand in its metadata. 422: the architecture has no state.
    """
    return made_file(held, study_id, number, wanted, role=ONNX_STREAM, suffix="stream.onnx")


@router.get(
    "/{number}/c",
    response_class=StreamingResponse,
    responses=_made_responses("A ZIP file of `NAME.h` and `NAME.c`"),
)
def get_c(
    study_id: str,
    number: Number,
    held: Held,
    wanted: Wanted,
    name: Annotated[
        str,
        Query(
            max_length=100,
            description="what the files and their functions are called: a letter, then letters, "
            "digits and _, at most 63",
        ),
    ] = C_NAME,
) -> Response:
    """The trained model as C99 without any library, in a ZIP file.

    It is compiled, and compared with the model on raw validation samples, before it is stored.
    With another `name` it is the same but for that, so that a program may have several models. 422:
    that is no name in C.
    """
    return made_c_files(held, study_id, number, wanted, name)


@router.get(
    "/{number}/dense",
    response_class=StreamingResponse,
    responses=_made_responses("safetensors: a state dict of plain torch.nn layers"),
)
def get_dense(study_id: str, number: Number, held: Held, wanted: Wanted) -> Response:
    """The trained model with plain matrices, which torch.nn alone loads; `ETag` is its SHA-256.

    Structured matrices are folded: the answers are the same to rounding, and the file is as large
    as the dense baseline. Tensors are named as in a module whose layer (`nn.RNN`, `nn.LSTM`,
    `nn.GRU`) is `rnn` and whose `nn.Linear` is `readout`, with `embedding` where tokens are read,
    and `h_0` (and `c_0`) where the first state is trained; feed-forward models have `input`,
    `hidden.0` and so on, and `readout`. 422: torch.nn has no layer that computes the same.
    """
    return made_file(held, study_id, number, wanted, role=DENSE, suffix="dense.safetensors")


@router.get(
    "/{number}/folder",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "A ZIP file of `trial-N/`; `missing.json` beside it has reasons",
            "content": {"application/zip": {"schema": {"type": "string", "format": "binary"}}},
        },
        202: {
            "description": "Files are being made; `Retry-After` says when to ask again",
            "model": ExportDocument,
        },
        **NOT_MODIFIED,
        **documented(403, 404, 409, 422),
    },
)
def get_folder(
    study_id: str, number: Number, held: Held, if_none_match: IfNoneMatch = None
) -> Response:
    """All files of a trial, with a card that says what the model is, and examples that run.

    `MODEL_CARD.md` is for people. `example.py` needs numpy and onnxruntime, `example.c` a C
    compiler; both answer the raw samples of `samples.json` and end with 1 where an answer differs.
    `labels.json`, `preprocessing.json` and `VERIFIED.json` say the same to programs. Files that are
    not made yet are made first; those that cannot be are named with the reason, on the card too.
    """
    waiting = make_all(held, study_id, number)
    if waiting is not None:
        return being_made(waiting)
    folder = FolderMaker(held.database, held.store, held.pages).folder(study_id, number)
    headers = {
        "ETag": f'"{folder.digest}"',
        "Content-Disposition": f'attachment; filename="{study_id}-{number}.zip"',
    }
    if is_named(if_none_match, headers["ETag"]):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    content = folder_zip(held.store, number, folder)
    return WrittenStream(content, media_type="application/zip", headers=headers)


@router.get(
    "/{number}/card",
    response_class=Response,
    responses={
        200: {"content": text("text/markdown")},
        **NOT_MODIFIED,
        **documented(403, 404, 422),
    },
)
def get_card(
    study_id: str, number: Number, held: Held, if_none_match: IfNoneMatch = None
) -> Response:
    """What the model is, for people: the `MODEL_CARD.md` of the trial's folder, as it stands."""
    folder = FolderMaker(held.database, held.store, held.pages).folder(study_id, number)
    card = folder.files[CARD]
    headers = {"ETag": f'"{card.sha256}"'}
    if is_named(if_none_match, headers["ETag"]):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    return Response(card.content, media_type="text/markdown; charset=utf-8", headers=headers)


@router.get(
    "/{number}/report",
    response_model=TrialReport | NetworkReport,
    responses={
        200: {"content": text("text/html", "text/csv")},
        **documented(403, 404, 422),
    },
)
def get_report(
    study_id: str,
    number: Number,
    held: Held,
    format: Annotated[Literal["json", "html", "csv"], Query()] = "json",
) -> TrialReport | NetworkReport | Response:
    """The parameter-count report: every tensor and module, the totals, and the dense baseline's.

    In a study that compresses a model also what its conversion lost, layer by layer; of the model
    itself, that it is the original. Of a network from an ONNX file it is what is known of its file:
    metrics on both parts of the data, and each layer's choice, errors and bytes.
    """
    with held.database.read() as session:
        trial = Trials(session).get(study_id, number)
    if isinstance(trial_spec_of(trial.spec), NetworkTrial):
        return _network_report(held, study_id, number, format)
    artifact = _artifact(held, study_id, number, "report")
    with held.store.open_reader(artifact.sha256) as reader:
        counted = ParameterReport.model_validate_json(reader.read())
    conversion = conversion_of(held.database, held.store, study_id, number)
    report = trial_report(counted, conversion, original=trial.origin == TrialOrigin.ORIGINAL)
    if format == "json":
        return report
    if format == "csv":
        return Response(report.as_csv(), media_type=CSV)
    return HTMLResponse(held.pages.report(study_id, number, report), headers=_ONE_FILE)


def _network_report(
    held: Held, study_id: str, number: int, format: Literal["json", "html", "csv"]
) -> NetworkReport | Response:
    _artifact(held, study_id, number, "report")
    page = FolderMaker(held.database, held.store, held.pages).compressed_page(study_id, number)
    assert page is not None
    if format == "json":
        return page.report
    if format == "csv":
        return Response(network_csv(page.report), media_type=CSV)
    return HTMLResponse(held.pages.compressed_report(study_id, page), headers=_ONE_FILE)


# A page that may be kept as one file: its style stands inside, and it loads nothing.
_ONE_FILE = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox"}


@router.get(
    "/{number}/log",
    response_class=StreamingResponse,
    responses={
        200: {"content": text("text/plain")},
        206: {"description": "The range that was asked for", "content": text("text/plain")},
        **documented(403, 404, 416, 422),
    },
)
def get_log(
    study_id: str,
    number: Number,
    held: Held,
    range_header: Annotated[
        str | None, Header(alias="Range", description="what was written since")
    ] = None,
) -> Response:
    """What the last attempt to train the trial wrote, or to measure it while none has begun.

    A range has the bytes as they were written: lines of JSON are not in words. The header
    `Log-Attempt` says which attempt it is, and `Log-Start` how many of its bytes came before.
    """
    with held.database.read() as session:
        Trials(session).get(study_id, number)
        attempts = Attempts(session).of_trial(study_id, number)
        training = [attempt for attempt in attempts if attempt.kind == AttemptKind.TRAIN]
        # The front may be measured after all training, which says nothing of how that went.
        attempts = training or attempts
        sent = AttemptLogs(session).get(attempts[-1].id) if attempts else None
    # The name is an attempt's own id, never a word of the request.
    path = held.settings.logs_dir / f"{attempts[-1].id}.log" if attempts else None
    if path is not None and path.is_file():
        answer = attempt_log(path, range_header=range_header)
    elif sent is not None:
        answer = sent_log(held.store, sent, range_header=range_header)
    else:
        raise ArtifactNotFound(f"trial {number} of study {study_id!r} has no log here (yet)")
    last = attempts[-1]
    # Attempts to measure have numbers of their own.
    of_kind = "" if last.kind == AttemptKind.TRAIN else f"{last.kind}-"
    answer.headers["Log-Attempt"] = f"{of_kind}{last.number}"
    return answer


def _artifact(held: Resources, study_id: str, number: int, role: str) -> ArtifactRecord:
    with held.database.read() as session:
        record = Trials(session).get(study_id, number)
        artifact = ArtifactRows(session).of_trial(study_id, number).get(role)
    if artifact is None:
        reason = f"it is {record.state.value}"
        if isinstance(trial_spec_of(record.spec), NetworkTrial):
            reason = missing_files(record).get(role, reason)
        raise ArtifactNotFound(f"trial {number} of study {study_id!r} has no {role}; {reason}")
    return artifact
