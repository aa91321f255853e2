"""Anything to `dense`: the matrices themselves."""

import torch

from models.compression.target import Target
from models.linear import StructuredLinear
from models.parametrizations.dense import ComplexDenseLinear, DenseLinear


def fit_dense_(linear: StructuredLinear, target: Target) -> None:
    """Store the matrices as they are, in place; of complex ones the real and imaginary parts."""
    with torch.no_grad():
        if isinstance(linear, ComplexDenseLinear):
            rows, columns = linear.slot.out_features, linear.slot.in_features
            linear.weight.copy_(target.weight[..., :columns].reshape(-1, 2, rows, columns))
        else:
            assert isinstance(linear, DenseLinear)
            linear.weight.copy_(target.weight)
