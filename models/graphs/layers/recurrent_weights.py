"""Weights of `LSTM`, `GRU` and `RNN`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from models.graphs.layers.arrangement import Arrangement
from models.graphs.layers.role import AnyArray, Matrix, Operand, Reading, Role, Use, whole_number

_OPERATORS = ("LSTM", "GRU", "RNN")
_FIRST_STATE = 5
"""The place of `initial_h` among the inputs."""


@dataclass(frozen=True)
class _Recurrent(Role):
    """The gates' matrices, one under the other, of each direction by itself."""

    structured: ClassVar[bool] = True

    batch_first: bool
    """`layout` 1: `[B, T, ...]` instead of `[T, B, ...]`."""
    reverse: tuple[bool, ...]
    """Whether each direction starts at the end."""


@dataclass(frozen=True)
class InputMatricesRole(_Recurrent):
    """W `[G, gates * H, in]`, which reads a layer's inputs."""

    kind: ClassVar[str] = "recurrent_input"

    @classmethod
    def of(cls, use: Use) -> Self | None:
        """The second input of a recurrent operator."""
        return cls(*_fields(use)) if _is_recurrent(use, 1) else None

    @property
    def part(self) -> str:
        """As ONNX calls it."""
        return "W"

    def operands(self) -> tuple[Operand, ...]:
        """The sequences X."""
        return (Operand("input", 0),)

    def read(
        self, values: Sequence[AnyArray | None], generator: np.random.Generator, most: int
    ) -> Reading:
        """All steps of X, the same for both directions; padding counts as it stands."""
        del generator, most
        (value,) = values
        if value is None:
            return Reading(positions=0)
        vectors = value.reshape(-1, value.shape[-1]).astype(np.float32)
        return Reading(positions=len(vectors), vectors=(vectors,) * len(self.reverse))


@dataclass(frozen=True)
class StateMatricesRole(_Recurrent):
    """R `[G, gates * H, H]`, which reads a layer's own states.

    A GRU's candidate with `linear_before_reset` 0 reads states that are multiplied by a gate: for
    its rows the moments are those of the states before that.
    """

    kind: ClassVar[str] = "recurrent_state"

    @classmethod
    def of(cls, use: Use) -> Self | None:
        """The third input of a recurrent operator."""
        return cls(*_fields(use)) if _is_recurrent(use, 2) else None

    @property
    def part(self) -> str:
        """As ONNX calls it."""
        return "R"

    def operands(self) -> tuple[Operand, ...]:
        """All states Y, and the first."""
        return (Operand("output", 0), Operand("input", _FIRST_STATE))

    def read(
        self, values: Sequence[AnyArray | None], generator: np.random.Generator, most: int
    ) -> Reading:
        """For each direction the state before every step, the first one included."""
        del generator, most
        states, first = values
        if states is None:
            return Reading(positions=0)
        # [T, G, B, H]
        by_step = states.transpose(1, 2, 0, 3) if self.batch_first else states
        steps, directions, batch, size = by_step.shape
        if first is None:
            start = np.zeros((directions, batch, size), np.float32)
        else:
            start = first.transpose(1, 0, 2) if self.batch_first else first
        vectors = tuple(
            _states_before(by_step[:, place], start[place], reverse=reverse)
            for place, reverse in enumerate(self.reverse)
        )
        return Reading(positions=steps * batch, vectors=vectors)


def _states_before(states: AnyArray, first: AnyArray, *, reverse: bool) -> Matrix:
    """What a direction's R reads `[T * B, H]`, of its states `[T, B, H]` and the first."""
    parts = (states[1:], first[None]) if reverse else (first[None], states[:-1])
    return np.concatenate(parts).reshape(-1, states.shape[-1]).astype(np.float32)


def _is_recurrent(use: Use, place: int) -> bool:
    return use.node.op_type in _OPERATORS and use.place == place and len(use.native) == 3


def _fields(use: Use) -> tuple[Arrangement, bool, tuple[bool, ...]]:
    directions, rows, columns = use.native
    direction = bytes(use.attributes.get("direction", b"forward")).decode()
    reverse = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}[direction]
    arrangement = Arrangement(use.native, (directions, rows, columns))
    return arrangement, whole_number(use, "layout", 0) == 1, reverse
