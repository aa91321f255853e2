from typing import Any

import pytest
from pydantic import ValidationError

from models.graphs.documents import GraphPort
from search.documents.datasets import ArrayPort
from search.errors import SpecRefused, TaskUnresolved
from search.graphs.metrics import Agreement, Kl
from search.graphs.model_outputs import ModelOutputs
from search.studies import StudySpec

NAMES: dict[str, Any] = {"kind": "model_outputs", "model": "m1", "data": "d1"}


def task(*ports: GraphPort, **changes: Any) -> ModelOutputs:
    example = ModelOutputs.example()
    inputs = ports or (GraphPort(name="x", type="float32", shape=("N", 40)),)
    facts = example.known.model_copy(update={"inputs": inputs})
    return ModelOutputs.model_validate({**NAMES, **changes}).model_copy(update={"facts": facts})


def faults(one: ModelOutputs, samples: int = 200, **shapes: tuple[str, tuple[int, ...]]) -> str:
    arrays = {
        name: ArrayPort(name=name, type=kind, shape=shape) for name, (kind, shape) in shapes.items()
    }
    with pytest.raises(SpecRefused) as refused:
        one.refuse_misfits(arrays, samples)
    return str(refused.value)


def test_a_metric_may_be_named() -> None:
    assert ModelOutputs.model_validate({**NAMES, "compare_by": "agreement"}).compare_by == (
        Agreement()
    )
    full = {"kind": "kl", "logits": True}
    assert ModelOutputs.model_validate({**NAMES, "compare_by": full}).compare_by == Kl(logits=True)
    with pytest.raises(ValidationError, match="accuracy"):
        ModelOutputs.model_validate({**NAMES, "compare_by": "accuracy"})


def test_what_follows_from_uploads_is_not_known_before_they_were_looked_at() -> None:
    unresolved = ModelOutputs.model_validate(NAMES)
    with pytest.raises(TaskUnresolved, match="were not looked at"):
        _ = unresolved.metric
    assert task(compare_by="agreement").metric.baseline == 0
    metric = task().metric
    assert (metric.name, metric.direction, metric.unit) == ("kl", "minimize", "nats")
    assert metric.baseline == 1


def test_data_are_held_against_inputs_by_their_shapes_alone() -> None:
    task().refuse_misfits({"x": ArrayPort(name="x", type="float32", shape=(40,))}, 10**9)
    assert "the input takes float32 ['?'" not in faults(task(), x=("float32", (41,)))
    assert "task.inputs.x: the array is [200, 41]" in faults(task(), x=("float32", (41,)))
    assert "holds float64; the input takes float32" in faults(task(), x=("float64", (40,)))
    assert "task.inputs.x: the data have no array" in faults(task(), y=("float32", (40,)))
    assert "at least 16 are needed" in faults(task(), samples=30, x=("float32", (40,)))


def test_arrays_have_names_of_their_own() -> None:
    named = task(inputs={"x": "frames"}, labels="y")
    assert named.array_names == ("frames", "y")
    named.refuse_misfits(
        {
            "frames": ArrayPort(name="frames", type="float32", shape=(40,)),
            "y": ArrayPort(name="y", type="int64", shape=()),
        },
        200,
    )
    state = GraphPort(name="h", type="float32", shape=(1, "N", 20))
    two = task(GraphPort(name="x", type="float32", shape=("N", 40)), state, zeros=["h"])
    assert two.array_names == ("x",)


@pytest.mark.parametrize(
    ("part", "value", "words"),
    [
        ("architectures", ["gru"], "the network is what it is"),
        ("parametrizations", ["dense"], "by a choice of its own"),
        ("space", {"hidden_size": 8}, "follows from its layers"),
        ("warm_start", ["0123456789ab"], "no other study's"),
        ("compress", {"model": "m1"}, "task.model"),
        ("confirm", 2, "no seed changes"),
        ("resources", {"stack": "auto"}, "allowed is 1"),
    ],
)
def test_a_study_of_a_network_has_no_parts_of_training(part: str, value: Any, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        StudySpec.model_validate({"task": NAMES, part: value})


def test_a_study_of_a_network_has_defaults_of_its_own() -> None:
    spec = StudySpec.model_validate({"task": NAMES, "budget": {"wall_seconds": 60}})
    assert tuple(spec.objectives) == ("quality", "bytes")
    assert spec.sampler.kind == "by_layer"
    assert (spec.budget.trials, spec.budget.wall_seconds) == (100, 60)
    assert (spec.throughput.runtime, spec.throughput.batch_size) == ("onnxruntime", 1)
    assert spec.retention.keep == "front"
    assert spec.compressed_model == "m1"
    assert spec.network_costs == ("bytes",)
    # It is read from its row as it was stored.
    assert StudySpec.model_validate(spec.model_dump(mode="json")) == spec
    with pytest.raises(TypeError, match="trains nothing"):
        _ = spec.trained_task


@pytest.mark.parametrize(
    ("objectives", "costs"),
    [
        (["quality", "latency"], ("multiply_adds",)),
        (["quality", "bytes", "latency"], ("bytes", "multiply_adds")),
        (["quality", "throughput"], ("multiply_adds",)),
        (["quality", "parameters"], ("bytes",)),
        (["quality"], ("bytes",)),
    ],
)
def test_what_files_cost_follows_from_objectives(
    objectives: list[str], costs: tuple[str, ...]
) -> None:
    spec = StudySpec.model_validate({"task": NAMES, "objectives": objectives})
    assert spec.network_costs == costs
