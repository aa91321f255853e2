"""Whole recurrent sequences on a GPU as torch operators, with a leading model axis.

What `models.kernels.sequence` is on CPUs, on other devices. Only what waits for the step before is
computed step by step (`kernels`). What inputs add to the gates, what the gates were given, and the
gradients of inputs and weights are products of many steps at once, which torch's own libraries
compute for all models together. They go over chunks of steps, so that what has G n numbers for each
step and sample never exists for all steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from models.backends.triton.tiles import Precision, Tiles, Weights, tiles_for
from models.kernels.calls import GATES, Kind, Tensors
from models.kernels.members import any_learns, folded, unfolded

CHUNK_BYTES = 64 << 20
"""Of what a chunk's gates are given."""
LEAST_CHUNK = 16
"""Steps of a chunk: fewer are not worth a launch."""

_TENSORS = (
    "Tensor? x, Tensor? addends, Tensor? w_in, Tensor? bias, Tensor? weight, Tensor? left, "
    "Tensor? right, Tensor? diagonal, Tensor h0, Tensor? c0"
)
_KIND = "str cell, str activation, float slope, str precision"
_COUNT = len(_TENSORS.split(","))
_library = cast(Any, torch.library)

_library.define(
    "reflectory::triton_sequence",
    f"({_TENSORS}, Tensor? lengths, {_KIND}, bool keep) -> (Tensor, Tensor, Tensor, Tensor)",
)
_library.define(
    "reflectory::triton_sequence_backward",
    "(Tensor? grad_states, Tensor? grad_cells, Tensor? grad_last_h, Tensor? grad_last_c, "
    f"{_TENSORS}, Tensor? lengths, Tensor states, Tensor cells, {_KIND}, bool[] wanted) "
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
    operator = torch.ops.reflectory.triton_sequence
    given = tensors.in_order()[:_COUNT]
    how = kind.cell, kind.activation, kind.slope, precision
    return operator(*given, lengths, *how, keep)


def weights_of(kind: Kind, tensors: Tensors) -> Weights:
    """What decides whether a sequence fits."""
    gates, size = GATES[kind.cell], tensors.h0.shape[-1]
    if tensors.left is None or tensors.right is None:
        return Weights(gates, size)
    return Weights(gates, size, tensors.left.shape[-1], tensors.right.shape[1])


def shared_bytes_of(device: torch.device) -> int:
    """What a block of a GPU may have of shared memory; of a stand-in for one, what an H100 has."""
    if device.type != "cuda":
        return 232_448
    properties = cast(Any, torch.cuda.get_device_properties(device))
    return int(properties.shared_memory_per_block_optin)


@dataclass(frozen=True)
class _Run:
    """One call: what it is given, and how it is cut."""

    kind: Kind
    given: Tensors
    lengths: Tensor | None
    precision: Precision
    tiles: Tiles

    @property
    def gates(self) -> int:
        return GATES[self.kind.cell]

    @property
    def thin(self) -> bool:
        return self.given.weight is None

    @property
    def rights(self) -> int:
        return 0 if self.given.right is None else self.given.right.shape[1]

    @property
    def grid(self) -> tuple[int, int]:
        models, batch, _ = self.given.h0.shape
        return -(-batch // self.tiles.rows), models

    def chunks(self) -> list[tuple[int, int]]:
        """First and last step of each chunk, the last one excluded."""
        models, batch, size = self.given.h0.shape
        each = models * batch * size * self.gates * self.given.h0.element_size()
        most = max(CHUNK_BYTES // max(each, 1), LEAST_CHUNK)
        steps = self.given.steps
        return [(start, min(start + most, steps)) for start in range(0, steps, most)]

    def constants(self) -> dict[str, Any]:
        """What both kernels are compiled for."""
        tiles = self.tiles
        return {
            "slope": self.kind.slope,
            "CELL": self.kind.cell,
            "ACTIVATION": self.kind.activation if self.kind.cell == "rnn" else "tanh",
            "GATES": self.gates,
            "RIGHTS": self.rights,
            "DIAGONAL": self.given.diagonal is not None,
            "RAGGED": self.lengths is not None,
            "STREAMED": tiles.streamed,
            "ROUNDED": self.precision == "bf16",
            "PRECISION": "ieee" if self.precision == "bf16" else self.precision,
            "ROWS": tiles.rows,
            "N": tiles.units,
            "K": tiles.inner,
            "num_warps": tiles.warps,
            "num_stages": 1,
        }

    def addends(self, start: int, stop: int) -> Tensor:
        """What inputs and biases add in some steps, `[M, steps, B, G n]`; steps are contiguous.

        But for the second bias of a candidate that is reset after its product.
        """
        given = self.given
        models, batch, size = given.h0.shape
        bias = self._outer_bias()
        if given.addends is not None:
            some = given.addends[:, start:stop]
            return some if bias is None else some + bias.view(models, 1, 1, -1)
        assert given.x is not None
        assert given.w_in is not None
        x = given.x[:, start:stop].flatten(1, 2)
        w_in = given.w_in.view(models, self.gates * size, -1).mT
        found = torch.bmm(x, w_in) if bias is None else torch.baddbmm(bias, x, w_in)
        return found.view(models, stop - start, batch, self.gates * size)

    def _outer_bias(self) -> Tensor | None:
        """`[M, 1, G n]`."""
        bias = self.given.bias
        if bias is None:
            return None
        total = bias[:, 0]
        if bias.shape[1] == 2:
            inner = bias[:, 1]
            if self.kind.cell == "gru_reset_after":
                inner = torch.cat((inner[:, :2], torch.zeros_like(inner[:, 2:])), 1)
            total = total + inner
        return total.flatten(1).unsqueeze(1)

    def inner_bias(self) -> Tensor | None:
        """What is added to a candidate's product before its reset, `[M, n]`."""
        bias = self.given.bias
        if self.kind.cell != "gru_reset_after" or bias is None or bias.shape[1] != 2:
            return None
        return bias[:, 1, 2].contiguous()


def _run_of(tensors: Tensors, lengths: Tensor | None, *how: Any) -> _Run:
    cell, activation, slope, precision = how
    kind = Kind(cell, activation, slope)
    given = Tensors(*(None if one is None else one.contiguous() for one in tensors.in_order()))  # pyright: ignore[reportArgumentType] -- h0 stays given
    shared_bytes = shared_bytes_of(given.h0.device)
    weights = weights_of(kind, given)
    tiles = tiles_for(weights, precision=precision, shared_bytes=shared_bytes)
    if tiles is None:
        raise ValueError(f"{weights} do not fit into {shared_bytes} bytes of shared memory")
    return _Run(kind, given, None if lengths is None else lengths.contiguous(), precision, tiles)


def _run(*arguments: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    tensors, (lengths, *how, keep) = _split(arguments)
    results = states, cells, last_h, last_c = _results(tensors, how[0], keep=keep)
    models, batch, size = tensors.h0.shape
    if models == 0 or batch == 0:
        return results
    from models.backends.triton import kernels

    run = _run_of(tensors, lengths, *how)
    given, nothing = run.given, tensors.h0
    h = given.h0.float().clone()
    c = None if given.c0 is None else given.c0.float().clone()
    inner_bias = run.inner_bias()
    for start, stop in run.chunks():
        addends = run.addends(start, stop)
        with _on(nothing):
            kernels.forward_steps[run.grid](
                addends,
                given.right if run.thin else given.weight,
                _or(given.left, nothing),
                _or(given.diagonal, nothing),
                _or(inner_bias, nothing),
                h,
                _or(c, h),
                _or(run.lengths, nothing),
                states,
                cells,
                addends.stride(0),
                start,
                stop - start,
                given.steps,
                batch,
                size,
                _rank(given),
                BIASED=inner_bias is not None,
                KEPT=keep,
                **run.constants(),
            )
    last_h.copy_(h)
    if c is not None:
        last_c.copy_(c)
    return results


def _run_backward(*arguments: Any) -> list[Tensor]:
    arriving = arguments[:4]
    tensors, (lengths, states, cells, *how, wanted) = _split(arguments[4:])
    models, batch, _ = tensors.h0.shape
    if models == 0 or batch == 0:
        return _gradients(tensors, wanted)
    run = _run_of(tensors, lengths, *how)
    return _Backward(run, states, cells, arriving, wanted).run_all()


class _Backward:
    """The backward pass of one call, chunk by chunk from the last one on."""

    def __init__(
        self,
        run: _Run,
        states: Tensor,
        cells: Tensor,
        arriving: Sequence[Tensor | None],
        wanted: Sequence[bool],
    ) -> None:
        self.run, self.given = run, run.given
        self.states, self.cells = states, cells
        grad_states, grad_cells, grad_h, grad_c = arriving
        self.grad_states = None if grad_states is None else grad_states.contiguous()
        self.grad_cells = None if grad_cells is None else grad_cells.contiguous()
        h0 = self.given.h0
        self.grad_h = _carried(grad_h, h0)
        self.grad_c = None if self.given.c0 is None else _carried(grad_c, h0)
        # Sums over chunks are in single precision.
        self.sums = {
            name: torch.zeros_like(tensor, dtype=torch.float32, memory_format=torch.contiguous_format)
            if name not in ("x", "addends", "h0", "c0")
            else torch.empty_like(tensor, memory_format=torch.contiguous_format)
            for name, tensor, want in zip(Tensors.names(), self.given.in_order(), wanted, strict=False)
            if want and tensor is not None
        }

    def run_all(self) -> list[Tensor]:
        """The gradient of each tensor in order; an empty one of those that are not wanted."""
        for start, stop in reversed(self.run.chunks()):
            self._chunk(start, stop)
        self._put("h0", self.grad_h)
        if self.grad_c is not None:
            self._put("c0", self.grad_c)
        h0, names = self.given.h0, Tensors.names()[:_COUNT]
        return [self.sums[n].to(h0.dtype) if n in self.sums else h0.new_empty(0) for n in names]

    def _put(self, name: str, value: Tensor) -> None:
        if name in self.sums:
            self.sums[name].copy_(value)

    def _chunk(self, start: int, stop: int) -> None:
        from models.backends.triton import kernels

        run, given = self.run, self.given
        models, batch, size = given.h0.shape
        cell = run.kind.cell
        before = self._before(self.states, given.h0, start, stop)
        if run.kind.activation == "abs" and cell == "rnn":
            # The first state is one, and no number whose modulus is.
            skipped = 1 if start == 0 else 0
            before[:, skipped:].abs_()
        gates, inner, reset_state = self._given_to_gates(before, start, stop)
        own_cells = before_cells = None
        if given.c0 is not None:
            own_cells = self.cells[:, start:stop].contiguous()
            before_cells = self._before(self.cells, given.c0, start, stop)
        nothing = given.h0
        with _on(nothing):
            kernels.backward_steps[run.grid](
                gates,
                _or(inner, nothing),
                given.left if run.thin else given.weight,
                _or(given.right, nothing),
                _or(given.diagonal, nothing),
                self.states,
                before,
                _or(own_cells, nothing),
                _or(before_cells, nothing),
                self.grad_h,
                _or(self.grad_c, self.grad_h),
                _or(self.grad_states, nothing),
                _or(self.grad_cells, nothing),
                _or(run.lengths, nothing),
                start,
                stop - start,
                given.steps,
                batch,
                size,
                _rank(given),
                OF_STATES=self.grad_states is not None,
                OF_CELLS=self.grad_cells is not None,
                **run.constants(),
            )
        rows = (models, (stop - start) * batch)
        gates, before = gates.view(*rows, -1), before.view(*rows, -1)
        by_gate = [before] * run.gates
        if reset_state is not None:
            by_gate[2] = reset_state.view(*rows, -1)
        self._add_matrices(list(gates.split(size, -1)), by_gate)
        self._add_biases(gates, inner)
        if inner is not None:
            gates[..., 2 * size :].copy_(inner.view(*rows, -1))
        self._add_inputs(gates, start, stop)

    def _before(self, every: Tensor, first: Tensor, start: int, stop: int) -> Tensor:
        """A state before each step, `[M, steps, B, n]`, a copy."""
        if start:
            return every[:, start - 1 : stop - 1].clone(memory_format=torch.contiguous_format)
        return torch.cat((first.unsqueeze(1), every[:, : stop - 1]), 1)

    def _given_to_gates(
        self, before: Tensor, start: int, stop: int
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """What the gates were given `[M, steps, B, G n]`, a copy that is free to be written over.

        With it what a candidate's product was before its reset, or else the state that was reset
        before the product, of the GRU that has the one or the other.
        """
        run, given = self.run, self.given
        models, batch, size = given.h0.shape
        shape = (models, stop - start, batch)
        if run.kind.cell == "rnn":
            return before.new_empty(*shape, size), None, None
        gates = run.addends(start, stop)
        if given.addends is not None and given.bias is None:
            gates = gates.contiguous() if gates.stride(0) != gates[0].numel() else gates.clone()
        flat, state = gates.view(models, -1, run.gates * size), before.view(models, -1, size)
        parts = list(flat.split(size, -1))
        if run.kind.cell == "lstm":
            self._add_products(parts, range(4), state)
            return gates, None, None
        self._add_products(parts, range(2), state)
        if run.kind.cell == "gru_reset_after":
            inner = torch.zeros_like(state)
            bias = run.inner_bias()
            if bias is not None:
                inner += bias.unsqueeze(1)
            self._add_products([inner], [2], state)
            return gates, inner.view(*shape, size), None
        reset = parts[1].sigmoid() * state
        self._add_products([parts[2]], [2], reset)
        return gates, None, reset.view(*shape, size)

    def _add_products(self, outs: Sequence[Tensor], numbers: Sequence[int], x: Tensor) -> None:
        """Add to each `[M, rows, n]` what a gate's matrix makes of x, in place."""
        given = self.given
        middle = None
        for out, number in zip(outs, numbers, strict=False):
            if given.weight is not None:
                out.baddbmm_(x, given.weight[:, number].mT)
                continue
            assert given.left is not None
            assert given.right is not None
            if middle is None or given.right.shape[1] > 1:
                middle = torch.bmm(x, given.right[:, self._right(number)].mT)
            out.baddbmm_(middle, given.left[:, number].mT)
            if given.diagonal is not None:
                out.addcmul_(x, given.diagonal[:, number].unsqueeze(1))

    def _right(self, number: int) -> int:
        return number if self.run.rights > 1 else 0

    def _add_matrices(self, reaching: Sequence[Tensor], states: Sequence[Tensor]) -> None:
        """Each gate's gradient `[M, rows, n]` and what its matrix was applied to."""
        given, sums = self.given, self.sums
        for number, (dz, x) in enumerate(zip(reaching, states, strict=True)):
            if "weight" in sums:
                _add_product(sums["weight"][:, number], dz.mT, x)
            if given.left is not None and given.right is not None:
                right = self._right(number)
                if "left" in sums:
                    _add_product(
                        sums["left"][:, number], dz.mT, torch.bmm(x, given.right[:, right].mT)
                    )
                if "right" in sums:
                    middle = torch.bmm(dz, given.left[:, number])
                    _add_product(sums["right"][:, right], middle.mT, x)
            if "diagonal" in sums:
                sums["diagonal"][:, number] += (dz * x).sum(1, dtype=torch.float32)

    def _add_biases(self, gates: Tensor, inner: Tensor | None) -> None:
        """Of what reaches products `[M, rows, G n]`, and a candidate's addend where it differs."""
        if "bias" not in self.sums:
            return
        bias = self.sums["bias"]
        of_products = gates.sum(1, dtype=torch.float32).unflatten(-1, (self.run.gates, -1))
        of_addends = of_products
        if inner is not None:
            of_candidate = inner.flatten(1, 2).sum(1, dtype=torch.float32).unsqueeze(1)
            of_addends = torch.cat((of_products[:, :2], of_candidate), 1)
        bias[:, 0] += of_addends
        if bias.shape[1] == 2:
            bias[:, 1] += of_products

    def _add_inputs(self, gates: Tensor, start: int, stop: int) -> None:
        """Of what reaches addends `[M, rows, G n]`."""
        given, sums = self.given, self.sums
        models, batch, _ = given.h0.shape
        shape = (models, stop - start, batch, -1)
        if "addends" in sums:
            sums["addends"][:, start:stop] = gates.view(shape)
        if given.x is None or given.w_in is None:
            return
        if "x" in sums:
            w_in = given.w_in.flatten(1, 2)
            sums["x"][:, start:stop] = torch.bmm(gates, w_in).view(shape)
        if "w_in" in sums:
            x = given.x[:, start:stop].flatten(1, 2)
            _add_product(sums["w_in"].flatten(1, 2), gates.mT, x)


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Add a product to what may be of higher precision."""
    if total.dtype == left.dtype:
        total.baddbmm_(left, right)
    else:
        total += torch.bmm(left, right)


def _carried(gradient: Tensor | None, like: Tensor) -> Tensor:
    if gradient is None:
        return torch.zeros_like(like, dtype=torch.float32)
    return gradient.float().clone(memory_format=torch.contiguous_format)


def _or(tensor: Tensor | None, nothing: Tensor) -> Tensor:
    """Something in place of what a kernel does not read."""
    return nothing if tensor is None else tensor


def _rank(tensors: Tensors) -> int:
    return 1 if tensors.left is None else tensors.left.shape[-1]


def _on(tensor: Tensor) -> Any:
    """Launches go to the current device: make it the tensor's."""
    return torch.cuda.device_of(tensor)


def _run_fake(*arguments: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    tensors, (_, cell, *_, keep) = _split(arguments)
    return _results(tensors, cell, keep=keep)


def _run_backward_fake(*arguments: Any) -> list[Tensor]:
    tensors, (*_, wanted) = _split(arguments[4:])
    return _gradients(tensors, wanted)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *saved, cell, activation, slope, precision, keep = inputs
    if not keep:
        raise ValueError("a sequence that is to be differentiated has to be run with keep=True")
    states, cells, _, _ = output
    # A gradient of zeros for all states would cost as much as the states.
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*saved, states, cells)
    ctx.how = cell, activation, slope, precision


def _backward(ctx: Any, *incoming: Tensor | None) -> tuple[Tensor | None, ...]:
    wanted = list(ctx.needs_input_grad[:_COUNT])
    operator = torch.ops.reflectory.triton_sequence_backward
    gradients = operator(*incoming, *ctx.saved_tensors, *ctx.how, wanted)
    found = [gradient if want else None for gradient, want in zip(gradients, wanted, strict=True)]
    return (*found, *[None] * 6)


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


def _results(
    tensors: Tensors, cell: str, *, keep: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Tensors to be filled."""
    h0 = tensors.h0
    models, batch, size = h0.shape
    every, last, none = (models, tensors.steps, batch, size), (models, batch, size), (0,)
    has_cell = cell == "lstm"
    return (
        h0.new_empty(every if keep else none),
        h0.new_empty(every if keep and has_cell else none),
        h0.new_empty(last),
        h0.new_empty(last if has_cell else none),
    )


def _gradients(tensors: Tensors, wanted: Sequence[bool]) -> list[Tensor]:
    """Zeros for what is wanted, contiguous like no strided x would be; else empty tensors."""
    given = tensors.in_order()[:_COUNT]
    return [
        tensors.h0.new_zeros(tensor.shape if want and tensor is not None else (0,))
        for tensor, want in zip(given, wanted, strict=True)
    ]
