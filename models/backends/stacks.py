"""A stack of square layers, by our kernels where they compute it, else in torch's operations."""

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from models.forms import Form, Matrices, Turns, Whole
from models.kernels.calls import GATES, Kind
from models.kernels.choice import Backend, kernels_take
from models.kernels.stack import stack

Reference: TypeAlias = Callable[[Tensor, Form, Tensor], Tensor]


def run_stack(
    kind: Kind | None, reference: Reference, x: Tensor, form: Form, bias: Tensor
) -> Tensor:
    """What the last layer makes of x `[B, n]`.

    Args:
        kind: what the kernels call this stack; None where only `reference` computes it.
        reference: the layers as a loop in torch's operations.
        x: what the first layer reads.
        form: the matrices of all layers.
        bias: `[L, gates*n]`.
    """
    if kind is None or choose_for_stack(kind, form, x) != "cpp":
        return reference(x, form, bias)
    gates = GATES[kind.cell]
    layers, size = bias.shape[0], x.shape[-1]
    biases = bias.view(1, layers, gates, size)
    matrices = _matrices(form, layers=layers, gates=gates)
    learns = torch.is_grad_enabled() and any(
        tensor is not None and tensor.requires_grad for tensor in (x, bias, *matrices.values())
    )
    return stack(kind, x.unsqueeze(0), biases, **matrices, keep=learns).squeeze(0)


def choose_for_stack(kind: Kind | None, form: Form, x: Tensor) -> Backend:
    """What runs a stack: our kernels on CPUs in single precision, else torch's operations.

    Measured (tests/benchmarks): they are ahead of torch's operations with dense matrices up to
    n = 512 and more, and further with pairs of thin ones.
    """
    ours = kind is not None and isinstance(form.parts(), Matrices)
    return "cpp" if ours and kernels_take(x) else "torch"


def _matrices(form: Form, *, layers: int, gates: int) -> dict[str, Tensor | None]:
    """One model's matrices as the kernels take them, with a model axis of 1."""
    parts = form.parts()
    assert isinstance(parts, Matrices)
    leading = 1, layers, gates
    if isinstance(parts, Whole):
        return {"weight": parts.weight.unflatten(0, leading)}
    if isinstance(parts, Turns):
        matrices = {"u_turns": parts.u, "v_turns": parts.v, "diagonal": parts.diagonal}
        return {
            name: None if tensor is None else tensor.unflatten(0, leading)
            for name, tensor in matrices.items()
        }
    diagonal = parts.diagonal
    return {
        "left": parts.left.unflatten(0, leading),
        "right": parts.right.unflatten(0, (1, layers, gates // parts.shared_by)),
        "diagonal": None if diagonal is None else diagonal.unflatten(0, leading),
    }
