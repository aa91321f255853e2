"""What a recurrent network's matrices say of how far test may be from training."""

import math

import torch
from torch import Tensor, nn

from models.architectures.recurrent_network import RecurrentNetwork
from models.architectures.rnn import RnnCell
from models.linear import Affine
from models.math.linalg import singular_values
from models.math.precision import raised
from models.model import LARGEST_DECOMPOSED, spectrum_of


@torch.no_grad()
def generalization_term(network: nn.Module, *, steps: int) -> Tensor | None:
    """`ln B(w)` of a recurrent network of one layer, a scalar of double precision.

    B(w) is `B^2 t^2 n ln n max(|W|^(2t-2), 1) |M|^2 |Y|^2 (t^2 |W|_F^2 + |M|_F^2 / |M|^2 +
    |Y|_F^2 / |Y|^2) / gamma^2` with recurrent matrix W, input matrix M that has the bias as a
    further column, readout Y, spectral norms and Frobenius ones (Zhang, Lei, Dhillon,
    arXiv:1803.09327, Theorem 5). Here the bound B on inputs and the margin gamma are 1: in both a
    task's models are equal. The theorem's own constant is unknown and its bound says nothing by its
    size; differences compare models of one task, as if first states were 0.

    Args:
        network: any model.
        steps: t, those of a sample.

    Returns:
        None for what the theorem does not speak of: more layers, gates, embeddings, answers at
        every step, structured input matrices, a single unit, and where W is too large to decompose.
    """
    if not isinstance(network, RecurrentNetwork) or not _is_plain(network):
        return None
    project, size = network.inputs[0], network.recurrent.in_features
    recurrent = spectrum_of(network.recurrent)
    if recurrent is None or not isinstance(project, Affine):
        return None
    matrix, bias = project.plain_parts()
    inputs = matrix if bias is None else torch.cat([matrix, bias.unsqueeze(-1)], -1)
    w, m, y = (
        values.abs().double().flatten()
        for values in (
            recurrent,
            singular_values(raised(inputs)),
            singular_values(raised(network.readout.plain_weight())),
        )
    )
    largest = [values.max().log() for values in (w, m, y)]
    shares = [values.square().sum() / values.max().square() for values in (m, y)]
    return (
        2 * math.log(steps)
        + math.log(size)
        + math.log(math.log(size))
        + (2 * steps - 2) * largest[0].clamp(min=0)
        + 2 * (largest[1] + largest[2])
        + (steps**2 * w.square().sum() + shares[0] + shares[1]).log()
    )


def _is_plain(network: RecurrentNetwork) -> bool:
    """Whether the theorem speaks of a recurrent network, whatever its matrices are."""
    is_one = len(network.cells) == 1 and isinstance(network.cells[0], RnnCell)
    small = network.readout.plain_weight().shape
    return (
        is_one
        and network.embedding is None
        and not network.every_step
        and network.recurrent.in_features > 1
        and min(small) <= LARGEST_DECOMPOSED
    )
