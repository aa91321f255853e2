"""Files of models with few bits: `reflectory.checkpoint.2`."""

import json
import math

import pytest
import safetensors.torch
import torch
from torch import Tensor

from models import checkpoint
from models.architectures import Gru, Rnn
from models.checkpoint import layout_of
from models.errors import CheckpointError, RoundingError
from models.model import ModelSpec
from models.parametrizations import HouseholderSvd, LowRank, PackedRotations, PerLayer
from models.quantization import Bits, encoded
from models.spec import Signature

SIGNATURE = Signature(input_size=3, sequence_length=4, output_size=5)
BITS: tuple[Bits, ...] = (8, 4)


def spec_of(bits: int, parametrization: object = None) -> ModelSpec:
    document = {
        "architecture": Gru(hidden_size=7),
        "parametrization": LowRank(d=2, tied=True) if parametrization is None else parametrization,
        "signature": SIGNATURE,
        "bits": bits,
    }
    return ModelSpec.model_validate(document)


def tensors_of(content: bytes) -> dict[str, Tensor]:
    return safetensors.torch.load(content)


def metadata_of(content: bytes) -> dict[str, str]:
    return checkpoint._split(content)[0]["__metadata__"]


def forged(content: bytes, tensors: dict[str, Tensor], **changes: str) -> bytes:
    """Other tensors and metadata under a digest that fits."""
    metadata = {**metadata_of(content), **changes}
    del metadata["sha256"]
    header, data = checkpoint._split(safetensors.torch.save(tensors))
    digest = checkpoint._digest(header, metadata, data)
    return checkpoint._join(header, {**metadata, "sha256": digest}, data)


@pytest.mark.parametrize("bits", BITS)
def test_a_file_holds_the_integers_and_the_scales(bits: Bits) -> None:
    spec = spec_of(bits)
    network = spec.build(seed=0)
    content = checkpoint.save_bytes(network, spec, extra={"epoch": "7"})
    found, metadata = tensors_of(content), metadata_of(content)
    assert metadata["format"] == "reflectory.checkpoint.2"
    assert json.loads(metadata["spec"])["bits"] == bits
    assert metadata["epoch"] == "7"
    for name, rounded in encoded(network, bits).items():
        assert torch.equal(found.pop(name), rounded.stored())
        assert rounded.scale is not None
        assert torch.equal(found.pop(f"{name}.scale"), rounded.scale)
    state = network.state_dict()
    assert set(found) == {"initial_state", "inputs.0.bias", "readout.bias"}
    assert all(torch.equal(tensor, state[name]) for name, tensor in found.items())


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize(
    "parametrization", [None, HouseholderSvd(m1=7, m2=3), PackedRotations(count=3)]
)
def test_the_layout_is_known_before_anything_is_built(bits: Bits, parametrization: object) -> None:
    spec = spec_of(bits, parametrization)
    found = tensors_of(checkpoint.save_bytes(spec.build(seed=0), spec))
    assert layout_of(spec) == {n: (t.dtype, tuple(t.shape)) for n, t in found.items()}


def test_models_of_32_bits_are_written_as_they_always_were() -> None:
    spec = spec_of(32)
    content = checkpoint.save_bytes(spec.build(seed=0), spec)
    metadata = metadata_of(content)
    assert metadata["format"] == "reflectory.checkpoint.1"
    assert "bits" not in json.loads(metadata["spec"])
    assert checkpoint.load(content).spec == spec
    assert {tensor.dtype for tensor in tensors_of(content).values()} == {torch.float32}


@pytest.mark.parametrize("bits", BITS)
def test_layers_of_their_own_and_embeddings_come_back(bits: Bits) -> None:
    """Beside what the conformance suite has: rows of an embedding have a scale each."""
    spec = ModelSpec.model_validate(
        {
            "architecture": Rnn(hidden_size=6, layers=2, structured_inputs="all"),
            "parametrization": PerLayer(
                layers=(LowRank(d=2, weight_norm=True), HouseholderSvd(m1=6, m2=3))
            ),
            "signature": SIGNATURE.model_copy(update={"vocabulary": 11}),
            "bits": bits,
        }
    )
    network = spec.build(seed=0).eval()
    content = checkpoint.save_bytes(network, spec)
    found = tensors_of(content)
    assert found["embedding.weight.scale"].shape == (11, 1)
    for name in ("recurrent.layers.0.left.direction", "recurrent.layers.1.u.entries"):
        assert not found[name].is_floating_point()
        assert f"{name}.scale" not in found
    loaded = checkpoint.load(content).module.eval()
    tokens = torch.arange(8).view(2, 4)
    assert torch.equal(loaded(tokens), network(tokens))


@pytest.mark.parametrize("bits", BITS)
def test_what_is_not_rounded_is_not_written(bits: Bits) -> None:
    spec = spec_of(bits)
    with pytest.raises(RoundingError, match=rf"recurrent\.left is not rounded to {bits} bits"):
        checkpoint.save_bytes(spec.unrounded.build(seed=0), spec)
    network = spec.build(seed=0)
    with torch.no_grad():
        network.get_parameter("inputs.0.weight")[3, 1] = math.inf
    with pytest.raises(RoundingError, match=r"inputs\.0\.weight has inf at \[3, 1\]"):
        checkpoint.save_bytes(network, spec)


def test_numbers_of_any_type_are_written_alike() -> None:
    spec = spec_of(8)
    network = spec.build(seed=0)
    plain = checkpoint.save_bytes(network, spec)
    assert checkpoint.save_bytes(network.double(), spec) == plain


def test_a_spec_and_a_format_that_contradict_each_other_are_refused() -> None:
    spec = spec_of(8)
    content = checkpoint.save_bytes(spec.build(seed=0), spec)
    tensors = tensors_of(content)
    with pytest.raises(CheckpointError, match=r"spec has 8 bits; allowed .*checkpoint\.2"):
        checkpoint.load(forged(content, tensors, format="reflectory.checkpoint.1"))
    plain = spec.unrounded.model_dump_json()
    with pytest.raises(CheckpointError, match=r"spec has 32 bits; allowed .*checkpoint\.1"):
        checkpoint.load(forged(content, tensors, spec=plain))
    with pytest.raises(CheckpointError, match=r"allowed are .*checkpoint\.1.* and .*checkpoint\.2"):
        checkpoint.load(forged(content, tensors, format="reflectory.checkpoint.3"))
    odd = spec.model_dump_json().replace('"bits":8', '"bits":16')
    with pytest.raises(CheckpointError, match=r"spec is not valid: bits: .*32, 8 or 4"):
        checkpoint.load(forged(content, tensors, spec=odd))


@pytest.mark.parametrize("bits", BITS)
def test_tensors_that_do_not_fit_are_refused_by_name(bits: Bits) -> None:
    spec = spec_of(bits)
    content = checkpoint.save_bytes(spec.build(seed=0), spec)
    tensors = tensors_of(content)

    def refused(match: str, **changes: Tensor | None) -> None:
        changed = {**tensors, **{name.replace("__", "."): t for name, t in changes.items()}}
        found = {name: tensor for name, tensor in changed.items() if tensor is not None}
        with pytest.raises(CheckpointError, match=match):
            checkpoint.load(forged(content, found))

    refused(r"'recurrent\.left' is missing", recurrent__left=None)
    refused(r"'recurrent\.left\.scale' is missing", recurrent__left__scale=None)
    refused("'extra' is not part", extra=torch.zeros(2))
    refused(r"'recurrent\.left' is torch\.float32", recurrent__left=torch.zeros(3, 7, 2))
    wide = tensors["recurrent.left.scale"].float()
    refused(r"'recurrent\.left\.scale' is torch\.float32", recurrent__left__scale=wide)
    integers = tensors["recurrent.left"]
    refused(r"'recurrent\.left' is .*shape", recurrent__left=integers.flatten()[:-1].clone())
    refused("its spec makes it torch.float32", readout__bias=tensors["readout.bias"].double())


def test_integers_that_nobody_rounded_to_are_refused() -> None:
    """An export finds the integers in the parameters: they have to be these."""
    spec = spec_of(8)
    content = checkpoint.save_bytes(spec.build(seed=0), spec)
    tensors = tensors_of(content)
    for wrong in (tensors["readout.weight"] // 2, torch.full((5, 7), -128, dtype=torch.int8)):
        with pytest.raises(CheckpointError, match=r"readout\.weight"):
            checkpoint.load(forged(content, {**tensors, "readout.weight": wrong}))
    scale = tensors["readout.weight.scale"].clone()
    scale[0] = math.nan
    with pytest.raises(CheckpointError, match=r"readout\.weight has nan"):
        checkpoint.load(forged(content, {**tensors, "readout.weight.scale": scale}))


def test_a_single_changed_bit_anywhere_is_refused() -> None:
    spec = spec_of(4)
    content = checkpoint.save_bytes(spec.build(seed=0), spec)
    for position in range(0, len(content), 37):
        damaged = bytearray(content)
        damaged[position] ^= 4
        with pytest.raises(CheckpointError):
            checkpoint.load(bytes(damaged))


def test_files_shrink_with_the_bits() -> None:
    """By more than 3 and by more than 5 where matrices are most of a model, header and all."""
    sizes: dict[int, int] = {}
    for bits in (32, 8, 4):
        spec = ModelSpec.model_validate(
            {
                "architecture": Rnn(hidden_size=128),
                "parametrization": LowRank(d=32),
                "signature": SIGNATURE,
                "bits": bits,
            }
        )
        sizes[bits] = len(checkpoint.save_bytes(spec.build(seed=0), spec))
    assert sizes[32] > 2.8 * sizes[8] > 4 * sizes[4]
