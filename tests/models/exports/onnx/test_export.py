"""An exported file computes what the model computes, wherever it is run."""

import itertools
import json
from collections.abc import Iterator
from typing import Any, get_args

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from models import checkpoint
from models.architectures import ARCHITECTURES, Architecture, Mlp
from models.errors import ExportError
from models.exports.onnx import export as export_module
from models.exports.onnx.architectures.activations import ACTIVATIONS
from models.exports.onnx.export import WRITERS, FileOptions, GraphForm, export
from models.exports.onnx.graph import LARGEST_FILE_BYTES, OPSET, Graph
from models.exports.onnx.matrices import stored_layers
from models.exports.onnx.verify import verify
from models.forms import DenseForm, Form, MaskedForm
from models.linear import StructuredLinear
from models.math.activations import Activation
from models.model import ModelSpec
from models.parametrizations import Family
from models.spec import Signature, Slot
from tests.conformance.model_specs import EVERY, LAST, pair_name, pairs, specs, trained

Pair = tuple[type[Architecture], type[Family]]


@pytest.fixture(autouse=True)
def _the_same_inputs_every_time() -> None:
    torch.manual_seed(0)


def ran(content: bytes, x: torch.Tensor) -> torch.Tensor:
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"input": x.numpy()})
    return torch.as_tensor(found)


def assert_equal_but_for_rounding(found: Any, expected: torch.Tensor) -> None:
    """Rounding is that of the states, which are as large as the largest output or larger."""
    expected = expected.detach()
    allowed = 5e-5 * float(expected.abs().max())
    torch.testing.assert_close(torch.as_tensor(found), expected, atol=allowed, rtol=0)


def spec_of(architecture: dict[str, Any], parametrization: dict[str, Any]) -> ModelSpec:
    return ModelSpec.model_validate(
        {"architecture": architecture, "parametrization": parametrization, "signature": LAST}
    )


@pytest.fixture(params=pairs(), ids=pair_name)
def pair(request: pytest.FixtureRequest) -> Pair:
    return request.param


def test_every_activation_can_be_written() -> None:
    assert set(ACTIVATIONS) == set(get_args(Activation))


def test_an_architecture_that_nothing_writes_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(WRITERS) <= set(ARCHITECTURES)
    spec = next(specs(*pairs()[0], LAST))
    monkeypatch.setattr(export_module, "WRITERS", {Mlp: WRITERS[Mlp]})
    with pytest.raises(ExportError, match=f"for {spec.architecture.kind}; written are mlp"):
        export(spec.build(seed=0), spec)


class _Unwritten(StructuredLinear):
    """Matrices of which there is none to write."""

    def make_form(self) -> Form:
        return MaskedForm(DenseForm(torch.zeros(1, 3, 3)), torch.ones(1, 2, 3))

    def degrees_of_freedom(self) -> int:
        return 0


def test_a_form_that_nothing_writes_is_named() -> None:
    linear = _Unwritten(Slot(out_features=3, in_features=3))
    with pytest.raises(ExportError, match="no ONNX writer for these matrices: masked"):
        stored_layers(Graph(), linear)


def test_every_model_is_exported_verified_and_of_the_signatures_shape(pair: Pair) -> None:
    for signature in (LAST, EVERY):
        for place, spec in enumerate(specs(*pair, signature)):
            # Forms differ in what the matrices are, not in the architectures' other options, which
            # in their turn do not depend on which steps have an answer.
            forms = get_args(GraphForm) if place % 4 == 0 else ("node",)
            if place % 4 != 0 and signature is EVERY:
                continue
            network = trained(spec)
            for form in forms:
                options = FileOptions(form=form)
                content = export(network, spec, options)
                onnx.checker.check_model(content, full_check=True)
                verify(content, network, spec, options)


def test_other_lengths_and_batches_give_what_the_model_gives(pair: Pair) -> None:
    lengths = [1, 4, 33] if pair[0].any_length else [5]
    for signature in (LAST, EVERY):
        for spec in itertools.islice(specs(*pair, signature), 2):
            network = trained(spec)
            session = onnxruntime.InferenceSession(
                export(network, spec), providers=["CPUExecutionProvider"]
            )
            for batch, steps in itertools.product((1, 7), lengths):
                x = torch.randn(batch, steps, 3)
                (found,) = session.run(None, {"input": x.numpy()})
                assert_equal_but_for_rounding(found, network(x))


def test_the_standards_own_evaluator_computes_the_same(pair: Pair) -> None:
    for signature in (LAST, EVERY):
        for spec in specs(*pair, signature):
            network = trained(spec)
            model = onnx.load_from_string(export(network, spec))
            if _has_an_activation_that_the_evaluator_lacks(model):
                continue
            x = torch.randn(2, 5, 3)
            (found,) = ReferenceEvaluator(model).run(None, {"input": x.numpy()})  # pyright: ignore[reportGeneralTypeIssues]
            assert_equal_but_for_rounding(found, network(x))


def _has_an_activation_that_the_evaluator_lacks(model: onnx.ModelProto) -> bool:
    return any(
        attribute.name == "activations" and attribute.strings[0] in (b"Relu", b"LeakyRelu")
        for node in model.graph.node
        for attribute in node.attribute
    )


@pytest.mark.parametrize(
    ("architecture", "operator"),
    [
        ({"kind": "rnn", "activation": "tanh"}, "RNN"),
        ({"kind": "rnn", "activation": "relu"}, "RNN"),
        ({"kind": "rnn", "activation": "leaky_relu", "leak": 0.3}, "RNN"),
        ({"kind": "rnn", "activation": "identity"}, "RNN"),
        ({"kind": "rnn", "activation": "abs"}, "Scan"),
        ({"kind": "gru", "reset": "before"}, "GRU"),
        ({"kind": "gru", "reset": "after"}, "GRU"),
        ({"kind": "lstm"}, "LSTM"),
        ({"kind": "lstm", "peephole": True}, "Scan"),
        ({"kind": "gru", "reset": "after", "candidate_bias": True}, "GRU"),
    ],
)
def test_whole_matrices_take_a_standard_node_where_one_computes_the_cell(
    architecture: dict[str, Any], operator: str
) -> None:
    spec = spec_of({"hidden_size": 7, "layers": 3, **architecture}, {"kind": "dense"})
    network = trained(spec)
    content = export(network, spec)
    loops = {"RNN", "GRU", "LSTM", "Scan", "Loop"}
    found = [node.op_type for node in onnx.load_from_string(content).graph.node]
    assert [name for name in found if name in loops] == [operator] * 3
    verify(content, network, spec)


@pytest.mark.parametrize("size", [1, 2, 13, 97, 101])
@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm", "mlp", "resnet", "highway"])
@pytest.mark.parametrize(
    "parametrization",
    [
        {"kind": "dense"},
        {"kind": "low_rank", "d": 1},
        {"kind": "householder_svd", "m1": 1, "m2": 1},
    ],
    ids=lambda given: given["kind"],
)
def test_odd_sizes(kind: str, size: int, parametrization: dict[str, Any]) -> None:
    signature = Signature(input_size=1, sequence_length=3, output_size=1)
    spec = spec_of({"kind": kind, "hidden_size": size}, parametrization)
    spec = spec.model_copy(update={"signature": signature})
    network = trained(spec)
    content = export(network, spec)
    verify(content, network, spec)
    assert ran(content, torch.randn(1, 3, 1)).shape == (1, 1)


def tampered(content: bytes) -> Iterator[bytes]:
    """The file with one number changed, of each of its tensors in turn."""
    names = [weight.name for weight in onnx.load_from_string(content).graph.initializer]
    for name in names:
        model = onnx.load_from_string(content)
        (weight,) = (w for w in model.graph.initializer if w.name == name)
        values = numpy_helper.to_array(weight).copy()
        if values.dtype != np.float32 or not np.any(values):
            continue
        place = np.unravel_index(np.abs(values).argmax(), values.shape)
        values[place] *= 1.2
        weight.CopyFrom(numpy_helper.from_array(values, name))
        yield model.SerializeToString()


@pytest.mark.parametrize(
    ("architecture", "parametrization"),
    [
        ({"kind": "rnn", "activation": "tanh"}, {"kind": "dense"}),
        ({"kind": "rnn", "activation": "identity"}, {"kind": "low_rank_diagonal", "d": 3}),
        ({"kind": "gru", "reset": "before", "layers": 2}, {"kind": "dense"}),
        ({"kind": "gru", "reset": "after"}, {"kind": "low_rank_diagonal", "d": 3, "tied": True}),
        ({"kind": "lstm", "peephole": True}, {"kind": "low_rank", "d": 3}),
        ({"kind": "mlp", "activation": "tanh"}, {"kind": "low_rank", "d": 3}),
    ],
    ids=lambda given: "-".join(map(str, given.values())),
)
def test_one_wrong_number_is_caught(
    architecture: dict[str, Any], parametrization: dict[str, Any]
) -> None:
    spec = spec_of({"hidden_size": 8, **architecture}, parametrization)
    network = trained(spec)
    content = export(network, spec)
    verify(content, network, spec)
    files = list(tampered(content))
    assert len(files) >= 5
    for wrong in files:
        with pytest.raises(ExportError, match=r"differs from the model by .*allowed is"):
            verify(wrong, network, spec)


def test_a_file_of_another_kind_is_caught() -> None:
    one = spec_of({"kind": "gru", "hidden_size": 6, "reset": "before"}, {"kind": "dense"})
    other = spec_of({"kind": "gru", "hidden_size": 6, "reset": "after"}, {"kind": "dense"})
    network = trained(one)
    swapped = export(network, other)
    with pytest.raises(ExportError, match="differs"):
        verify(swapped, network, one)
    every = one.model_copy(update={"signature": EVERY})
    with pytest.raises(ExportError, match=r"\[8, 5, 4\] where the model gives \[8, 4\]"):
        verify(export(network, every), network, one)
    with pytest.raises(ExportError, match="does not load"):
        verify(b"no file", network, one)


def test_a_model_that_gives_no_number_is_not_vouched_for() -> None:
    spec = spec_of({"kind": "rnn", "hidden_size": 4}, {"kind": "dense"})
    network = spec.build(seed=0).eval()
    with torch.no_grad():
        network.get_parameter("readout.bias").fill_(torch.nan)
    with pytest.raises(ExportError, match="no number to compare"):
        verify(export(network, spec), network, spec)


def test_states_that_grow_beyond_all_numbers_are_compared_as_far_as_they_go() -> None:
    architecture = {"kind": "rnn", "hidden_size": 4, "activation": "identity"}
    spec = spec_of(architecture, {"kind": "dense"})
    long = LAST.model_copy(update={"sequence_length": 64, "output_steps": "every"})
    spec = spec.model_copy(update={"signature": long})
    network = trained(spec)
    with torch.no_grad():
        network.get_parameter("recurrent.weight").mul_(20.0)
    assert not network(torch.randn(1, 129, 3)).isfinite().all()
    verify(export(network, spec), network, spec)


def test_a_file_says_what_it_is() -> None:
    spec = spec_of({"kind": "gru", "hidden_size": 5}, {"kind": "low_rank", "d": 2})
    network = spec.build(seed=0)
    model = onnx.load_from_string(export(network, spec, extra={"checkpoint": "abc"}))
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    assert ModelSpec.model_validate(json.loads(metadata["spec"])) == spec
    assert metadata["checkpoint"] == "abc"
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", OPSET)]
    (x,), (y,) = model.graph.input, model.graph.output
    shapes = [[d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim] for v in (x, y)]
    assert shapes == [["batch", "steps", 3], ["batch", 4]]
    assert (x.name, y.name) == ("input", "output")


def test_a_checkpoint_gives_the_same_bytes_every_time() -> None:
    spec = spec_of(
        {"kind": "lstm", "hidden_size": 5}, {"kind": "householder_svd", "m1": 2, "m2": 2}
    )
    network = trained(spec)
    loaded = checkpoint.load(checkpoint.save_bytes(network, spec))
    assert export(loaded.module, loaded.spec) == export(network, spec)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_model_of_another_precision_is_exported_in_single(dtype: torch.dtype) -> None:
    spec = spec_of({"kind": "gru", "hidden_size": 5}, {"kind": "householder_svd", "m1": 2, "m2": 2})
    network = trained(spec).to(dtype)
    content = export(network, spec)
    verify(content, network, spec)
    assert ran(content, torch.randn(1, 2, 3)).dtype == torch.float32


def test_more_than_one_file_holds_is_refused_before_it_is_copied() -> None:
    graph = Graph()
    with pytest.raises(ExportError, match=f"holds at most {LARGEST_FILE_BYTES}"):
        graph.constant(torch.zeros(1).expand(1 << 29))


def test_an_export_leaves_the_model_as_it_is() -> None:
    spec = spec_of(
        {"kind": "highway", "hidden_size": 5, "stack": "batch_normalised"}, {"kind": "dense"}
    )
    network = spec.build(seed=0).train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    verify(export(network, spec), network, spec)
    assert network.training
    for name, value in network.state_dict().items():
        assert torch.equal(value, before[name])
        assert value.dtype == torch.float32
