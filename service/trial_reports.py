"""The report of a trial: what it counts and, where it was converted, what that lost."""

from collections.abc import Iterator, Sequence

from pydantic import Field

from models.compression import ConversionReport, LayerConversion
from models.report import ParameterReport


class TrialReport(ParameterReport):
    """The parameter-count report of a trial, with that of the conversion that it started from."""

    conversion: ConversionReport | None = Field(
        default=None,
        description="in a study that compresses a model: by layer, what the model's matrices lost "
        "when they were converted, before any training; null elsewhere, and for the model itself",
    )

    def as_csv(self) -> str:
        """The report as CSV; rows of level `conversion` are the converted layers."""
        return self.to_csv(tuple(_rows(() if self.conversion is None else self.conversion.layers)))


def trial_report(counted: ParameterReport, conversion: ConversionReport | None) -> TrialReport:
    """Both parts as one document, which names the model's spec once."""
    if conversion is not None:
        conversion = conversion.model_copy(update={"spec": None})
    return TrialReport(**dict(counted), conversion=conversion)


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
