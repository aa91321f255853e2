"""Lengths of zero, and rows that see nothing, have gradients that are numbers."""

import numpy as np
import pytest
import torch

from models.graphs.interpreter import GraphModule
from tests.models.graphs.interpreter.small_graphs import (
    Case,
    assert_same,
    normal,
    real,
    whole,
)

ZEROS = np.zeros((2, 3), np.float32)


@pytest.mark.parametrize(
    "case",
    [
        Case("Sqrt", [ZEROS]),
        Case("Pow", [ZEROS, real(0.5)], held=[1]),
        Case("ReduceL2", [ZEROS, whole(1)], opset=18, held=[1]),
        Case("LpNormalization", [ZEROS]),
        Case("GlobalLpPool", [np.zeros((1, 2, 3), np.float32)]),
        Case("LpPool", [np.zeros((1, 1, 4), np.float32)], {"kernel_shape": [2]}, opset=18),
    ],
    ids=str,
)
def test_a_gradient_at_zero_is_finite(case: Case) -> None:
    if case.operator != "LpNormalization":
        assert_same(case.model(), case.feeds())
    x = torch.zeros(case.feeds()["x0"].shape, requires_grad=True)
    GraphModule(case.model())({"x0": x})["y0"].sum().backward()
    assert x.grad is not None
    assert torch.isfinite(x.grad).all()


def test_a_root_of_less_than_zero_is_no_number() -> None:
    case = Case("Sqrt", [real(-1, 0, 4)])
    assert_same(case.model(), case.feeds())


def test_a_row_that_sees_nothing_has_finite_gradients() -> None:
    inputs = [normal(1, 2, 3, 4), normal(1, 2, 5, 4), normal(1, 2, 5, 4)]
    mask = np.arange(3)[:, None] != np.ones(5)
    case = Case("Attention", [*inputs, mask], opset=23)
    given = {name: torch.as_tensor(value) for name, value in case.feeds().items()}
    learned = [given[name].requires_grad_() for name in ("x0", "x1", "x2")]
    GraphModule(case.model())(given)["y0"].square().sum().backward()
    for one in learned:
        assert one.grad is not None
        assert torch.isfinite(one.grad).all()
    assert learned[0].grad is not None
    assert (learned[0].grad[:, :, 1] == 0).all()
    assert (learned[0].grad[:, :, 0] != 0).any()
