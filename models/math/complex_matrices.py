"""Complex matrices as real ones of twice the size, on vectors kept as `(re | im)`."""

import torch
from torch import Tensor


def real_form(real: Tensor, imaginary: Tensor) -> Tensor:
    """`[[A, -B], [B, A]]` `[..., 2 out, 2 in]` for `A + iB` of parts `[..., out, in]`."""
    above = torch.cat((real, -imaginary), dim=-1)
    below = torch.cat((imaginary, real), dim=-1)
    return torch.cat((above, below), dim=-2)
