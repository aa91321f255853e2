"""Our kernels on GPUs: whole or thin matrices that fit on chip, where triton is installed."""

import functools
import importlib.util
import os

import torch
from torch import Tensor

from models.backends.call import SequenceCall, State
from models.backends.tensors import tensors_of
from models.backends.triton.launches import shared_bytes_of, thin_weights
from models.backends.triton.sequence import sequence
from models.backends.triton.tiles import Precision, Weights, tiles_for
from models.forms import Thin, Whole
from models.kernels.calls import GATES
from models.kernels.choice import Backend, asked_once
from models.math.activations import modulus

LEAST_CAPABILITY = (8, 0)
"""Of a GPU: what the kernels are compiled for in tests."""


class TritonKernels:
    """See `models/backends/triton`."""

    name: Backend = "triton"

    def takes(self, call: SequenceCall) -> bool:
        """What has a kernel's name and fits on chip, on a GPU in single or half precision."""
        state = call.state
        return (
            call.kind is not None
            and call.kind.cell in GATES
            and isinstance(call.form.parts(), Whole | Thin)
            and state.dtype in (torch.float32, torch.bfloat16)
            and _is_one_dtype(call)
            and triton_runs(state.device)
            and precision_of(call) is not None
        )

    def run(self, call: SequenceCall) -> tuple[Tensor, State]:
        """Run all steps in a few launches."""
        kind = call.kind
        assert kind is not None
        lengths = None if call.lengths is None else call.lengths.unsqueeze(0)
        keep = call.return_sequences or call.learns()
        precision = precision_of(call)
        assert precision is not None
        states, _, last_h, last_c = sequence(
            kind, tensors_of(call), lengths, precision=precision, keep=keep
        )
        last: State = (last_h[0],) if len(call.initial) == 1 else (last_h[0], last_c[0])
        if not call.return_sequences:
            return states, last
        # A view forth and back: the gradient of a selection is a copy among zeros.
        states = states.squeeze(0)
        return modulus(states) if kind.activation == "abs" else states, last


def precision_of(call: SequenceCall) -> Precision | None:
    """As torch's own products on GPUs have it: TF32 where it is allowed, see Note [TF32].

    Single precision where only that fits, and None where nothing does.
    """
    if call.state.dtype == torch.bfloat16:
        allowed: tuple[Precision, ...] = ("bf16",)
    else:
        allowed = ("tf32", "ieee") if torch.backends.cuda.matmul.allow_tf32 else ("ieee",)
    return next((precision for precision in allowed if _fits(call, precision)), None)


def triton_runs(device: torch.device) -> bool:
    """Whether Triton's kernels run on a device: a GPU, or anything where they are interpreted."""
    if device.type == "cuda":
        # Tensors of nothing but sizes may be of a GPU that is not here.
        is_here = _is_installed() and torch.cuda.is_available()
        return is_here and torch.cuda.get_device_capability(device) >= LEAST_CAPABILITY
    return device.type == "cpu" and _is_interpreted()


@asked_once
@functools.cache
def _is_installed() -> bool:
    return importlib.util.find_spec("triton") is not None


@asked_once
def _is_interpreted() -> bool:
    # Triton's own variable, which it reads when it is imported.
    return os.environ.get("TRITON_INTERPRET") == "1" and _is_installed()


def _is_one_dtype(call: SequenceCall) -> bool:
    tensors = (*call.form.tensors(), *call.inputs.tensors(), *call.initial)
    return all(tensor.dtype == call.state.dtype for tensor in tensors)


def _fits(call: SequenceCall, precision: Precision) -> bool:
    parts, size = call.form.parts(), call.state.shape[-1]
    assert call.kind is not None
    assert isinstance(parts, Whole | Thin)
    gates = parts[0].shape[0]
    weights = Weights(gates, size)
    if isinstance(parts, Thin):
        rights = 1 if parts.shared_by == gates else gates
        weights = thin_weights(call.kind, size, parts.left.shape[-1], rights)
    shared_bytes = shared_bytes_of(call.state.device)
    return tiles_for(weights, precision=precision, shared_bytes=shared_bytes) is not None
