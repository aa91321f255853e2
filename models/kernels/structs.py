"""The structs of the C interface and its enums, as Python has them.

`cpu/layout.cpp` says what they are in C++; a library that says otherwise is not used.
"""

import ctypes
from typing import Literal

CellName = Literal["rnn", "gru_reset_before", "gru_reset_after", "lstm"]
StackName = Literal["plain_layers", "residual_layers", "highway_layers"]
ActivationName = Literal["tanh", "relu", "leaky_relu", "abs", "identity"]
OptimizerName = Literal["adam", "rmsprop", "adagrad", "sgd"]

CELLS: tuple[CellName, ...] = ("rnn", "gru_reset_before", "gru_reset_after", "lstm")
STACKS: tuple[StackName, ...] = ("plain_layers", "residual_layers", "highway_layers")
ACTIVATIONS: tuple[ActivationName, ...] = ("tanh", "relu", "leaky_relu", "abs", "identity")
OPTIMIZERS: tuple[OptimizerName, ...] = ("adam", "rmsprop", "adagrad", "sgd")

TENSORS = (
    *("x", "addends", "w_in", "bias"),
    *("weight", "left", "right", "diagonal", "h0", "c0", "u_turns", "v_turns"),
)
RESULTS = ("states", "cells", "last_h", "last_c")


def _numbers(*names: str) -> list[tuple[str, type]]:
    return [(name, ctypes.c_int64) for name in names]


def _pointers(*names: str) -> list[tuple[str, type]]:
    return [(name, ctypes.c_void_p) for name in names]


class Shape(ctypes.Structure):
    """The sizes of a sequence or a stack."""

    _fields_ = [
        *_numbers("models", "steps", "batch", "size", "inputs", "biases", "rank", "num_right"),
        *_numbers("u_stages", "v_stages"),
        *_numbers("cell", "activation", "threads", "x_model", "x_step", "x_row"),
        ("slope", ctypes.c_float),
    ]


class Arguments(ctypes.Structure):
    """What a sequence or a stack is computed from, and where its results go."""

    _fields_ = _pointers(*TENSORS, "lengths", *RESULTS, "kept")


class Gradients(ctypes.Structure):
    """What arrives at the results, and where what leaves the tensors goes."""

    _fields_ = _pointers(*RESULTS, *TENSORS)


class SvdShape(ctypes.Structure):
    """The sizes of singular value decompositions by reflectors."""

    _fields_ = _numbers("copies", "size", "u_count", "v_count", "threads")


class SvdArguments(ctypes.Structure):
    """Their factors, and where diagonal plus low rank go, or the matrix as a whole."""

    _fields_ = _pointers("u", "v", "sigma", "left", "right", "weight")


class SvdGradients(ctypes.Structure):
    """What arrives, and where what leaves goes."""

    _fields_ = _pointers("left", "right", "weight", "u", "v", "sigma")


class RotationShape(ctypes.Structure):
    """The sizes of a product of packed rotations."""

    _fields_ = _numbers("copies", "stages", "size", "threads")


class RotationArguments(ctypes.Structure):
    """Its turns, and the product."""

    _fields_ = _pointers("cos", "sin", "partners", "product")


class UnitaryShape(ctypes.Structure):
    """The sizes of a uRNN's sequence with matrices of Fourier transforms."""

    _fields_ = _numbers("models", "steps", "batch", "size", "threads")


class UnitaryArguments(ctypes.Structure):
    """What it is computed from, and where its results go."""

    _fields_ = _pointers(
        *("addends", "turns", "vectors", "bias", "h0", "order", "roots", "lengths"),
        *("states", "inner", "last_h"),
    )


class UnitaryGradients(ctypes.Structure):
    """What arrives, and where what leaves goes."""

    _fields_ = _pointers(
        *("states", "last_h", "addends", "phases", "vectors", "bias", "h0"),
    )


class OptimizerShape(ctypes.Structure):
    """The sizes of a step of an optimizer."""

    _fields_ = _numbers("members", "tensors", "optimizer", "threads")


class OptimizerArguments(ctypes.Structure):
    """What a step reads and changes."""

    _fields_ = _pointers(
        *("sizes", "scales", "gradients", "parameters", "first", "second"),
        *("learning_rate", "weight_decay", "clip_value", "clip_norm", "recovery"),
        *("norms", "steps"),
    )


_STRUCTS: tuple[type[ctypes.Structure], ...] = (
    *(Shape, Arguments, Gradients),
    *(SvdShape, SvdArguments, SvdGradients),
    *(RotationShape, RotationArguments),
    *(UnitaryShape, UnitaryArguments, UnitaryGradients),
    *(OptimizerShape, OptimizerArguments),
)


def layout() -> list[int]:
    """The size and all offsets of each struct, then the values of each enum."""
    found: list[int] = []
    for struct in _STRUCTS:
        names = [field[0] for field in struct._fields_]
        found += [ctypes.sizeof(struct), *(getattr(struct, name).offset for name in names)]
    enums = len(CELLS) + len(STACKS), len(ACTIVATIONS), len(OPTIMIZERS)
    return [*found, *(value for count in enums for value in range(count))]
