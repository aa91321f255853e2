"""Trainable packed rotations: the angles of disjoint plane rotations, a stage at a time."""

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn

from models.errors import SlotError
from models.math.initialisation import uniform_
from models.math.precision import raised
from models.math.rotations import circle_partners, pair_places, rotation_product, stage_count
from models.parametrizations.parametrization import refuse_rectangle
from models.quantization import Angles, Quantised, Scheme
from models.spec import Slot

Start = Literal["uniform", "identity"]
"""Angles of U(0, 2 pi), or 0."""

_WIDEST_START: Mapping[Start, float] = {"uniform": 2 * torch.pi, "identity": 0.0}


def most_stages(size: int) -> int:
    """The largest count that a search asks for."""
    return max(1, stage_count(size))


def refuse_unturnable(slot: Slot) -> None:
    """Refuse a slot whose matrices are not square or have no two coordinates.

    Raises:
        SlotError: names the sizes.
    """
    refuse_rectangle(slot)
    if slot.in_features < 2:
        raise SlotError("needs two coordinates to turn; the matrix is 1 x 1")


class PackedAngles(nn.Module, Quantised):
    """G products of `count` packed rotations of R^n, which stores their angles.

    `theta` is `[G, count, floor(n / 2)]`; the stage that acts first comes first.
    """

    _partners: Tensor
    _places: Tensor
    _signs: Tensor

    def __init__(
        self,
        size: int,
        count: int,
        *,
        num_matrices: int,
        initialisation: Start,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.size = size
        self.count = count
        self.theta = nn.Parameter(torch.empty(num_matrices, count, size // 2))
        uniform_(self.theta, 0, _WIDEST_START[initialisation], generator=generator)
        partners = circle_partners(size, count)
        places, signs = _places_and_signs(partners)
        self.register_buffer("_partners", partners, persistent=False)
        self.register_buffer("_places", places, persistent=False)
        self.register_buffer("_signs", signs, persistent=False)

    def angles(self) -> Tensor:
        """Those of each stage's coordinates with their signs, `[G, count, n]`."""
        return self._signed().to(self.theta.dtype)

    def product(self) -> Tensor:
        """The products `[G, n, n]`, in at least single precision."""
        return rotation_product(self._signed(), self._partners)

    def _signed(self) -> Tensor:
        return self.spread(raised(self.theta))

    def spread(self, values: Tensor) -> Tensor:
        """Numbers of theta's shape at each stage's coordinates, with signs `[G, count, n]`."""
        placed = values.flatten(1).index_select(1, self._places)
        return placed.view(-1, self.count, self.size) * self._signs.to(values.dtype)

    def schemes(self) -> Mapping[str, Scheme]:
        """Angles, of which no rounding makes W less orthogonal."""
        return {"theta": Angles()}

    def extra_repr(self) -> str:
        """Sizes, for printing."""
        return f"size={self.size}, stages={self.count}"


def _places_and_signs(partners: Tensor) -> tuple[Tensor, Tensor]:
    """By which of a matrix's angles each stage's coordinate turns, `[K n]`, and how, `[K, n]`."""
    if partners.is_meta:
        return partners.new_empty(partners.numel()), torch.empty_like(partners)
    count, size = partners.shape
    places, signs = pair_places(partners)
    first_of_stage = torch.arange(count).unsqueeze(1) * (size // 2)
    return (first_of_stage + places).flatten(), signs
