"""torch's own recurrent kernels (oneDNN or MKL on CPUs, cuDNN on GPUs), on given matrices.

They compute dense matrices only, tanh and relu only, and of the GRUs the one that resets after its
matrix.

Note [TF32]
On a GPU cuDNN and cuBLAS may round the factors of products to 10 bits, TF32, which moves singular
values by 5e-4 and breaks what spectral parametrizations promise. torch lets cuDNN do so unless told
otherwise; training and measuring say which, see `allow_tf32`.
"""

from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from torch import Tensor

from models.backends.call import PlainInputs, SequenceCall, State, with_own_ends
from models.forms import Whole
from models.kernels.calls import Kind
from models.kernels.choice import Backend
from models.kernels.members import is_stacked

_vendor = cast(Any, torch._VF)  # pyright: ignore[reportPrivateUsage] -- nn.RNN calls the same
_COMPUTED: Mapping[tuple[str, str], Callable[..., Any]] = {
    ("rnn", "tanh"): _vendor.rnn_tanh,
    ("rnn", "relu"): _vendor.rnn_relu,
    ("gru_reset_after", "tanh"): _vendor.gru,
    ("lstm", "tanh"): _vendor.lstm,
}
# Where the vendor has our gates: its GRU's order is reset, update, candidate.
_GATE_ORDER = {"gru_reset_after": (1, 0, 2)}


def allow_tf32(*, allowed: bool) -> None:
    """Whether products on a GPU may round to TF32 in this process, cuDNN's own included."""
    torch.backends.cudnn.allow_tf32 = allowed
    torch.backends.cuda.matmul.allow_tf32 = allowed


def tf32_allowed() -> bool:
    """Whether some products on a GPU may round to TF32 in this process."""
    cudnn, products = torch.backends.cudnn, torch.backends.cuda.matmul
    return bool(cudnn.allow_tf32) or bool(products.allow_tf32)


def vendor_computes(kind: Kind) -> bool:
    """Whether there is a kernel for this cell with dense matrices."""
    return (kind.cell, kind.activation) in _COMPUTED


class VendorKernels:
    """oneDNN, MKL or cuDNN."""

    name: Backend = "vendor"

    def takes(self, call: SequenceCall) -> bool:
        """Torch's own cells on dense matrices, where it gives the last states that are wanted."""
        return (
            call.kind is not None
            and vendor_computes(call.kind)
            and isinstance(call.form.parts(), Whole)
            and isinstance(call.inputs, PlainInputs)
            and (call.lengths is None or call.ends_are_states)
            and call.state.device.type in ("cpu", "cuda")
            and call.state.shape[0] > 0
            # torch.compile traces around these kernels, which leaves a model in pieces.
            and not torch.compiler.is_compiling()
            # Nor can they be carried over a stack's members.
            and not is_stacked()
        )

    def run(self, call: SequenceCall) -> tuple[Tensor, State]:
        """Run one layer in one direction; there is no saving in wanting the last state alone."""
        inputs, matrices, kind = call.inputs, call.form.parts(), call.kind
        assert isinstance(inputs, PlainInputs)
        assert isinstance(matrices, Whole)
        assert kind is not None
        weight, w_in = matrices.weight.flatten(0, 1), inputs.weight
        bias = weight.new_zeros(weight.shape[0]) if inputs.bias is None else inputs.bias
        recurrent = call.form.bias()
        inner_bias = torch.zeros_like(bias) if recurrent is None else recurrent.flatten()
        weights = w_in, weight, bias, inner_bias
        if (order := _GATE_ORDER.get(kind.cell)) is not None:
            weights = tuple(_reordered(part, order) for part in weights)
        if inputs.x.is_cuda:
            weights = _in_one_piece(weights)
        # One row for all samples is no state to cuDNN.
        hidden = [part.unsqueeze(0).contiguous() for part in call.initial]
        states, *last = _COMPUTED[kind.cell, kind.activation](
            inputs.x,
            tuple(hidden) if len(hidden) > 1 else hidden[0],
            weights,
            True,  # biases
            1,  # layers
            0.0,  # dropout
            torch.is_grad_enabled(),
            False,  # bidirectional
            False,  # batch first
        )
        return with_own_ends(states, tuple(part[0] for part in last), call.lengths)


def _in_one_piece(weights: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The same in one piece of memory, into which cuDNN would copy them itself, with a warning."""
    whole = torch.cat([weight.flatten() for weight in weights])
    parts = torch.split(whole, [weight.numel() for weight in weights])
    return tuple(part.view_as(weight) for part, weight in zip(parts, weights, strict=True))


def _reordered(stack: Tensor, order: tuple[int, ...]) -> Tensor:
    """A stack `[G*n, ...]` with its gates in another order."""
    gates = stack.chunk(len(order))
    return torch.cat([gates[gate] for gate in order])
