"""Losses are those of their closed forms."""

import math

import pytest
import torch
from torch import Tensor

from models.graphs.interpreter import AnswerKind, answers_loss


def loss(kind: AnswerKind, answer: Tensor, wanted: Tensor, temperature: float = 1.0) -> float:
    return float(answers_loss({"y": answer}, {"y": wanted}, {"y": kind}, temperature))


HALF, QUARTER = torch.tensor([[0.5, 0.5]]), torch.tensor([[0.25, 0.75]])
DIVERGENCE = 0.5 * math.log(0.5 / 0.25) + 0.5 * math.log(0.5 / 0.75)
"""Of the second from the first."""


def test_distributions_are_compared_by_their_divergence() -> None:
    assert loss("probabilities", QUARTER, HALF) == pytest.approx(DIVERGENCE, rel=1e-5)
    assert loss("logits", QUARTER.log() + 3, HALF.log()) == pytest.approx(DIVERGENCE, rel=1e-5)


def test_events_are_compared_by_both_outcomes() -> None:
    found = loss("events", torch.tensor([0.25]), torch.tensor([0.5]))
    assert found == pytest.approx(DIVERGENCE, rel=1e-5)


def test_numbers_are_compared_by_the_variance_that_is_lost() -> None:
    wanted = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert loss("numbers", torch.full((2, 2), 2.5), wanted) == pytest.approx(1.0)
    assert loss("numbers", wanted + 0.5, wanted) == pytest.approx(4 * 0.25 / 5)


@pytest.mark.parametrize("kind", ["probabilities", "logits", "events"])
def test_a_temperature_softens_and_keeps_the_size(kind: AnswerKind) -> None:
    """At a high temperature T² KL is half the variance of the logits' difference (Hinton, 2.1)."""
    raw = torch.tensor([[0.3, -0.2, 0.1]])
    other = torch.tensor([[0.1, 0.2, -0.1]])
    both = {
        "probabilities": (raw.softmax(-1), other.softmax(-1)),
        "logits": (raw, other),
        "events": (raw.sigmoid(), other.sigmoid()),
    }[kind]
    apart = raw - other
    if kind == "events":
        # Two outcomes, whose logits are d/2 and -d/2.
        wanted = float((apart / 2).square().mean() / 2)
    else:
        wanted = float(apart.var(correction=0) / 2)
    assert loss(kind, both[0], both[1], 20.0) == pytest.approx(wanted, rel=0.01)


@pytest.mark.parametrize("kind", ["probabilities", "events"])
def test_probabilities_of_zero_and_one_have_finite_losses_and_gradients(kind: AnswerKind) -> None:
    answer = torch.tensor([[0.0, 1.0]], requires_grad=True)
    found = answers_loss({"y": answer}, {"y": torch.tensor([[1.0, 0.0]])}, {"y": kind})
    found.backward()
    assert answer.grad is not None
    assert torch.isfinite(found)
    assert torch.isfinite(answer.grad).all()


def test_outputs_are_summed() -> None:
    answers = {"a": QUARTER, "b": torch.tensor([0.25])}
    wanted = {"a": HALF, "b": torch.tensor([0.5])}
    found = answers_loss(answers, wanted, {"a": "probabilities", "b": "events"})
    assert float(found) == pytest.approx(2 * DIVERGENCE, rel=1e-5)
