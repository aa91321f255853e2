"""In which precision factors are made."""

import torch
from torch import Tensor


def raised(tensor: Tensor) -> Tensor:
    """At least single precision: solvers have no half types, and long products would lose W."""
    return tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor
