"""Recurrences over precomputed input projections.

Each takes the recurrent matrices as `Factors`, the projections `[T, B, G*n]` of all inputs (biases
included) and the state `[B, n]` before the first step, and yields the T states one by one: whoever
needs only the last one keeps only the last one.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from models.ops.factors import Factors

Sequence = Callable[[Factors, Tensor, Tensor], Iterator[Tensor]]
"""A recurrence: factors, projections, initial state -> states."""


def rnn_sequence(
    factors: Factors,
    projections: Tensor,
    initial: Tensor,
    *,
    activation: Callable[[Tensor], Tensor],
) -> Iterator[Tensor]:
    """`h_t = phi(W h_{t-1} + M x_t + b)`, with G = 1."""
    state = initial
    for addend in factors.arrange(projections):
        (inner,) = factors.advance(state, addend)
        state = activation(inner)
        yield state


def gru_sequence_reset_before(
    factors: Factors, projections: Tensor, initial: Tensor
) -> Iterator[Tensor]:
    """A GRU that resets the state before its matrix: `q = tanh(W_q (r * h) + U_q x + b_q)`.

    G = 3, in the order update u, reset r, candidate q; `h_t = u * h_{t-1} + (1 - u) * q`.
    """
    size = initial.shape[-1]
    gates, candidate = factors.select(0, 2), factors.select(2, 3)
    gate_projections, candidate_projections = torch.split(projections, [2 * size, size], dim=-1)
    state = initial
    for gate_addend, candidate_addend in zip(
        gates.arrange(gate_projections), candidate.arrange(candidate_projections), strict=True
    ):
        update, reset = gates.advance(state, gate_addend)
        (inner,) = candidate.advance(reset.sigmoid() * state, candidate_addend)
        state = torch.lerp(inner.tanh(), state, update.sigmoid())
        yield state


def gru_sequence_reset_after(
    factors: Factors, projections: Tensor, initial: Tensor
) -> Iterator[Tensor]:
    """A GRU that resets what its matrix made of the state: `q = tanh(r * (W_q h) + U_q x + b_q)`.

    G = 3, in the order update u, reset r, candidate q; `h_t = u * h_{t-1} + (1 - u) * q`. All three
    matrices act on the same state, in one product.
    """
    size = initial.shape[-1]
    state = initial
    for projection in projections.unbind(0):
        update_addend, reset_addend, candidate_addend = torch.split(projection, size, dim=-1)
        update, reset, inner = factors.advance(state)
        reset = (reset + reset_addend).sigmoid()
        update = (update + update_addend).sigmoid()
        state = torch.lerp(torch.addcmul(candidate_addend, reset, inner).tanh(), state, update)
        yield state
