"""The form that a study is made with: filled in, checked, sent."""

import hashlib
import json
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from pydantic import ValidationError

from search.documents.datasets import ARRAYS
from search.documents.models import ONNX_SOURCE
from search.errors import Fault, Refused, SpecRefused
from search.papers import row_named, table_named
from search.studies.resolving import with_defaults
from search.studies.spec import StudySpec
from search.studies.submission import DryRun
from service.api.models.sources import source_of
from service.api.resources import Held, Resources
from service.api.studies.routes import submit_study
from service.api.studies.schemas import StudyDocument
from service.http.validation import faults
from service.pages.html import page_response
from service.pages.paces import paces
from service.pages.report import spec_to_send
from service.rendering.form.estimate import Estimate
from service.rendering.form.form_fields import form_fields
from service.rendering.form.goals import FEW_PARAMETERS, GOAL, GOALS, Asked, Goal
from service.rendering.form.spec_form import (
    EXTRA,
    NETWORKS,
    ExtraRefused,
    Values,
    aimed,
    document_of,
    fields_of_faults,
    usual_values,
    values_of,
)
from service.rendering.form.upload_names import named_data, named_model
from storage.errors import NotFound, QuotaReached
from storage.records import DatasetRecord
from storage.repositories.studies import Studies
from storage.repositories.uploads import Datasets, UploadedModels

router = APIRouter(prefix="/studies", include_in_schema=False)

_TOKEN = re.compile(r"[\w-]{8,64}")
_OF_TIME = ("task", "budget:trials", "budget:epochs")
"""The fields that an estimate of time follows from."""
_NAMED = 100
"""How many data sets and models are offered by name, the newest ones."""


@router.get("/new", response_class=HTMLResponse)
def form_page(
    held: Held,
    source: Annotated[
        str | None, Query(alias="from", max_length=100, description="a study to begin from")
    ] = None,
    dataset: Annotated[str | None, Query(max_length=100, description="data to train on")] = None,
    model: Annotated[
        str | None, Query(max_length=100, description="a trained model to compress")
    ] = None,
    table: Annotated[str, Query(max_length=100, description="a table of the papers")] = "",
    row: Annotated[
        str | None, Query(max_length=200, description="a row of the table to train")
    ] = None,
) -> HTMLResponse:
    """The form as it is by default, or filled in as another study was."""
    form = form_fields()
    values = usual_values(form)
    if source is not None:
        with held.database.read() as session:
            study = Studies(session).get(source)
        values = values_of(form, spec_to_send(StudySpec.model_validate(study.spec)))
    if row is not None:
        entries = table_named(table).document().entries
        values = values_of(form, row_named(entries, row).spec)
    if model is not None:
        values |= _of_model(held, model)
    if dataset is not None:
        values |= _of_data(held, dataset)
    return _page(held, {**values, "form": [secrets.token_urlsafe(16)]})


@router.post("/new", response_model=None)
async def take_form(request: Request, held: Held) -> HTMLResponse | RedirectResponse:
    """Check what was filled in, and begin the study if that is what was asked for."""
    form = await request.form()
    values: dict[str, list[str]] = {}
    for name, value in form.multi_items():
        if isinstance(value, str):
            values.setdefault(name, []).append(value)
    return await to_thread.run_sync(_take, held, values)


def _take(held: Resources, values: dict[str, list[str]]) -> HTMLResponse | RedirectResponse:
    token = values.get("form", [""])[0]
    if not _TOKEN.fullmatch(token):
        token = secrets.token_urlsafe(16)
        values["form"] = [token]
    act = values.pop("act", [""])[0]
    try:
        if act.startswith(GOAL):
            return _aim(held, values, act.removeprefix(GOAL))
        document = document_of(form_fields(), values)
        spec = _spec(document)
        if act != "start":
            found = submit_study(spec, held, Response(), dry_run=True)
            assert isinstance(found, DryRun)
            return _page(held, values, found=found, spec=spec)
        # A form that is sent twice is one study, and one that was changed is another.
        study = submit_study(
            spec, held, Response(), idempotency_key=f"page-{token}-{_digest(document)}"
        )
        assert isinstance(study, StudyDocument)
    except ExtraRefused as error:
        return _page(held, values, refused=[Fault(EXTRA, str(error))])
    except SpecRefused as error:
        return _page(held, values, refused=error.faults)
    except QuotaReached as reached:
        return _page(held, values, refused=[Fault("", str(reached))])
    return RedirectResponse(f"/studies/{study.id}", status_code=303)


def _aim(held: Resources, values: Values, name: str) -> HTMLResponse:
    """The form with a goal's part of a spec on top of what is filled in."""
    if name not in GOALS:
        raise Refused([Fault("act", f"{name!r} is no goal; allowed are {', '.join(GOALS)}")])
    is_network = values.get("task") == [NETWORKS]
    given = (values.get(f"{GOAL}parameters") or [""])[0].strip()
    try:
        asked = Asked(is_network=is_network, parameters=int(given) if given else FEW_PARAMETERS)
    except ValueError as error:
        message = f"{given!r} is no whole number of parameters; allowed is 1 or more"
        raise SpecRefused([Fault("limits.parameters", message)]) from error
    fragment = GOALS[name].fragment(asked)
    return _page(held, aimed(form_fields(), values, fragment), goal=(GOALS[name], fragment))


def _of_model(held: Resources, model_id: str) -> dict[str, list[str]]:
    """What a study that compresses a model begins with: it, and the first task that it fits."""
    with held.database.read() as session:
        model = UploadedModels(session).get(model_id)
    if model.source == ONNX_SOURCE:
        return {**_of_a_network("model", model.id), "name": [model.name]}
    values: dict[str, list[str]] = {"compress:model": [model.id], "architectures": []}
    for fit in source_of(model).fits()[:1]:
        layout = {} if fit.layout is None else {f"task:{fit.task}:layout": [fit.layout]}
        values |= {"task": [fit.task], **layout}
    return values


def _of_data(held: Resources, dataset_id: str) -> dict[str, list[str]]:
    """What a study on an upload begins with: samples are trained on, arrays are a network's."""
    with suppress(NotFound), held.database.read() as session:
        if _holds_arrays(Datasets(session).get(dataset_id)):
            return _of_a_network("data", dataset_id)
    # One that is not there is named all the same: the form's check says so.
    return {"task": ["dataset"], "task:dataset:id": [dataset_id]}


def _of_a_network(part: str, upload_id: str) -> dict[str, list[str]]:
    """What a study of a network begins with, of which one upload is known."""
    return {
        "task": [NETWORKS],
        f"task:{NETWORKS}:{part}": [upload_id],
        "objectives": ["quality", "bytes"],
    }


def _holds_arrays(dataset: DatasetRecord) -> bool:
    return dataset.facts.get("problem") == ARRAYS


def _spec(document: Mapping[str, Any]) -> StudySpec:
    try:
        return StudySpec.model_validate(document)
    except ValidationError as error:
        located = [{**one, "loc": ("body", *one["loc"])} for one in error.errors()]
        schema = StudySpec.model_json_schema()
        found = faults(located, body=document, schema=schema)
        raise SpecRefused([Fault(fault.path, fault.message) for fault in found]) from error


def _page(
    held: Resources,
    values: Values,
    *,
    refused: list[Fault] | tuple[Fault, ...] = (),
    found: DryRun | None = None,
    spec: StudySpec | None = None,
    goal: tuple[Goal, Mapping[str, Any]] | None = None,
) -> HTMLResponse:
    with held.database.read() as session:
        datasets = Datasets(session).page(limit=_NAMED).items
        models = UploadedModels(session).page(limit=_NAMED).items
        known = paces(session)
    beside, others = fields_of_faults(form_fields(), values, refused)
    text = held.pages.form(
        form_fields(),
        values,
        beside=beside,
        others=others,
        found=found,
        spec=None if spec is None else spec_to_send(with_defaults(spec)),
        goal=goal,
        estimate=Estimate(known, *(_first(values, name) for name in _OF_TIME)),
        uploads={
            "task:dataset:id": {
                one.id: named_data(one) for one in datasets if not _holds_arrays(one)
            },
            f"task:{NETWORKS}:data": {
                one.id: named_data(one) for one in datasets if _holds_arrays(one)
            },
            "compress:model": {
                one.id: named_model(one) for one in models if one.source != ONNX_SOURCE
            },
            f"task:{NETWORKS}:model": {
                one.id: named_model(one) for one in models if one.source == ONNX_SOURCE
            },
        },
    )
    return page_response(text, status=422 if refused else 200)


def _first(values: Values, name: str) -> str:
    return values[name][0].strip() if values.get(name) else ""


def _digest(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:32]
