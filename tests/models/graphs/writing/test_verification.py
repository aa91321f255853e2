from collections import Counter

import numpy as np
import pytest
from onnx import TensorProto, helper

from models.errors import ExportError
from models.graphs.fits import Dense, LayerFitter, LowRank
from models.graphs.layers import find_layers
from models.graphs.sessions import GraphSession
from models.graphs.writing import FreshRun, fresh_run, verify, written
from tests.models.graphs.layer_graphs import GRAPHS, Array, Small


@pytest.fixture(scope="module")
def small() -> Small:
    return GRAPHS["matmul to a bias"]()


@pytest.fixture(scope="module")
def original(small: Small) -> FreshRun:
    return fresh_run(small.model().SerializeToString(), small.feeds(2))


def _file(small: Small, choice: Dense | LowRank) -> bytes:
    model = small.model()
    layers = find_layers(model)
    fits = {layer.name: LayerFitter(layer).fit(choice) for layer in layers}
    return written(model, layers, fits).SerializeToString()


def _here(content: bytes, small: Small) -> list[dict[str, Array]]:
    session = GraphSession(content)
    return [session.run(feed) for feed in small.feeds(2)]


def test_a_fresh_process_answers_as_this_one(small: Small, original: FreshRun) -> None:
    wanted = _here(small.model().SerializeToString(), small)
    assert len(original.answers) == 2
    for row, other in zip(wanted, original.answers, strict=True):
        assert list(other) == ["y"]
        assert np.array_equal(row["y"], other["y"])
    assert (
        original.node_types == Counter({"MatMul": 1, "Add": 1})
        or sum(original.node_types.values()) == 1
    )


def test_a_file_that_answers_as_expected_is_let_pass(small: Small, original: FreshRun) -> None:
    content = _file(small, Dense(bits=4))
    run = verify(content, small.feeds(2), _here(content, small), node_types=original.node_types)
    assert run.node_types == original.node_types


def test_other_answers_are_refused(small: Small, original: FreshRun) -> None:
    with pytest.raises(ExportError, match="y of sample 0 differs by"):
        verify(_file(small, Dense(bits=4)), small.feeds(2), original.answers)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"y": np.zeros((1, 2), np.float32)}, r"expected is shape \[1, 2\]"),
        ({"z": np.zeros((1, 2), np.float32)}, "z of sample 0 is missing"),
        ({"y": np.full((5, 37), np.nan, np.float32)}, "differs by nan"),
    ],
)
def test_wrong_outputs_are_named(small: Small, wrong: dict[str, Array], said: str) -> None:
    content = small.model().SerializeToString()
    with pytest.raises(ExportError, match=said):
        verify(content, small.feeds(1), [wrong])


def test_other_nodes_are_refused(small: Small, original: FreshRun) -> None:
    content = _file(small, LowRank(rank=5, run=True))
    with pytest.raises(ExportError, match="runs other nodes than the original"):
        verify(content, small.feeds(2), _here(content, small), node_types=original.node_types)


def test_whole_numbers_have_to_be_the_same() -> None:
    small = GRAPHS["embedding"]()
    content = small.model().SerializeToString()
    rows = _here(content, small)
    wanted = [{"y": (1000 * row["y"]).astype(np.int64)} for row in rows]
    with pytest.raises(ExportError, match=r"differs in \d+ entries"):
        verify(content, small.feeds(2), wanted)


def test_what_a_failed_process_said_is_quoted(small: Small) -> None:
    with pytest.raises(ExportError, match="does not load"):
        fresh_run(b"no model", small.feeds(1))
    with pytest.raises(ExportError, match="does not run the graph on"):
        fresh_run(small.model().SerializeToString(), [{"x": np.zeros((2, 5), np.float32)}])


def test_a_process_that_takes_too_long_is_ended(small: Small) -> None:
    with pytest.raises(ExportError, match=r"within 0\.01 s"):
        fresh_run(small.model().SerializeToString(), small.feeds(1), timeout_seconds=0.01)


def test_names_that_numpy_would_take_for_one_another_stay_apart() -> None:
    nodes = [
        helper.make_node("Neg", ["x"], ["y"]),
        helper.make_node("Abs", ["x.npy"], ["y.npy"]),
    ]
    inputs, outputs = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in names]
        for names in (("x", "x.npy"), ("y", "y.npy"))
    )
    model = helper.make_model(
        helper.make_graph(nodes, "g", inputs, outputs),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    feed = {
        "x": np.array([1, 2, 3], np.float32),
        "x.npy": np.array([-4, 5, -6], np.float32),
    }
    (found,) = fresh_run(model.SerializeToString(), [feed]).answers
    assert list(found) == ["y", "y.npy"]
    assert [list(value) for value in found.values()] == [[-1, -2, -3], [4, 5, 6]]
