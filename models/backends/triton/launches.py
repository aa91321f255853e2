"""One call: how it is cut into launches, and what inputs and biases add in each."""

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from models.backends.triton.tiles import Precision, Tiles, Weights, tiles_for
from models.kernels.calls import GATES, Kind, Tensors

CHUNK_BYTES = 128 << 20
"""Of what a chunk's gates are given."""
LEAST_CHUNK = 16
"""Steps of a chunk: fewer are not worth a launch."""


def weights_of(kind: Kind, tensors: Tensors) -> Weights:
    """What decides whether a sequence fits."""
    size = tensors.h0.shape[-1]
    if tensors.left is None or tensors.right is None:
        return Weights(GATES[kind.cell], size)
    return thin_weights(kind, size, tensors.left.shape[-1], tensors.right.shape[1])


def thin_weights(kind: Kind, size: int, rank: int, rights: int) -> Weights:
    """Thin matrices of a cell, of which it is given `rights` right factors.

    A GRU that resets before its candidate's product multiplies two vectors in a step, one after the
    other. It has a right factor for each gate, and its samples are not shared.
    """
    gates, twice = GATES[kind.cell], kind.cell == "gru_reset_before"
    return Weights(gates, size, rank, gates if twice else rights, divides=not twice)


def shared_bytes_of(device: torch.device) -> int:
    """What a block of a GPU may have of shared memory; of a stand-in for one, what an H100 has."""
    if device.type != "cuda":
        return 232_448
    return int(_properties_of(device).shared_memory_per_block_optin)


def programs_of(device: torch.device) -> int:
    """How many programs surely run at the same time: one on each multiprocessor."""
    if device.type != "cuda":
        return 132
    return int(_properties_of(device).multi_processor_count)


def _properties_of(device: torch.device) -> Any:
    cuda: Any = torch.cuda
    return cuda.get_device_properties(device)


@dataclass(frozen=True)
class Results:
    """What a forward pass fills; empty where it is not kept, or there is none."""

    states: Tensor
    """[M, T, B, n]"""
    cells: Tensor
    """[M, T, B, n]"""
    inners: Tensor
    """[M, T, B, RIGHTS d], what the right factors of thin matrices made of each state"""
    last_h: Tensor
    """[M, B, n]"""
    last_c: Tensor
    """[M, B, n]"""


@dataclass(frozen=True)
class Chunk:
    """Some steps of a backward pass: what reaches their states, and what they started from."""

    start: int
    stop: int
    grad_h: Tensor
    """float32 `[M, B, n]`, what reaches the last h; a launch leaves there what reaches the first"""
    grad_c: Tensor | None
    """the same of an LSTM's c"""
    grad_states: Tensor | None
    """[M, T, B, n]"""
    grad_cells: Tensor | None
    """[M, T, B, n]"""
    before: Tensor
    """[M, steps, B, n], h before each step"""
    cells_before: Tensor | None
    """[M, steps, B, n]"""


@dataclass(frozen=True)
class Reached:
    """What a launch of a backward pass found out."""

    gates: Tensor
    """[M, steps, B, G n], what reaches the addends"""
    products: Tensor | None
    """[M, steps, B, n], of a GRU that resets after its candidate's product: what reaches that"""
    resets: Tensor | None
    """[M, steps, B, n], of one that resets before: what was multiplied"""
    middles: Tensor | None = None
    """[M, steps, B, RIGHTS d], what the left factors made of what reached the products"""

    def of_matrices(self, before: Tensor) -> list[tuple[Tensor, Tensor]]:
        """For each gate what reaches its product, and what that multiplied, `[M, rows, n]`."""
        models, size = before.shape[0], before.shape[-1]
        reaching = list(torch.split(self.gates.view(models, -1, self.gates.shape[-1]), size, -1))
        multiplied = [before.view(models, -1, size)] * len(reaching)
        if self.products is not None:
            reaching[2] = self.products.view(models, -1, size)
        if self.resets is not None:
            multiplied[2] = self.resets.view(models, -1, size)
        return list(zip(reaching, multiplied, strict=True))


Sums = dict[str, Tensor]
"""Gradients by name of what they are of, in single precision where they are summed over chunks."""


class Steps(Protocol):
    """How some kind of matrices goes through steps."""

    def forward(
        self, start: int, stop: int, h: Tensor, c: Tensor | None, into: Results, *, keep: bool
    ) -> None:
        """Go on from h and c, float32 `[M, B, n]`, and leave the last ones there."""
        ...

    def backward(self, chunk: Chunk, results: Results) -> Reached:
        """Go back by a chunk."""
        ...

    def add_to(self, sums: Sums, chunk: Chunk, results: Results, reached: Reached) -> None:
        """Add what a chunk has of the gradients of matrices and biases."""
        ...

    def finish(self, sums: Sums, grad_h: Tensor) -> None:
        """Complete these, and what reaches the first h, after the last chunk."""
        ...


def add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Add a product to what may be of higher precision."""
    if total.dtype == left.dtype:
        total.baddbmm_(left, right)
    else:
        total += torch.bmm(left, right)


@dataclass(frozen=True)
class Run:
    """One call: what it is given, and how it is cut."""

    kind: Kind
    given: Tensors
    lengths: Tensor | None
    precision: Precision
    weights: Weights
    tiles: Tiles

    @property
    def gates(self) -> int:
        """G."""
        return GATES[self.kind.cell]

    def chunks(self) -> list[tuple[int, int]]:
        """First and last step of each chunk, the last one excluded."""
        models, batch, size = self.given.h0.shape
        each = models * batch * size * self.gates * self.given.h0.element_size()
        most = max(CHUNK_BYTES // max(each, 1), LEAST_CHUNK)
        steps = self.given.steps
        return [(start, min(start + most, steps)) for start in range(0, steps, most)]

    def constants(self) -> dict[str, Any]:
        """What all kernels are compiled for."""
        return {
            "slope": self.kind.slope,
            "CELL": self.kind.cell,
            "ACTIVATION": self.kind.activation if self.kind.cell == "rnn" else "tanh",
            "GATES": self.gates,
            "RAGGED": self.lengths is not None,
            "num_warps": self.tiles.warps,
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

    def own_addends(self, start: int, stop: int) -> Tensor:
        """The same, free to be written over."""
        found = self.addends(start, stop)
        if self.given.addends is None or self.given.bias is not None:
            return found
        return found.contiguous() if not found.is_contiguous() else found.clone()

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
        raise ValueError(f"{weights} do not fit on a GPU of {shared_bytes} bytes of shared memory")
    lengths = None if lengths is None else lengths.contiguous()
    return Run(kind, given, lengths, precision, weights, tiles)


def given_or(tensor: Tensor | None, nothing: Tensor) -> Tensor:
    """Something in place of what a kernel does not read."""
    return nothing if tensor is None else tensor


def on_device_of(tensor: Tensor) -> Any:
    """Launches go to the current device: make it the tensor's."""
    return torch.cuda.device_of(tensor)
