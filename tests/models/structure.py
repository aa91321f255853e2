"""What training and small steps leave of a structured weight."""

import torch
from torch import Tensor

from models.linear import StructuredLinear
from models.model import after_step, parameter_groups


def jacobian_rank(linear: StructuredLinear) -> int:
    """How many directions all matrices together can move in, at a random point."""
    linear.double()
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in linear.parameters():
            parameter.normal_(generator=generator)
    parameters = list(linear.parameters())
    rows: list[Tensor] = []
    for entry in linear.dense_weight().flatten():
        gradients = torch.autograd.grad(
            entry, parameters, retain_graph=True, materialize_grads=True
        )
        rows.append(torch.cat([gradient.flatten() for gradient in gradients]))
    return int(torch.linalg.matrix_rank(torch.stack(rows), rtol=1e-9))


def trained(linear: StructuredLinear, *, steps: int = 20) -> StructuredLinear:
    """The same in double precision after some optimizer steps towards random matrices."""
    linear.double()
    target = torch.randn(
        linear.dense_weight().shape,
        dtype=torch.float64,
        generator=torch.Generator().manual_seed(3),
    )
    optimizer = torch.optim.Adam(parameter_groups(linear, 0.05))
    for _ in range(steps):
        optimizer.zero_grad()
        (linear.dense_weight() - target).square().sum().backward()
        optimizer.step()
        after_step(linear)
    return linear
