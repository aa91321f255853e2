"""Rounding slices of numbers, each with a scale of its own."""

from collections.abc import Mapping

import torch
from torch import Tensor

from models.quantization.scheme import Bits

_CUTS: Mapping[Bits, tuple[float, ...]] = {
    8: (1.0,),
    4: tuple(1 - cut / 16 for cut in range(9)),
}
"""Shares of the largest magnitude that are tried as the end of the grid, the largest first."""

_SMALLEST_SCALE = torch.finfo(torch.bfloat16).tiny


def largest_integer(bits: Bits) -> int:
    """Q: integers are -Q..Q, 127 or 7."""
    return 2 ** (bits - 1) - 1


def round_slices(numbers: Tensor, bits: Bits, *, dim: int) -> tuple[Tensor, Tensor]:
    """Integers q and scales s with `numbers` about `q s`, one s for each slice along `dim`.

    With m the largest magnitude of a slice, s is a share c of `m / Q`, rounded to the 8
    significant bits of bfloat16. Of the shares the one of the smallest squared error is taken,
    of equal ones the largest. Slices whose s would be below 2^-126 become 0, with s = 1.

    Rounding `q s` again gives the same q and s, bit for bit:

    1. The largest q is Q. `m / s >= Q / (1 + 2^-8)` for c = 1, and more for smaller c, which is
       above `Q - 1/2` for Q <= 127; q is cut at Q.
    2. q has at most 7 bits and s has 8: `q s` is exact in single precision, whose 24 bits suffice.
       It is no denormal number, and `Q s` does not overflow: of the largest number there is, s is
       at most `(1 + 2^-7) 2^121` for 8 bits and `146/128 2^125` for 4.
    3. So the largest magnitude of the rounded slice is `Q s`. `(Q s) / Q = s` is exact, and is its
       own nearest bfloat16: c = 1 gives s again. `(q s) / s = q` is exact too, and the error is
       exactly 0, which no other share is below.
    4. A slice of 0 stays one: s = 1 and q = 0.

    Args:
        numbers: of single precision; where a slice is not finite its q and s mean nothing.
        bits: 8 or 4.
        dim: the dimension that a slice lies along.

    Returns:
        q, int8 of the numbers' shape, and s, bfloat16, whose `dim` is 1.
    """
    most = largest_integer(bits)
    if numbers.numel() == 0:
        shape = [1 if place == dim % numbers.dim() else n for place, n in enumerate(numbers.shape)]
        return numbers.to(torch.int8), numbers.new_ones(shape, dtype=torch.bfloat16)
    step = numbers.abs().amax(dim, keepdim=True) / most
    whole = step.to(torch.bfloat16).float()
    dead = whole < _SMALLEST_SCALE
    if len(_CUTS[bits]) == 1:
        scale = whole.masked_fill(dead, 1)
        integers = _nearest(numbers, scale, most)
    else:
        cuts = numbers.new_tensor(_CUTS[bits]).view(-1, *[1] * numbers.dim())
        scales = (cuts * step).to(torch.bfloat16).float().clamp(min=_SMALLEST_SCALE)
        scales = scales.masked_fill(dead, 1)
        tried = _nearest(numbers, scales, most)
        # In units of the first scale no square overflows, or vanishes beside the others.
        errors = ((numbers - tried * scales) / scales[:1]).square().sum(dim % numbers.dim() + 1)
        least = errors.amin(0, keepdim=True)
        order = torch.arange(len(cuts), device=numbers.device).view(-1, *[1] * least[0].dim())
        # The first of equal ones, which `argmin` does not promise.
        first = order.expand_as(errors).masked_fill(errors != least, len(cuts) - 1).amin(0)
        chosen = first.unsqueeze(dim % numbers.dim()).unsqueeze(0)
        scale = scales.gather(0, chosen)[0]
        integers = tried.gather(0, chosen.expand(1, *numbers.shape))[0]
    return integers.to(torch.int8), scale.to(torch.bfloat16)


def _nearest(numbers: Tensor, scale: Tensor, most: int) -> Tensor:
    return (numbers / scale).round_().clamp_(-most, most)
