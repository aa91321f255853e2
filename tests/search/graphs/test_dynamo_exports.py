"""Torch's newer exporter writes other nodes; the layers and the answers are the same."""

import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from models.graphs.layers import find_layers
from models.graphs.sessions import GraphSession
from search.uploads.graph_uploads import read_graph_file
from tests.search.graphs.test_torch_networks import KINDS
from tests.torch_networks import NETWORKS, export, inputs, network


def traced(name: str, path: Path) -> bytes:
    """What `torch.onnx.export(dynamo=True)` writes, of any number of samples."""
    example = torch.from_numpy(inputs(name, 3)["x"])
    with warnings.catch_warnings():
        # It warns of operators of packages that are not installed, and of its own future.
        warnings.simplefilter("ignore")
        made = torch.onnx.export(
            network(name),
            (example,),
            dynamo=True,
            verbose=False,
            input_names=["x"],
            output_names=[*NETWORKS[name].outputs],
            dynamic_shapes=({0: torch.export.Dim("N")},),
        )
    assert made is not None
    made.save(path, external_data=False)
    return path.read_bytes()


@pytest.mark.parametrize("name", NETWORKS)
def test_a_traced_network_has_the_same_layers_and_answers(name: str, tmp_path: Path) -> None:
    pytest.importorskip(
        "onnxscript", reason="onnxscript is not installed, with which torch exports what it traces"
    )
    content = traced(name, tmp_path / "network.onnx")
    read = read_graph_file(tmp_path / "network.onnx", out=tmp_path / "read.onnx")
    assert read.kept_because is None
    model = onnx.load(tmp_path / "read.onnx")
    assert Counter(layer.role.kind for layer in find_layers(model)) == KINDS[name]
    feed = inputs(name, 7, seed=3)
    wanted, *found = (
        GraphSession(one).run(feed) for one in (export(name), content, model.SerializeToString())
    )
    for answers in found:
        assert [*answers] == [*wanted]
        for output, answer in answers.items():
            np.testing.assert_allclose(answer, wanted[output], atol=1e-4, rtol=1e-4)
