"""Pages that change what a study is called, and that ask before one is deleted."""

from typing import Annotated, Any

from fastapi import APIRouter, Form
from fastapi.responses import HTMLResponse, RedirectResponse
from pydantic import ValidationError

from service.api.resources import Held, Resources
from service.api.studies.documents import study_document
from service.api.studies.requests import StudyChange
from service.api.studies.routes import change_study, delete_study
from service.api.studies.schemas import StudyDocument
from service.http.validation import faults
from service.pages.html import page_response
from storage.repositories.artifact_rows import ArtifactRows
from storage.repositories.studies import Studies

router = APIRouter(prefix="/studies", include_in_schema=False)

_Text = Annotated[str, Form(max_length=20_000)]


@router.get("/{study_id}/edit", response_class=HTMLResponse)
def edit_page(study_id: str, held: Held) -> HTMLResponse:
    """The form for a study's name, tags and notes."""
    study = _study(held, study_id)
    given = {"name": study.name, "tags": ", ".join(study.tags), "notes": study.notes}
    return page_response(held.pages.study_edit(study, given))


@router.post("/{study_id}/edit", response_model=None)
def take_edit(
    study_id: str, held: Held, name: _Text = "", tags: _Text = "", notes: _Text = ""
) -> HTMLResponse | RedirectResponse:
    """Change what the form says, and show the list; or the form again with what was wrong."""
    given = {"name": name.strip(), "tags": tags, "notes": notes.replace("\r\n", "\n").strip()}
    try:
        change = StudyChange.model_validate({**given, "tags": _split(tags)})
    except ValidationError as error:
        page = held.pages.study_edit(_study(held, study_id), given, refused=_faults(error, given))
        return page_response(page, status=422)
    change_study(study_id, change, held)
    return RedirectResponse("/", status_code=303)


@router.get("/{study_id}/delete", response_class=HTMLResponse)
def delete_page(study_id: str, held: Held) -> HTMLResponse:
    """The question whether a study is to be deleted, and what goes with it."""
    study = _study(held, study_id)
    with held.database.read() as session:
        size = ArtifactRows(session).bytes_of(study_id)
    return page_response(held.pages.study_delete(study, size=size))


@router.post("/{study_id}/delete", response_class=RedirectResponse)
def delete_from_page(study_id: str, held: Held) -> RedirectResponse:
    """Delete a study that has ended, and show the list."""
    delete_study(study_id, held)
    return RedirectResponse("/", status_code=303)


def _study(held: Resources, study_id: str) -> StudyDocument:
    with held.database.read() as session:
        return study_document(session, Studies(session).get(study_id), held.figures)


def _split(tags: str) -> list[str]:
    """The tags of a text, in which commas and line ends stand between them; each once."""
    found = (tag.strip() for tag in tags.replace("\n", ",").split(","))
    return list(dict.fromkeys(tag for tag in found if tag))


def _faults(error: ValidationError, given: dict[str, Any]) -> dict[str, str]:
    """What is wrong, by the field that it is wrong in."""
    located = [{**one, "loc": ("body", *one["loc"])} for one in error.errors()]
    found = faults(located, body=given, schema=StudyChange.model_json_schema())
    return {fault.path.partition(".")[0]: fault.message for fault in found}
