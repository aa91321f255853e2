"""The C interface in Python: one call forward, one backward, on tensors that fit.

Mirrors `cpu/sequence.h`, which says what every tensor is. All are float32, on the CPU and
contiguous; x alone may be strided, with steps of 1 in its last dimension.
"""

import ctypes
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from models.kernels.checks import check, check_range
from models.kernels.library import library
from models.kernels.structs import (
    ACTIVATIONS,
    CELLS,
    RESULTS,
    STACKS,
    TENSORS,
    ActivationName,
    Arguments,
    CellName,
    Gradients,
    Shape,
    StackName,
)

GATES: Mapping[CellName | StackName, int] = {
    "rnn": 1,
    "gru_reset_before": 3,
    "gru_reset_after": 3,
    "lstm": 4,
    "plain_layers": 1,
    "residual_layers": 1,
    "highway_layers": 2,
}


KEPT_GATES: Mapping[CellName | StackName, int] = {
    "lstm": 4,
    "gru_reset_after": 4,
    "gru_reset_before": 3,
}
"""Rows of n that a step can keep for its backward pass, where there are any: the gates, and W_q h
of a GRU that resets after its matrix."""

_KINDS = {name: number for number, name in enumerate((*CELLS, *STACKS))}


@dataclass(frozen=True)
class Tensors:
    """What a sequence or a stack is computed from; see `Arguments` in cpu/sequence.h.

    A stack's T steps are its layers, each with weights of its own: they and the biases are
    `[M, T, ...]` where a sequence has `[M, ...]`. It has neither x nor addends.
    """

    x: Tensor | None
    """[M, T, B, I]; None where addends are given"""
    addends: Tensor | None
    """[M, T, B, G*n]; None where x is given"""
    w_in: Tensor | None
    """[M, G, n, I]"""
    bias: Tensor | None
    """[M, 1, G, n], added to the inputs' products, or [M, 2, G, n] with what is added to the
    matrices' products, as torch, cuDNN and ONNX have them"""
    weight: Tensor | None
    """[M, G, n, n]; None where left and right are given"""
    left: Tensor | None
    """[M, G, n, d]"""
    right: Tensor | None
    """[M, G, d, n], or [M, 1, d, n] shared by all gates"""
    diagonal: Tensor | None
    """[M, G, n]"""
    h0: Tensor
    """[M, B, n]"""
    c0: Tensor | None
    """[M, B, n] for an LSTM"""
    u_turns: Tensor | None = None
    """[M, G, K_u, n], signed angles of U, a product of packed rotations by the circle's schedule
    (`models.math.rotations`); with weight and left None, `W = U diag(diagonal) V^T`"""
    v_turns: Tensor | None = None
    """[M, G, K_v, n], those of V; None where W has no V"""

    @staticmethod
    def names() -> tuple[str, ...]:
        """The fields, in order."""
        return TENSORS

    def in_order(self) -> tuple[Tensor | None, ...]:
        """The fields' values, in order."""
        # Written out: tracers know no shorter way that is as quick.
        return (
            *(self.x, self.addends, self.w_in, self.bias, self.weight),
            *(self.left, self.right, self.diagonal, self.h0, self.c0),
            *(self.u_turns, self.v_turns),
        )

    @property
    def steps(self) -> int:
        """T."""
        given = (self.x, self.addends, self.weight, self.left, self.u_turns)
        return next(tensor.shape[1] for tensor in given if tensor is not None)

    @property
    def models(self) -> int:
        """M."""
        given = (self.weight, self.left, self.u_turns)
        return next(matrices.shape[0] for matrices in given if matrices is not None)


@dataclass(frozen=True)
class Kind:
    """Which cell or stack with which activation; the slope is leaky_relu's below 0."""

    cell: CellName | StackName
    activation: ActivationName
    slope: float


@dataclass(frozen=True)
class Results:
    """What a sequence gives; see `Arguments` in cpu/sequence.h."""

    states: Tensor | None
    cells: Tensor | None
    last_h: Tensor | None
    last_c: Tensor | None
    kept: Tensor | None = None
    """[M, `kept_floats`], what a backward pass else computes again"""


@dataclass(frozen=True)
class Incoming:
    """Gradients of the results; None is a gradient of 0."""

    states: Tensor | None
    cells: Tensor | None
    last_h: Tensor | None
    last_c: Tensor | None


class Packed:
    """Weights and biases packed for the kernels once, for many forward runs without gradients.

    Later changes of the tensors have no effect. An operator is given its `handle`, by which it is
    found for as long as somebody holds it.
    """

    def __init__(self, kind: Kind, tensors: Tensors) -> None:
        """Pack; of the tensors' inputs and first states only the sizes matter.

        Raises:
            ValueError: a tensor is not what such a kernel reads.
            MemoryError: there is none left for the copy.
        """
        tensors = _checked(kind, tensors)
        function = _functions()["sequence_pack"]
        function.restype = ctypes.c_void_p
        self._sizes = _sizes_of(kind, tensors)
        shape, tensors = shape_of(kind, tensors), with_sines(tensors)
        arguments = _arguments(tensors, None, None)
        found: int | None = function(ctypes.byref(shape), ctypes.byref(arguments))
        if not found:
            raise MemoryError("no memory for packed weights")
        self.address = found
        self.handle = next(_handles)
        _packed[self.handle] = self

    def __del__(self) -> None:
        if address := getattr(self, "address", None):
            _functions()["sequence_unpack"](ctypes.c_void_p(address))

    def check(self, kind: Kind, tensors: Tensors) -> None:
        """Raise unless the weights are those of such a sequence, which is then computed with them.

        Raises:
            ValueError: they were packed for another kind or size, or the inputs are of another.
        """
        sizes = _sizes_of(kind, tensors)
        if sizes != self._sizes:
            parts = "(cell, n, shapes of w_in, weight, left, right, diagonal and turns)"
            raise ValueError(f"weights packed for {self._sizes} {parts} are none for {sizes}")
        _check_inputs(kind, tensors, tensors.models, GATES[kind.cell])


_handles = itertools.count(1)
_packed: WeakValueDictionary[int, Packed] = WeakValueDictionary()


def _found(handle: int) -> Packed | None:
    """The packed weights of a handle; 0 stands for none."""
    found = _packed.get(handle)
    if found is None and handle != 0:
        raise ValueError(f"{handle} is no handle of packed weights that are still held")
    return found


def _sizes_of(kind: Kind, tensors: Tensors) -> tuple[object, ...]:
    """The kind, the number of units, and the shapes of all that is packed."""
    weights = tensors.w_in, tensors.weight, tensors.left, tensors.right
    weights += tensors.diagonal, tensors.u_turns, tensors.v_turns
    shapes = [None if tensor is None else tuple(tensor.shape) for tensor in weights]
    return kind.cell, tensors.h0.shape[-1], *shapes


def kind_of(names: Sequence[CellName] | Sequence[StackName], *given: Any) -> Kind:
    """A cell's or a stack's kind as an operator is given it, if it is one of these names.

    Raises:
        ValueError: it is none of them.
    """
    if given[0] not in names:
        raise ValueError(f"there is no {given[0]!r} here; allowed are {names}")
    return Kind(*given)


def forward(
    kind: Kind, tensors: Tensors, lengths: Tensor | None, results: Results, packed: int = 0
) -> None:
    """Run a sequence or stack, writing into `results`; `packed` is a `Packed`'s handle, or 0.

    Raises:
        ValueError: a tensor is not what such a kernel reads, or there are no such packed weights.
        MemoryError: there is none left for the workspace.
    """
    # Held until the call is over.
    held = _found(packed)
    if held is None:
        tensors = _checked(kind, tensors)
    else:
        held.check(kind, tensors)
        tensors = _contiguous(tensors)
    shape = shape_of(kind, tensors)
    lengths = _checked_lengths(lengths, shape)
    if held is None:
        tensors = with_sines(tensors)
    arguments = _arguments(tensors, lengths, results)
    if kind.cell in STACKS:
        call("stack_forward", shape, arguments)
    else:
        address = ctypes.c_void_p(held.address if held else None)
        call("sequence_forward", shape, arguments, rest=(address,))


def backward(
    kind: Kind,
    tensors: Tensors,
    lengths: Tensor | None,
    results: Results,
    incoming: Incoming,
    outgoing: Mapping[str, Tensor],
) -> None:
    """Add what reaches the tensors to `outgoing`, which holds zeros for each that is wanted.

    Raises:
        ValueError: a tensor is not what such a kernel reads.
        MemoryError: there is none left for the workspace.
    """
    tensors = _checked(kind, tensors)
    shape = shape_of(kind, tensors)
    lengths = _checked_lengths(lengths, shape)
    for name in outgoing:
        _needed(f"{name}, whose gradient is wanted,", getattr(tensors, name))
    _needed("states", results.states)
    if kind.cell == "lstm":
        _needed("cells", results.cells)
    kept = results.kept
    if kept is not None:
        check("kept", kept, (shape.models, kept_floats(kind, tensors)), torch.float32)
        kept = kept.contiguous()
    # The contiguous copies have to live as long as the call.
    states, cells, last_h, last_c = _checked_results("", results, kind, shape)
    results = Results(states, cells, last_h, last_c, kept)
    arriving = _checked_results("the gradient of ", incoming, kind, shape)
    tensors = with_sines(tensors)
    arguments = _arguments(tensors, lengths, results)
    leaving = [outgoing.get(name) for name in TENSORS]
    gradients = Gradients(*(address_of(tensor) for tensor in (*arriving, *leaving)))
    name = "stack_backward" if kind.cell in STACKS else "sequence_backward"
    call(name, shape, arguments, gradients)


def kept_floats(kind: Kind, tensors: Tensors) -> int:
    """How many numbers of one model a sequence can keep for its backward pass; 0: there are none.

    They are the gates, and what thin factors made of their vectors: see `kept` in cpu/sequence.h.
    """
    *_, batch, size = tensors.h0.shape
    if tensors.u_turns is not None:
        return 0  # measured: what rotations make of a vector is made again as fast as it is read
    rows = KEPT_GATES.get(kind.cell, 0)
    products = 0
    if tensors.right is not None:
        *_, num_right, rank, _ = tensors.right.shape
        groups = (2, 1) if kind.cell == "gru_reset_before" else (_gates(kind),)
        products = sum(_rounded(rank * (1 if num_right == 1 else count)) for count in groups)
    each = rows * _rounded(size) + products
    return tensors.steps * batch * each + _BEHIND_KEPT if each else 0


_BEHIND_KEPT = 32
"""Floats behind what is kept: a whole panel is read where the last row has less."""


def _rounded(size: int) -> int:
    """To the longest vectors that a CPU has."""
    return -(-size // 16) * 16


def _checked(kind: Kind, given: Tensors) -> Tensors:
    """The tensors, contiguous, if they are what the kernel of this kind reads."""
    gates, is_stack = _gates(kind), kind.cell in STACKS
    _, batch, size = _sizes("h0", given.h0, 3)
    leading = _check_matrices(given, gates, size, 2 if is_stack else 1)
    models = leading[0]
    if given.bias is not None:
        rows = 1 if _sizes("bias", given.bias, len(leading) + 3)[-3] == 1 else 2
        check("bias", given.bias, (*leading, rows, gates, size), torch.float32)
    if is_stack:
        check("h0", given.h0, (models, batch, size), torch.float32)
        _check_absent(kind, given, "x", "addends", "w_in", "c0")
        return _contiguous(given)
    _check_inputs(kind, given, models, gates)
    if given.w_in is not None:
        check("w_in", given.w_in, (models, gates, size, given.w_in.shape[-1]), torch.float32)
    return _contiguous(given)


def _gates(kind: Kind) -> int:
    """How many gates there are, if there is such a kind."""
    if kind.activation not in ACTIVATIONS:
        raise ValueError(f"there is no activation {kind.activation!r}; allowed: {ACTIVATIONS}")
    gates = GATES.get(kind.cell)
    if gates is None:
        raise ValueError(f"there is no cell or stack {kind.cell!r}; allowed are {list(GATES)}")
    return gates


def _check_inputs(kind: Kind, given: Tensors, models: int, gates: int) -> None:
    """What a sequence is computed from beside its weights."""
    _, batch, size = given.h0.shape
    check("h0", given.h0, (models, batch, size), torch.float32)
    if kind.cell == "lstm":
        check("c0", _needed("c0", given.c0), (models, batch, size), torch.float32)
    else:
        _check_absent(kind, given, "c0")
    if given.x is None:
        addends = _needed("x or addends", given.addends)
        steps = _sizes("addends", addends, 4)[1]
        check("addends", addends, (models, steps, batch, gates * size), torch.float32)
        _check_absent(kind, given, "w_in")
    else:
        steps, width = _sizes("x", given.x, 4)[1], _sizes("w_in", _needed("w_in", given.w_in), 4)[3]
        check("x", given.x, (models, steps, batch, width), torch.float32)
        if given.addends is not None:
            raise ValueError("addends are given beside x")


def _check_matrices(given: Tensors, gates: int, size: int, axes: int) -> Sequence[int]:
    """The sizes of so many leading axes, if the matrices are of one of the forms."""
    if given.u_turns is not None:
        return _check_turns(given, given.u_turns, gates, size, axes)
    if given.v_turns is not None:
        raise ValueError("v_turns is given without u_turns")
    if given.weight is not None:
        leading = _sizes("weight", given.weight, axes + 3)[:axes]
        check("weight", given.weight, (*leading, gates, size, size), torch.float32)
        if any(tensor is not None for tensor in (given.left, given.right, given.diagonal)):
            raise ValueError("left, right or diagonal is given beside weight")
        return leading
    left, right = _needed("weight or left", given.left), _needed("right", given.right)
    sizes = _sizes("left", left, axes + 3)
    leading, rank = sizes[:axes], sizes[-1]
    if rank == 0:
        raise ValueError("left has no columns; the kernel takes a rank of at least 1")
    num_right = 1 if _sizes("right", right, axes + 3)[-3] == 1 else gates
    check("left", left, (*leading, gates, size, rank), torch.float32)
    check("right", right, (*leading, num_right, rank, size), torch.float32)
    if given.diagonal is not None:
        check("diagonal", given.diagonal, (*leading, gates, size), torch.float32)
    return leading


def _check_turns(
    given: Tensors, u_turns: Tensor, gates: int, size: int, axes: int
) -> Sequence[int]:
    sizes = _sizes("u_turns", u_turns, axes + 3)
    leading, stages = sizes[:axes], sizes[-2]
    check("u_turns", u_turns, (*leading, gates, _some(stages, size), size), torch.float32)
    if given.v_turns is not None:
        stages = _sizes("v_turns", given.v_turns, axes + 3)[-2]
        check("v_turns", given.v_turns, (*leading, gates, _some(stages, size), size), torch.float32)
    if given.diagonal is not None:
        check("diagonal", given.diagonal, (*leading, gates, size), torch.float32)
    if any(tensor is not None for tensor in (given.weight, given.left, given.right)):
        raise ValueError("weight, left or right is given beside u_turns")
    return leading


def _some(stages: int, size: int) -> int:
    """So many stages, if the circle has them."""
    most = size - 1 + size % 2
    if size < 2 or not 1 <= stages <= most:
        raise ValueError(f"there are {stages} stages of {size} coordinates; allowed is 1 to {most}")
    return stages


def _sizes(name: str, tensor: Tensor, dimensions: int) -> Sequence[int]:
    if tensor.dim() != dimensions:
        raise ValueError(f"{name} has {tensor.dim()} dimensions; the kernel takes {dimensions}")
    return tensor.shape


def _needed(name: str, tensor: Tensor | None) -> Tensor:
    if tensor is None:
        raise ValueError(f"{name} is missing")
    return tensor


def _check_absent(kind: Kind, given: Tensors, *names: str) -> None:
    for name in names:
        if getattr(given, name) is not None:
            raise ValueError(f"{name} is given, for which {kind.cell} has no use here")


def _checked_lengths(lengths: Tensor | None, shape: Shape) -> Tensor | None:
    if lengths is None:
        return None
    check("lengths", lengths, (shape.models, shape.batch), torch.int64)
    check_range("lengths", lengths, 1, shape.steps)
    return lengths.contiguous()


def _checked_results(
    of: str, results: "Results | Incoming", kind: Kind, shape: Shape
) -> list[Tensor | None]:
    """A forward run's results, or their gradients, contiguous, if they have its sizes."""
    last = (shape.models, shape.batch, shape.size)
    every = (shape.models, shape.steps, shape.batch, shape.size)
    shapes = dict(zip(RESULTS, (every, every, last, last), strict=True))
    found: list[Tensor | None] = []
    for name in RESULTS:
        tensor = getattr(results, name)
        if tensor is not None:
            if name in ("cells", "last_c") and kind.cell != "lstm":
                raise ValueError(f"{of}{name} is given, which {kind.cell} does not have")
            check(f"{of}{name}", tensor, shapes[name], torch.float32)
            tensor = tensor.contiguous()
        found.append(tensor)
    return found


def _contiguous(tensors: Tensors) -> Tensors:
    x, *rest = tensors.in_order()
    strided = x is not None and x.stride(-1) != 1
    if not strided and all(tensor is None or tensor.is_contiguous() for tensor in rest):
        return tensors
    if x is not None and strided:
        x = x.contiguous()
    return Tensors(x, *(None if tensor is None else tensor.contiguous() for tensor in rest))  # pyright: ignore[reportArgumentType] -- h0 stays given


def shape_of(kind: Kind, tensors: Tensors) -> Shape:
    """The sizes, as C++ reads them, of tensors that fit."""
    _, batch, size = tensors.h0.shape
    x, left, right = tensors.x, tensors.left, tensors.right
    return Shape(
        models=tensors.models,
        steps=tensors.steps,
        batch=batch,
        size=size,
        inputs=0 if x is None else x.shape[-1],
        biases=0 if tensors.bias is None else tensors.bias.shape[-3],
        rank=0 if left is None else left.shape[-1],
        num_right=0 if right is None else right.shape[-3],
        u_stages=_stages(tensors.u_turns),
        v_stages=_stages(tensors.v_turns),
        cell=_KINDS[kind.cell],
        activation=ACTIVATIONS.index(kind.activation),
        threads=torch.get_num_threads(),
        x_model=0 if x is None else x.stride(0),
        x_step=0 if x is None else x.stride(1),
        x_row=0 if x is None else x.stride(2),
        slope=kind.slope,
    )


def _stages(turns: Tensor | None) -> int:
    return 0 if turns is None else turns.shape[-2]


def with_sines(tensors: Tensors) -> Tensors:
    """With what C++ reads in place of angles: their cosines and sines, `[2, M, ...]`."""
    if tensors.u_turns is None:
        return tensors
    turns = {
        name: torch.stack((angles.cos(), angles.sin()))
        for name in ("u_turns", "v_turns")
        if (angles := getattr(tensors, name)) is not None
    }
    return replace(tensors, **turns)


def _arguments(tensors: Tensors, lengths: Tensor | None, results: Results | None) -> Arguments:
    """Addresses in what the caller holds for as long as the call lasts."""
    written = (getattr(results, name, None) for name in (*RESULTS, "kept"))
    return Arguments(*(address_of(t) for t in (*tensors.in_order(), lengths, *written)))


def address_of(tensor: Tensor | None) -> int | None:
    """Where a tensor's numbers are; null for none."""
    return None if tensor is None else tensor.data_ptr()


def _functions() -> ctypes.CDLL:
    loaded = library()
    assert loaded is not None, "the caller has made sure that there is a library"
    return loaded


def call(name: str, *structures: ctypes.Structure, rest: tuple[Any, ...] = ()) -> None:
    """Call a function of the library on structures, which it is given by reference.

    Raises:
        MemoryError: there is none left for the workspace.
    """
    if _functions()[name](*map(ctypes.byref, structures), *rest):
        raise MemoryError(f"no memory for the workspace of {name}")
