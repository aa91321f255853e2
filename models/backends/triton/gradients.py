"""The backward pass of one call: launches, and the products of many steps around them."""

from collections.abc import Sequence

import torch
from torch import Tensor

from models.backends.triton.cutting import steps_of
from models.backends.triton.launches import Chunk, Results, Run, add_product
from models.kernels.calls import Tensors

_OF_STEPS = ("x", "addends", "h0", "c0")
"""What is written once. All else is summed over chunks, in single precision."""


class Backward:
    """The backward pass of one call, chunk by chunk from the last one on."""

    def __init__(
        self,
        run: Run,
        results: Results,
        arriving: Sequence[Tensor | None],
        wanted: Sequence[bool],
    ) -> None:
        self.run, self.given, self.wanted = run, run.given, wanted
        self.results, self.steps = results, steps_of(run)
        grad_states, grad_cells, grad_h, grad_c = arriving
        self.grad_states = None if grad_states is None else grad_states.contiguous()
        self.grad_cells = None if grad_cells is None else grad_cells.contiguous()
        h0 = self.given.h0
        self.grad_h = _carried(grad_h, h0)
        self.grad_c = None if self.given.c0 is None else _carried(grad_c, h0)
        self.sums = {
            name: _empty(tensor) if name in _OF_STEPS else _zeros(tensor)
            for name, tensor, want in zip(
                Tensors.names(), self.given.in_order(), wanted, strict=False
            )
            if want and tensor is not None
        }

    def run_all(self) -> list[Tensor]:
        """The gradient of each tensor in order; an empty one of those that are not wanted."""
        for start, stop in reversed(self.run.chunks()):
            self._chunk(start, stop)
        self.steps.finish(self.sums, self.grad_h)
        self._put("h0", self.grad_h)
        if self.grad_c is not None:
            self._put("c0", self.grad_c)
        h0, names = self.given.h0, Tensors.names()[: len(self.wanted)]
        return [self.sums[n].to(h0.dtype) if n in self.sums else h0.new_empty(0) for n in names]

    def _put(self, name: str, value: Tensor) -> None:
        if name in self.sums:
            self.sums[name].copy_(value)

    def _chunk(self, start: int, stop: int) -> None:
        run, given, results = self.run, self.given, self.results
        before = self._before(results.states, given.h0, start, stop)
        if run.kind.activation == "abs" and run.kind.cell == "rnn":
            # The first state is one, and no number whose modulus is.
            skipped = 1 if start == 0 else 0
            before[:, skipped:].abs_()
        cells_before = None
        if given.c0 is not None:
            cells_before = self._before(results.cells, given.c0, start, stop)
        chunk = Chunk(
            start,
            stop,
            self.grad_h,
            self.grad_c,
            self.grad_states,
            self.grad_cells,
            before,
            cells_before,
        )
        reached = self.steps.backward(chunk, results)
        self.steps.add_to(self.sums, chunk, results, reached)
        self._add_inputs(reached.gates, start, stop)

    def _before(self, every: Tensor, first: Tensor, start: int, stop: int) -> Tensor:
        """A state before each step, `[M, steps, B, n]`, a copy."""
        if start:
            return every[:, start - 1 : stop - 1].clone(memory_format=torch.contiguous_format)
        return torch.cat((first.unsqueeze(1), every[:, : stop - 1]), 1)

    def _add_inputs(self, gates: Tensor, start: int, stop: int) -> None:
        """Of what reaches addends `[M, steps, B, G n]`."""
        given, sums = self.given, self.sums
        models, batch, _ = given.h0.shape
        shape = (models, stop - start, batch, -1)
        if "addends" in sums:
            sums["addends"][:, start:stop] = gates
        if given.x is None or given.w_in is None:
            return
        rows = gates.view(models, -1, gates.shape[-1])
        if "x" in sums:
            w_in = given.w_in.flatten(1, 2)
            sums["x"][:, start:stop] = torch.bmm(rows, w_in).view(shape)
        if "w_in" in sums:
            x = given.x[:, start:stop].flatten(1, 2)
            add_product(sums["w_in"].flatten(1, 2), rows.mT, x)


def _zeros(tensor: Tensor) -> Tensor:
    return torch.zeros_like(tensor, dtype=torch.float32, memory_format=torch.contiguous_format)


def _empty(tensor: Tensor) -> Tensor:
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


def _carried(gradient: Tensor | None, like: Tensor) -> Tensor:
    if gradient is None:
        return _zeros(like)
    return gradient.float().clone(memory_format=torch.contiguous_format)
