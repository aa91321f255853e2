"""Launches of the kernels for one call, chunk by chunk, and what stands around them."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from models.backends.triton.tiles import Precision, Tiles, Weights, tiles_for
from models.kernels.calls import GATES, Kind, Tensors

CHUNK_BYTES = 64 << 20
"""Of what a chunk's gates are given."""
LEAST_CHUNK = 16
"""Steps of a chunk: fewer are not worth a launch."""

_ONES = {f"one{gate}": 1.0 for gate in range(4)}


def compiled() -> Any:
    """The kernels; the first call imports triton."""
    from models.backends.triton import kernels

    return kernels


def weights_of(kind: Kind, tensors: Tensors) -> Weights:
    """What decides whether a sequence fits."""
    gates, size = GATES[kind.cell], tensors.h0.shape[-1]
    if tensors.left is None or tensors.right is None:
        return Weights(gates, size)
    rights = rights_of(kind, tensors.right.shape[1])
    return Weights(gates, size, tensors.left.shape[-1], rights)


def rights_of(kind: Kind, given: int) -> int:
    """How many right factors a kernel is given.

    What reads through one R in two products that wait for each other has a copy for each: threads
    would keep a shared one in registers from one to the other, and spill.
    """
    return GATES[kind.cell] if kind.cell == "gru_reset_before" else given


def shared_bytes_of(device: torch.device) -> int:
    """What a block of a GPU may have of shared memory; of a stand-in for one, what an H100 has."""
    if device.type != "cuda":
        return 232_448
    cuda: Any = torch.cuda
    return int(cuda.get_device_properties(device).shared_memory_per_block_optin)


@dataclass(frozen=True)
class Run:
    """One call: what it is given, and how it is cut."""

    kind: Kind
    given: Tensors
    lengths: Tensor | None
    precision: Precision
    tiles: Tiles

    @property
    def gates(self) -> int:
        """G."""
        return GATES[self.kind.cell]

    @property
    def thin(self) -> bool:
        """Whether matrices are two thin factors each."""
        return self.given.weight is None

    @property
    def right(self) -> Tensor | None:
        """The right factors, as many as a kernel is given."""
        right = self.given.right
        if right is None:
            return None
        return right.expand(-1, rights_of(self.kind, right.shape[1]), -1, -1).contiguous()

    @property
    def grid(self) -> tuple[int, int]:
        """Programs: of each model's samples, and models."""
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
            "RIGHTS": 0 if self.given.right is None else weights_of(self.kind, self.given).rights,
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

    def transposed(self) -> tuple[Tensor, Tensor | None]:
        """What states are multiplied by, in order."""
        weight, left, right = self.given.weight, self.given.left, self.right
        if weight is not None:
            return weight.mT.contiguous(), None
        assert left is not None
        assert right is not None
        return right.mT.contiguous(), left.mT.contiguous()

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


def run_of(tensors: Tensors, lengths: Tensor | None, *how: Any) -> Run:
    """A call of the operator, which is given its `how`: cell, activation, slope, precision.

    Raises:
        ValueError: it does not fit.
    """
    cell, activation, slope, precision = how
    kind = Kind(cell, activation, slope)
    given = Tensors(*(None if one is None else one.contiguous() for one in tensors.in_order()))  # pyright: ignore[reportArgumentType] -- h0 stays given
    shared_bytes = shared_bytes_of(given.h0.device)
    weights = weights_of(kind, given)
    tiles = tiles_for(weights, precision=precision, shared_bytes=shared_bytes)
    if tiles is None:
        raise ValueError(f"{weights} do not fit into {shared_bytes} bytes of shared memory")
    return Run(kind, given, None if lengths is None else lengths.contiguous(), precision, tiles)


def run_forward(run: Run, results: tuple[Tensor, Tensor, Tensor, Tensor], *, keep: bool) -> None:
    """Go through all steps, writing into the results."""
    states, cells, last_h, last_c = results
    given, nothing = run.given, run.given.h0
    _, batch, size = nothing.shape
    h = given.h0.float().clone()
    c = None if given.c0 is None else given.c0.float().clone()
    inner_bias = run.inner_bias()
    first, second = run.transposed()
    for start, stop in run.chunks():
        addends = run.addends(start, stop)
        with on_device_of(nothing):
            compiled().forward_steps[run.grid](
                addends,
                first,
                given_or(second, nothing),
                given_or(given.diagonal, nothing),
                given_or(inner_bias, nothing),
                h,
                given_or(c, h),
                given_or(run.lengths, nothing),
                states,
                cells,
                addends.stride(0),
                start,
                stop - start,
                given.steps,
                batch,
                size,
                rank_of(given),
                **_ONES,
                BIASED=inner_bias is not None,
                KEPT=keep,
                **run.constants(),
            )
    last_h.copy_(h)
    if c is not None:
        last_c.copy_(c)


def given_or(tensor: Tensor | None, nothing: Tensor) -> Tensor:
    """Something in place of what a kernel does not read."""
    return nothing if tensor is None else tensor


def rank_of(tensors: Tensors) -> int:
    """D; 1 of whole matrices."""
    return 1 if tensors.left is None else tensors.left.shape[-1]


def on_device_of(tensor: Tensor) -> Any:
    """Launches go to the current device: make it the tensor's."""
    return torch.cuda.device_of(tensor)
