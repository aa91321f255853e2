"""The C interface in Python: one call forward, one backward, on tensors that fit.

Mirrors `cpu/sequence.h`, which says what every tensor is. All are float32, on the CPU and
contiguous; x alone may be strided, with steps of 1 in its last dimension.
"""

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from models.kernels.library import library

CellName = Literal["rnn", "gru_reset_before", "gru_reset_after", "lstm"]
StackName = Literal["plain_layers", "residual_layers", "highway_layers"]
ActivationName = Literal["tanh", "relu", "leaky_relu", "abs", "identity"]

CELLS: tuple[CellName, ...] = ("rnn", "gru_reset_before", "gru_reset_after", "lstm")
STACKS: tuple[StackName, ...] = ("plain_layers", "residual_layers", "highway_layers")
ACTIVATIONS: tuple[ActivationName, ...] = ("tanh", "relu", "leaky_relu", "abs", "identity")
GATES: Mapping[CellName | StackName, int] = {
    "rnn": 1,
    "gru_reset_before": 3,
    "gru_reset_after": 3,
    "lstm": 4,
    "plain_layers": 1,
    "residual_layers": 1,
    "highway_layers": 2,
}

_SHAPE_FIELDS = (
    *("models", "steps", "batch", "size", "inputs", "rank", "readers", "cell", "activation"),
    *("threads", "x_model", "x_step", "x_row"),
)
_TENSORS = (
    *("x", "addends", "w_in", "bias", "candidate_bias"),
    *("weight", "left", "right", "diagonal", "h0", "c0"),
)
_RESULTS = ("states", "cells", "last_h", "last_c")


class _Shape(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in _SHAPE_FIELDS] + [("slope", ctypes.c_float)]


class _Arguments(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in (*_TENSORS, "lengths", *_RESULTS)]


class _Gradients(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in (*_RESULTS, *_TENSORS)]


@dataclass(frozen=True)
class Tensors:
    """What a sequence or a stack is computed from; see `Arguments` in cpu/sequence.h.

    Of a stack M counts the layers; it has neither x nor addends, and h0 `[1, B, n]` for all.
    """

    x: Tensor | None
    """[M, T, B, I]; None where addends are given"""
    addends: Tensor | None
    """[M, T, B, G*n]; None where x is given"""
    w_in: Tensor | None
    """[M, G, n, I]"""
    bias: Tensor | None
    """[M, G, n]"""
    candidate_bias: Tensor | None
    """[M, n], added to W_q h by a GRU that resets after its matrix"""
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

    @staticmethod
    def names() -> tuple[str, ...]:
        """The fields, in order."""
        return _TENSORS

    def in_order(self) -> tuple[Tensor | None, ...]:
        """The fields' values, in order."""
        return tuple(getattr(self, name) for name in _TENSORS)

    @property
    def steps(self) -> int:
        """T; 1 of a stack."""
        given = self.addends if self.x is None else self.x
        return 1 if given is None else given.shape[1]

    @property
    def models(self) -> int:
        """M."""
        matrices = self.left if self.weight is None else self.weight
        assert matrices is not None
        return matrices.shape[0]


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
    last_h: Tensor
    last_c: Tensor | None


@dataclass(frozen=True)
class Incoming:
    """Gradients of the results; None is a gradient of 0."""

    states: Tensor | None
    cells: Tensor | None
    last_h: Tensor | None
    last_c: Tensor | None


class Packed:
    """Weights and biases packed for the kernels once, for many forward runs without gradients.

    Later changes of the tensors have no effect.
    """

    def __init__(self, kind: Kind, tensors: Tensors) -> None:
        """Pack; of the tensors' inputs and first states only the sizes matter.

        Raises:
            MemoryError: there is none left for the copy.
        """
        tensors = _contiguous(tensors)
        function = _functions()["sequence_pack"]
        function.restype = ctypes.c_void_p
        shape, arguments = _shape(kind, tensors), _arguments(tensors, None, None)
        found: int | None = function(ctypes.byref(shape), ctypes.byref(arguments))
        if not found:
            raise MemoryError("no memory for packed weights")
        self.address = found

    def __del__(self) -> None:
        if address := getattr(self, "address", None):
            _functions()["sequence_unpack"](ctypes.c_void_p(address))


def forward(
    kind: Kind, tensors: Tensors, lengths: Tensor | None, results: Results, packed: int = 0
) -> None:
    """Run a sequence or stack, writing into `results`; `packed` is a `Packed`'s address, or 0.

    Raises:
        MemoryError: there is none left for the workspace.
    """
    tensors = _contiguous(tensors)
    shape = _shape(kind, tensors)
    arguments = _arguments(tensors, lengths, results)
    if kind.cell in STACKS:
        call("stack_forward", shape, arguments)
    else:
        call("sequence_forward", shape, arguments, rest=(ctypes.c_void_p(packed),))


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
        MemoryError: there is none left for the workspace.
    """
    tensors = _contiguous(tensors)
    shape = _shape(kind, tensors)
    arguments = _arguments(tensors, lengths, results)
    # The contiguous copies have to live as long as the call.
    arriving = [
        None if gradient is None else gradient.contiguous()
        for gradient in (getattr(incoming, name) for name in _RESULTS)
    ]
    leaving = [outgoing.get(name) for name in _TENSORS]
    gradients = _Gradients(*(address_of(tensor) for tensor in (*arriving, *leaving)))
    name = "stack_backward" if kind.cell in STACKS else "sequence_backward"
    call(name, shape, arguments, gradients)


def _contiguous(tensors: Tensors) -> Tensors:
    x, *rest = tensors.in_order()
    if x is not None and x.stride(-1) != 1:
        x = x.contiguous()
    return Tensors(x, *(None if tensor is None else tensor.contiguous() for tensor in rest))  # pyright: ignore[reportArgumentType] -- h0 stays given


def _shape(kind: Kind, tensors: Tensors) -> _Shape:
    _, batch, size = tensors.h0.shape
    x, left, right = tensors.x, tensors.left, tensors.right
    return _Shape(
        models=tensors.models,
        steps=tensors.steps,
        batch=batch,
        size=size,
        inputs=0 if x is None else x.shape[-1],
        rank=0 if left is None else left.shape[-1],
        readers=0 if right is None else right.shape[1],
        cell=(*CELLS, *STACKS).index(kind.cell),
        activation=ACTIVATIONS.index(kind.activation),
        threads=torch.get_num_threads(),
        x_model=0 if x is None else x.stride(0),
        x_step=0 if x is None else x.stride(1),
        x_row=0 if x is None else x.stride(2),
        slope=kind.slope,
    )


def _arguments(tensors: Tensors, lengths: Tensor | None, results: Results | None) -> _Arguments:
    written = (getattr(results, name, None) for name in _RESULTS)
    return _Arguments(*(address_of(t) for t in (*tensors.in_order(), lengths, *written)))


def address_of(tensor: Tensor | None) -> int | None:
    """Where a tensor's numbers are; null for none."""
    return None if tensor is None else tensor.data_ptr()


def _functions() -> ctypes.CDLL:
    loaded = library()
    assert loaded is not None, "whoever calls has made sure that there is a library"
    return loaded


def call(name: str, *structures: ctypes.Structure, rest: tuple[Any, ...] = ()) -> None:
    """Call a function of the library on structures, which it is given by reference.

    Raises:
        MemoryError: there is none left for the workspace.
    """
    if _functions()[name](*map(ctypes.byref, structures), *rest):
        raise MemoryError(f"no memory for the workspace of {name}")
