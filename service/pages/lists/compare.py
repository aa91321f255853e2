"""The page that shows the fronts of several studies side by side."""

from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse

from search.errors import Fault, Refused
from service.api.fronts.documents import front_document
from service.api.resources import Held
from service.api.studies.documents import study_document
from service.pages.html import page_response
from service.rendering.comparison import ComparedStudy, Comparison
from service.rendering.pages import MOST_COMPARED
from storage.repositories.studies import Studies

router = APIRouter(include_in_schema=False)


@router.get("/compare", response_class=HTMLResponse)
def compare_page(
    held: Held, studies: Annotated[list[str] | None, Query(max_length=50)] = None
) -> HTMLResponse:
    """The fronts of the studies that are named, each once; commas may stand between them."""
    named = (one.strip() for part in studies or () for one in part.split(","))
    ids = list(dict.fromkeys(one for one in named if one))
    if len(ids) > MOST_COMPARED:
        message = f"{len(ids)} studies are named; allowed are at most {MOST_COMPARED}"
        raise Refused([Fault("studies", message)])
    with held.database.read() as session:
        rows = [Studies(session).get(study_id) for study_id in ids]
        compared = [
            ComparedStudy(
                study_document(session, row, held.figures),
                front_document(row.id, held.figures.front(session, row)),
            )
            for row in rows
        ]
        others = Studies(session).page(limit=50).items
    query = urlencode({"studies": ",".join(ids)}, safe=",")
    return page_response(
        held.pages.compare(Comparison(compared), query=query, others=others, chosen=ids)
    )
