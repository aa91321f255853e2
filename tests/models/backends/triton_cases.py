"""Sequences by Triton's kernels against the cells' equations.

`python -m tests.models.backends.triton_cases NAME ...` runs these in Triton's interpreter, on any
machine, and prints how far each is off, as JSON. It is a process of its own: kernels are
interpreted where TRITON_INTERPRET was set before they were imported.
"""

import dataclasses
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from models.backends.triton import launches, thin, tiles
from models.backends.triton.sequence import sequence
from models.backends.triton.tiles import Precision
from models.kernels.calls import Kind, Tensors
from models.kernels.structs import CELLS, CellName
from tests.models.kernels.cases import (
    SLOPE,
    FormName,
    Sizes,
    in_double_precision,
    random_tensors,
    step_by_step,
)

KINDS = [
    *(Kind("rnn", name, SLOPE) for name in ("tanh", "relu", "leaky_relu", "abs", "identity")),
    *(Kind(cell, "tanh", 0.0) for cell in CELLS if cell != "rnn"),
]
FORMS: tuple[FormName, ...] = ("dense", "low_rank", "low_rank_diagonal", "tied")
LENGTHS = [[2, 3, 1, 3, 2], [3, 3, 2, 1, 3]]


@dataclass(frozen=True)
class Case:
    """A sequence, and how it is computed."""

    kind: Kind
    form: FormName
    inputs: int = 4
    """0: projected beforehand"""
    biases: int = 2
    ragged: bool = False
    batch: int = 3
    size: int = 7
    steps: int = 3
    precision: Precision = "ieee"
    dtype: torch.dtype = torch.float32
    most_numbers: int | None = None
    """Of thin factors that a program holds, where it is to be less than it could be"""
    programs: int = 132
    """That run at the same time"""

    @property
    def named(self) -> str:
        cell = self.kind.activation if self.kind.cell == "rnn" else self.kind.cell
        rest = f"B{self.batch} n{self.size} {self.precision} {str(self.dtype)[6:]}"
        ragged = " ragged" if self.ragged else ""
        parts = "" if self.most_numbers is None else f" {self.most_numbers} in {self.programs}"
        return f"{cell} {self.form} {self.inputs} inputs {self.biases} biases{ragged} {rest}{parts}"


def cases() -> Iterator[Case]:
    """Every cell and activation with all matrices, the rest in turns."""
    for place, kind in enumerate(KINDS):
        for other, form in enumerate(FORMS):
            turn = place + other
            yield Case(
                kind,
                form,
                inputs=4 * (turn % 2),
                biases=(2, 1, 0)[turn % 3],
                ragged=turn % 4 == 1,
                batch=5 if turn % 4 == 1 else 3,
            )
    for kind in (KINDS[0], *KINDS[5:]):
        yield Case(kind, "tied", ragged=True, steps=3)
    # The candidate's own bias.
    yield Case(KINDS[6], "low_rank_diagonal", inputs=0, steps=2)
    # Programs that share samples: each its own, or several in turn.
    for kind in (KINDS[0], KINDS[3], *KINDS[6:]):
        shared = partial(Case, kind, size=40, batch=5, most_numbers=512)
        yield shared("low_rank_diagonal")
        yield shared("tied", ragged=True, programs=5)
    for precision in ("tf32", "tf32x3"):
        yield Case(KINDS[0], "tied", precision=precision, steps=2)
    for kind in (KINDS[3], *KINDS[5:]):
        yield Case(kind, "tied", precision="bf16", steps=1)
        yield Case(kind, "low_rank_diagonal", precision="bf16", dtype=torch.bfloat16, steps=2)


def in_short() -> set[str]:
    """The names of some that have every value of every field together."""
    names: set[str] = set()
    seen: set[tuple[str, Any]] = set()
    for case in reversed([*cases()]):
        values = {(field.name, getattr(case, field.name)) for field in dataclasses.fields(case)}
        if not values <= seen:
            seen |= values
            names.add(case.named)
    return names


def tolerance(case: Case, *, interpreted: bool) -> float:
    """Roundings add up over a few steps; as a share of the largest number."""
    if case.dtype == torch.bfloat16:
        return 0.06
    # The interpreter computes products with what it is given, whatever they are to be rounded to.
    rounding = {"ieee": 5e-6, "tf32x3": 2e-5, "tf32": 5e-6 if interpreted else 1e-2, "bf16": 0.04}
    return rounding[case.precision]


def errors(case: Case, device: str, *, seed: int = 0) -> dict[str, float]:
    """The largest error of each result and gradient, as a share of its largest number."""
    with small_programs(case):
        return _errors(case, device, seed)


@contextmanager
def small_programs(case: Case) -> Iterator[None]:
    """Has programs hold as little as a case says."""
    own = launches.programs_of, tiles.MOST_NUMBERS, tiles.MOST_OF_A_PART
    if case.most_numbers is not None:
        launches.programs_of = thin.programs_of = lambda _: case.programs
        tiles.MOST_NUMBERS, tiles.MOST_OF_A_PART = {}, case.most_numbers
    try:
        yield
    finally:
        launches.programs_of, tiles.MOST_NUMBERS, tiles.MOST_OF_A_PART = own
        thin.programs_of = launches.programs_of


def _errors(case: Case, device: str, seed: int) -> dict[str, float]:
    sizes = Sizes(2, case.steps, case.batch, case.size, case.inputs)
    drawn = random_tensors(
        cast(CellName, case.kind.cell), case.form, sizes, biases=case.biases, seed=seed
    )
    tensors = _leaves(drawn, device, case.dtype)
    exact = in_double_precision(_leaves(tensors, "cpu", case.dtype))
    lengths = None
    if case.ragged:
        lengths = torch.tensor([own[: case.batch] for own in LENGTHS])
    expected = step_by_step(case.kind, exact, lengths)
    states, cells, last_h, last_c = sequence(
        case.kind,
        tensors,
        None if lengths is None else lengths.to(device),
        precision=case.precision,
        keep=True,
    )
    if case.kind.activation == "abs":
        states = torch.where(states < 0, -states, states)
    exact_last = expected.states[:, -1]
    found = {"states": _error(states, expected.states), "last h": _error(last_h, exact_last)}
    loss = states.square().sum() + (last_h * last_h.detach().cos()).sum()
    exact_loss = expected.states.square().sum() + (exact_last * exact_last.detach().cos()).sum()
    if expected.cells is not None:
        found["cells"] = _error(cells, expected.cells)
        found["last c"] = _error(last_c, expected.cells[:, -1])
        loss = loss + cells.square().sum() + last_c.sum()
        exact_loss = exact_loss + expected.cells.square().sum() + expected.cells[:, -1].sum()
    names = [name for name in Tensors.names() if getattr(tensors, name) is not None]
    ours = torch.autograd.grad(loss, [getattr(tensors, name) for name in names])
    theirs = torch.autograd.grad(exact_loss, [getattr(exact, name) for name in names])
    for name, one, other in zip(names, ours, theirs, strict=True):
        found[name] = _error(one, other)
    return found


def _leaves(tensors: Tensors, device: str, dtype: torch.dtype) -> Tensors:
    return Tensors(
        *(
            None if t is None else t.detach().to(device, dtype).requires_grad_()
            for t in tensors.in_order()
        )  # pyright: ignore[reportArgumentType] -- h0 is given
    )


def _error(found: Tensor, expected: Tensor) -> float:
    scale = max(expected.abs().max().item(), 1e-6)
    difference = (found.detach().cpu().double() - expected.detach()).abs().max().item()
    # NaN is not less than any tolerance.
    return difference / scale


def mend_the_interpreter() -> None:
    """Its products take bfloat16 for the integers of the same bits (triton 3.7.1)."""
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder

    broken = InterpreterBuilder.create_dot

    def create_dot(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        a, b = (
            self.cast_impl(one, tl.float32) if one.dtype.scalar == tl.bfloat16 else one
            for one in (a, b)
        )
        return broken(self, a, b, *rest)

    InterpreterBuilder.create_dot = create_dot  # pyright: ignore[reportAttributeAccessIssue] -- any arguments


def main() -> None:
    """Run those that are named in the interpreter, cut into chunks of two steps."""
    assert os.environ.get("TRITON_INTERPRET") == "1"
    mend_the_interpreter()
    launches.CHUNK_BYTES, launches.LEAST_CHUNK = 1, 2
    found: dict[str, dict[str, float]] = {}
    for case in cases():
        if case.named in sys.argv[1:]:
            found[case.named] = errors(case, "cpu")
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
