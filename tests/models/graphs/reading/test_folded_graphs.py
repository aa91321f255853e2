"""Folded constants, and the facts of networks that torch's own exporter writes."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import GraphProto, TensorProto, helper

from models.errors import GraphRefused
from models.graphs.documents import GraphFacts, GraphLimits, GraphPort
from models.graphs.reading import folded, graph_facts, read_graph
from tests.models.graphs.reading.graph_files import (
    Classifier,
    Encoder,
    Tagger,
    answers,
    exported,
    large_constant,
    model_of,
    port,
    small,
    tensor,
)


def classifier() -> bytes:
    torch.manual_seed(0)
    axes = {"image": {0: "batch"}}
    names = {"input_names": ["image"], "output_names": ["p"]}
    return exported(Classifier(), torch.randn(2, 1, 12, 12), dynamic_axes=axes, **names)


def tagger() -> bytes:
    torch.manual_seed(0)
    axes = {"tokens": {0: "batch", 1: "steps"}}
    names = {"input_names": ["tokens"], "output_names": ["tags"]}
    return exported(Tagger(), torch.randint(0, 20, (2, 7)), dynamic_axes=axes, **names)


def encoder() -> bytes:
    torch.manual_seed(0)
    names = {"input_names": ["x"], "output_names": ["y"]}
    return exported(Encoder(), torch.randn(2, 7, 16), **names)


@pytest.mark.parametrize(
    ("make", "feeds"),
    [
        (classifier, {"image": np.random.default_rng(1).standard_normal((5, 1, 12, 12))}),
        (tagger, {"tokens": np.random.default_rng(1).integers(0, 20, (3, 9))}),
        (encoder, {"x": np.random.default_rng(1).standard_normal((2, 7, 16))}),
    ],
)
def test_folding_keeps_the_answers_and_what_users_know(
    make: Callable[[], bytes], feeds, tmp_path: Path
) -> None:
    model = read_graph(make())
    model.metadata_props.add(key="labels", value="a,b")
    made = folded(model, tmp_path)
    assert made.kept_because is None
    assert not list(tmp_path.iterdir())
    assert made.model.graph.input == model.graph.input
    assert made.model.graph.output == model.graph.output
    assert made.model.metadata_props == model.metadata_props
    assert made.model.producer_name == "pytorch"
    assert list(made.model.opset_import) == list(model.opset_import)
    assert "Constant" not in graph_facts(made.model).operators
    # What is made is a model like any that was read.
    assert read_graph(made.model.SerializeToString()) == made.model
    typed = {
        name: value.astype(np.int64 if value.dtype.kind == "i" else np.float32)
        for name, value in feeds.items()
    }
    for before, after in zip(answers(model, typed), answers(made.model, typed), strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-6)


def test_facts_of_a_convolutional_network(tmp_path: Path) -> None:
    facts = graph_facts(read_graph(classifier()))
    assert facts.inputs == (GraphPort(name="image", type="float32", shape=("batch", 1, 12, 12)),)
    assert facts.outputs == (GraphPort(name="p", type="float32", shape=("batch", 5)),)
    assert facts.operators["Conv"] == 2
    # Convolutions and the head, with biases; the batch norm is merged by the exporter.
    assert facts.weight_bytes == 4 * (8 * 9 + 8 + 8 * 9 + 8 + 8 * 5 + 5)
    assert facts.top_level_share == 1.0
    assert GraphFacts.model_validate_json(facts.model_dump_json()) == facts


def test_facts_of_a_recurrent_network(tmp_path: Path) -> None:
    facts = graph_facts(folded(read_graph(tagger()), tmp_path).model)
    assert facts.inputs[0] == GraphPort(name="tokens", type="int64", shape=("batch", "steps"))
    assert facts.outputs[0].shape == ("batch", "steps", 3)
    assert facts.operators["GRU"] == 2
    parameters = sum(parameter.numel() for parameter in Tagger().parameters())
    # Beside them are only a few shapes.
    assert 4 * parameters <= facts.weight_bytes <= 4 * parameters + 200


def test_facts_of_a_transformer(tmp_path: Path) -> None:
    facts = graph_facts(folded(read_graph(encoder()), tmp_path).model)
    assert facts.outputs == (GraphPort(name="y", type="float32", shape=(2, 7, 16)),)
    assert facts.operators["Softmax"] == 2
    assert facts.operators["LayerNormalization"] == 4


def test_sizes_that_are_not_known_have_no_number() -> None:
    inputs = [port("x", (None, -1, 4)), port("z", None)]
    model = model_of([helper.make_node("Add", ["x", "z"], ["y"])], inputs=inputs)
    facts = graph_facts(read_graph(model.SerializeToString()))
    assert [entry.shape for entry in facts.inputs] == [(None, None, 4), None]


def test_a_batch_norm_is_merged(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "W"], ["h"]),
        helper.make_node("BatchNormalization", ["h", "s", "b", "m", "v"], ["y"]),
    ]
    drawn = np.random.default_rng(0).standard_normal((6, 3, 3, 3))
    vectors = [tensor(name, np.linspace(0.5, 2, 6)) for name in "sbmv"]
    shape = ("batch", 3, "height", "width")
    model = model_of(
        nodes,
        inputs=[port("x", shape)],
        outputs=[port("y", ("batch", 6, "h", "w"))],
        tensors=[tensor("W", drawn), *vectors],
    )
    made = folded(model, tmp_path)
    assert made.kept_because is None
    assert [node.op_type for node in made.model.graph.node] == ["Conv"]


HALF = TensorProto.FLOAT16


def halves(cast_to: int) -> onnx.ModelProto:
    """Two products in half precision, the second in a branch, and a cast of the network's own."""
    drawn = np.random.default_rng(0).standard_normal((2, 4, 4)) / 2
    branches = [
        helper.make_graph(
            [helper.make_node("MatMul", ["b", "V"], [f"{name}_y"]), *more],
            name,
            [],
            [port(f"{name}_{'z' if more else 'y'}", None, HALF)],
        )
        for name, more in (
            ("low", []),
            ("high", [helper.make_node("Relu", ["high_y"], ["high_z"])]),
        )
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "W"], ["a"], name="product"),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Cast", ["b"], ["wide"], to=cast_to),
        helper.make_node("ReduceSum", ["wide"], ["sum"], keepdims=0),
        helper.make_node("Greater", ["sum", "limit"], ["is_high"]),
        helper.make_node(
            "If", ["is_high"], ["y"], then_branch=branches[1], else_branch=branches[0]
        ),
    ]
    limit = helper.make_tensor("limit", cast_to, [], [2.0])
    weights = [tensor(name, one, np.float16) for name, one in zip("WV", drawn, strict=True)]
    return model_of(
        nodes,
        inputs=[port("x", element=HALF)],
        outputs=[port("y", element=HALF)],
        tensors=[*weights, limit],
    )


@pytest.mark.parametrize("cast_to", [TensorProto.FLOAT, TensorProto.DOUBLE])
def test_a_network_in_half_precision_stays_in_it(cast_to: int, tmp_path: Path) -> None:
    """onnxruntime computes it in single precision on the CPU, between casts of its own.

    It leaves out casts to single precision that the network has, too.
    """
    model = halves(cast_to)
    made = folded(model, tmp_path)
    assert made.kept_because is None
    assert graph_facts(made.model).operators == graph_facts(model).operators
    assert [node.output for node in made.model.graph.node] == [
        node.output for node in model.graph.node
    ]
    kinds = {one.name: one.data_type for one in made.model.graph.initializer}
    assert kinds == {"W": HALF, "V": HALF, "limit": cast_to}
    feed = {"x": np.random.default_rng(2).standard_normal((3, 4)).astype(np.float16)}
    for found, expected in zip(answers(made.model, feed), answers(model, feed), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_a_model_that_no_random_input_fits_stays_as_it_is(tmp_path: Path) -> None:
    picky = model_of(
        [helper.make_node("Add", ["x", "c"], ["a"]), helper.make_node("Add", ["a", "d"], ["y"])],
        inputs=[port("x", ("b", "n"))],
        outputs=[port("y", ("b", "n"))],
        tensors=[tensor("c", np.ones(37)), tensor("d", np.ones(37))],
    )
    # One of the sizes that are tried is 1, which is spread over 37.
    assert folded(picky, tmp_path).kept_because is None
    picky.graph.node[0].op_type = "MatMul"
    picky.graph.initializer[0].CopyFrom(tensor("c", np.eye(37)))
    made = folded(picky, tmp_path)
    assert made.kept_because == "the model runs on none of the random inputs that were tried"
    assert made.model == picky
    feeds = [{"x": np.ones((3, 37), dtype=np.float32)}]
    assert folded(picky, tmp_path, feeds=feeds).kept_because is None
    with pytest.raises(GraphRefused, match="does not run the graph"):
        folded(picky, tmp_path, feeds=[{"x": np.ones((3, 38), dtype=np.float32)}])


def test_constants_that_would_outgrow_the_limit_stay_as_they_are(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("ConstantOfShape", ["s"], ["c"]),
        helper.make_node("Add", ["c", "one"], ["d"]),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    model = model_of(
        nodes,
        inputs=[port("x", ("b", 500))],
        outputs=[port("y", ("b", 500))],
        tensors=[tensor("s", [500, 500], np.int64), tensor("one", 1.0)],
    )
    whole = folded(model, tmp_path)
    assert whole.model.ByteSize() > 4 * 500 * 500
    small_limit = GraphLimits(folded_bytes=500_000)
    made = folded(model, tmp_path, small_limit)
    assert made.model == model
    assert "bytes; allowed are 500000" in str(made.kept_because)
    assert not list(tmp_path.iterdir())


def test_what_the_runtime_does_not_load_is_refused(tmp_path: Path) -> None:
    model = small()
    model.graph.node[0].input.append("W")
    with pytest.raises(GraphRefused, match="onnxruntime does not load the graph: "):
        folded(read_graph(model.SerializeToString()), tmp_path)


def test_whole_numbers_and_masks_are_drawn_as_such(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Gather", ["table", "tokens"], ["h"]),
        helper.make_node("Where", ["mask", "h", "zero"], ["y"]),
    ]
    model = model_of(
        nodes,
        inputs=[
            port("tokens", ("b", "t"), TensorProto.INT32),
            port("mask", ("b", "t", 1), TensorProto.BOOL),
        ],
        outputs=[port("y", ("b", "t", 3))],
        tensors=[tensor("table", np.ones((2, 3))), tensor("zero", 0.0)],
    )
    assert folded(model, tmp_path).kept_because is None


def test_weights_that_would_move_into_bodies_stay_outside(tmp_path: Path) -> None:
    def branch(operator: str) -> GraphProto:
        nodes = [
            helper.make_node("Transpose", ["W"], ["turned"]),
            helper.make_node("MatMul", ["x", "turned"], ["h"]),
            helper.make_node(operator, ["h"], ["out"]),
        ]
        return helper.make_graph(nodes, "b", [], [port("out")])

    chosen = helper.make_node(
        "If", ["yes"], ["y"], then_branch=branch("Relu"), else_branch=branch("Abs")
    )
    inputs = [port("x"), port("yes", (), TensorProto.BOOL)]
    weights = tensor("W", np.random.default_rng(0).standard_normal((4, 4)))
    model = model_of([chosen], inputs=inputs, tensors=[weights])
    made = folded(model, tmp_path)
    assert made.model == model
    assert "0 % of the weights' bytes are outside of bodies" in str(made.kept_because)


def test_a_huge_constant_is_no_part_of_reading() -> None:
    data = large_constant().SerializeToString()
    assert len(data) < 200
    assert graph_facts(read_graph(data)).nodes == 3
