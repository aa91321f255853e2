"""Recurrences over precomputed input projections.

Each takes the recurrent matrices as a `Form`, the projections `[T, B, G*n]` of all inputs (biases
included) and the state before the first step, and yields the T states one by one: a caller that
needs only the last one keeps only the last one. A state is a tuple of tensors `[B, n]`, of which
the first, h, is what the next layer reads.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from models.backends.call import State
from models.forms import Form


def rnn_sequence(
    form: Form,
    projections: Tensor,
    initial: State,
    *,
    activation: Callable[[Tensor], Tensor],
) -> Iterator[State]:
    """`h_t = phi(W h_{t-1} + M x_t + b)`, with G = 1."""
    (state,) = initial
    for addend in form.addends(projections):
        (inner,) = form.matmul(state, addend)
        state = activation(inner)
        yield (state,)


def gru_sequence_reset_before(form: Form, projections: Tensor, initial: State) -> Iterator[State]:
    """A GRU that resets the state before its matrix: `q = tanh(W_q (r * h) + U_q x + b_q)`.

    G = 3, in the order update u, reset r, candidate q; `h_t = u * h_{t-1} + (1 - u) * q`.
    """
    (state,) = initial
    size = state.shape[-1]
    gates, candidate = form.select(0, 2), form.select(2, 3)
    gate_projections, candidate_projections = torch.split(projections, [2 * size, size], dim=-1)
    for gate_addend, candidate_addend in zip(
        gates.addends(gate_projections), candidate.addends(candidate_projections), strict=True
    ):
        update, reset = gates.matmul(state, gate_addend)
        (inner,) = candidate.matmul(reset.sigmoid() * state, candidate_addend)
        state = torch.lerp(inner.tanh(), state, update.sigmoid())
        yield (state,)


def gru_sequence_reset_after(form: Form, projections: Tensor, initial: State) -> Iterator[State]:
    """A GRU that resets what its matrix made of the state: `q = tanh(r * (W_q h) + U_q x + b_q)`.

    G = 3, in the order update u, reset r, candidate q; `h_t = u * h_{t-1} + (1 - u) * q`. All three
    matrices act on the same state, in one product; a bias that the form has is in `W_q h`.
    """
    (state,) = initial
    size = state.shape[-1]
    for projection in projections.unbind(0):
        update_addend, reset_addend, candidate_addend = torch.split(projection, size, dim=-1)
        update, reset, inner = form.matmul(state)
        reset = (reset + reset_addend).sigmoid()
        update = (update + update_addend).sigmoid()
        state = torch.lerp(torch.addcmul(candidate_addend, reset, inner).tanh(), state, update)
        yield (state,)


def lstm_sequence(
    form: Form,
    projections: Tensor,
    initial: State,
    *,
    peephole: Callable[[Tensor], Tensor] | None = None,
) -> Iterator[State]:
    """An LSTM: `c_t = f * c_{t-1} + i * z`, `h_t = o * tanh(c_t)`; states are (h, c).

    G = 4, in the order input i, forget f, candidate z, output o. A peephole V_o adds `V_o c_t` to
    what the output gate reads.
    """
    state, cell = initial
    for addend in form.addends(projections):
        enter, forget, candidate, leave = form.matmul(state, addend)
        cell = torch.addcmul(forget.sigmoid() * cell, enter.sigmoid(), candidate.tanh())
        if peephole is not None:
            leave = leave + peephole(cell)
        state = leave.sigmoid() * cell.tanh()
        yield state, cell


def urnn_sequence(
    form: Form, projections: Tensor, initial: State, *, bias: Tensor
) -> Iterator[State]:
    """`z_t = rescale(W z_{t-1} + V x_t)` with complex states, kept as `(re | im)` `[B, 2 n]`.

    `rescale(z) = z max(|z| + b, 0) / (|z| + 1e-5)` with `bias` b `[n]` (Arjovsky, Shah, Bengio,
    arXiv:1511.06464, eq. 8, as their code computes it).
    """
    (state,) = initial
    for addend in form.addends(projections):
        (inner,) = form.matmul(state, addend)
        parts = inner.view(inner.shape[0], 2, bias.shape[0])
        modulus = _modulus(parts)
        scale = (modulus + bias).relu() / (modulus + 1e-5)
        state = (parts * scale.unsqueeze(-2)).view_as(inner)
        yield (state,)


def _modulus(parts: Tensor) -> Tensor:
    """`|z|` `[B, n]` of `[B, 2, n]`, with gradient 0 at z = 0."""
    square = parts.square().sum(-2)
    zero = square == 0
    return square.masked_fill(zero, 1).sqrt().masked_fill(zero, 0)
