"""What is trained, by which loss, and what is not."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import helper

from models.graphs.interpreter import AnswerKind, GraphModule
from models.graphs.interpreter.operators import OPERATORS
from search.graphs.evaluator import Evaluator
from search.graphs.fine_tuning import untrainable
from search.graphs.fine_tuning.answer_kinds import answer_kinds
from search.graphs.fine_tuning.untrainable import unequal
from search.graphs.metrics import (
    Agreement,
    AnyMetric,
    Cosine,
    CtcString,
    Kl,
    LabelAccuracy,
    RelativeError,
)
from tests.search.graphs.small_networks import classifier, classifier_samples, evaluator


def with_node(node: onnx.NodeProto) -> Evaluator:
    """The small classifier with one node more, between its inputs and the first product."""
    model = classifier()
    nodes = [node, *model.graph.node]
    nodes[1].input[0] = node.output[0]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return Evaluator(model.SerializeToString(), model, classifier_samples(model))


def test_a_network_of_known_operators_is_trainable() -> None:
    assert untrainable(evaluator()) is None


def test_a_missing_operator_is_named() -> None:
    name = "BlackmanWindow"
    assert name not in OPERATORS.names()
    held = with_node(helper.make_node("Identity", ["x"], ["x2"]))
    held.model.graph.node.append(helper.make_node(name, ["n"], ["unread"]))
    assert untrainable(held) == f"torch does not compute {name}"


def test_answers_that_differ_are_told_with_the_operator() -> None:
    """The first weight is another one for torch than it is for the runtime."""
    held = with_node(helper.make_node("Identity", ["x"], ["x2"]))
    module = GraphModule(held.model, ["w1"])
    with torch.no_grad():
        next(module.parameters()).mul_(1.1)
    feeds = held.samples.feeds(held.choosing.places)
    found = unequal(held.model, module, feeds)
    assert found is not None
    assert found.startswith("torch computes something else: output y differs by")
    assert "the first node that does is MatMul" in found


ROWS = np.array([[0.25, 0.75], [0.5, 0.5]], np.float32)
LOGITS = np.array([[2.0, -1.0], [0.5, 7.0]], np.float32)


@pytest.mark.parametrize(
    ("metric", "answer", "kind"),
    [
        (Kl(), ROWS, "probabilities"),
        (Kl(logits=True), LOGITS, "logits"),
        (Kl(column=True), ROWS, "events"),
        (Kl(), ROWS[:, :1], "events"),
        (Kl(logits=True, column=True), LOGITS, "numbers"),
        (Kl(), ROWS[0, 0], "events"),
        (Agreement(), ROWS, "probabilities"),
        (Agreement(), LOGITS, "logits"),
        (Agreement(column=True), ROWS, "events"),
        (Agreement(column=True, logits=True), LOGITS, "numbers"),
        (LabelAccuracy(), LOGITS, "logits"),
        (CtcString(), LOGITS, "logits"),
        (CtcString(), ROWS, "probabilities"),
        (RelativeError(), ROWS, "numbers"),
        (Cosine(), ROWS, "numbers"),
    ],
)
def test_the_loss_follows_from_the_metric_and_the_answers(
    metric: AnyMetric, answer: Any, kind: AnswerKind
) -> None:
    answers: Sequence[Any] = [np.asarray(answer)] * 2
    whole = [np.array([1, 2])] * 2
    assert answer_kinds(metric, {"y": answers, "classes": whole}) == {"y": kind}


def test_whole_numbers_alone_are_not_trained() -> None:
    model = classifier()
    model.graph.node.append(helper.make_node("ArgMax", ["y"], ["k"], axis=-1, keepdims=1))
    model.graph.output.append(helper.make_tensor_value_info("k", onnx.TensorProto.INT64, ["N", 1]))
    held = Evaluator(
        model.SerializeToString(),
        model,
        classifier_samples(model),
        outputs=["k"],
        metric=RelativeError(),
    )
    assert untrainable(held) == "the outputs k are whole numbers without a gradient"
