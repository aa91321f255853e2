"""Hard limits on a configuration: what is known of a model before it is trained."""

from collections.abc import Iterator

from models.model import ModelSpec
from models.report import model_totals
from search.errors import Fault
from search.spec import Limits

_NUMBER_BYTES = 4
"""Bytes of one trainable number: parameters are single precision."""


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


def impossible(limits: Limits, *, least_count: int, smallest: str) -> list[Fault]:
    """The limits that not even the smallest configuration of a space can keep.

    Only what is certain: a space may pass here and hold nothing feasible all the same.

    Args:
        limits: what the user set.
        least_count: the fewest parameters that any configuration has.
        smallest: the candidate that has them, in words.
    """
    faults: list[Fault] = []
    if limits.parameters is not None and limits.parameters < least_count:
        message = (
            f"no candidate has {limits.parameters} parameters or fewer; the smallest, {smallest}, "
            f"has {least_count}"
        )
        faults.append(Fault("limits.parameters", message))
    least_bytes = _NUMBER_BYTES * least_count
    if limits.memory_bytes is not None and limits.memory_bytes < least_bytes:
        message = (
            f"no candidate fits into {limits.memory_bytes} bytes; the parameters of the smallest, "
            f"{smallest}, take {least_bytes}"
        )
        faults.append(Fault("limits.memory_bytes", message))
    return faults
