"""Steps with whole matrices: launches of their kernels, and their gradients."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from models.backends.triton.launches import (
    Chunk,
    Reached,
    Results,
    Run,
    Sums,
    add_product,
    given_or,
    on_device_of,
)
from models.backends.triton.tiles import WholeTiles

_ONES = {f"one{gate}": 1.0 for gate in range(4)}


def _kernels() -> Any:
    """The first call imports triton."""
    from models.backends.triton import whole_kernels

    return whole_kernels


class WholeSteps:
    """Steps of a call with whole matrices."""

    def __init__(self, run: Run) -> None:
        tiles, weight = run.tiles, run.given.weight
        assert isinstance(tiles, WholeTiles)
        assert weight is not None
        self.run, self.weight = run, weight
        models, batch, _ = run.given.h0.shape
        self._grid = -(-batch // tiles.rows), models
        self._constants = {
            "ROUNDED": run.precision == "bf16",
            "PRECISION": "ieee" if run.precision == "bf16" else run.precision,
            "ROWS": tiles.rows,
            "N": tiles.units,
            **run.constants(),
        }

    def forward(
        self, start: int, stop: int, h: Tensor, c: Tensor | None, into: Results, *, keep: bool
    ) -> None:
        """See `Steps`."""
        run, nothing = self.run, self.run.given.h0
        addends, inner_bias = run.addends(start, stop), run.inner_bias()
        _, batch, size = nothing.shape
        with on_device_of(nothing):
            _kernels().forward_steps[self._grid](
                addends,
                self.weight.mT.contiguous(),
                given_or(inner_bias, nothing),
                h,
                given_or(c, h),
                given_or(run.lengths, nothing),
                into.states,
                into.cells,
                addends.stride(0),
                start,
                stop - start,
                run.given.steps,
                batch,
                size,
                **_ONES,
                BIASED=inner_bias is not None,
                KEPT=keep,
                **self._constants,
            )

    def backward(self, chunk: Chunk, results: Results) -> Reached:
        """See `Steps`."""
        run, nothing = self.run, self.run.given.h0
        reached = self._given_to_gates(chunk)
        _, batch, size = nothing.shape
        with on_device_of(nothing):
            _kernels().backward_steps[self._grid](
                reached.gates,
                given_or(reached.products, nothing),
                self.weight,
                results.states,
                chunk.before,
                results.cells,
                given_or(chunk.cells_before, nothing),
                chunk.grad_h,
                given_or(chunk.grad_c, chunk.grad_h),
                given_or(chunk.grad_states, nothing),
                given_or(chunk.grad_cells, nothing),
                given_or(run.lengths, nothing),
                chunk.start,
                chunk.stop - chunk.start,
                run.given.steps,
                batch,
                size,
                OF_STATES=chunk.grad_states is not None,
                OF_CELLS=chunk.grad_cells is not None,
                **self._constants,
            )
        return reached

    def add_to(self, sums: Sums, chunk: Chunk, results: Results, reached: Reached) -> None:
        """See `Steps`."""
        del results
        if "weight" in sums:
            for number, (dz, x) in enumerate(reached.of_matrices(chunk.before)):
                add_product(sums["weight"][:, number], dz.mT, x)
        if "bias" in sums:
            self._add_biases(sums["bias"], reached)

    def finish(self, sums: Sums, grad_h: Tensor) -> None:
        """See `Steps`: nothing is left to do."""

    def _add_biases(self, bias: Tensor, reached: Reached) -> None:
        models, gates, size = bias.shape[0], self.run.gates, bias.shape[-1]
        of_addends = reached.gates.flatten(1, 2).sum(1, dtype=torch.float32)
        of_products = of_addends.view(models, gates, size)
        bias[:, 0] += of_products
        if bias.shape[1] == 2:
            if reached.products is not None:
                of_products[:, 2] = reached.products.flatten(1, 2).sum(1, dtype=torch.float32)
            bias[:, 1] += of_products

    def _given_to_gates(self, chunk: Chunk) -> Reached:
        """What the gates were given, copies that are free to be written over.

        With it what a candidate's product was before its reset, or else the state that was reset
        before the product, of the GRU that has the one or the other.
        """
        run = self.run
        before, size = chunk.before, chunk.before.shape[-1]
        if run.kind.cell == "rnn":
            return Reached(torch.empty_like(before), None, None)
        gates = run.own_addends(chunk.start, chunk.stop)
        models = gates.shape[0]
        state = before.view(models, -1, size)
        parts = torch.split(gates.view(models, -1, run.gates * size), size, dim=-1)
        if run.kind.cell == "lstm":
            self._add_products(parts, range(4), state)
            return Reached(gates, None, None)
        self._add_products(parts, range(2), state)
        if run.kind.cell == "gru_reset_after":
            product = torch.zeros_like(state)
            bias = run.inner_bias()
            if bias is not None:
                product += bias.unsqueeze(1)
            self._add_products([product], [2], state)
            return Reached(gates, product.view_as(before), None)
        reset = parts[1].sigmoid() * state
        self._add_products([parts[2]], [2], reset)
        return Reached(gates, None, reset.view_as(before))

    def _add_products(self, outs: Sequence[Tensor], numbers: Sequence[int], x: Tensor) -> None:
        """Add to each `[M, rows, n]` what a gate's matrix makes of x, in place."""
        for out, number in zip(outs, numbers, strict=False):
            out.baddbmm_(x, self.weight[:, number].mT)
