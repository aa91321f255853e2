"""The report of a trial: what it counts and, where it was converted, what that lost.

Of a network of others it is what is stored with its file.
"""

import csv
import io
from collections.abc import Iterator, Sequence

from pydantic import Field

from models.compression import ConversionReport, LayerConversion
from models.report import ParameterReport
from search.graphs.network_report import NetworkReport
from search.graphs.network_trial import label_of
from search.graphs.picks import Pick
from search.training.jobs import CONVERSION
from storage.blobs.artifacts import ArtifactStore
from storage.engine import Database
from storage.repositories.artifact_rows import ArtifactRows


class TrialReport(ParameterReport):
    """The parameter-count report of a trial, with that of the conversion that it started from."""

    conversion: ConversionReport | None = Field(
        default=None,
        description="in a study that compresses a model: by layer, what the model's matrices lost "
        "when they were converted, before any training; null elsewhere, and for the model itself",
    )
    original: bool = Field(
        default=False,
        description="whether this is the model itself that the study compresses, as it was "
        "uploaded: neither converted nor trained",
    )

    def as_csv(self) -> str:
        """The report as CSV; rows of level `conversion` are the converted layers."""
        return self.to_csv(tuple(_rows(() if self.conversion is None else self.conversion.layers)))


def trial_report(
    counted: ParameterReport, conversion: ConversionReport | None, *, original: bool
) -> TrialReport:
    """All parts as one document, which names the model's spec once."""
    if conversion is not None:
        conversion = conversion.model_copy(update={"spec": None})
    return TrialReport(**dict(counted), conversion=conversion, original=original)


def conversion_of(
    database: Database, store: ArtifactStore, study_id: str, number: int
) -> ConversionReport | None:
    """What a trial's conversion lost; None where it was not converted, or not yet."""
    with database.read() as session:
        artifact = ArtifactRows(session).of_trial(study_id, number).get(CONVERSION)
    if artifact is None:
        return None
    with store.open_reader(artifact.sha256) as reader:
        return ConversionReport.model_validate_json(reader.read())


def network_csv(report: NetworkReport) -> str:
    """The report of a network's file as CSV: a line for each layer."""
    rows = [
        {
            **layer.model_dump(exclude={"shape", "choice", "compensated"}),
            "shape": "x".join(map(str, layer.shape)),
            "choice": label_of(Pick(choice=layer.choice, compensated=layer.compensated)),
        }
        for layer in report.layers
    ]
    lines = io.StringIO()
    writer = csv.DictWriter(lines, _COLUMNS)
    writer.writeheader()
    writer.writerows(rows)
    return lines.getvalue()


_COLUMNS = (
    *("name", "operator", "shape", "choice", "bytes_before", "bytes_after"),
    *("local_error", "sensitivity", "predicted_share"),
    *("multiply_adds_before", "multiply_adds_after"),
)


def _rows(layers: Sequence[LayerConversion]) -> Iterator[dict[str, object]]:
    for layer in layers:
        yield {
            "level": "conversion",
            "name": layer.slot,
            "shape": "x".join(str(size) for size in layer.shape),
            "parameters": layer.parameters_after,
            "multiply_adds": layer.multiply_adds_after,
            "layer": layer.layer,
            "weight_error": layer.weight_error,
            "output_error": layer.output_error,
            "parameters_before": layer.parameters_before,
            "multiply_adds_before": layer.multiply_adds_before,
        }
