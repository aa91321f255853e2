"""Random sequences for the kernels, and the same computed step by step in double precision."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from models.kernels.calls import GATES, Kind, Tensors
from models.kernels.structs import CellName
from models.kernels.unitary import UnitaryTensors
from models.math.rotations import circle_partners, pair_places, stage_count
from models.math.unitary import hashed_order

FormName = Literal["dense", "low_rank", "low_rank_diagonal", "tied", "rotations", "rotations_svd"]
FORMS: tuple[FormName, ...] = (
    *("dense", "low_rank", "low_rank_diagonal", "tied"),
    *("rotations", "rotations_svd"),
)

ACTIVATIONS = {
    "tanh": torch.tanh,
    "relu": torch.relu,
    "leaky_relu": lambda z: torch.where(z < 0, 0.3 * z, z),
    "abs": lambda z: torch.where(z < 0, -z, z),
    "identity": lambda z: z,
}
SLOPE = 0.3


@dataclass(frozen=True)
class Sizes:
    """M models, T steps, B samples, n units, I inputs (0: projected beforehand)."""

    models: int
    steps: int
    batch: int
    size: int
    inputs: int


def least_size(form: FormName) -> int:
    """The smallest matrices: there is nothing to turn in a single coordinate."""
    return 2 if form.startswith("rotations") else 1


def random_angles(
    leading: tuple[int, ...], size: int, generator: torch.Generator, *, most: int = 4
) -> Tensor:
    """Signed angles `[*leading, K, n]` of as many stages as there are, or `most`; a leaf."""
    partners = circle_partners(size, min(most, stage_count(size)))
    places, signs = pair_places(partners)
    of_pairs = 3 * torch.randn(*leading, len(partners), size, generator=generator)
    return (of_pairs.gather(-1, places.expand_as(of_pairs)) * signs).requires_grad_()


def turned(angles: Tensor, *, undone: bool = False) -> Tensor:
    """The product of stages of signed angles `[..., K, n]`, one by one, or what undoes it."""
    size = angles.shape[-1]
    partners = circle_partners(size, angles.shape[-2])
    stages = list(zip(angles.unbind(-2), partners.unbind(0), strict=True))
    if undone:
        stages = [(-stage, partner) for stage, partner in reversed(stages)]
    product = torch.eye(size, dtype=angles.dtype)
    for stage, partner in stages:
        swap = torch.eye(size, dtype=angles.dtype)[partner]
        product = (torch.diag_embed(stage.cos()) + stage.sin().unsqueeze(-1) * swap) @ product
    return product


def random_tensors(
    cell: CellName,
    form: FormName,
    sizes: Sizes,
    *,
    rank: int = 3,
    seed: int = 0,
    biases: int = 2,
) -> Tensors:
    """Single precision, scaled so that states neither vanish nor explode; all need gradients.

    With so many biases of each gate: none, that of the inputs, or that of the states, too.
    """
    generator = torch.Generator().manual_seed(seed)
    gates, n, rank = GATES[cell], sizes.size, min(rank, sizes.size)

    def draw(*shape: int, scale: float = 1.0) -> Tensor:
        values = torch.randn(shape, generator=generator) * scale
        return values.requires_grad_()

    models, steps, batch, inputs = sizes.models, sizes.steps, sizes.batch, sizes.inputs
    projected = inputs == 0
    dense, thin = form == "dense", form in ("low_rank", "low_rank_diagonal", "tied")
    num_right = 1 if form == "tied" else gates
    has_diagonal = form in ("low_rank_diagonal", "tied", "rotations_svd")
    return Tensors(
        # Steps first, as a network has it: strided, and not contiguous.
        x=(
            None
            if projected
            else draw(models, batch, steps, inputs).detach().transpose(1, 2).requires_grad_()
        ),
        addends=draw(models, steps, batch, gates * n) if projected else None,
        w_in=None if projected else draw(models, gates, n, inputs, scale=0.5),
        bias=draw(models, biases, gates, n, scale=0.2) if biases else None,
        weight=draw(models, gates, n, n, scale=0.7 / n**0.5) if dense else None,
        left=draw(models, gates, n, rank, scale=0.5 / rank**0.5) if thin else None,
        right=draw(models, num_right, rank, n, scale=0.8 / n**0.5) if thin else None,
        diagonal=draw(models, gates, n, scale=0.2 if thin else 0.7) if has_diagonal else None,
        h0=draw(models, batch, n, scale=0.5),
        c0=draw(models, batch, n, scale=0.5) if cell == "lstm" else None,
        u_turns=None if dense or thin else random_angles((models, gates), n, generator),
        v_turns=(
            random_angles((models, gates), n, generator, most=2)
            if form == "rotations_svd"
            else None
        ),
    )


def random_unitary(steps: int, batch: int, size: int, *, models: int = 1) -> UnitaryTensors:
    """Sequences of the uRNN in single precision; all but the order need gradients."""
    generator = torch.Generator().manual_seed(1000 * size + batch)

    def draw(*shape: int, scale: float) -> Tensor:
        return (scale * torch.randn(shape, generator=generator)).requires_grad_()

    return UnitaryTensors(
        addends=draw(models, steps, batch, 2 * size, scale=1),
        phases=draw(models, 3, size, scale=3),
        reflections=draw(models, 2, 2 * size, scale=2),
        order=torch.stack([torch.tensor(hashed_order(size)).roll(m) for m in range(models)]),
        bias=draw(models, size, scale=0.2),
        h0=draw(models, batch, 2 * size, scale=1),
    )


@dataclass(frozen=True)
class Expected:
    """What a sequence gives: h_t and c_t of all steps `[M, T, B, n]`; c is None without cells."""

    states: Tensor
    cells: Tensor | None


def in_double_precision(tensors: Tensors) -> Tensors:
    """The same numbers as leaves of their own."""
    return Tensors(
        *(None if t is None else t.detach().double().requires_grad_() for t in tensors.in_order())  # pyright: ignore[reportArgumentType] -- h0 is given
    )


def step_by_step(kind: Kind, tensors: Tensors, lengths: Tensor | None = None) -> Expected:
    """The cells' equations, one step and one gate at a time, with whole matrices."""
    weight = _whole(tensors, GATES[kind.cell])
    h, c = tensors.h0, tensors.c0
    states: list[Tensor] = []
    cells: list[Tensor] = []
    for t in range(tensors.steps):
        base = _base(tensors, t, GATES[kind.cell])
        next_h, next_c = _step(kind, base, weight, h, c, _product_bias(tensors))
        if lengths is not None:
            live = (t < lengths).unsqueeze(-1)
            next_h = torch.where(live, next_h, h)
            next_c = None if next_c is None or c is None else torch.where(live, next_c, c)
        h, c = next_h, next_c
        states.append(h)
        if c is not None:
            cells.append(c)
    return Expected(torch.stack(states, 1), torch.stack(cells, 1) if cells else None)


def _step(
    kind: Kind,
    base: Tensor,
    weight: Tensor,
    h: Tensor,
    c: Tensor | None,
    product_bias: Tensor,
) -> tuple[Tensor, Tensor | None]:
    """One step; `base` is what inputs and their bias add, `[M, G, B, n]`."""

    def product(number: int, state: Tensor) -> Tensor:
        found = torch.einsum("mbk,mnk->mbn", state, weight[:, number])
        return found + product_bias[:, number].unsqueeze(1)

    def gate(number: int, state: Tensor) -> Tensor:
        return base[:, number] + product(number, state)

    if kind.cell == "rnn":
        return ACTIVATIONS[kind.activation](gate(0, h)), None
    if kind.cell == "lstm":
        assert c is not None
        enter, forget, candidate, leave = (gate(number, h) for number in range(4))
        c = forget.sigmoid() * c + enter.sigmoid() * candidate.tanh()
        return leave.sigmoid() * c.tanh(), c
    update, reset = gate(0, h).sigmoid(), gate(1, h).sigmoid()
    if kind.cell == "gru_reset_before":
        candidate = gate(2, reset * h).tanh()
    else:
        candidate = (base[:, 2] + reset * product(2, h)).tanh()
    return update * h + (1 - update) * candidate, None


def _base(tensors: Tensors, t: int, gates: int) -> Tensor:
    if tensors.x is None:
        assert tensors.addends is not None
        base = tensors.addends[:, t].unflatten(-1, (gates, -1)).transpose(1, 2)
    else:
        assert tensors.w_in is not None
        base = torch.einsum("mbi,mgni->mgbn", tensors.x[:, t], tensors.w_in)
    return base if tensors.bias is None else base + tensors.bias[:, 0].unsqueeze(2)


def _product_bias(tensors: Tensors) -> Tensor:
    """What is added to the matrices' products, `[M, G, n]`."""
    bias = tensors.bias
    if bias is not None and bias.shape[1] == 2:
        return bias[:, 1]
    like = tensors.h0
    return like.new_zeros(tensors.models, 4, like.shape[-1])


def _whole(tensors: Tensors, gates: int) -> Tensor:
    """The matrices `[M, G, n, n]`."""
    return whole(
        gates,
        **{
            name: getattr(tensors, name)
            for name in ("weight", "left", "right", "diagonal", "u_turns", "v_turns")
        },
    )


def whole(
    gates: int,
    weight: Tensor | None = None,
    left: Tensor | None = None,
    right: Tensor | None = None,
    diagonal: Tensor | None = None,
    u_turns: Tensor | None = None,
    v_turns: Tensor | None = None,
) -> Tensor:
    """The matrices `[M, G, n, n]` of what the kernels are given."""
    if weight is not None:
        return weight
    if u_turns is not None:
        product = turned(u_turns)
        product = product if diagonal is None else product * diagonal.unsqueeze(-2)
        return product if v_turns is None else product @ turned(v_turns, undone=True)
    assert left is not None
    assert right is not None
    product = left @ right.expand(-1, gates, -1, -1)
    return product if diagonal is None else product + torch.diag_embed(diagonal)
