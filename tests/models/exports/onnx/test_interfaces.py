"""Raw samples in, answers out: what stands around the network is in the file."""

import json
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from models.errors import ExportError
from models.exports.onnx.export import FileOptions, GraphForm, export
from models.exports.onnx.interface import ANSWERS, INPUT_STEPS
from models.exports.onnx.verify import verify
from models.interface import (
    ANSWERS as ALL_ANSWERS,
)
from models.interface import (
    INPUT_STEPS as ALL_STEPS,
)
from models.interface import (
    AnyAnswer,
    Classes,
    Divide,
    FillMissing,
    Interface,
    Labels,
    Layout,
    Numbers,
    OneHot,
    Reorder,
    Standardise,
)
from models.model import ModelSpec
from tests.conformance.model_specs import trained

FEATURES, STEPS, OUTPUTS = 2, 6, 3
MEANS, DEVIATIONS = (1e6, -3.0), (1.0, 0.25)
STANDARDISE = Standardise(means=MEANS, deviations=DEVIATIONS)
CLASSES = Classes(classes=("café", 'say "no"', "3"))
CELLS: list[dict[str, Any]] = [
    {"kind": "gru", "reset": "after", "layers": 2},
    {"kind": "lstm", "learned_initial_state": True},
    {"kind": "rnn", "activation": "abs"},
    {"kind": "urnn"},
]
FLAT: list[dict[str, Any]] = [{"kind": "mlp"}, {"kind": "highway"}]


def spec_of(architecture: dict[str, Any], *, every: bool = False, **signature: Any) -> ModelSpec:
    return ModelSpec.model_validate(
        {
            "architecture": {"hidden_size": 12, **architecture},
            "parametrization": {"kind": "dense"},
            "signature": {
                "input_size": FEATURES,
                "sequence_length": STEPS,
                "output_size": OUTPUTS,
                "output_steps": "every" if every else "last",
                **signature,
            },
        }
    )


def loaded(content: bytes) -> Any:
    return onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])


def kind(given: dict[str, Any]) -> str:
    return given["kind"]


def test_every_step_and_answer_has_a_writer() -> None:
    assert set(INPUT_STEPS) == set(ALL_STEPS)
    assert set(ANSWERS) == set(ALL_ANSWERS)


@pytest.mark.parametrize(
    "answer",
    [
        CLASSES,
        Labels(labels=("a", "b", "c")),
        Numbers(),
        Numbers(means=(1e6, 0.0, -2.0), deviations=(3.0, 1.0, 0.01)),
    ],
    ids=lambda answer: type(answer).__name__,
)
@pytest.mark.parametrize("architecture", [*CELLS, *FLAT], ids=kind)
@pytest.mark.parametrize("form", ["node", "loop"])
def test_raw_samples_give_the_models_answers(
    architecture: dict[str, Any], answer: AnyAnswer, form: GraphForm
) -> None:
    interface = Interface(
        sample=("steps", FEATURES),
        inputs=(FillMissing(values=(5.0, 1.0)), STANDARDISE),
        answer=answer,
    )
    spec = spec_of(architecture)
    network = trained(spec)
    options = FileOptions(form=form, interface=interface)
    content = export(network, spec, options)
    onnx.checker.check_model(content, full_check=True)
    verify(content, network, spec, options)


@pytest.mark.parametrize("architecture", CELLS, ids=kind)
def test_each_step_may_have_an_answer(architecture: dict[str, Any]) -> None:
    spec = spec_of(architecture, every=True)
    network = trained(spec)
    interface = Interface(sample=("steps", FEATURES), inputs=(STANDARDISE,), answer=CLASSES)
    for padded in (False, True):
        view = interface.model_copy(update={"padded": padded})
        for stream in (False, True):
            options = FileOptions(interface=view, stream=stream)
            verify(export(network, spec, options), network, spec, options)


@pytest.mark.parametrize("architecture", [*CELLS, *FLAT], ids=kind)
@pytest.mark.parametrize("form", ["node", "loop"])
def test_lengths_end_a_sequence(architecture: dict[str, Any], form: GraphForm) -> None:
    interface = Interface(
        sample=("steps", FEATURES), inputs=(STANDARDISE,), answer=CLASSES, padded=True
    )
    spec = spec_of(architecture)
    network = trained(spec)
    options = FileOptions(form=form, interface=interface)
    content = export(network, spec, options)
    verify(content, network, spec, options)
    session = loaded(content)
    x = torch.randn(3, STEPS, FEATURES) + torch.tensor(MEANS)
    lengths = np.array([1, 4, 6])
    told = session.run(None, {"input": x.numpy(), "lengths": lengths})
    x[0, 1:] = torch.nan  # whatever stands behind a sample's own end is not read
    x[1, 4:] = 7.0
    again = session.run(None, {"input": x.numpy(), "lengths": lengths})
    for one, other in zip(told, again, strict=True):
        np.testing.assert_array_equal(one, other)
    beyond = session.run(None, {"input": x.numpy(), "lengths": np.array([-5, 4, 999])})
    for one, other in zip(told, beyond, strict=True):
        np.testing.assert_array_equal(one, other)


def test_flat_samples_are_laid_out() -> None:
    order = tuple(torch.randperm(14, generator=torch.Generator().manual_seed(1)).tolist())
    interface = Interface(
        sample=(14,),
        inputs=(Divide(by=16), Reorder(order=order), Layout(steps=STEPS, features=FEATURES)),
        answer=CLASSES,
    )
    for architecture in (*CELLS, *FLAT):
        spec = spec_of(architecture)
        network = trained(spec)
        x = torch.randint(17, (5, 14)).float()
        expected = network(x[:, list(order)][:, :12].reshape(5, STEPS, FEATURES) / 16)
        options = FileOptions(interface=interface)
        output, label = loaded(export(network, spec, options)).run(None, {"input": x.numpy()})
        np.testing.assert_allclose(output, expected.detach(), rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(label, expected.argmax(-1))


def test_a_missing_number_is_filled_in() -> None:
    spec = spec_of(CELLS[0])
    network = trained(spec)
    x = torch.randn(2, STEPS, FEATURES)
    x[0, 2, 1] = torch.nan
    fill = FillMissing(values=(0.5, 0.25))
    interface = Interface(sample=("steps", FEATURES), inputs=(fill,), answer=Numbers())
    (found,) = loaded(export(network, spec, FileOptions(interface=interface))).run(
        None, {"input": x.numpy()}
    )
    expected = network(torch.where(x.isnan(), torch.tensor(0.25), x))
    np.testing.assert_allclose(found, expected.detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("architecture", [*CELLS, *FLAT], ids=kind)
@pytest.mark.parametrize("form", ["node", "loop"])
@pytest.mark.parametrize("every", [False, True])
def test_nan_in_is_nan_out(architecture: dict[str, Any], form: GraphForm, every: bool) -> None:
    if every and architecture in FLAT:
        return
    spec = spec_of(architecture, every=every)
    network = trained(spec)
    x = torch.randn(3, STEPS, FEATURES)
    x[0, 2, 1] = torch.nan
    interface = Interface(sample=("steps", FEATURES), inputs=(STANDARDISE,), answer=CLASSES)
    for stream in (False, True):
        if stream and architecture in FLAT:
            continue
        options = FileOptions(form=form, interface=interface, stream=stream)
        states = {
            f"state_{part}": first.unsqueeze(1).repeat(1, 3, 1).numpy()
            for part, first in enumerate(network.first_states() if stream else ())
        }
        if states:
            states["state_0"][0, 2, 0] = np.nan
        session = loaded(export(network, spec, options))
        output, label, *ends = session.run(None, {"input": x.numpy(), **states})
        expected = np.zeros(output.shape[:-1], dtype=bool)
        expected[(0, slice(2, None)) if every else 0] = True
        expected[2] = stream
        np.testing.assert_array_equal(np.isnan(output).all(axis=-1), expected)
        np.testing.assert_array_equal(np.isnan(output).any(axis=-1), expected)
        np.testing.assert_array_equal(label == -1, expected)
        for end in ends:
            np.testing.assert_array_equal(np.isnan(end).all(axis=-1).all(axis=0), [1, 0, stream])


def test_numbers_far_from_zero_lose_nothing() -> None:
    spec = spec_of(CELLS[0])
    network = trained(spec)
    far = Standardise(means=(16_777_217.3, 1e6), deviations=(2.0, 1.0))
    interface = Interface(sample=("steps", FEATURES), inputs=(far,), answer=Numbers())
    x = (torch.tensor(far.means) + 3 * torch.randn(8, STEPS, FEATURES)).float()
    exact = (
        (x.double() - torch.tensor(far.means, dtype=torch.float64)) / x.new_tensor(far.deviations)
    ).float()
    (found,) = loaded(export(network, spec, FileOptions(interface=interface))).run(
        None, {"input": x.numpy()}
    )
    np.testing.assert_allclose(found, network(exact).detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("architecture", CELLS, ids=kind)
@pytest.mark.parametrize("form", ["node", "loop"])
def test_pieces_of_a_stream_equal_the_whole(architecture: dict[str, Any], form: GraphForm) -> None:
    spec = spec_of(architecture)
    network = trained(spec)
    interface = Interface(sample=("steps", FEATURES), inputs=(STANDARDISE,), answer=CLASSES)
    options = FileOptions(form=form, interface=interface, stream=True)
    content = export(network, spec, options)
    onnx.checker.check_model(content, full_check=True)
    verify(content, network, spec, options)
    x = (torch.randn(3, 20, FEATURES) * torch.tensor(DEVIATIONS) + torch.tensor(MEANS)).numpy()
    session = loaded(content)
    whole = loaded(export(network, spec, FileOptions(form=form, interface=interface)))
    expected = whole.run(None, {"input": x})
    model = onnx.load_from_string(content)
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    first = json.loads(metadata["reflectory.initial_state"])
    shapes = {
        value.name: [d.dim_value for d in value.type.tensor_type.shape.dim]
        for value in model.graph.input
        if value.name != "input"
    }
    states: dict[str, Any] = {}
    for name, (layers, _, size) in shapes.items():
        start = np.array(first.get(name, np.zeros((layers, size))), dtype=np.float32)
        states[name] = np.repeat(start[:, None], 3, axis=1)
    answer: list[Any] = []
    for start, stop in ((0, 1), (1, 8), (8, 20)):
        output, label, *following = session.run(None, {"input": x[:, start:stop], **states})
        answer = [output, label]
        states = dict(zip(states, following, strict=True))
    np.testing.assert_allclose(answer[0], expected[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(answer[1], expected[1])


def test_a_stream_of_what_has_no_state_is_refused() -> None:
    spec = spec_of({"kind": "mlp"})
    with pytest.raises(ExportError, match="mlp reads a sample as a whole and has no state"):
        export(trained(spec), spec, FileOptions(stream=True))


@pytest.mark.parametrize("architecture", [*CELLS, *FLAT], ids=kind)
@pytest.mark.parametrize("form", ["node", "loop"])
def test_a_guard_lets_a_batch_be_empty(architecture: dict[str, Any], form: GraphForm) -> None:
    spec = spec_of(architecture)
    network = trained(spec)
    interface = Interface(
        sample=("steps", FEATURES), inputs=(STANDARDISE,), answer=CLASSES, padded=True
    )
    for stream in (False, True):
        if stream and architecture in FLAT:
            continue
        options = FileOptions(form=form, interface=interface, guard=True, stream=stream)
        content = export(network, spec, options)
        verify(content, network, spec, options)
        session = loaded(content)
        feeds: dict[str, Any] = {"input": np.zeros((0, STEPS, FEATURES), dtype=np.float32)}
        if not stream:
            feeds["lengths"] = np.zeros((0,), dtype=np.int64)
        for value in session.get_inputs():
            if value.name.startswith("state"):
                layers, _, size = value.shape
                feeds[value.name] = np.zeros((layers, 0, size), dtype=np.float32)
        output, label, *states = session.run(None, feeds)
        assert output.shape == (0, OUTPUTS)
        assert label.shape == (0,)
        assert all(state.shape[1] == 0 for state in states)


def test_tokens_are_read_as_they_are() -> None:
    spec = spec_of({"kind": "lstm"}, every=True, vocabulary=11)
    network = trained(spec)
    for padded in (False, True):
        interface = Interface(sample=("steps",), answer=CLASSES, padded=padded)
        for stream in (False, True):
            options = FileOptions(interface=interface, stream=stream, guard=True)
            verify(export(network, spec, options), network, spec, options)


def test_tokens_become_one_hot_in_the_file() -> None:
    spec = spec_of({"kind": "gru"}, every=True, input_size=5)
    network = trained(spec)
    interface = Interface(sample=("steps",), inputs=(OneHot(symbols=5),), answer=CLASSES)
    for stream in (False, True):
        options = FileOptions(interface=interface, stream=stream)
        content = export(network, spec, options)
        onnx.checker.check_model(content, full_check=True)
        verify(content, network, spec, options)
    tokens = torch.randint(5, (3, 9))
    expected = network(torch.nn.functional.one_hot(tokens, 5).float()).detach()
    whole = loaded(export(network, spec, FileOptions(interface=interface)))
    output, _ = whole.run(None, {"input": tokens.numpy()})
    np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-5)


def test_a_file_tells_what_it_reads_and_answers() -> None:
    spec = spec_of(CELLS[0])
    interface = Interface(
        sample=("steps", FEATURES), inputs=(STANDARDISE,), answer=CLASSES, metric="accuracy"
    )
    content = export(trained(spec), spec, FileOptions(interface=interface))
    model = onnx.load_from_string(content)
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    assert metadata["format"] == "reflectory.onnx.2"
    assert json.loads(metadata["reflectory.labels"]) == ["café", 'say "no"', "3"]
    told = json.loads(metadata["reflectory.preprocessing"])
    assert told["inputs"] == [{"kind": "standardise", "means": [1e6, -3], "deviations": [1, 0.25]}]
    assert metadata["reflectory.metric"] == "accuracy"
    assert [value.name for value in model.graph.output] == ["output", "label"]
    assert model.graph.input[0].doc_string == "1 sample or more"


def test_a_wrong_label_is_caught() -> None:
    spec = spec_of(CELLS[0])
    network = trained(spec)
    options = FileOptions(
        interface=Interface(sample=("steps", FEATURES), inputs=(STANDARDISE,), answer=CLASSES)
    )
    model = onnx.load_from_string(export(network, spec, options))
    (decides,) = (node for node in model.graph.node if node.op_type == "ArgMax")
    decides.op_type = "ArgMin"
    with pytest.raises(ExportError, match="decides otherwise than the model on"):
        verify(model.SerializeToString(), network, spec, options)
