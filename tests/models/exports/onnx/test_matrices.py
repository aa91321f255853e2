"""Files store the structure's numbers, and the runtime makes of them what the dense file has."""

from collections import Counter
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import pytest
import torch

from models import checkpoint
from models.errors import ExportError, RoundingError
from models.exports.onnx.choice import choose_form, export_filled, forms_of
from models.exports.onnx.export import FileOptions, GraphForm, export
from models.exports.onnx.verify import verify
from models.model import ModelSpec
from models.quantization import Bits, round_
from tests.conformance.model_specs import trained
from tests.models.exports.onnx.test_export import ran

SIGNATURE = {"input_size": 5, "sequence_length": 6, "output_size": 3}

REAL: list[dict[str, Any]] = [
    {"kind": "low_rank", "d": 6},
    {"kind": "low_rank", "d": 6, "tied": True},
    {"kind": "low_rank", "d": 6, "weight_norm": True},
    {"kind": "low_rank_diagonal", "d": 5, "tied": True},
    {"kind": "householder", "m": 5},
    {"kind": "householder", "m": 29},
    {"kind": "householder_svd", "m1": 3, "m2": 5, "r": 0.3},
    {"kind": "householder_svd", "m1": 29, "m2": 20, "r": 0.3},
    {"kind": "packed_rotations", "count": 7},
    {"kind": "rotation_svd", "count_u": 3, "count_v": 5},
    {"kind": "factorized_svd"},
]
COMPLEX: list[dict[str, Any]] = [{"kind": "unitary_fft"}, {"kind": "unitary_full"}]
CELLS: list[dict[str, Any]] = [
    {"kind": "rnn", "activation": "tanh"},
    {"kind": "gru", "reset": "after"},
    {"kind": "lstm", "layers": 2},
    {"kind": "mlp", "layers": 2},
    {"kind": "highway", "layers": 2},
]


def named(given: dict[str, Any]) -> str:
    return "-".join(map(str, given.values()))


def spec_of(
    architecture: dict[str, Any], parametrization: dict[str, Any], *, size: int, **signature: int
) -> ModelSpec:
    return ModelSpec.model_validate(
        {
            "architecture": {"hidden_size": size, **architecture},
            "parametrization": parametrization,
            "signature": {**SIGNATURE, **signature},
        }
    )


def operators(content: bytes, folder: Path) -> Counter[str]:
    """What onnxruntime has left of a file when it was loaded."""
    options: Any = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(folder / "loaded.onnx")
    options.log_severity_level = 3
    onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return Counter(node.op_type for node in onnx.load(folder / "loaded.onnx").graph.node)


@pytest.mark.parametrize("parametrization", REAL, ids=named)
@pytest.mark.parametrize("size", [64, 65])
def test_a_loaded_file_has_the_nodes_of_the_dense_one(
    parametrization: dict[str, Any], size: int, tmp_path: Path
) -> None:
    for architecture in CELLS:
        spec = spec_of(architecture, parametrization, size=size)
        network = trained(spec)
        content = export(network, spec)
        verify(content, network, spec)
        twin = spec.dense_twin()
        dense = operators(export(trained(twin), twin), tmp_path)
        assert operators(content, tmp_path) == dense, architecture


@pytest.mark.parametrize("parametrization", COMPLEX, ids=named)
@pytest.mark.parametrize("size", [32, 33])
def test_complex_matrices_are_made_when_a_file_is_loaded(
    parametrization: dict[str, Any], size: int, tmp_path: Path
) -> None:
    spec = spec_of({"kind": "urnn"}, parametrization, size=size)
    network = trained(spec)
    content = export(network, spec)
    verify(content, network, spec)
    twin = spec.dense_twin()
    dense = operators(export(trained(twin), twin), tmp_path)
    assert operators(content, tmp_path) == dense


@pytest.mark.parametrize("parametrization", [*REAL, *COMPLEX], ids=named)
@pytest.mark.parametrize("form", ["node", "loop"])
def test_a_file_is_as_small_as_its_numbers(
    parametrization: dict[str, Any], form: GraphForm
) -> None:
    complex_ = parametrization in COMPLEX
    for architecture in [{"kind": "urnn"}] if complex_ else CELLS:
        spec = spec_of(architecture, parametrization, size=64)
        content = export(spec.build(seed=1).eval(), spec, FileOptions(form=form))
        twin = spec.dense_twin()
        dense = export(twin.build(seed=1).eval(), twin)
        stages = sum(int(parametrization.get(name, 0)) for name in ("count", "count_u", "count_v"))
        # The 64 x 64 reflectors of a zero row have a sign that is stored and not trained.
        layers = int(architecture.get("layers", 1))
        assert len(content) <= 4 * spec.parameter_count() + 6_144 + 300 * stages * layers
        assert len(content) <= 1.02 * len(dense) + (600 if form == "loop" else 0)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("parametrization", [*REAL, *COMPLEX], ids=named)
def test_rounded_numbers_are_stored_as_integers(
    parametrization: dict[str, Any], bits: Bits, tmp_path: Path
) -> None:
    cells = [{"kind": "urnn"}] if parametrization in COMPLEX else CELLS
    for architecture in (*cells, {**cells[0], "input_weight_norm": True}):
        full = spec_of(architecture, parametrization, size=65)
        spec = full.model_copy(update={"bits": bits})
        network = trained(full)
        with pytest.raises(RoundingError, match=f"not rounded to {bits} bits"):
            export(network, spec)
        round_(network, bits)
        for form in ("node", "loop"):
            content = export(network, spec, FileOptions(form=form))
            onnx.checker.check_model(content, full_check=True)
            verify(content, network, spec, FileOptions(form=form))
            dense = export(network, full, FileOptions(form=form))
            assert operators(content, tmp_path) == operators(dense, tmp_path)
            stored = len(checkpoint.save_bytes(network, spec))
            assert len(content) <= stored + 6_144


SKEW: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"kind": "rnn", "activation": "tanh"}, {"kind": "factorized_svd", "margin": 0.3}),
    ({"kind": "urnn"}, {"kind": "unitary_full"}),
]


@pytest.mark.parametrize("orthogonal_map", ["cayley", "exponential"])
@pytest.mark.parametrize(("architecture", "parametrization"), SKEW, ids=["real", "complex"])
@pytest.mark.parametrize("largest", [0.0, 1.0, 30.0, 1e5])
def test_orthogonal_matrices_are_made_of_rounded_skew_ones_of_any_size(
    architecture: dict[str, Any],
    parametrization: dict[str, Any],
    orthogonal_map: str,
    largest: float,
) -> None:
    given = {**parametrization, "orthogonal_map": orthogonal_map}
    full = spec_of(architecture, given, size=40)
    spec = full.model_copy(update={"bits": 8})
    network = full.build(seed=0).eval()
    with torch.no_grad():
        for name, value in network.named_parameters():
            if name in ("recurrent.u", "recurrent.v", "recurrent.a"):
                value.mul_(largest)
    round_(network, 8)
    content = export(network, spec)
    verify(content, network, spec)
    # Too large ones are stored whole.
    few = len(checkpoint.save_bytes(network, spec)) + 4_096
    assert (len(content) <= few) == (largest < 1e5)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("parametrization", [*REAL, *COMPLEX], ids=named)
def test_integers_with_scales_go_through_dequantize_linear_on_request(
    parametrization: dict[str, Any], bits: Bits
) -> None:
    cell = {"kind": "urnn"} if parametrization in COMPLEX else {"kind": "gru", "layers": 2}
    full = spec_of(cell, parametrization, size=33)
    network = trained(full)
    with pytest.raises(ExportError, match="'qdq' is for models of 8 or 4 bits; this one has 32"):
        export(network, full, FileOptions(quantization="qdq"))
    spec = full.model_copy(update={"bits": bits})
    round_(network, bits)
    for form in ("node", "loop"):
        options = FileOptions(form=form, quantization="qdq", guard=True)
        content = export(network, spec, options)
        onnx.checker.check_model(content, full_check=True)
        verify(content, network, spec, options)
        graph = onnx.load_from_string(content).graph
        integers = {onnx.TensorProto.INT8, onnx.TensorProto.INT4}
        sources = {tensor.name: tensor.data_type for tensor in graph.initializer}
        nodes = [node for node in graph.node if node.op_type == "DequantizeLinear"]
        assert len(nodes) >= 2
        assert {sources[node.input[0]] for node in nodes} <= integers


def test_embeddings_are_stored_as_integers() -> None:
    full = spec_of({"kind": "gru"}, {"kind": "dense"}, size=33, vocabulary=50)
    spec = full.model_copy(update={"bits": 4})
    network = trained(full)
    round_(network, 4)
    content = export(network, spec)
    verify(content, network, spec)
    assert len(content) <= len(checkpoint.save_bytes(network, spec)) + 3_000


def test_zero_reflectors_are_the_identity() -> None:
    spec = spec_of(
        {"kind": "rnn", "activation": "tanh"},
        {"kind": "householder_svd", "m1": 3, "m2": 3, "r": 0.1},
        size=48,
    )
    network = spec.build(seed=0).eval()
    with torch.no_grad():
        for name, value in network.named_parameters():
            if name.endswith("entries"):
                value.zero_()
    verify(export(network, spec), network, spec)


@pytest.mark.parametrize("size", [7, 8])
def test_unitary_matrices_with_one_value_many_times_have_a_logarithm(size: int) -> None:
    spec = spec_of({"kind": "urnn"}, {"kind": "unitary_full"}, size=size)
    network = spec.build(seed=0).eval()
    with torch.no_grad():
        network.get_parameter("recurrent.a").zero_()  # the identity: one value n times
    for entry in (0.0, 0.5):
        with torch.no_grad():
            network.get_parameter("recurrent.a")[0, 0, 0] = entry
        verify(export(network, spec), network, spec)


def test_layers_of_several_parametrizations_are_stored_each_in_its_own_way() -> None:
    members = [{"kind": "low_rank", "d": 4}, {"kind": "packed_rotations", "count": 3}]
    spec = spec_of({"kind": "gru", "layers": 2}, {"kind": "per_layer", "layers": members}, size=48)
    network = trained(spec)
    for form in ("node", "loop"):
        content = export(network, spec, FileOptions(form=form))
        verify(content, network, spec, FileOptions(form=form))
        assert len(content) <= 4 * spec.parameter_count() + 8_000


@pytest.mark.parametrize(
    "architecture",
    [
        {"kind": "gru", "structured_inputs": "all"},
        {"kind": "lstm", "peephole": True, "structured_inputs": "all"},
        {"kind": "mlp", "structured_inputs": "all"},
    ],
    ids=named,
)
def test_input_matrices_are_stored_by_their_numbers_too(architecture: dict[str, Any]) -> None:
    spec = spec_of(architecture, {"kind": "low_rank", "d": 3}, size=48, input_size=40)
    network = trained(spec)
    for form in ("node", "loop"):
        content = export(network, spec, FileOptions(form=form))
        verify(content, network, spec, FileOptions(form=form))
        assert len(content) <= 4 * spec.parameter_count() + 6_144


def test_the_choice_of_a_form_names_what_was_timed() -> None:
    spec = spec_of({"kind": "gru"}, {"kind": "low_rank", "d": 4}, size=32)
    found = choose_form(spec.build(seed=0), spec, batch_size=3, sequence_length=4)
    assert found.form in ("node", "loop")
    assert (found.batch_size, found.sequence_length) == (3, 4)
    assert set(found.seconds) == {"node", "loop", "dense"}
    assert found.speed_of_dense > 0


@pytest.mark.parametrize("parametrization", [*REAL, *COMPLEX], ids=named)
def test_files_of_either_form_have_one_size(parametrization: dict[str, Any]) -> None:
    cell = {"kind": "urnn"} if parametrization in COMPLEX else {"kind": "gru", "layers": 2}
    for size in (30, 64):
        spec = spec_of(cell, {**parametrization}, size=size)
        network = trained(spec)
        forms = forms_of(network)
        files = [
            export_filled(network, spec, FileOptions(form=form), extra={"checkpoint": "0" * 64})
            for form in forms
        ]
        assert len({len(content) for content in files}) == 1
        for form, content in zip(forms, files, strict=True):
            verify(content, network, spec, FileOptions(form=form))
        # The numbers change nothing.
        other = spec.build(seed=9).eval()
        extra = {"checkpoint": "1" * 64}
        assert len(export_filled(other, spec, FileOptions(), extra=extra)) == len(files[0])


def test_both_forms_of_a_file_give_the_same() -> None:
    spec = spec_of(
        {"kind": "gru"}, {"kind": "householder_svd", "m1": 2, "m2": 3, "r": 0.2}, size=64
    )
    network = trained(spec)
    x = torch.randn(4, 6, 5)
    whole, factored = (
        ran(export(network, spec, FileOptions(form=form)), x) for form in ("node", "loop")
    )
    torch.testing.assert_close(whole, factored, rtol=1e-4, atol=1e-5)


def test_a_rotation_of_one_dimension_has_no_integers_to_dequantize() -> None:
    full = spec_of({"kind": "gru"}, {"kind": "factorized_svd"}, size=1)
    spec = full.model_copy(update={"bits": 8})
    network = trained(full)
    round_(network, 8)
    verify(export(network, spec, FileOptions(quantization="qdq")), network, spec)
