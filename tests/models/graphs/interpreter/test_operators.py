"""Every operator computes what onnxruntime computes."""

import pytest

from models.graphs.interpreter import missing_operators
from models.graphs.interpreter.operators import OPERATORS
from tests.models.graphs.interpreter.operator_cases import CASES
from tests.models.graphs.interpreter.small_graphs import Case, assert_same

ELSEWHERE = {
    "ConvInteger",
    "DynamicQuantizeLinear",
    "If",
    "Loop",
    "MatMulInteger",
    "QuantizeLinear",
    "Scan",
}
"""Operators that files beside this one try."""


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_node_gives_what_the_runtime_gives(case: Case) -> None:
    model = case.model()
    assert missing_operators(model) == []
    assert_same(model, case.feeds())


def test_every_operator_is_tried() -> None:
    assert {case.operator for case in CASES} | ELSEWHERE == set(OPERATORS.names())
