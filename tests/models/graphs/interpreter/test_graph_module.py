"""What of a graph is trained or replaced, what is refused, and where its numbers are."""

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper
from torch import Tensor, nn

from models.errors import InterpreterError
from models.graphs.interpreter import (
    GraphModule,
    RoundedNumbers,
    RoundedWeight,
    missing_operators,
)
from tests.models.graphs.interpreter.small_graphs import Case, in_torch, model_of, normal, whole
from tests.models.graphs.interpreter.torch_networks import (
    NETWORKS,
    Transformer,
    exported,
    made,
)


class Doubled(nn.Module):
    """Twice a parameter."""

    def __init__(self, value: Tensor) -> None:
        super().__init__()
        self.own = nn.Parameter(value / 2)

    def forward(self) -> Tensor:
        return 2 * self.own


def two_layers(opset: int = 17) -> onnx.ModelProto:
    """`relu(x a) b`, reshaped by whole numbers."""
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "b"], ["s"]),
        helper.make_node("Reshape", ["s", "size"], ["y"]),
    ]
    weights = [
        numpy_helper.from_array(normal(4, 6, seed=1), "a"),
        numpy_helper.from_array(normal(6, 2, seed=2), "b"),
        numpy_helper.from_array(whole(-1), "size"),
    ]
    return model_of(nodes, {"x": normal(3, 4)}, ["y"], weights, opset=opset)


X = torch.as_tensor(normal(3, 4))


def test_named_initializers_are_parameters_and_others_are_not() -> None:
    module = GraphModule(two_layers(), ["b"])
    assert [list(one.shape) for one in module.parameters()] == [[6, 2]]
    assert [list(one.shape) for one in module.buffers()] == [[4, 6]]
    assert list(module.trained()) == ["b"]
    np.testing.assert_array_equal(module.trained()["b"], normal(6, 2, seed=2))


def test_gradients_are_those_of_the_formula() -> None:
    module = GraphModule(two_layers(), ["a", "b"])
    module({"x": X})["y"].square().sum().backward()
    a, b = (
        torch.as_tensor(normal(*s, seed=n)).requires_grad_() for s, n in (((4, 6), 1), ((6, 2), 2))
    )
    (torch.relu(X @ a) @ b).square().sum().backward()
    for found, wanted in zip(module.parameters(), (a, b), strict=True):
        torch.testing.assert_close(found.grad, wanted.grad)


def test_a_module_stands_for_an_initializer() -> None:
    plain = GraphModule(two_layers())
    doubled = Doubled(torch.as_tensor(normal(4, 6, seed=1)))
    module = GraphModule(two_layers(), replaced={"a": doubled})
    torch.testing.assert_close(module({"x": X}), plain({"x": X}))
    module({"x": X})["y"].sum().backward()
    assert doubled.own.grad is not None
    assert module.replacements() == {"a": doubled}


def stored_integers() -> tuple[onnx.ModelProto, RoundedWeight]:
    """A product with a matrix that the file has as integers, and that matrix."""
    weight = RoundedWeight.nearest(torch.as_tensor(normal(4, 2, seed=3)), 4)
    numbers = weight.stored()["weight"]
    assert isinstance(numbers, RoundedNumbers)
    nodes = [
        helper.make_node("Cast", ["q"], ["real"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Mul", ["real", "scales"], ["w"]),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    weights = [
        numpy_helper.from_array(numbers.integers, "q"),
        numpy_helper.from_array(numbers.scales.astype(np.float32), "scales"),
    ]
    return model_of(nodes, {"x": normal(3, 4)}, ["y"], weights), weight


def test_a_module_stands_for_what_a_file_computes_of_integers() -> None:
    model, weight = stored_integers()
    module = GraphModule(model, replaced={"w": weight})
    torch.testing.assert_close(module({"x": X}), GraphModule(model)({"x": X}), atol=0, rtol=0)
    module({"x": X})["y"].sum().backward()
    assert weight.weight.grad is not None


def test_what_is_computed_of_inputs_cannot_be_replaced() -> None:
    model, weight = stored_integers()
    with pytest.raises(InterpreterError, match="y is not one constant"):
        GraphModule(model, replaced={"y": weight})


def test_what_is_trained_changes_the_answer_and_constants_are_not_kept_from_before() -> None:
    """A weight that is transposed before it is used is not a constant once it is trained."""
    nodes = [
        helper.make_node("Transpose", ["w"], ["t"]),
        helper.make_node("MatMul", ["x", "t"], ["y"]),
    ]
    weights = [numpy_helper.from_array(normal(2, 4), "w")]
    model = model_of(nodes, {"x": normal(3, 4)}, ["y"], weights)
    assert len(GraphModule(model).plan.steps) == 1
    module = GraphModule(model, ["w"])
    with torch.no_grad():
        next(module.parameters()).fill_(1.0)
    torch.testing.assert_close(module({"x": X})["y"], X.sum(1, keepdim=True).expand(3, 2))


def test_an_old_file_names_its_initializers_among_its_inputs() -> None:
    model = two_layers(opset=11)
    model.graph.input.append(helper.make_tensor_value_info("a", 1, [4, 6]))
    assert GraphModule(model).inputs == ("x",)


@pytest.mark.parametrize(
    ("trainable", "replaced", "said"),
    [
        (["c"], {}, "'c' is no initializer"),
        (["size"], {}, "size has whole numbers"),
        (["a"], {"a": Doubled(torch.zeros(4, 6))}, "both trained and replaced"),
        ([], {"a": Doubled(torch.zeros(6, 4))}, r"shape \[6, 4\]; it needs \[4, 6\]"),
        ([], {"size": Doubled(torch.zeros(1))}, "size has whole numbers"),
    ],
)
def test_names_that_cannot_be_trained_are_refused(
    trainable: list[str], replaced: dict[str, nn.Module], said: str
) -> None:
    with pytest.raises(InterpreterError, match=said):
        GraphModule(two_layers(), trainable, replaced)


def test_an_input_that_is_missing_is_named() -> None:
    with pytest.raises(InterpreterError, match="input 'x' is missing"):
        GraphModule(two_layers())({})


def test_a_node_that_torch_refuses_is_named() -> None:
    with pytest.raises(InterpreterError, match=r"MatMul .*torch does not compute it"):
        GraphModule(two_layers())({"x": torch.zeros(3, 5)})


W, R = normal(1, 12, 4), normal(1, 12, 3)


@pytest.mark.parametrize(
    ("case", "named"),
    [
        (Case("RandomNormalLike", [normal(3)]), "RandomNormalLike"),
        (Case("FusedConv", [normal(3)], domain="com.microsoft"), "com.microsoft.FusedConv"),
        (Case("Upsample", [normal(3)], opset=9), "Upsample"),
        (Case("Resize", [normal(3)], opset=10), "Resize of opset 10"),
        (Case("Cast", [normal(3)], {"to": onnx.TensorProto.UINT32}), "Cast to UINT32"),
        (Case("MaxPool", [normal(1, 1, 4, 4)], {"kernel_shape": [2, 2]}, outputs=2),
         "MaxPool with the output Indices"),
        (Case("MaxPool", [normal(1, 1, 9)],
              {"kernel_shape": [2], "dilations": [2], "auto_pad": "SAME_UPPER"}),
         "MaxPool with dilations and auto_pad"),
        (Case("BatchNormalization", [normal(3)] * 5, {"training_mode": 1}),
         "BatchNormalization in training"),
        (Case("LSTM", [normal(2, 1, 4), W, R, None, None, None, None, normal(1, 9)],
              {"hidden_size": 3}), r"LSTM with peepholes \(input P\)"),
        (Case("GRU", [normal(2, 1, 4), W, R], {"hidden_size": 3, "clip": 1.0}), "GRU with clip"),
        (Case("GRU", [normal(2, 1, 4), W, R], {"hidden_size": 3, "layout": 1}), "GRU with layout"),
        (Case("GRU", [normal(2, 1, 4), W, R], {"activations": ["Affine", "Tanh"]}),
         "GRU with activation affine"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_what_is_not_computed_is_refused_by_name(case: Case, named: str) -> None:
    model = case.model()
    assert missing_operators(model) == [named.replace("\\", "")]
    with pytest.raises(InterpreterError, match=named):
        GraphModule(model)


@pytest.mark.parametrize("name", NETWORKS)
def test_shapes_stay_on_the_cpu_where_the_numbers_are_elsewhere(name: str) -> None:
    """The meta device has no numbers: a shape that lay there could not be read."""
    make, shape = NETWORKS[name]
    model = exported(made(make), torch.zeros(shape))
    expected = in_torch(model, {"x": normal(*shape)})
    module = GraphModule(model).to("meta")
    found = module({"x": torch.zeros(shape, device="meta")})
    assert [list(one.shape) for one in found.values()] == [list(one.shape) for one in expected]
    assert {one.device.type for one in found.values()} == {"meta"}


def test_tokens_on_the_cpu_find_their_embeddings_elsewhere() -> None:
    tokens = torch.arange(14).reshape(2, 7) % 11
    module = GraphModule(exported(made(Transformer), tokens)).to("meta")
    (found,) = module({"x": tokens}).values()
    assert (list(found.shape), found.device.type) == ([2, 4], "meta")
