"""Whether an ONNX file computes what its model computes."""

import copy
from typing import Any

import onnxruntime  # pyright: ignore[reportMissingTypeStubs]
import torch
from torch import Tensor, nn

from models.errors import ExportError
from models.exports.comparison import BATCH, Bound, in_double_precision, normal_inputs
from models.exports.onnx.export import INPUT
from models.model import ModelSpec

FILE = "the ONNX file"


def verify(content: bytes, network: nn.Module, spec: ModelSpec) -> float:
    """Run an exported file in onnxruntime beside the model in evaluation, on normal inputs.

    A batch of 8 and its first sample alone are tried at the lengths of `normal_inputs`. The outputs
    may differ from those of the model in double precision as `Bound` says.

    Returns:
        The largest difference found, as a share of what is let pass.

    Raises:
        ExportError: they differ by more, or the file cannot be run.
    """
    exact = in_double_precision(network, spec)
    single = copy.deepcopy(exact).float()
    session = _session(content)
    shares: list[float] = []
    for x in normal_inputs(spec):
        with torch.no_grad():
            expected = exact(x.double() if x.is_floating_point() else x)
            bound = Bound(expected, single(x))
        shares += [bound.share(_run(session, x[:batch]), FILE) for batch in (BATCH, 1)]
    return max(shares)


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
