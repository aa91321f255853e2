"""Fixed inputs, and the branches that are taken because of them."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from models.errors import GraphRefused
from models.graphs.documents import GraphLimits
from models.graphs.reading import (
    graph_facts,
    read_graph,
    refuse_buried_weights,
    with_fixed,
)
from tests.models.graphs.reading.graph_files import (
    answers,
    chosen_by_rate,
    model_of,
    port,
    small,
    tensor,
)

X = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)


@pytest.mark.parametrize(("rate", "scale"), [(16000, 2), (8000, 3)])
def test_a_fixed_input_picks_its_branch(rate: int, scale: int) -> None:
    model = read_graph(chosen_by_rate().SerializeToString())
    fixed = with_fixed(model, {"sr": rate})
    assert [entry.name for entry in fixed.graph.input] == ["x"]
    assert "If" not in graph_facts(fixed).operators
    (before,) = answers(model, {"x": X, "sr": np.array(rate)})
    (after,) = answers(fixed, {"x": X})
    np.testing.assert_array_equal(after, before)
    np.testing.assert_allclose(after, scale * X + np.maximum(X, 0), rtol=1e-6)
    # What is made is a model like any that was read.
    assert read_graph(fixed.SerializeToString()) == fixed


def test_names_of_a_branch_stay_apart_from_those_around_it() -> None:
    model = read_graph(chosen_by_rate().SerializeToString())
    fixed = with_fixed(model, {"sr": 16000})
    names = [node.name for node in fixed.graph.node if node.name]
    assert sorted(names) == ["product", "product_1", "scale"]
    # Only one branch is left, so that its weight keeps its name.
    assert [held.name for held in fixed.graph.initializer] == ["W", "scale"]


def nested() -> onnx.ModelProto:
    """An `If` within an `If`, beside another one that an input decides; names are used thrice."""

    def leaf(scale: float) -> onnx.GraphProto:
        node = helper.make_node("Mul", ["h", "k"], ["out"])
        return helper.make_graph([node], "leaf", [], [port("out")], [tensor("k", scale)])

    middle = helper.make_graph(
        [
            helper.make_node("Add", ["x", "x"], ["h"]),
            helper.make_node("Not", ["yes"], ["no"]),
            helper.make_node("If", ["no"], ["m"], then_branch=leaf(5), else_branch=leaf(7)),
        ],
        "middle",
        [],
        [port("m")],
    )
    other = helper.make_graph([helper.make_node("Neg", ["x"], ["m"])], "other", [], [port("m")])
    nodes = [
        helper.make_node("If", ["yes"], ["a"], then_branch=middle, else_branch=other),
        helper.make_node("Relu", ["a"], ["h2"]),
    ]
    again = helper.make_graph(
        [
            helper.make_node("Add", ["h2", "h2"], ["h"]),
            helper.make_node("Mul", ["h", "k"], ["out"]),
        ],
        "again",
        [],
        [port("out")],
        [tensor("k", 11)],
    )
    keep = helper.make_graph(
        [helper.make_node("Identity", ["a"], ["out"])], "keep", [], [port("out")]
    )
    nodes.append(helper.make_node("If", ["ask"], ["y"], then_branch=again, else_branch=keep))
    inputs = [port("x"), port("yes", (), TensorProto.BOOL), port("ask", (), TensorProto.BOOL)]
    return model_of(nodes, inputs=inputs)


@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize("yes", [True, False])
def test_an_if_within_an_if_is_taken_too_and_others_stay(yes: bool, asked: bool) -> None:
    model = read_graph(nested().SerializeToString())
    fixed = with_fixed(model, {"yes": yes})
    assert graph_facts(fixed).operators["If"] == 1
    read_graph(fixed.SerializeToString())
    ask = np.array(asked)
    (before,) = answers(model, {"x": X, "yes": np.array(yes), "ask": ask})
    np.testing.assert_array_equal(answers(fixed, {"x": X, "ask": ask})[0], before)
    # With both fixed no body is left.
    both = with_fixed(model, {"yes": yes, "ask": asked})
    assert "If" not in graph_facts(both).operators
    np.testing.assert_array_equal(answers(both, {"x": X})[0], before)


def test_an_if_on_constants_is_taken_without_a_fixed_input() -> None:
    model = chosen_by_rate()
    del model.graph.input[1]
    model.graph.initializer.append(tensor("sr", 8000, np.int64))
    taken = with_fixed(read_graph(model.SerializeToString()), {})
    assert "If" not in graph_facts(taken).operators


def test_weights_in_bodies_are_refused_until_the_input_is_fixed() -> None:
    model = read_graph(chosen_by_rate().SerializeToString())
    facts = graph_facts(model)
    # The rate is the one number outside.
    assert facts.top_level_share == pytest.approx(8 / (8 + 2 * 68))
    with pytest.raises(GraphRefused, match=r"^6 % .* in bodies of If, .*; 50 % are needed"):
        refuse_buried_weights(model)
    refuse_buried_weights(model, GraphLimits(top_level_share=0.05))
    refuse_buried_weights(with_fixed(model, {"sr": 16000}))


def test_a_scalar_fills_an_input_and_an_array_has_its_shape() -> None:
    nodes = [helper.make_node("Add", ["x", "state"], ["y"])]
    model = model_of(nodes, inputs=[port("x"), port("state", [1, 4])])
    for value, expected in ((2, X + 2), ([[1, 2, 3, 4]], X + np.arange(1, 5))):
        fixed = with_fixed(model, {"state": value})
        assert list(fixed.graph.initializer[0].dims) == [1, 4]
        np.testing.assert_allclose(answers(fixed, {"x": X})[0], expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("fixed", "words"),
    [
        ({"rate": 1}, "no input 'rate' to fix; it has 'x', 'sr'"),
        ({"sr": 0.5}, "'sr' holds a value that is no int64"),
        ({"sr": [1, 2]}, r"'sr' has the shape \[2\]; the model asks for \[\]"),
        ({"sr": [[1], [1, 2]]}, "'sr' has rows of unequal lengths"),
        ({"sr": "16000"}, "'sr' holds something else than numbers"),
        ({"sr": 2**70}, "'sr' holds something else than numbers"),
        ({"x": 1}, r"'x' has the shape \[\]; the model asks for \['b', 4\]"),
        ({"x": np.ones((2, 5))}, r"'x' has the shape \[2, 5\]"),
        ({"x": np.full((1, 4), np.nan)}, "'x' holds a number that is not finite"),
        ({"x": np.full((1, 4), 1e39)}, "'x' holds a number that is not finite"),
        ({"x": np.ones((1, 4)), "sr": 1}, "all inputs are fixed"),
    ],
)
def test_values_that_do_not_fit_are_refused(fixed, words: str) -> None:
    with pytest.raises(GraphRefused, match=words):
        with_fixed(chosen_by_rate(), fixed)


def test_a_scalar_cannot_fill_more_than_its_limit() -> None:
    nodes = [helper.make_node("Add", ["x", "s"], ["y"])]
    model = model_of(nodes, inputs=[port("x"), port("s", [100_000, 100_000])])
    with pytest.raises(GraphRefused, match="'s' takes 40000000000 bytes; allowed are 16777216"):
        with_fixed(model, {"s": 0})


def test_a_model_without_an_if_stays_as_it_is() -> None:
    assert with_fixed(small(), {}) == small()


def by_size(shape: tuple[int | str, ...], place: int) -> onnx.ModelProto:
    """y = 2 x if the state has 2 rows, else x."""

    def branch(*names: str) -> onnx.GraphProto:
        return helper.make_graph(
            [helper.make_node("Add", list(names), ["out"])], "b", [], [port("out")]
        )

    nodes = [
        helper.make_node("Shape", ["state"], ["sizes"]),
        helper.make_node("Constant", [], ["place"], value=tensor("", place, np.int64)),
        helper.make_node("Gather", ["sizes", "place"], ["rows"]),
        helper.make_node("Equal", ["rows", "two"], ["is_two"]),
        helper.make_node(
            "If", ["is_two"], ["y"], then_branch=branch("x", "x"), else_branch=branch("x", "zero")
        ),
    ]
    tensors = [tensor("two", 2, np.int64), tensor("zero", 0.0)]
    return model_of(nodes, inputs=[port("x"), port("state", shape)], tensors=tensors)


@pytest.mark.parametrize(
    ("shape", "place", "factor"),
    [((2, "b", 4), 0, 2), ((3, "b", 4), 0, 1), ((1, "b", 2), -1, 2), ((4, 5), 1, 1)],
)
def test_an_if_on_a_size_that_the_file_gives_is_taken(shape, place: int, factor: int) -> None:
    model = read_graph(by_size(shape, place).SerializeToString())
    taken = with_fixed(model, {})
    assert set(graph_facts(taken).operators) == {"Add", "Identity"}
    state = np.zeros([size if isinstance(size, int) else 3 for size in shape], np.float32)
    for one in (model, taken):
        np.testing.assert_array_equal(answers(one, {"x": X, "state": state})[0], factor * X)


@pytest.mark.parametrize(("shape", "place"), [((2, "b", 4), 1), (("b", 2), 0), ((2, "b"), 5)])
def test_an_if_on_a_size_that_is_open_stays(shape, place: int) -> None:
    model = read_graph(by_size(shape, place).SerializeToString())
    assert graph_facts(with_fixed(model, {})).operators["If"] == 1


def test_an_if_without_its_branch_is_refused() -> None:
    model = chosen_by_rate()
    attributes = model.graph.node[3].attribute
    del attributes[next(k for k, held in enumerate(attributes) if held.name == "then_branch")]
    assert with_fixed(model, {"sr": 8000})
    with pytest.raises(GraphRefused, match="a node If '' has no then_branch"):
        with_fixed(model, {"sr": 16000})
