"""Fronts made of what `search` computes."""

from collections.abc import Mapping

from search.documents.export_kinds import CHECKPOINT, DENSE, ONNX, ONNX_STREAM
from search.documents.objectives import Objective
from search.fronts.pareto import Front, FrontPoint
from service.api.fronts.schemas import FrontDocument, OriginalDocument, PointDocument, PointLinks
from service.api.paths import trial_path
from service.api.rows import from_row
from service.api.trials.schemas import TrialValues


def front_document(study_id: str, front: Front) -> FrontDocument:
    """A front whose points link to their files."""
    original = front.original
    return from_row(
        FrontDocument,
        front,
        original=None
        if original is None
        else from_row(OriginalDocument, original, values=_values(original.values)),
        points=tuple(
            from_row(
                PointDocument, point, values=_values(point.values), links=_links(study_id, point)
            )
            for point in front.points
        ),
    )


def _links(study_id: str, point: FrontPoint) -> PointLinks:
    path = trial_path(study_id, point.trial)
    return PointLinks(
        checkpoint=f"{path}/checkpoint" if "checkpoint" in point.artifacts else None,
        report=f"{path}/report",
        onnx=f"{path}/onnx" if "onnx" in point.artifacts else None,
        onnx_stream=f"{path}/onnx_stream" if ONNX_STREAM in point.artifacts else None,
        dense=f"{path}/dense" if DENSE not in point.missing else None,
        card=f"{path}/card",
        folder=f"{path}/folder" if {CHECKPOINT, ONNX} & {*point.artifacts} else None,
    )


def _values(values: Mapping[Objective, float | None]) -> TrialValues:
    size = values["bytes"]
    whole = {
        "parameters": int(values["parameters"] or 0),
        "bytes": None if size is None else int(size),
    }
    return TrialValues.model_validate({**values, **whole})
