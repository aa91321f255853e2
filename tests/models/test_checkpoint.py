import json
import struct
from pathlib import Path

import pytest
import safetensors
import safetensors.torch
import torch

from models import checkpoint
from models.architectures import Rnn
from models.errors import CheckpointError
from models.interface import Classes, Interface, Numbers, Standardise
from models.model import ModelSpec
from models.parametrizations import HouseholderSvd
from models.spec import Signature

SPEC = ModelSpec(
    architecture=Rnn(hidden_size=6),
    parametrization=HouseholderSvd(m1=6, m2=2, r=0.1),
    signature=Signature(input_size=3, sequence_length=4, output_size=2),
)


@pytest.fixture
def content() -> bytes:
    return checkpoint.save_bytes(SPEC.build(seed=0), SPEC, extra={"epoch": "7"})


def forged(content: bytes, **changes: str) -> bytes:
    """The same tensors with other metadata, under a digest that fits."""
    header, data = checkpoint._split(content)
    metadata = {**header.pop("__metadata__"), **changes}
    del metadata["sha256"]
    metadata["sha256"] = checkpoint._digest(header, metadata, data)
    return checkpoint._join(header, metadata, data)


def test_a_file_is_plain_safetensors_with_the_spec_in_its_metadata(
    content: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with safetensors.safe_open(path, framework="pt") as file:
        metadata = file.metadata()
        names = set(file.keys())
    assert json.loads(metadata["spec"]) == SPEC.model_dump(mode="json")
    assert metadata["epoch"] == "7"
    assert names == set(SPEC.tensor_shapes())
    assert "recurrent.u.sign" in names


def test_equal_models_give_equal_bytes(content: bytes) -> None:
    again = checkpoint.save_bytes(SPEC.build(seed=0), SPEC, extra={"epoch": "7"})
    other = checkpoint.save_bytes(SPEC.build(seed=1), SPEC, extra={"epoch": "7"})
    assert content == again
    assert content != other


def test_signs_double_precision_and_extras_come_back() -> None:
    model = SPEC.build(seed=0).double()
    sign = model.get_buffer("recurrent.u.sign")
    sign.fill_(1)
    loaded = checkpoint.load(checkpoint.save_bytes(model, SPEC, extra={"note": "ü\n"}))
    assert loaded.metadata == {"note": "ü\n"}
    assert loaded.module.get_buffer("recurrent.u.sign").tolist() == [1.0]
    x = torch.randn(2, 4, 3, dtype=torch.float64)
    assert torch.equal(loaded.module(x), model(x))


def test_a_file_is_named_by_text_as_by_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    checkpoint.save("model.safetensors", SPEC.build(seed=0), SPEC)
    for source in ("model.safetensors", Path("model.safetensors")):
        assert checkpoint.load(source).spec == SPEC
    with pytest.raises(FileNotFoundError, match=r"other\.safetensors"):
        checkpoint.load("other.safetensors")


def test_a_file_is_replaced_whole_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    for seed in (0, 1):
        checkpoint.save(path, SPEC.build(seed=seed), SPEC)
        stored = checkpoint.load(path).module.state_dict()
        assert torch.equal(stored["recurrent.p"], SPEC.build(seed=seed).state_dict()["recurrent.p"])
        assert torch.equal(
            stored["inputs.0.weight"], SPEC.build(seed=seed).state_dict()["inputs.0.weight"]
        )
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.safetensors"
    checkpoint.save(path, SPEC.build(seed=0), SPEC)
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        checkpoint.save(path, SPEC.build(seed=1), SPEC)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("kept", [0, 4, 8, 100, -1])
def test_a_cut_off_file_is_refused_by_name(content: bytes, kept: int, tmp_path: Path) -> None:
    path = tmp_path / "cut.safetensors"
    path.write_bytes(content[:kept])
    with pytest.raises(CheckpointError, match=r"cut\.safetensors: not a safetensors file"):
        checkpoint.load(path)


def test_a_single_changed_bit_anywhere_is_refused(content: bytes) -> None:
    for position in range(0, len(content), 37):
        damaged = bytearray(content)
        damaged[position] ^= 4
        with pytest.raises(CheckpointError):
            checkpoint.load(bytes(damaged))


def test_foreign_files_are_refused() -> None:
    foreign = safetensors.torch.save({"weight": torch.zeros(2)}, {"format": "pt"})
    with pytest.raises(CheckpointError, match="another kind"):
        checkpoint.load(foreign)
    with pytest.raises(CheckpointError, match="another kind"):
        checkpoint.load(safetensors.torch.save({"weight": torch.zeros(2)}))
    for junk in (b"", b"PK\x03\x04 a zip", struct.pack("<Q", 2**60) + b"{}"):
        with pytest.raises(CheckpointError, match=f"{len(junk)} bytes: not a safetensors file"):
            checkpoint.load(junk)


def test_tensors_that_do_not_fit_the_spec_are_refused_by_name(content: bytes) -> None:
    larger = SPEC.model_copy(update={"architecture": Rnn(hidden_size=8)})
    with pytest.raises(
        CheckpointError, match=r"'initial_state' has shape \[1, 1, 6\].* \[1, 1, 8\]"
    ):
        checkpoint.load(forged(content, spec=larger.model_dump_json()))
    with pytest.raises(CheckpointError, match=r"'recurrent\.weight' is missing"):
        checkpoint.load(forged(content, spec=SPEC.dense_twin().model_dump_json()))
    fewer = SPEC.model_copy(
        update={"architecture": Rnn(hidden_size=6, learned_initial_state=False)}
    )
    with pytest.raises(CheckpointError, match="'initial_state' is not part"):
        checkpoint.load(forged(content, spec=fewer.model_dump_json()))


def test_a_giant_spec_is_refused_before_memory_is_taken(content: bytes) -> None:
    giant = SPEC.dense_twin().model_copy(update={"architecture": Rnn(hidden_size=65536)})
    with pytest.raises(CheckpointError, match="has shape"):
        checkpoint.load(forged(content, spec=giant.model_dump_json()))


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        ("{", "its spec is not valid"),
        ("{}", "architecture"),
        (SPEC.model_dump_json().replace('"m1":6', '"m1":60'), "m1 = 60 .* 1 to 6"),
        (SPEC.model_dump_json().replace('"rnn"', '"nrr"'), "architecture"),
    ],
)
def test_an_invalid_spec_is_refused_with_its_fault(content: bytes, spec: str, fault: str) -> None:
    with pytest.raises(CheckpointError, match=fault):
        checkpoint.load(forged(content, spec=spec))


def test_mixed_types_are_refused() -> None:
    tensors = SPEC.build(seed=0).state_dict()
    tensors["readout.bias"] = tensors["readout.bias"].double()
    plain = safetensors.torch.save(tensors)
    header, data = checkpoint._split(plain)
    metadata = {"format": checkpoint.FORMAT, "spec": SPEC.model_dump_json()}
    digest = checkpoint._digest(header, metadata, data)
    content = checkpoint._join(header, {**metadata, "sha256": digest}, data)
    with pytest.raises(CheckpointError, match=r"float32, torch\.float64"):
        checkpoint.load(content)


def test_extras_cannot_take_the_formats_own_names() -> None:
    with pytest.raises(ValueError, match="'spec'"):
        checkpoint.save_bytes(SPEC.build(seed=0), SPEC, extra={"spec": "mine"})


def test_a_missing_file_is_the_systems_own_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        checkpoint.load(tmp_path / "none")


INTERFACE = Interface(
    sample=("steps", 3),
    inputs=(Standardise(means=(1e6, 0.0, -1.0), deviations=(2.0, 1.0, 0.5)),),
    answer=Classes(classes=("süß", "'sauer'")),
    padded=True,
    metric="accuracy",
)


def with_interface(interface: Interface) -> bytes:
    extra = {checkpoint.INTERFACE: interface.model_dump_json()}
    return checkpoint.save_bytes(SPEC.build(seed=0), SPEC, extra=extra)


def test_what_stands_around_a_network_travels_with_it() -> None:
    loaded = checkpoint.load(with_interface(INTERFACE))
    assert loaded.interface == INTERFACE
    assert loaded.labels == ("süß", "'sauer'")
    x = torch.tensor([[[1e6 + 4, 1.0, -1.0], [7.0, 7.0, 7.0]]])
    read = loaded.preprocess(x, torch.tensor([1]))
    assert read.tolist() == [[[2.0, 1.0, 0.0], [0.0, 0.0, 0.0]]]
    reply = loaded.postprocess(torch.tensor([[0.5, 0.75], [2.0, -1.0]]))
    assert reply.label is not None
    assert reply.label.tolist() == [1, 0]
    assert reply.numbers.tolist() == [[0.5, 0.75], [2.0, -1.0]]
    numbers = INTERFACE.model_copy(update={"answer": Numbers(means=(5.0, 0.0), deviations=(2, 1))})
    told = checkpoint.load(with_interface(numbers))
    assert told.labels is None
    assert told.postprocess(torch.tensor([[1.0, 1.0]])).numbers.tolist() == [[7.0, 1.0]]


def test_a_checkpoint_without_an_interface_says_so_when_it_is_asked(content: bytes) -> None:
    loaded = checkpoint.load(content)
    assert loaded.interface is None
    assert loaded.labels is None
    for ask in (loaded.preprocess, loaded.postprocess):
        with pytest.raises(CheckpointError, match="the checkpoint has no interface"):
            ask(torch.zeros(1, 4, 3))


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ("{}", "its interface is not valid: sample: Field required"),
        ("nonsense", "its interface is not valid"),
        (
            INTERFACE.model_copy(
                update={"answer": Classes(classes=tuple("abc"))}
            ).model_dump_json(),
            "its interface names 3 answers; the model gives 2",
        ),
        (
            INTERFACE.model_copy(
                update={"answer": Numbers(means=(1.0,), deviations=(1.0,))}
            ).model_dump_json(),
            "its interface names 1 answers; the model gives 2",
        ),
    ],
)
def test_an_interface_that_cannot_be_the_networks_is_refused(
    content: bytes, told: str, message: str
) -> None:
    with pytest.raises(CheckpointError, match=message):
        checkpoint.load(forged(content, interface=told))
