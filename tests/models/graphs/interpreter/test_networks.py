"""Networks that torch exports run as they do in onnxruntime, folded or not."""

from pathlib import Path

import pytest
import torch

from models.graphs.interpreter import GraphModule, equal_to_runtime, missing_operators
from tests.models.graphs.interpreter.torch_networks import (
    NETWORKS,
    ProjectedLstm,
    Transformer,
    exported,
    feeds,
    folded,
    made,
)


@pytest.mark.parametrize("opset", [11, 17, 20])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_runs_as_in_the_runtime(name: str, opset: int) -> None:
    make, shape = NETWORKS[name]
    model = exported(made(make), torch.zeros(shape), opset)
    assert missing_operators(model) == []
    found = equal_to_runtime(model, GraphModule(model), feeds(shape), 1e-5)
    assert found.equal, found.sentence()


@pytest.mark.parametrize("name", NETWORKS)
def test_a_folded_network_runs_as_in_the_runtime(name: str, tmp_path: Path) -> None:
    make, shape = NETWORKS[name]
    model = folded(exported(made(make), torch.zeros(shape)), str(tmp_path / "folded.onnx"))
    found = equal_to_runtime(model, GraphModule(model), feeds(shape), 1e-5)
    assert found.equal, found.sentence()


@pytest.mark.parametrize("opset", [14, 17, 20])
def test_a_transformer_runs_as_in_the_runtime(opset: int, tmp_path: Path) -> None:
    tokens = torch.arange(14).reshape(2, 7) % 11
    model = exported(made(Transformer), tokens, opset)
    for one in (model, folded(model, str(tmp_path / "folded.onnx"))):
        feed = {"x": tokens.numpy()}
        found = equal_to_runtime(one, GraphModule(one), [feed], 1e-5)
        assert found.equal, found.sentence()


def test_answers_are_those_of_the_network_that_was_exported() -> None:
    make, shape = NETWORKS["crnn"]
    network, x = made(make), torch.randn(shape)
    module = GraphModule(exported(network, x))
    with torch.no_grad():
        (found,) = module({"x": x}).values()
        torch.testing.assert_close(found, network(x), atol=1e-5, rtol=1e-5)


def test_torch_itself_writes_no_file_of_a_projected_lstm() -> None:
    with pytest.raises(Exception, match="proj"):
        exported(made(ProjectedLstm), torch.zeros(3, 9, 6))
