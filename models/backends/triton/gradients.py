"""The backward pass of one call: launches, and the products of many steps around them."""

from collections.abc import Sequence

import torch
from torch import Tensor

from models.backends.triton.launches import Run, compiled, given_or, on_device_of, rank_of
from models.kernels.calls import Tensors


class Backward:
    """The backward pass of one call, chunk by chunk from the last one on."""

    def __init__(
        self,
        run: Run,
        states: Tensor,
        cells: Tensor,
        arriving: Sequence[Tensor | None],
        wanted: Sequence[bool],
    ) -> None:
        self.run, self.given, self.wanted = run, run.given, wanted
        self.states, self.cells = states, cells
        grad_states, grad_cells, grad_h, grad_c = arriving
        self.grad_states = None if grad_states is None else grad_states.contiguous()
        self.grad_cells = None if grad_cells is None else grad_cells.contiguous()
        h0 = self.given.h0
        self.grad_h = _carried(grad_h, h0)
        self.grad_c = None if self.given.c0 is None else _carried(grad_c, h0)
        # Sums over chunks are in single precision.
        self.sums = {
            name: torch.zeros_like(
                tensor, dtype=torch.float32, memory_format=torch.contiguous_format
            )
            if name not in ("x", "addends", "h0", "c0")
            else torch.empty_like(tensor, memory_format=torch.contiguous_format)
            for name, tensor, want in zip(
                Tensors.names(), self.given.in_order(), wanted, strict=False
            )
            if want and tensor is not None
        }

    def run_all(self) -> list[Tensor]:
        """The gradient of each tensor in order; an empty one of those that are not wanted."""
        for start, stop in reversed(self.run.chunks()):
            self._chunk(start, stop)
        self._put("h0", self.grad_h)
        if self.grad_c is not None:
            self._put("c0", self.grad_c)
        h0, names = self.given.h0, Tensors.names()[: len(self.wanted)]
        return [self.sums[n].to(h0.dtype) if n in self.sums else h0.new_empty(0) for n in names]

    def _put(self, name: str, value: Tensor) -> None:
        if name in self.sums:
            self.sums[name].copy_(value)

    def _chunk(self, start: int, stop: int) -> None:
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
        with on_device_of(nothing):
            compiled().backward_steps[run.grid](
                gates,
                given_or(inner, nothing),
                given.left if run.thin else given.weight,
                given_or(run.right, nothing),
                given_or(given.diagonal, nothing),
                self.states,
                before,
                given_or(own_cells, nothing),
                given_or(before_cells, nothing),
                self.grad_h,
                given_or(self.grad_c, self.grad_h),
                given_or(self.grad_states, nothing),
                given_or(self.grad_cells, nothing),
                given_or(run.lengths, nothing),
                start,
                stop - start,
                given.steps,
                batch,
                size,
                rank_of(given),
                OF_STATES=self.grad_states is not None,
                OF_CELLS=self.grad_cells is not None,
                **run.constants(),
            )
        rows = (models, (stop - start) * batch)
        gates, before = gates.view(*rows, -1), before.view(*rows, -1)
        by_gate = [before] * run.gates
        if reset_state is not None:
            by_gate[2] = reset_state.view(*rows, -1)
        self._add_matrices(list(torch.split(gates, size, dim=-1)), by_gate)
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
        parts = list(torch.split(flat, size, dim=-1))
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
        right = self.given.right
        return number if right is not None and right.shape[1] > 1 else 0

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
        models, _, width = gates.shape
        shape = models, self.run.gates, width // self.run.gates
        of_products = gates.sum(1, dtype=torch.float32).view(shape)
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
