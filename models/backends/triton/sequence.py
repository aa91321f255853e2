"""Whole recurrent sequences on a GPU as torch operators, with a leading model axis.

What `models.kernels.sequence` is on CPUs, on other devices. Only what waits for the step before is
computed step by step (`thin_kernels`, `whole_kernels`). What inputs add to the gates, what whole
matrices gave them, and the gradients of inputs and weights are products of many steps at once,
which torch's own libraries compute for all models together. They go over chunks of steps, so that
what has G n numbers for each step and sample never exists for all steps.

Note [Many launches]
Around the two kernels stand some fifty small operations, which take the CPU longer to launch than
a GPU to compute where a sequence is small. They are recorded once for each shape, with the kernels,
and replayed (`models.backends.cuda_graphs`). A replay costs a copy of what it is given and gives,
so that large sequences, whose launches are hidden behind the work, go without.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from models.backends import cuda_graphs
from models.backends.triton.cutting import run_forward
from models.backends.triton.gradients import Backward
from models.backends.triton.launches import Results, run_of, weights_of
from models.backends.triton.tiles import Precision
from models.kernels.calls import Kind, Tensors
from models.kernels.members import any_learns, folded, is_stacked, unfolded
from models.kernels.structs import CellName

_TENSORS = (
    "Tensor? x, Tensor? addends, Tensor? w_in, Tensor? bias, Tensor? weight, Tensor? left, "
    "Tensor? right, Tensor? diagonal, Tensor h0, Tensor? c0"
)
_KIND = "str cell, str activation, float slope, str precision"
_KEPT = "Tensor states, Tensor cells, Tensor inners"
_COUNT = len(_TENSORS.split(","))
MOST_REPLAYED = 1 << 25
"""Numbers that a graph is given, see Note [Many launches]."""

_PLAIN = (Tensor, nn.Parameter)

_library = cast(Any, torch.library)

_library.define(
    "reflectory::triton_sequence",
    f"({_TENSORS}, Tensor? lengths, {_KIND}, bool keep) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
_library.define(
    "reflectory::triton_sequence_backward",
    "(Tensor? grad_states, Tensor? grad_cells, Tensor? grad_last_h, Tensor? grad_last_c, "
    f"{_TENSORS}, Tensor? lengths, {_KEPT}, {_KIND}, bool[] wanted) "
    "-> Tensor[]",
)


def sequence(
    kind: Kind,
    tensors: Tensors,
    lengths: Tensor | None,
    *,
    precision: Precision,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What `models.kernels.sequence.sequence` computes, of tensors on a GPU.

    Args:
        kind: cell and activation.
        tensors: all float32 or all bfloat16; no turns.
        lengths: int64 `[M, B]`, at least 1 each: a sample's state stays after its length.
        precision: what factors of the products within the recurrence are rounded to.
        keep: whether to keep the states; needed where gradients are.

    Raises:
        ValueError: it does not fit on the GPU, see Note [What fits].
    """
    given = *tensors.in_order()[:_COUNT], lengths
    how = kind.cell, kind.activation, kind.slope, precision
    # Tensors of other types, as of sizes alone, are the operator's to know.
    if torch.compiler.is_compiling() or is_stacked() or type(tensors.h0) not in _PLAIN:
        call: Callable[..., Any] = torch.ops.reflectory.triton_sequence
    elif torch.is_grad_enabled() and any_learns(given):
        call = cast(Any, _Eager).apply
    else:
        call = _run
    states, cells, _, last_h, last_c = call(*given, *how, keep)
    return states, cells, last_h, last_c


def _run(*arguments: Any) -> tuple[Tensor, ...]:
    optional, (*how, keep) = arguments[: _COUNT + 1], arguments[_COUNT + 1 :]

    def compute(*optional: Tensor | None) -> tuple[Tensor, ...]:
        tensors, (lengths,) = _split(optional)
        results = _results(tensors, how[0], keep=keep)
        if tensors.h0.numel():
            run_forward(run_of(tensors, lengths, *how), results, keep=keep)
        return _in_order(results)

    return _replayed(("forward", *how, keep), compute, optional)


def _run_backward(*arguments: Any) -> list[Tensor]:
    *optional, cell, activation, slope, precision, wanted = arguments
    how = cell, activation, slope, precision

    def compute(*optional: Any) -> tuple[Tensor, ...]:
        tensors, (lengths, *kept) = _split(optional[4:])
        if not tensors.h0.numel():
            return tuple(_gradients(tensors, wanted))
        # What the last states were is not asked for.
        results = Results(*kept, last_h=tensors.h0, last_c=tensors.h0)
        run = run_of(tensors, lengths, *how)
        return tuple(Backward(run, results, optional[:4], wanted).run_all())

    return list(_replayed(("backward", *how, *wanted), compute, optional))


def _replayed(
    name: tuple[Any, ...],
    function: Callable[..., tuple[Tensor, ...]],
    optional: Sequence[Tensor | None],
) -> tuple[Tensor, ...]:
    """What a function makes of tensors; a CUDA graph's replay where launches cost more than that.

    See Note [Many launches].
    """
    present = [tensor for tensor in optional if tensor is not None]
    numbers = sum(tensor.numel() for tensor in present)
    if numbers > MOST_REPLAYED or not cuda_graphs.can_be_used(present[0].device):
        return function(*optional)
    is_there = tuple(tensor is not None for tensor in optional)

    def of_present(*tensors: Tensor) -> tuple[Tensor, ...]:
        left = iter(tensors)
        return function(*(next(left) if there else None for there in is_there))

    with torch.no_grad():
        return cuda_graphs.run((__name__, *name, is_there), of_present, present)


def _run_fake(*arguments: Any) -> tuple[Tensor, ...]:
    tensors, (_, cell, *_, keep) = _split(arguments)
    return _in_order(_results(tensors, cell, keep=keep))


def _run_backward_fake(*arguments: Any) -> list[Tensor]:
    tensors, (*_, wanted) = _split(arguments[4:])
    return _gradients(tensors, wanted)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *saved, cell, activation, slope, precision, keep = inputs
    if not keep:
        raise ValueError("a sequence that is to be differentiated has to be run with keep=True")
    states, cells, inners, _, _ = output
    ctx.mark_non_differentiable(inners)
    # A gradient of zeros for all states would cost as much as the states.
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*saved, states, cells, inners)
    ctx.how = cell, activation, slope, precision


def _backward(
    ctx: Any, *incoming: Tensor | None, run: Callable[..., list[Tensor]] | None = None
) -> tuple[Tensor | None, ...]:
    states, cells, _, last_h, last_c = incoming
    wanted = list(ctx.needs_input_grad[:_COUNT])
    run = run or torch.ops.reflectory.triton_sequence_backward
    gradients = run(states, cells, last_h, last_c, *ctx.saved_tensors, *ctx.how, wanted)
    found = [gradient if want else None for gradient, want in zip(gradients, wanted, strict=True)]
    return (*found, *[None] * 6)


class _Eager(torch.autograd.Function):
    """The operator for eager calls: its registered way to autograd takes half a millisecond."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[Tensor, ...]:  # pyright: ignore[reportIncompatibleMethodOverride] -- torch's own signature is open
        output = _run(*arguments)
        _setup_context(ctx, arguments, output)
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *incoming: Tensor | None) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride] -- as above
        return _backward(ctx, *incoming, run=_run_backward)


def _of_members(info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> tuple[Any, Any]:
    """Members are models: one call for all of them."""
    members, (*how, keep) = info.batch_size, arguments[_COUNT + 1 :]
    given = [
        None if tensor is None else folded(tensor, axis, members).contiguous()
        for tensor, axis in zip(arguments[: _COUNT + 1], in_dims, strict=False)
    ]
    found = torch.ops.reflectory.triton_sequence(*given, *how, keep or any_learns(given))
    is_there = [one.shape != (0,) for one in found]
    results = (
        unfolded(one, members) if there else one for one, there in zip(found, is_there, strict=True)
    )
    return tuple(results), tuple(0 if there else None for there in is_there)


_library.impl("reflectory::triton_sequence", "default", _run)
_library.impl("reflectory::triton_sequence_backward", "default", _run_backward)
_library.register_fake("reflectory::triton_sequence", _run_fake)
_library.register_fake("reflectory::triton_sequence_backward", _run_backward_fake)
_library.register_autograd("reflectory::triton_sequence", _backward, setup_context=_setup_context)
_library.register_vmap("reflectory::triton_sequence", _of_members)


def _split(arguments: tuple[Any, ...]) -> tuple[Tensors, tuple[Any, ...]]:
    return Tensors(*arguments[:_COUNT]), arguments[_COUNT:]


def _results(tensors: Tensors, cell: str, *, keep: bool) -> Results:
    """Tensors to be filled."""
    h0 = tensors.h0
    models, batch, size = h0.shape
    leading, none = (models, tensors.steps, batch), (0,)
    every, last = (*leading, size), (models, batch, size)
    has_cell, inners = cell == "lstm", none
    if keep and tensors.left is not None:
        weights = weights_of(Kind(cast(CellName, cell), "tanh", 0.0), tensors)
        inners = (*leading, weights.rights * weights.rank)
    return Results(
        states=h0.new_empty(every if keep else none),
        cells=h0.new_empty(every if keep and has_cell else none),
        inners=h0.new_empty(inners),
        last_h=h0.new_empty(last),
        last_c=h0.new_empty(last if has_cell else none),
    )


def _in_order(results: Results) -> tuple[Tensor, ...]:
    return results.states, results.cells, results.inners, results.last_h, results.last_c


def _gradients(tensors: Tensors, wanted: Sequence[bool]) -> list[Tensor]:
    """Zeros for what is wanted, contiguous like no strided x would be; else empty tensors."""
    given = tensors.in_order()[:_COUNT]
    return [
        tensors.h0.new_zeros(tensor.shape if want and tensor is not None else (0,))
        for tensor, want in zip(given, wanted, strict=True)
    ]
