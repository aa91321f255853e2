"""The report of a study: one file that loads nothing, to keep, print or send."""

from fastapi import APIRouter, Response
from fastapi.responses import HTMLResponse

from service.entity_tags import NOT_MODIFIED, is_named, tag_of
from service.problems import documented
from service.resources import Held
from service.routes.figures import IfNoneMatch
from service.web.study_report import study_report
from storage.studies import Studies

router = APIRouter(prefix="/v1/studies", tags=["studies"])

# Its style stands inside, it runs nothing, and it loads nothing.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox"


@router.get(
    "/{study_id}/report",
    response_class=HTMLResponse,
    responses={**NOT_MODIFIED, **documented(403, 404)},
)
def get_study_report(study_id: str, held: Held, if_none_match: IfNoneMatch = None) -> Response:
    """The study as one HTML file: fronts as plots, best points, circumstances, reasons.

    It needs nothing but itself: no script, no style and no picture is fetched.
    """
    with held.database.read() as session:
        study = Studies(session).get(study_id)
        headers = {
            "ETag": tag_of(study.data_version, study.last_event),
            # Of a 304 too: a browser takes its headers for those of the report that it has.
            "Content-Security-Policy": _POLICY,
            "Content-Disposition": f'inline; filename="study-{study.id}.html"',
        }
        if is_named(if_none_match, headers["ETag"]):
            return Response(status_code=304, headers=headers)
        report = study_report(session, study, held.figures)
    return HTMLResponse(held.pages.study_report(report), headers=headers)
