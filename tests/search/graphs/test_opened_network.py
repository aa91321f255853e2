import numpy as np
import onnx
import pytest

from models.errors import GraphRefused
from models.graphs.fits import Dense, LowRank
from models.graphs.reading import graph_facts
from models.graphs.sessions import GraphSession
from search.errors import SpecRefused
from search.graphs.model_outputs import ModelOutputs
from search.graphs.opened_network import OpenedNetwork, opened_network
from search.graphs.picks import Pick
from search.graphs.reference_files import reference_files
from search.measuring.network_throughput import measure_network
from search.training.network_jobs import MeasureNetworkJob, NetworkShape
from tests.search.graphs.small_networks import classifier, evaluator, vectors


def task_of(model: onnx.ModelProto, **changes: object) -> ModelOutputs:
    known = ModelOutputs.example().known.model_copy(
        update={"inputs": graph_facts(model).inputs, "parameters": 4512}
    )
    names = {"model": "m1", "data": "d1", **changes}
    return ModelOutputs.model_validate(names).model_copy(update={"facts": known})


def opened(**changes: object) -> OpenedNetwork:
    model = classifier()
    return opened_network(
        model.SerializeToString(),
        {"x": vectors(200)},
        task_of(model, **changes),
        objectives=("bytes", "multiply_adds"),
    )


@pytest.fixture(scope="module")
def network() -> OpenedNetwork:
    return opened()


def test_a_trial_is_handed_out_with_what_is_told_of_it(network: OpenedNetwork) -> None:
    offered = network.offered()
    assert network.samples == {"train": 80, "validation": 40, "test": 80}
    sensitivities = {
        one.name: (one.compensated_sensitivity, one.plain_sensitivity) for one in offered.layers
    }
    whole = offered.trial({}, seed=0, original_bytes=1)
    made = network.handed_out(whole, sensitivities)
    assert made.content == classifier().SerializeToString()
    assert [one.metric.kind for one in made.report.test.metrics] == ["kl", "agreement"]
    assert made.report.choosing.metrics[0].value == 0
    picks = {"w1": Pick(choice=Dense(bits=8)), "w2": Pick(choice=LowRank(rank=7, bits=8))}
    trial = offered.trial(picks, seed=0, original_bytes=1)
    smaller = network.handed_out(trial, sensitivities)
    assert abs(len(smaller.content) - trial.bytes) < 0.02 * trial.bytes + 1024
    assert smaller.report.choosing.metrics[0].value > 0


def test_a_network_that_does_not_run_on_the_data_is_refused() -> None:
    model = classifier()
    # The file says that any number of features will do, and its first product does not.
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "F"
    with pytest.raises(GraphRefused, match="does not run the graph"):
        opened_network(
            model.SerializeToString(),
            {"x": np.ones((100, 7), np.float32)},
            task_of(model),
            objectives=("bytes",),
        )


def test_answers_that_say_nothing_are_refused() -> None:
    model = classifier()
    with pytest.raises(SpecRefused, match="are the same"):
        opened_network(
            model.SerializeToString(),
            {"x": np.zeros((100, 40), np.float32)},
            task_of(model),
            objectives=("bytes",),
        )


def test_files_are_measured_in_turn_with_the_original(network: OpenedNetwork) -> None:
    offered = network.offered()
    run = {name: Pick(choice=LowRank(rank=7, run=True)) for name in ("w1", "w2")}
    trials = [offered.trial(picks, seed=0, original_bytes=1) for picks in ({}, run)]
    shapes = [
        NetworkShape(trial=number, shape_key=trial.shape_key(), network=trial)
        for number, trial in enumerate(trials)
    ]
    job = MeasureNetworkJob(
        task=network.task,
        costs=("bytes", "multiply_adds"),
        shapes=tuple(shapes),
        latency=True,
        batch_size=3,
    )
    original, factored = measure_network(job, network)
    assert (original.ratio, original.shape_key) == (1, "original")
    assert factored.ratio != 1
    assert factored.record["multiply_adds"] < factored.record["dense_multiply_adds"]
    assert factored.record["dense_parameters"] == trials[0].parameters
    assert 100 <= factored.record["calls"] <= 1000
    assert 0 < (factored.latency_p50 or 0) <= (factored.latency_p99 or 0)


def test_other_tools_are_measured_as_trials_are() -> None:
    (found,) = reference_files(evaluator(), has_labels=False)
    assert found.name == "quantize_dynamic"
    assert found.reason is None
    assert 4512 < (found.bytes or 0) < len(classifier().SerializeToString())
    assert 0 < (found.quality or 0) < 0.1
    assert found.agreement is not None


def test_nodes_of_one_name_are_told_apart_in_the_original_too() -> None:
    """onnxruntime refuses the file as it was uploaded."""
    model = classifier()
    for node in model.graph.node:
        node.name = "n"
    content = model.SerializeToString()
    with pytest.raises(GraphRefused, match="two nodes with same node name"):
        GraphSession(content)
    network = opened_network(content, {"x": vectors(200)}, task_of(model), objectives=("bytes",))
    assert [node.name for node in onnx.load_model_from_string(network.original).graph.node] == [
        "n",
        *(f"n_{place}" for place in range(1, 6)),
    ]
    assert network.evaluator.measure({}).loss == 0
