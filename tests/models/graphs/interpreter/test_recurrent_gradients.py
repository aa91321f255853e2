"""Gradients of recurrent nodes are those of finite differences, by kernels and step by step."""

import numpy as np
import pytest
import torch
from torch import Tensor

from models.graphs.interpreter.node import Node
from models.graphs.interpreter.operators import OPERATORS
from tests.models.graphs.interpreter.sequence_cases import recurrent
from tests.models.graphs.interpreter.small_graphs import Case


@pytest.mark.parametrize("case", recurrent(), ids=str)
def test_gradients_are_those_of_finite_differences(case: Case) -> None:
    proto = case.model().graph.node[0]
    node = Node(proto, case.opset)
    operator = OPERATORS.find(case.operator, case.opset)
    assert operator is not None
    given = [None if x is None else torch.as_tensor(np.array(x)) for x in case.inputs]
    # In double precision, where a difference of 1e-6 still has eight digits.
    numbers = [
        None if x is None else x.double().requires_grad_() if x.is_floating_point() else x
        for x in given
    ]
    free = [x for x in numbers if x is not None and x.requires_grad]

    def outputs(*values: Tensor) -> tuple[Tensor, ...]:
        replaced = iter(values)
        inputs = [next(replaced) if x is not None and x.requires_grad else x for x in numbers]
        found = operator.compute(node, *inputs)
        assert isinstance(found, tuple)
        return found

    # Some activations have a corner, which none of these numbers is near.
    assert torch.autograd.gradcheck(outputs, free, eps=1e-6, atol=1e-6, fast_mode=True)
