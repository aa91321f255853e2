"""Steps with thin matrices: launches of their kernels, and their gradients."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from models.backends.triton.launches import (
    Chunk,
    Reached,
    Results,
    Run,
    Sums,
    add_product,
    given_or,
    on_device_of,
    programs_of,
)
from models.backends.triton.tiles import WARPS, ThinTiles


def _kernels() -> Any:
    """The first call imports triton."""
    from models.backends.triton import thin_kernels

    return thin_kernels


class ThinSteps:
    """Steps of a call with thin matrices."""

    def __init__(self, run: Run) -> None:
        tiles, given = run.tiles, run.given
        assert isinstance(tiles, ThinTiles)
        assert given.left is not None
        assert given.right is not None
        self.run, self.tiles = run, tiles
        self.left, self.rights = given.left, run.weights.rights
        self.right = given.right.expand(-1, self.rights, -1, -1)
        self._right, self._left = self._filled(self.right.mT), self._filled(self.left)
        models, batch, _ = given.h0.shape
        # Programs that wait for each other run at the same time: each takes more samples, and where
        # they are still too many, some models come after others.
        groups, self._together = batch, models
        self._divides, self._meets = tiles.parts > 1, given.h0.is_cuda
        if self._divides:
            programs = programs_of(given.h0.device) * (WARPS // tiles.warps)
            samples = max(programs // tiles.parts, 1)
            self._together = min(models, samples)
            groups = min(batch, samples // self._together)
        self._each = -(-batch // groups)
        self._groups = -(-batch // self._each)
        self._shares, self._sums = self._exchange()
        self._totals: Tensor | None = None

    def forward(
        self, start: int, stop: int, h: Tensor, c: Tensor | None, into: Results, *, keep: bool
    ) -> None:
        """See `Steps`."""
        run, nothing = self.run, self.run.given.h0
        if start == 0 and self._divides:
            first = self._right[:, :, : h.shape[-1]].transpose(1, 2).flatten(2).float()
            torch.bmm(h, first, out=self._sums)
        addends, inner_bias = run.addends(start, stop), run.inner_bias()
        for first, last in self._launches(start, stop):
            self._launch(
                "forward_steps",
                addends,
                *self._weights(inner_bias),
                h,
                given_or(c, h),
                given_or(run.lengths, nothing),
                into.states,
                into.cells,
                into.inners,
                self._shares,
                self._sums,
                self._counters(),
                addends.stride(0),
                start,
                first,
                last - first,
                BIASED=inner_bias is not None,
                KEPT=keep,
            )

    def backward(self, chunk: Chunk, results: Results) -> Reached:
        """See `Steps`."""
        run, before, nothing = self.run, chunk.before, self.run.given.h0
        if self._totals is None:
            models, _, size = nothing.shape
            shape = models, self._groups, 2 * run.gates + 1, size
            self._totals = nothing.new_zeros(shape, dtype=torch.float32)
        reached, inner_bias = self._to_reach(chunk), run.inner_bias()
        for first, last in reversed(self._launches(chunk.start, chunk.stop)):
            self._launch(
                "backward_steps",
                reached.gates,
                given_or(reached.products, nothing),
                given_or(reached.resets, nothing),
                given_or(reached.middles, nothing),
                results.inners,
                *self._weights(inner_bias),
                results.states,
                before,
                results.cells,
                given_or(chunk.cells_before, nothing),
                chunk.grad_h,
                given_or(chunk.grad_c, chunk.grad_h),
                given_or(chunk.grad_states, nothing),
                given_or(chunk.grad_cells, nothing),
                self._totals,
                given_or(run.lengths, nothing),
                self._shares,
                self._sums,
                self._counters(),
                chunk.start,
                chunk.stop - chunk.start,
                first,
                last - first,
                BIASED=inner_bias is not None,
                OF_STATES=chunk.grad_states is not None,
                OF_CELLS=chunk.grad_cells is not None,
                AHEAD=self.tiles.fetches_ahead,
            )
        return reached

    def add_to(self, sums: Sums, chunk: Chunk, results: Results, reached: Reached) -> None:
        """See `Steps`."""
        pairs = reached.of_matrices(chunk.before)
        if "left" in sums:
            inners = results.inners[:, chunk.start : chunk.stop].flatten(1, 2)
            inners = torch.split(inners, self.left.shape[-1], dim=-1)
            for number, (dz, _) in enumerate(pairs):
                add_product(sums["left"][:, number], dz.mT, inners[number % self.rights])
        if "right" in sums:
            middles = reached.middles
            if middles is None:
                middles = self._middles([dz for dz, _ in pairs])
            self._add_rights(sums["right"], middles.flatten(1, 2), [x for _, x in pairs])

    def finish(self, sums: Sums, grad_h: Tensor) -> None:
        """See `Steps`."""
        if self._divides:
            # What the first step left, which no step before it read.
            size = grad_h.shape[-1]
            grad_h += torch.bmm(self._sums, self._right.mT.flatten(1, 2)[..., :size].float())
        if self._totals is None:
            return
        gates, found = self.run.gates, self._totals.sum(1)
        if "diagonal" in sums:
            sums["diagonal"] += found[:, :gates]
        if "bias" in sums:
            bias, of_addends = sums["bias"], found[:, gates : 2 * gates]
            bias[:, 0] += of_addends
            if bias.shape[1] == 2:
                bias[:, 1] += of_addends
                if self.run.kind.cell == "gru_reset_after":
                    bias[:, 1, 2] += found[:, 2 * gates] - of_addends[:, 2]

    def _add_rights(self, total: Tensor, middles: Tensor, multiplied: list[Tensor]) -> None:
        """Of middles `[M, rows, RIGHTS d]`."""
        if multiplied[0] is multiplied[-1]:
            add_product(total.flatten(1, 2), middles.mT, multiplied[0])
            return
        # Another vector for the third matrix; R may be one that has been copied for each.
        for number, middle in enumerate(torch.split(middles, self.left.shape[-1], dim=-1)):
            add_product(total[:, number % total.shape[1]], middle.mT, multiplied[number])

    def _middles(self, reaching: list[Tensor]) -> Tensor:
        """What left factors make of it, `[M, rows, 1, RIGHTS d]`: kernels leave only shares."""
        each = [torch.bmm(dz, self.left[:, number]) for number, dz in enumerate(reaching)]
        found = each if self.rights == len(each) else [torch.stack(each).sum(0)]
        return torch.cat(found, -1).unsqueeze(2)

    def _to_reach(self, chunk: Chunk) -> Reached:
        """What a launch fills; its gates hold the addends."""
        run, before = self.run, chunk.before
        cell = run.kind.cell
        if cell == "rnn":
            gates = torch.empty_like(before)
        else:
            gates = run.own_addends(chunk.start, chunk.stop)
        middles = None
        if not self._divides:
            middles = before.new_empty(*before.shape[:3], self.rights * self.left.shape[-1])
        return Reached(
            gates,
            torch.empty_like(before) if cell == "gru_reset_after" else None,
            torch.empty_like(before) if cell == "gru_reset_before" else None,
            middles,
        )

    def _filled(self, factors: Tensor) -> Tensor:
        """`[M, ., n, d]` with zeros behind it."""
        *_, size, rank = factors.shape
        units = self.tiles.units * self.tiles.parts
        return F.pad(factors, (0, self.tiles.inner - rank, 0, units - size)).contiguous()

    def _launches(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Where programs run one after the other they cannot meet: each launch is one step."""
        if not self._divides or self._meets:
            return [(start, stop)]
        return [(step, step + 1) for step in range(start, stop)]

    def _exchange(self) -> tuple[Tensor, Tensor]:
        """What programs that share samples write for each other, and its sums: zeros at first."""
        h0 = self.run.given.h0
        if not self._divides:
            return h0, h0
        models, batch, _ = h0.shape
        width = self.rights * self.tiles.inner
        shares = h0.new_empty((models, batch, self.tiles.parts, width), dtype=torch.float32)
        return shares, h0.new_zeros((models, batch, width), dtype=torch.float32)

    def _counters(self) -> Tensor:
        h0 = self.run.given.h0
        if not self._divides:
            return h0
        return h0.new_zeros((h0.shape[0], self._groups), dtype=torch.int32)

    def _weights(self, inner_bias: Tensor | None) -> tuple[Tensor, ...]:
        given = self.run.given
        nothing = given.h0
        return (
            self._right,
            self._left,
            given_or(given.diagonal, nothing),
            given_or(inner_bias, nothing),
        )

    def _launch(self, name: str, *arguments: Any, **constants: Any) -> None:
        run, tiles = self.run, self.tiles
        models, batch, size = run.given.h0.shape
        if self._divides and self._meets:
            constants["launch_cooperative_grid"] = True
        kernel = getattr(_kernels(), name)
        with on_device_of(run.given.h0):
            for first in range(0, models, self._together):
                together = min(self._together, models - first)
                kernel[self._groups, together, tiles.parts](
                    *arguments,
                    run.given.steps,
                    first,
                    batch,
                    self._each,
                    size,
                    self.left.shape[-1],
                    RIGHTS=self.rights,
                    DIAGONAL=run.given.diagonal is not None,
                    MEETS=self._meets,
                    PARTS=tiles.parts,
                    UNITS=tiles.units,
                    K=tiles.inner,
                    **constants,
                    **run.constants(),
                )
        if self._divides and not self._meets:
            torch.sum(self._shares, 2, out=self._sums)
