"""Hard limits on a configuration: what is known of a model before it is trained."""

from collections.abc import Iterator

from pydantic import Field

from models.model import ModelSpec
from models.report import model_totals
from models.spec import Spec


class Limits(Spec):
    """Hard limits: a configuration beyond one is refused before it is trained."""

    parameters: int | None = Field(
        default=None, ge=1, le=10**18, description="most parameters a model may have"
    )
    multiply_adds: int | None = Field(
        default=None,
        ge=1,
        le=10**18,
        description="most multiply-adds of matrix products per sample and step, as reports count",
    )
    memory_bytes: int | None = Field(
        default=None,
        ge=1,
        le=10**18,
        description="most bytes that parameters and buffers take together, as reports count; what "
        "training needs beside them is not counted",
    )
    min_throughput_ratio: float | None = Field(
        default=None,
        gt=0,
        description="least measured throughput, as a ratio to the dense baseline's",
    )


def excesses(limits: Limits, model: ModelSpec) -> Iterator[tuple[str, float]]:
    """Each limit that a model is over: the sentence that says so, and the relative excess.

    The model is laid out without memory where a closed formula does not give the number.

    Raises:
        SpecError: the model cannot be built.
    """
    found: list[tuple[str, int, int | None]] = [
        ("parameters", model.parameter_count(), limits.parameters)
    ]
    if limits.multiply_adds is not None or limits.memory_bytes is not None:
        totals = model_totals(model)
        found += [
            ("multiply-adds per sample and step", totals.multiply_adds, limits.multiply_adds),
            ("bytes of parameters and buffers", totals.size_bytes, limits.memory_bytes),
        ]
    for what, value, limit in found:
        if limit is not None and value > limit:
            yield f"{value} {what} are over the limit of {limit}", value / limit - 1
