"""Trials as plain records, and as frames where pandas is installed."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from service.api.fronts.schemas import PointDocument
from service.api.trials.schemas import TrialDocument
from service.client.errors import ExtraMissing

if TYPE_CHECKING:
    from pandas import DataFrame  # pyright: ignore[reportMissingTypeStubs] -- has none

Record: TypeAlias = dict[str, Any]
Frame: TypeAlias = "DataFrame"
"""Of pandas, which is needed for frames alone."""

COLUMNS: Mapping[str, str] = {
    "trial": "Int64",
    "outcome": "string",
    "architecture": "string",
    "parametrization": "string",
    "quality": "Float64",
    "test_quality": "Float64",
    "parameters": "Int64",
    "throughput": "Float64",
    "throughput_ratio": "Float64",
    "bytes": "Int64",
    "latency": "Float64",
}
"""The columns that all records have, and their types in a frame; `params.*` come after them."""

HYPERPARAMETER = "params."


def record_of_trial(trial: TrialDocument) -> Record:
    """A trial as a record."""
    return _record(trial, trial.number, str(trial.outcome))


def record_of_point(point: PointDocument) -> Record:
    """A point of a front as a record; only complete trials are on one."""
    return _record(point, point.trial, "complete")


def _record(source: TrialDocument | PointDocument, trial: int, outcome: str) -> Record:
    values = source.values
    return {
        "trial": trial,
        "outcome": outcome,
        "architecture": source.architecture,
        "parametrization": source.parametrization,
        "quality": values.quality,
        "test_quality": source.test_quality,
        "parameters": values.parameters,
        "throughput": values.throughput,
        "throughput_ratio": source.throughput_ratio,
        "bytes": values.bytes,
        "latency": values.latency,
        **{f"{HYPERPARAMETER}{name}": one for name, one in sorted(source.hyperparameters.items())},
    }


def frame_of(records: Sequence[Record]) -> Frame:
    """Records as a data frame: the columns of `COLUMNS`, then hyperparameters by name.

    Raises:
        ExtraMissing: pandas is not installed.
    """
    try:
        import pandas as untyped  # pyright: ignore[reportMissingTypeStubs] -- has none
    except ImportError as error:
        raise ExtraMissing("a data frame", "pandas", "pandas") from error
    pandas: Any = untyped
    drawn = sorted({name for record in records for name in record if name not in COLUMNS})
    frame = pandas.DataFrame(list(records), columns=[*COLUMNS, *drawn])
    fixed = frame[[*COLUMNS]].astype(dict(COLUMNS))
    return fixed.join(frame[drawn].convert_dtypes())
