"""A picture of each parametrization: what is stored, cell by cell, and the matrix that it makes.

Both come from a module that was really built, so that as many cells are drawn as there are
parameters.
"""

from collections.abc import Iterator, Mapping
from html import escape

import torch
from torch import Tensor, nn

from models.math.initialisation import generator_of
from models.parametrizations import (
    AnyParametrization,
    Dense,
    FactorizedSvd,
    Householder,
    HouseholderSvd,
    LowRank,
    LowRankDiagonal,
    PackedRotations,
    RotationSvd,
    UnitaryFft,
    UnitaryFull,
)
from models.spec import Slot

SIZE = 8
MEMBERS: tuple[AnyParametrization, ...] = (
    Dense(),
    Householder(m=2),
    HouseholderSvd(m1=2, m2=2),
    LowRank(d=2),
    LowRankDiagonal(d=2),
    PackedRotations(count=3),
    RotationSvd(count_u=2, count_v=2),
    FactorizedSvd(),
    UnitaryFft(),
    UnitaryFull(),
)
"""One small member of each kind."""

_CELL, _GAP, _TOP = 12, 20, 24
_COMPLEX = ("unitary_fft", "unitary_full")
_BLUE, _ORANGE, _GREY = "#3b7dd8", "#e07b28", "#808890"
"""Of positive and negative numbers, and of words and frames: seen on light and on dark pages."""

_BLANK = float("nan")


def slot_of(member: AnyParametrization) -> Slot:
    """A square slot that it holds."""
    if member.kind in _COMPLEX:
        return Slot(out_features=SIZE, in_features=SIZE, field="complex")
    return Slot(out_features=SIZE, in_features=SIZE)


def drawn(member: AnyParametrization) -> str:
    """The picture, as SVG."""
    slot = slot_of(member)
    module = member.build(slot, generator=generator_of(0))
    with torch.no_grad():
        whole = module.dense_weight()[0]
    parts: list[str] = []
    x = _GAP / 2
    for name, grid in _stored(module).items():
        parts += _grid(grid, x, name, "stored")
        x += max(grid.shape[1] * _CELL, 7 * len(name)) + _GAP
    parts.append(_text("→", x, _TOP + SIZE * _CELL / 2, size=18))
    x += 18 + _GAP
    parts += _grid(whole, x, "W", "made")
    width, height = x + whole.shape[1] * _CELL + _GAP / 2, _TOP + _height(module, whole) + _GAP / 2
    count = member.parameter_count(slot)
    about = escape(f"{member.title}: {count} parameters make a {slot.field} matrix, n = {SIZE}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}" role="img">\n<title>{about}</title>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _stored(module: nn.Module) -> Mapping[str, Tensor]:
    """Every parameter as a grid `[rows, columns]`; NaN where nothing is stored.

    Vectors of which only the entries below a diagonal are stored stand upright, as the papers
    write them.
    """
    buffers = dict(module.named_buffers())
    found: dict[str, Tensor] = {}
    for name, parameter in module.named_parameters():
        tensor = parameter.detach()[0]
        owner = name.rpartition(".")[0]
        positions = buffers.get(f"{owner}._positions" if owner else "_positions")
        if positions is not None and len(positions) == tensor.numel():
            rows = int(positions.max()) // SIZE + 1
            flat = torch.full((rows * SIZE,), _BLANK)
            flat[positions] = tensor
            tensor = flat.reshape(rows, SIZE).mT
        found[name.removesuffix(".entries")] = tensor.reshape(-1, tensor.shape[-1])
    return found


def _height(module: nn.Module, made: Tensor) -> int:
    return _CELL * max(len(made), *(len(grid) for grid in _stored(module).values()))


def _grid(grid: Tensor, x: float, title: str, kind: str) -> Iterator[str]:
    yield _text(title, x, 14)
    most = float(grid.nan_to_num(0).abs().max()) or 1.0
    for row, values in enumerate(grid.tolist()):
        for column, value in enumerate(values):
            if value != value:
                continue
            colour = _BLUE if value >= 0 else _ORANGE
            yield (
                f'<rect class="{kind}" x="{x + column * _CELL:g}" y="{_TOP + row * _CELL}" '
                f'width="{_CELL}" height="{_CELL}" fill="{colour}" '
                f'fill-opacity="{abs(value) / most:.2f}" stroke="{_GREY}" stroke-width="0.5"/>'
            )


def _text(text: str, x: float, y: float, *, size: int = 12) -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" font-family="sans-serif" font-size="{size}" fill="{_GREY}">'
        f"{escape(text)}</text>"
    )
