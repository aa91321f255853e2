"""Calls every operator of the kernels with arguments that are wrong: run as a process of its own.

Each call has to raise. It prints how many did; a crash ends the process by a signal, and a call
that was taken for good ends it with 1.
"""

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any, TypeAlias

import torch
from torch import Tensor

import models.kernels.reflectors
import models.kernels.sequence
import models.kernels.stack
import models.kernels.unitary  # noqa: F401 -- registers its operators, as the others do
from models.kernels.calls import GATES, Kind, Packed, Tensors
from models.kernels.optimizer import MOMENTS, MemberRates, gradient_norms, update_
from models.kernels.rotations import rotations_backward, rotations_forward, rotations_sweep_
from models.kernels.structs import CELLS, OPTIMIZERS, STACKS, OptimizerName
from models.math.rotations import circle_partners
from tests.models.kernels.cases import FormName, Sizes, random_tensors

Arguments: TypeAlias = list[Any]
Case: TypeAlias = tuple[str, Callable[..., Any], Arguments]
"""A name, a function, and arguments that it takes."""

SIZES = Sizes(models=2, steps=3, batch=4, size=8, inputs=5)
PROJECTED = Sizes(models=2, steps=3, batch=4, size=8, inputs=0)
FORMS: tuple[FormName, ...] = ("dense", "low_rank_diagonal", "tied", "rotations_svd")
RIGHT_AS_WELL = tuple(
    map(
        re.compile,
        (
            r"sequence .* with one more in dimension 1 as argument [01]",  # steps after all lengths
            r"sequence .* with fewer in dimension 1 as argument 6",  # factors that gates share
            r"sequence_backward .* with fewer in dimension 1 as argument 10",
            r"sequence .* with fewer in dimension 1 as argument 3",  # biases of a gate
            r"sequence_backward .* with fewer in dimension 1 as argument 7",
            r"sequence .*, packed with .* as argument ([2-7]|10|11)",  # not read again
            r"sequence .* rotations_svd.* (more|fewer) in dimension 2 as argument 1[01]",  # stages
            r"sequence_backward .* rotations_svd.* (more|fewer) in dimension 2 as argument 1[45]",
            r"stack \w+ rotations_svd .* (more|fewer) in dimension 3 as argument [67]",
            r"stack_backward \w+ rotations_svd .* (more|fewer) in dimension 3 as argument [89]",
            r"stack highway_layers .* in dimension 2 as argument 4",
            r"stack_backward highway_layers .* in dimension 2 as argument 6",
            r"stack \w+ \w+ with .* in dimension 1 as argument 0",  # samples
            r"svd_(factors|weight) with .* in dimension 1 as argument [01]",  # reflectors
            r"svd_weight_backward with .* in dimension 1 as argument [12]",
            r"rotations_forward with .* in dimension 0 as argument 0",  # matrices
            r"rotations_forward with another type as argument 0",
            r"unitary_sequence with one more in dimension 1 as argument 0",  # steps
            r"gradient_norms with .* in dimension 1 as argument 0",
            r"gradient_norms with (another type|halves) as argument 0",  # not by the kernel
            r"update_ \w+ with numbers that are too large as argument 0",  # steps
        ),
    )
)
"""What is not wrong, although one argument alone was changed."""

ANGLES = torch.linspace(-1, 1, 2 * 3 * 8).reshape(2, 3, 8)
PARTNERS = circle_partners(8, 3)
SQUARES = torch.randn(2, 8, 8)


def main() -> int:
    """Call, count, and say what was taken for good."""
    torch.manual_seed(0)
    refused, taken = 0, list[str]()
    for name, function, arguments in cases():
        function(*arguments)
        for what, wrong in spoilt(arguments):
            try:
                function(*wrong)
            except Exception:
                refused += 1
            else:
                call = f"{name} with {what}"
                if not any(right.fullmatch(call) for right in RIGHT_AS_WELL):
                    taken.append(call)
    sys.stdout.write(f"{refused}\n")
    sys.stderr.write("\n".join(taken))
    return 1 if taken else 0


def cases() -> Iterator[Case]:
    """Every operator with arguments that are right, of every cell, stack and form."""
    for cell in CELLS:
        for form in FORMS:
            for sizes in (SIZES, PROJECTED):
                yield from of_a_cell(cell, form, sizes)
    for stack in STACKS:
        for form in FORMS:
            yield from of_a_stack(stack, form)
    u, v, sigma = torch.randn(2, 3, 8), torch.randn(2, 2, 8), torch.randn(2, 8)
    operators = torch.ops.reflectory
    yield "svd_factors", operators.svd_factors, [u, v, sigma]
    left, right = operators.svd_factors(u, v, sigma)
    yield "svd_factors_backward", operators.svd_factors_backward, [left, right, u, v, sigma]
    yield "svd_weight", operators.svd_weight, [u, v, sigma]
    weight = operators.svd_weight(u, v, sigma)
    yield "svd_weight_backward", operators.svd_weight_backward, [weight, u, v, sigma]
    yield "rotations_forward", rotations_forward, [ANGLES, PARTNERS]
    yield "rotations_backward", rotations_backward, [SQUARES, ANGLES, PARTNERS, SQUARES]
    yield "rotations_sweep_", rotations_sweep_, [SQUARES.double(), ANGLES.double(), PARTNERS]
    yield from of_a_unitary_sequence()
    yield "gradient_norms", norms_of_one, [torch.randn(4, 8), torch.ones(4).double()]
    for optimizer in OPTIMIZERS:
        yield from of_an_optimizer(optimizer)


def norms_of_one(gradient: Tensor, clip_value: Tensor) -> Tensor:
    """Norms of the gradients of one parameter."""
    return gradient_norms([gradient], clip_value)


def of_an_optimizer(optimizer: OptimizerName) -> Iterator[Case]:
    """A step of one parameter."""
    rates = [torch.rand(4).double() for _ in fields(MemberRates)]
    moments = [torch.zeros(4, 8) for _ in range(MOMENTS[optimizer])]
    tensors = [torch.zeros(1, 4, dtype=torch.int64), torch.ones(1, 4).double()]
    tensors += torch.ones(4).double(), *rates

    def step(steps: Tensor, scales: Tensor, norms: Tensor, *given: Tensor) -> None:
        parameter, gradient, *kept = given[len(rates) :]
        update_(
            optimizer,
            [parameter],
            [gradient],
            [[one] for one in kept],
            steps=steps,
            norms=norms,
            rates=MemberRates(*given[: len(rates)]),
            scales=scales,
        )

    yield f"update_ {optimizer}", step, [*tensors, torch.randn(4, 8), torch.randn(4, 8), *moments]


def of_a_cell(cell: Any, form: FormName, sizes: Sizes) -> Iterator[Case]:
    """A sequence forward, with packed weights, and backward."""
    given = random_tensors(cell, form, sizes)
    tensors = Tensors(*(None if t is None else t.detach() for t in given.in_order()))  # pyright: ignore[reportArgumentType] -- h0 is given
    lengths = torch.tensor([[1, 2, 3, 3], [3, 1, 2, 2]])
    kind = (cell, "tanh", 0.0)
    name = f"{cell} {form}{'' if sizes.inputs else ', projected'}"
    run = torch.ops.reflectory.sequence
    arguments = [*tensors.in_order(), lengths, *kind, True, True, 0]
    yield f"sequence {name}", run, arguments
    packed = Packed(Kind(*kind), tensors)
    yield f"sequence {name}, packed", holding(packed, run), [*arguments[:-1], packed.handle]
    states, cells, last_h, last_c, kept = run(*arguments)
    of_lstm = [cells, last_c] if cell == "lstm" else [None, None]
    incoming = [states, of_lstm[0], last_h, of_lstm[1]]
    wanted = [tensor is not None for tensor in tensors.in_order()]
    backward = torch.ops.reflectory.sequence_backward
    yield (
        f"sequence_backward {name}",
        backward,
        [*incoming, *tensors.in_order(), lengths, states, cells, kept, *kind, wanted],
    )


def of_a_unitary_sequence() -> Iterator[Case]:
    """The uRNN's sequence forward and backward."""
    order = torch.tensor([[5, 0, 3, 1, 4, 2], [0, 1, 2, 3, 5, 4]])
    tensors = [torch.randn(2, 3, 4, 12), torch.randn(2, 3, 6), torch.randn(2, 2, 12), order]
    tensors += [torch.randn(2, 6), torch.randn(2, 4, 12)]
    lengths = torch.tensor([[1, 3, 2, 2], [3, 1, 1, 2]])
    run = torch.ops.reflectory.unitary_sequence
    yield "unitary_sequence", run, [*tensors, lengths, True, True]
    states, inner, last = run(*tensors, lengths, True, True)
    yield (
        "unitary_sequence_backward",
        torch.ops.reflectory.unitary_sequence_backward,
        [states, last, *tensors, lengths, inner, [True] * 5],
    )


def holding(packed: Packed, run: Callable[..., Any]) -> Callable[..., Any]:
    """The operator, while the packed weights are held."""

    def held(*arguments: Any) -> Any:
        assert packed.handle
        return run(*arguments)

    return held


def of_a_stack(stack: Any, form: FormName) -> Iterator[Case]:
    """A stack forward and backward."""
    gates, dense, turned = GATES[stack], form == "dense", form == "rotations_svd"
    thin = not dense and not turned
    num_right = 1 if form == "tied" else gates
    tensors = [
        torch.randn(2, 4, 8),
        torch.randn(2, 3, gates, 8),
        torch.randn(2, 3, gates, 8, 8) if dense else None,
        torch.randn(2, 3, gates, 8, 3) if thin else None,
        torch.randn(2, 3, num_right, 3, 8) if thin else None,
        None if dense else torch.randn(2, 3, gates, 8),
        torch.randn(2, 3, gates, 4, 8) if turned else None,
        torch.randn(2, 3, gates, 2, 8) if turned else None,
    ]
    kind = (stack, "relu", 0.0)
    run = torch.ops.reflectory.stack
    yield f"stack {stack} {form}", run, [*tensors, *kind, True]
    states, last = run(*tensors, *kind, True)
    wanted = [tensor is not None for tensor in tensors]
    backward = torch.ops.reflectory.stack_backward
    yield (
        f"stack_backward {stack} {form}",
        backward,
        [None, last, *tensors, states, *kind, wanted],
    )


def spoilt(arguments: Arguments) -> Iterator[tuple[str, Arguments]]:
    """The arguments with one of them wrong, in every way."""
    for place, right in enumerate(arguments):
        for what, wrong in wrongs(right):
            yield (
                f"{what} as argument {place}",
                [
                    *arguments[:place],
                    wrong,
                    *arguments[place + 1 :],
                ],
            )


def wrongs(right: Any) -> Iterator[tuple[str, Any]]:
    """What is none of its kind."""
    if isinstance(right, Tensor):
        yield from wrong_tensors(right)
    elif isinstance(right, str):
        yield "no name", "made up"
        if right in (*CELLS, *STACKS):
            yield "a name of the others", STACKS[0] if right in CELLS else CELLS[0]
    elif isinstance(right, list):
        yield "too short a list", right[:-1]
        if not all(right):
            yield "a gradient of what is not there", [True] * len(right)
    elif isinstance(right, int) and not isinstance(right, bool):
        yield "a made-up address", 0x7F0000001000
        yield "a negative number", -1
    elif right is None:
        yield "a tensor out of place", torch.ones(1)


def wrong_tensors(right: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Tensors of another type, size, number of dimensions, place or layout."""
    if right.numel() == 0:
        return
    other = torch.float32 if right.dtype in (torch.float64, torch.int64) else torch.float64
    yield "another type", right.to(other)
    yield "halves", right.to(torch.bfloat16)
    yield "truth values", right.bool()
    for dimension in range(right.dim()):
        yield (
            f"one more in dimension {dimension}",
            torch.cat((right, right.narrow(dimension, 0, 1)), dimension),
        )
        if right.shape[dimension] > 1:
            yield f"fewer in dimension {dimension}", right.narrow(dimension, 0, 1)
        yield f"nothing in dimension {dimension}", right.narrow(dimension, 0, 0)
    yield "a dimension more", right.unsqueeze(0)
    yield "a dimension fewer", right.flatten(0, 1) if right.dim() > 1 else right[0]
    yield "a number", right.flatten()[0]
    yield "a sparse one", right.to_sparse()
    if right.dtype == torch.int64:
        yield "numbers that are too large", right + 1000
        yield "numbers that are too small", right - 1000


if __name__ == "__main__":
    sys.exit(main())
