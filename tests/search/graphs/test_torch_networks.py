"""Nine networks of plain torch, from the file that torch writes to a smaller one."""

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from models.graphs.layers import find_layers
from models.graphs.sessions import GraphSession
from search.graphs.evaluator import Evaluator, HandedOut, handed_out, probed_offers
from search.graphs.front import Proposals
from search.graphs.network_data import network_samples
from search.graphs.picks import Measured
from search.uploads.graph_uploads import GraphFile, read_graph_file
from tests.torch_networks import NETWORKS, STEPS, ProjectedLstm, export, inputs, network

MUTATIONS = 10
SMALLER, LOST = 3.3, 0.01
"""How many times fewer bytes the layers of a file take that loses so little."""

KINDS: dict[str, dict[str, int]] = {
    "crnn": {"convolution": 1, "recurrent_input": 1, "recurrent_state": 1, "product": 1},
    "two_headed_lstm": {"recurrent_input": 1, "recurrent_state": 1, "product": 2},
    "normed_lstm": {"recurrent_input": 1, "recurrent_state": 1, "product": 1},
    "two_grus": {"recurrent_input": 2, "recurrent_state": 2, "product": 1},
    "tapered_mlp": {"product": 4},
    "cnn": {"convolution": 2, "grouped_convolution": 1, "product": 1},
    "transformer": {"embedding": 1, "product": 5, "other": 1},
    "cell_loop": {"product": 3},
    "projected_lstm": {"product": 4},
}
"""The layers of each by their roles; masks and biases are none, a table of positions is one."""


def _read(name: str, folder: Path) -> tuple[GraphFile, onnx.ModelProto]:
    path, out = folder / "network.onnx", folder / "read.onnx"
    path.write_bytes(export(name))
    found = read_graph_file(path, out=out)
    return found, onnx.load(out)


def _front(held: Evaluator, proposals: Proposals) -> list[Measured]:
    for number in range(len(proposals.first) + MUTATIONS):
        picks = proposals.ask(number)
        assert picks is not None
        proposals.tell(number, held.measure(picks, proposals.front))
    return proposals.front


def _ratio(held: Evaluator, one: Measured) -> float:
    """How many times fewer bytes its layers take, by the numbers alone."""
    before = sum(layer.stored_bytes for layer in held.layers)
    after = sum(
        one.picks[layer.name].choice.bytes(layer) if layer.name in one.picks else layer.stored_bytes
        for layer in held.layers
    )
    return before / after


def _handed_out(held: Evaluator, proposals: Proposals, original: bytes) -> HandedOut:
    """Of those that are so much smaller, the one that loses least."""
    smaller = [one for one in proposals.front if _ratio(held, one) >= SMALLER]
    best = min(smaller, key=lambda one: one.loss or 0.0)
    return handed_out(held, best.picks, proposals.offers, original=original)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in ("crnn", "cnn", "transformer") else pytest.mark.slow)
        for name in NETWORKS
    ],
)
def test_a_network_has_a_front_of_smaller_files(name: str, tmp_path: Path) -> None:
    original = export(name)
    read, model = _read(name, tmp_path)
    assert read.kept_because is None
    arrays = inputs(name)
    held = Evaluator(original, model, network_samples(read.facts.inputs, arrays))
    assert Counter(layer.role.kind for layer in held.layers) == KINDS[name]
    proposals = Proposals(probed_offers(held))
    front = _front(held, proposals)
    assert len(front) >= 3
    assert all(one.loss is not None and np.isfinite(one.loss) for one in front)

    found = _handed_out(held, proposals, original)
    report = found.report
    before = sum(layer.bytes_before for layer in report.layers)
    assert before >= SMALLER * sum(layer.bytes_after for layer in report.layers)
    assert report.bytes_after == len(found.content) < report.bytes_before
    assert report.choosing.metrics[0].value < LOST
    assert report.test.metrics[0].value < 3 * LOST
    made = onnx.load_model_from_string(found.content)
    assert list(made.graph.input) == list(onnx.load_model_from_string(original).graph.input)
    assert list(made.graph.output) == list(onnx.load_model_from_string(original).graph.output)
    # Any number of samples, as before.
    wanted, answered = (
        GraphSession(file).run({"x": arrays["x"][:5]}) for file in (original, found.content)
    )
    assert [*wanted] == [*answered] == [*NETWORKS[name].outputs]
    for output, answer in answered.items():
        assert (answer.shape, answer.dtype) == (wanted[output].shape, wanted[output].dtype)
        spread = wanted[output].std(0).max()
        assert 0 < np.abs(answer - wanted[output]).max() < spread


@pytest.mark.parametrize("name", NETWORKS)
def test_the_file_is_the_network(name: str) -> None:
    arrays = inputs(name, 7, seed=3)
    found = GraphSession(export(name)).run(arrays)
    with torch.no_grad():
        answer = network(name)(torch.from_numpy(arrays["x"]))
    wanted = answer if isinstance(answer, tuple) else (answer,)
    for one, other in zip(wanted, found.values(), strict=True):
        torch.testing.assert_close(torch.from_numpy(other), one, atol=1e-4, rtol=1e-4)


# As any network with projections says it.
@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
def test_the_loop_of_the_projected_lstm_is_what_torch_computes() -> None:
    made = network("projected_lstm")
    assert isinstance(made, ProjectedLstm)
    x = torch.from_numpy(inputs("projected_lstm", 5)["x"])
    with torch.no_grad():
        states, _ = made.lstm(x)
        torch.testing.assert_close(made(x), made.head(states[:, -1]))


@pytest.mark.parametrize(
    ("name", "layers"), [("cell_loop", 2), ("projected_lstm", 3)], ids=["gru cell", "projection"]
)
def test_weights_of_all_steps_are_one_layer(name: str, layers: int, tmp_path: Path) -> None:
    _, model = _read(name, tmp_path)
    shared = [layer for layer in find_layers(model) if len(layer.readers) == STEPS]
    assert len(shared) == layers
    assert all(layer.structured and not layer.runs for layer in shared)


def test_moments_of_a_weight_of_all_steps_are_those_of_all_it_reads(tmp_path: Path) -> None:
    read, model = _read("cell_loop", tmp_path)
    held = Evaluator(
        export("cell_loop"), model, network_samples(read.facts.inputs, inputs("cell_loop"))
    )
    layer = next(one for one in held.layers if one.columns == inputs("cell_loop")["x"].shape[-1])
    vectors = inputs("cell_loop")["x"][held.samples.split.calibration].reshape(-1, layer.columns)
    moments = held.statistics[layer.name].moments
    assert moments is not None
    wanted = vectors.T @ vectors / len(vectors)
    found = moments[0].times(np.eye(layer.columns))
    # What is added to the diagonal is a hundred thousandth of its mean.
    assert np.abs(found - wanted).max() < 1e-4 * wanted.max()
