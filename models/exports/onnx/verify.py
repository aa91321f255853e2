"""Whether an ONNX file computes what its model computes."""

import copy
from collections.abc import Iterator
from typing import Any

import onnxruntime  # pyright: ignore[reportMissingTypeStubs]
import torch
from torch import Tensor, nn

from models.errors import ExportError
from models.example_input import example_input
from models.exports.onnx.export import INPUT, in_double_precision
from models.math.initialisation import generator_of
from models.model import ModelSpec

TOLERANCE = 1e-4
"""Largest difference as a share of the largest output.

A thousand roundings of single precision: what a hundred steps and the runtime's own approximations
of sigmoid and tanh add up to stays below, and what an element of a matrix adds does not.
"""
ROUNDINGS = 16.0
"""How many times the model's own error, which a recurrence may let grow, is let pass beside it."""
LONGEST = 64
BATCH = 8

# On the way to an output numbers are larger than it.
_LARGEST = 1e-6 * torch.finfo(torch.float32).max


def verify(content: bytes, network: nn.Module, spec: ModelSpec) -> float:
    """Run an exported file in onnxruntime beside the model in evaluation, on normal inputs.

    A batch of 8 and its first sample alone are tried at two lengths: that of the signature, at most
    64, and one more than twice that; a feed-forward model has but its own. The outputs may differ
    from those of the model in double precision by `TOLERANCE` of the largest one of the batch so
    far, plus `ROUNDINGS` times what those of the model in single precision do. What is about to
    leave the range of single precision is not compared.

    Returns:
        The largest difference found, as a share of what is let pass.

    Raises:
        ExportError: they differ by more, or the file cannot be run.
    """
    exact = in_double_precision(network, spec)
    single = copy.deepcopy(exact).float()
    session = _session(content)
    shares: list[float] = []
    for x in _inputs(spec):
        with torch.no_grad():
            expected = exact(x.double() if x.is_floating_point() else x)
            rounded = single(x).double()
        held = (expected.abs() < _LARGEST) & rounded.isfinite()
        if not held.any():
            raise ExportError(f"on {list(x.shape)} the model gives no number to compare with")
        scale = _largest(expected, held)
        allowed = TOLERANCE * scale + ROUNDINGS * _largest(rounded - expected, held)
        for batch in (BATCH, 1):
            found = _run(session, x[:batch])
            shares.append(_compare(found, expected[:batch], held[:batch], allowed))
    return max(shares)


def _largest(values: Tensor, held: Tensor) -> Tensor:
    """The largest magnitude of a batch `[B, ..., out]`, up to each step if there are several."""
    largest = values.abs().where(held, 0).amax(dim=(0, -1), keepdim=True)
    return largest.cummax(dim=1).values


def _compare(found: Tensor, expected: Tensor, held: Tensor, allowed: Tensor) -> float:
    """The largest difference as a share of what is allowed, where outputs are held together."""
    if found.shape != expected.shape:
        raise ExportError(
            f"the ONNX file gives {list(found.shape)} where the model gives {list(expected.shape)}"
        )
    # What is no number in the file alone differs without bound.
    differences = (found - expected).abs().nan_to_num(nan=torch.inf, posinf=torch.inf)
    differences = differences.where(held, 0)
    wrong = differences > allowed
    if wrong.any():
        raise ExportError(
            f"the ONNX file differs from the model by {differences.max():.3g} at outputs of shape "
            f"{list(found.shape)}; allowed is {allowed.max():.3g}"
        )
    return float((differences / allowed.clamp(min=torch.finfo(allowed.dtype).tiny)).max())


def _inputs(spec: ModelSpec) -> Iterator[Tensor]:
    signature = spec.signature
    lengths = [signature.sequence_length]
    if spec.architecture.any_length:
        first = min(signature.sequence_length, LONGEST)
        lengths = [first, 2 * first + 1]
    generator = generator_of(0)
    for steps in lengths:
        yield example_input(signature, batch=BATCH, steps=steps, generator=generator)


def _session(content: bytes) -> Any:
    # The library has no types.
    runtime: Any = onnxruntime
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    # Its errors have no common root but this one.
    except Exception as error:
        raise ExportError(f"onnxruntime does not load the ONNX file: {error}") from error


def _run(session: Any, x: Tensor) -> Tensor:
    try:
        (found,) = session.run(None, {INPUT: x.numpy()})
    except Exception as error:
        raise ExportError(
            f"onnxruntime does not run the ONNX file on {list(x.shape)}: {error}"
        ) from error
    return torch.as_tensor(found, dtype=torch.float64)
