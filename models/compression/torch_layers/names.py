"""The tensors of torch's own recurrent layers: their names, shapes and order of gates.

`weight_ih_l0` `[G*n, I]`, `weight_hh_l0` `[G*n, n]`, `bias_ih_l0` and `bias_hh_l0` `[G*n]`, and so
on for each layer; `_reverse` behind the name for the backward direction. Gates are i, f, z, o in an
LSTM, as with us, and r, u, q in a GRU, where ours are u, r, q.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from models.errors import ConversionError

CellName = Literal["rnn", "gru", "lstm"]

GATE_ORDERS: Mapping[CellName, tuple[int, ...]] = {
    "rnn": (0,),
    "gru": (1, 0, 2),
    "lstm": (0, 1, 2, 3),
}
"""Where our gates stand in torch's tensors; as each is its own inverse, also the way back."""

_CELLS: Mapping[int, CellName] = {len(order): cell for cell, order in GATE_ORDERS.items()}

RECURRENT_TENSOR = re.compile(
    r"(?P<prefix>.*?)(?P<part>weight_ih|weight_hh|weight_hr|bias_ih|bias_hh)"
    r"_l(?P<layer>\d+)(?P<reverse>_reverse)?"
)


@dataclass(frozen=True, eq=False)
class RecurrentWeights:
    """A stack of recurrent layers with its gates in our order, forwards before backwards."""

    cell: CellName
    directions: int
    recurrent: Tensor
    """`[layers*directions*G, n, n]`"""
    inputs: tuple[Tensor, ...]
    """`[G*n, I]` for each layer and direction"""
    biases: tuple[Tensor, ...] | None
    """`[G*n]` each: what torch keeps as two vectors, but for what a candidate bias is"""
    candidate_biases: tuple[Tensor, ...] | None
    """`[n]` each: what a GRU adds to `W_q h` before its reset gate acts on it"""

    @property
    def layers(self) -> int:
        """How many layers there are."""
        return len(self.inputs) // self.directions

    @property
    def hidden_size(self) -> int:
        """Size n of the state."""
        return self.recurrent.shape[-1]

    @property
    def input_size(self) -> int:
        """What the first layer reads."""
        return self.inputs[0].shape[1]

    @property
    def gates(self) -> int:
        """Recurrent matrices of a cell."""
        return len(GATE_ORDERS[self.cell])


def reordered(stack: Tensor, cell: CellName) -> Tensor:
    """`[G*n, ...]` from torch's order of gates to ours, or back."""
    order = GATE_ORDERS[cell]
    gates = stack.chunk(len(order))
    return torch.cat([gates[place] for place in order])


def read_recurrent(tensors: Mapping[str, Tensor], prefix: str = "") -> RecurrentWeights:
    """What tensors named as torch's make up, names without their prefix.

    Raises:
        ConversionError: lists what is missing, too much or of a wrong shape, with the prefix.
    """
    if projected := sorted(name for name in tensors if name.startswith("weight_hr")):
        raise ConversionError(
            f"{prefix}{projected[0]}: an LSTM with projections (proj_size) has no counterpart "
            "here; allowed are states of the size of the cell"
        )
    if "weight_hh_l0" not in tensors or tensors["weight_hh_l0"].dim() != 2:
        raise ConversionError(
            f"{prefix}weight_hh_l0 is missing or no matrix; there are {_listed(tensors, prefix)}"
        )
    rows, size = tensors["weight_hh_l0"].shape
    if size == 0 or rows % size or rows // size not in _CELLS:
        hint = " (transposed?)" if rows and size % rows == 0 and size // rows in _CELLS else ""
        raise ConversionError(
            f"{prefix}weight_hh_l0 has shape {[rows, size]}{hint}; allowed are [n, n] of an RNN, "
            "[3 n, n] of a GRU and [4 n, n] of an LSTM"
        )
    cell = _CELLS[rows // size]
    directions = 1 + any(name.endswith("_reverse") for name in tensors)
    # Counted, for what a name says may be any number: one that leaves a gap is then not known.
    layers = len({match["layer"] for match in map(RECURRENT_TENSOR.fullmatch, tensors) if match})
    has_bias = any(name.startswith("bias") for name in tensors)
    places = [
        f"_l{layer}{side}" for layer in range(layers) for side in ("", "_reverse")[:directions]
    ]
    expected: dict[str, list[int]] = {}
    read = _read_by_first(tensors.get("weight_ih_l0"), rows)
    for place in places:
        width = read if place.startswith("_l0") else directions * size
        expected[f"weight_ih{place}"] = [rows, width]
        expected[f"weight_hh{place}"] = [rows, size]
        if has_bias:
            expected[f"bias_ih{place}"] = expected[f"bias_hh{place}"] = [rows]
    _refuse_others(tensors, expected, prefix)
    merged: list[Tensor] = []
    inner: list[Tensor] = []
    for place in places if has_bias else ():
        own = reordered(tensors[f"bias_ih{place}"], cell)
        other = reordered(tensors[f"bias_hh{place}"], cell)
        if cell == "gru":
            # Only u and r may add both: the reset gate acts on what stands beside W_q h.
            inner.append(other[2 * size :])
            other = torch.cat((other[: 2 * size], torch.zeros_like(other[2 * size :])))
        merged.append(own + other)
    return RecurrentWeights(
        cell=cell,
        directions=directions,
        recurrent=torch.cat(
            [reordered(tensors[f"weight_hh{place}"], cell).view(-1, size, size) for place in places]
        ),
        inputs=tuple(reordered(tensors[f"weight_ih{place}"], cell) for place in places),
        biases=tuple(merged) if has_bias else None,
        candidate_biases=tuple(inner) if inner else None,
    )


def _read_by_first(matrix: Tensor | None, rows: int) -> int:
    """How many numbers per step a first layer's input matrix reads, transposed or not."""
    if matrix is None or matrix.dim() != 2:
        return 0
    turned = matrix.shape[0] != rows and matrix.shape[1] == rows
    return matrix.shape[0] if turned else matrix.shape[1]


def _refuse_others(
    tensors: Mapping[str, Tensor], expected: Mapping[str, list[int]], prefix: str
) -> None:
    faults = [f"{prefix}{name} is missing" for name in expected if name not in tensors]
    faults += [f"{prefix}{name} is not known" for name in tensors if name not in expected]
    for name, shape in expected.items():
        if name in tensors and list(tensors[name].shape) != shape:
            turned = " (transposed?)" if list(tensors[name].shape) == shape[::-1] else ""
            faults.append(
                f"{prefix}{name} has shape {list(tensors[name].shape)}{turned}, expected is {shape}"
            )
    if faults:
        raise ConversionError("; ".join(faults))


def _listed(names: Mapping[str, Tensor], prefix: str) -> str:
    return ", ".join(f"{prefix}{name}" for name in names) or "none"
