"""What a user's file becomes: a checkpoint of our own form that computes the same."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import nn

from models import checkpoint
from models.errors import ModelError
from models.model import ModelSpec
from search.studies.task_fits import fitting_tasks, misfit
from search.tasks import Digits, Mnist
from search.training.model_reading import ModelFacts, ModelOptions, read_model
from tests.service.model_files import ours, perceptron, plain, raw, saved, spec_of, tensor, written

MEMORY = 2**31
BATCH = torch.linspace(-2, 2, 4 * 8 * 8).reshape(4, 8, 8)


def read(
    folder: Path, content: bytes, options: ModelOptions | None = None, *, memory: int = MEMORY
) -> tuple[ModelFacts, nn.Module]:
    out = folder / "checkpoint"
    facts = read_model(
        written(folder / "file", content),
        options or ModelOptions(),
        out=out,
        memory_bytes=memory,
    )
    loaded = checkpoint.load(out)
    assert loaded.spec == facts.spec
    assert loaded.spec.parametrization.kind == "dense"
    return facts, loaded.module.eval()


def refusal(folder: Path, content: bytes, *, memory: int = MEMORY) -> str:
    with pytest.raises(ModelError) as refused:
        read(folder, content, memory=memory)
    assert not (folder / "checkpoint").exists()
    return str(refused.value)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_a_recurrent_state_dict_computes_the_same(
    tmp_path: Path, kind: type[nn.RNNBase], layers: int
) -> None:
    module = plain(kind, num_layers=layers)
    facts, model = read(tmp_path, saved(module))
    assert (facts.source, facts.notes) == ("torch", ())
    assert facts.spec.architecture.kind == kind.__name__.lower()
    torch.testing.assert_close(model(BATCH), module(BATCH), rtol=1e-5, atol=1e-6)


def test_what_a_state_dict_does_not_tell_is_said(tmp_path: Path) -> None:
    module = plain(nn.RNN, nonlinearity="relu")
    _, model = read(tmp_path, saved(module), ModelOptions(nonlinearity="relu"))
    torch.testing.assert_close(model(BATCH), module(BATCH), rtol=1e-5, atol=1e-6)
    _, other = read(tmp_path, saved(module))
    assert not torch.allclose(other(BATCH), module(BATCH))
    every = ModelOptions(nonlinearity="relu", output_steps="every")
    _, model = read(tmp_path, saved(module), every)
    torch.testing.assert_close(model(BATCH), module.readout(module.rnn(BATCH)[0]))


def test_linear_layers_read_whole_sequences(tmp_path: Path) -> None:
    module = perceptron()
    facts, model = read(tmp_path, saved(module), ModelOptions(sequence_length=8))
    assert facts.spec.signature.sequence_length == 8
    torch.testing.assert_close(model(BATCH), module(BATCH.flatten(1)))
    assert "7" in refusal_of_options(tmp_path, saved(module), ModelOptions(sequence_length=7))


def refusal_of_options(folder: Path, content: bytes, options: ModelOptions) -> str:
    with pytest.raises(ModelError) as refused:
        read(folder, content, options)
    return str(refused.value)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_types_become_float32_and_it_is_said(tmp_path: Path, dtype: torch.dtype) -> None:
    module = plain(nn.LSTM).to(dtype)
    facts, model = read(tmp_path, saved(module))
    assert facts.notes == (f"numbers of type {str(dtype).removeprefix('torch.')} became float32",)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    torch.testing.assert_close(model(BATCH), module.float()(BATCH), rtol=1e-5, atol=1e-6)


def test_tensors_of_several_types_become_one(tmp_path: Path) -> None:
    state = plain().state_dict()
    state["readout.weight"] = state["readout.weight"].half()
    facts, _ = read(tmp_path, safetensors.torch.save(state))
    assert facts.notes == ("numbers of type float16 became float32",)


ARCHITECTURES = [
    {"kind": "rnn", "hidden_size": 6, "activation": "abs"},
    {"kind": "lstm", "hidden_size": 6, "peephole": True},
    {"kind": "gru", "hidden_size": 6, "layers": 2},
    {"kind": "urnn", "hidden_size": 6},
    {"kind": "mlp", "hidden_size": 6},
    {"kind": "resnet", "hidden_size": 6},
    {"kind": "highway", "hidden_size": 6, "stack": "batch_normalised"},
]


@pytest.mark.parametrize("architecture", ARCHITECTURES, ids=lambda given: given["kind"])
def test_a_checkpoint_of_ours_stays_what_it_is(tmp_path: Path, architecture: dict) -> None:
    spec = spec_of(architecture)
    network, content = ours(spec)
    facts, model = read(tmp_path, content)
    assert (facts.source, facts.spec, facts.notes) == ("reflectory", spec, ())
    torch.testing.assert_close(model(BATCH), network.eval()(BATCH), rtol=0, atol=0)


@pytest.mark.parametrize(
    "parametrization",
    [{"kind": "low_rank", "d": 2}, {"kind": "householder_svd", "m1": 2, "m2": 3}],
    ids=lambda given: given["kind"],
)
def test_structured_matrices_are_folded_and_it_is_said(
    tmp_path: Path, parametrization: dict
) -> None:
    network, content = ours(spec_of(ARCHITECTURES[2], **parametrization))
    facts, model = read(tmp_path, content)
    assert facts.notes == (f"matrices stored as {parametrization['kind']} became plain ones",)
    torch.testing.assert_close(model(BATCH), network.eval()(BATCH), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("parametrization", [{"kind": "dense"}, {"kind": "low_rank", "d": 2}])
def test_numbers_of_few_bits_become_plain_ones_and_it_is_said(
    tmp_path: Path, parametrization: dict, bits: int
) -> None:
    spec = spec_of(ARCHITECTURES[2], **parametrization).model_copy(update={"bits": bits})
    network = spec.build(seed=4)
    facts, model = read(tmp_path, checkpoint.save_bytes(network, spec))
    assert facts.source == "reflectory"
    assert facts.spec.bits == 32
    assert facts.notes[0] == f"numbers of {bits} bits became float32"
    torch.testing.assert_close(model(BATCH), network.eval()(BATCH), rtol=1e-4, atol=1e-5)


def test_integers_are_read_of_rounded_checkpoints_alone(tmp_path: Path) -> None:
    spec = spec_of(ARCHITECTURES[0]).model_copy(update={"bits": 8})
    content = checkpoint.save_bytes(spec.build(seed=4), spec)
    tensors = safetensors.torch.load(content)
    told = refusal(tmp_path, safetensors.torch.save(tensors))
    assert "has the type" in told
    assert "allowed are F16, BF16, F32, F64" in told


def test_two_numbers_of_four_bits_are_one_of_a_tensors(tmp_path: Path) -> None:
    document = {**spec_of(ARCHITECTURES[0]).model_dump(mode="json"), "bits": 4}
    metadata = {"format": checkpoint.ROUNDED_FORMAT, "spec": json.dumps(document)}
    content = raw({"__metadata__": metadata, "a": tensor([4], 0, 4, "U8")}, bytes(4))
    assert "parameters, and its tensors have 8" in refusal(tmp_path, content)


def test_options_are_none_of_a_checkpoints(tmp_path: Path) -> None:
    _, content = ours(spec_of(ARCHITECTURES[0]))
    assert "nonlinearity" in refusal_of_options(tmp_path, content, ModelOptions(nonlinearity="abs"))


def forged(spec: dict | str, metadata: dict | None = None) -> bytes:
    """A file that says it is a checkpoint of ours."""
    document = spec if isinstance(spec, str) else json.dumps(spec)
    head = {"format": checkpoint.FORMAT, "spec": document, **(metadata or {})}
    return raw({"__metadata__": head, "a": tensor([1], 0, 4)}, bytes(4))


def test_a_forged_spec_takes_no_memory(tmp_path: Path) -> None:
    document = spec_of(ARCHITECTURES[0]).model_dump(mode="json")
    for changes in (
        {"architecture": {"kind": "lstm", "hidden_size": 65536, "layers": 128}},
        {"architecture": {"kind": "mlp", "hidden_size": 65536, "layers": 1024}},
        {"signature": {"input_size": 10**30, "sequence_length": 1, "output_size": 10**30}},
        {"signature": {**document["signature"], "vocabulary": 10**40}},
    ):
        assert "parameters, and its tensors" in refusal(tmp_path, forged({**document, **changes}))


def test_what_becomes_large_when_it_is_folded_is_refused_before(tmp_path: Path) -> None:
    _, content = ours(spec_of({"kind": "rnn", "hidden_size": 512}, kind="low_rank", d=1))
    told = refusal(tmp_path, content, memory=2**24)
    assert "with plain matrices the model has 272394 numbers" in told
    assert "REFLECTORY_UPLOAD_MEMORY" in told


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("{", "spec is not valid"),
        ("[]", "spec is not valid"),
        ({"architecture": {"kind": "transformer"}}, "spec is not valid"),
        ("[" * 100_000, "spec is not valid"),
    ],
    ids=["cut", "list", "unknown", "deep"],
)
def test_a_broken_spec_is_refused(tmp_path: Path, spec: dict | str, words: str) -> None:
    told = refusal(tmp_path, forged(spec))
    assert words in told
    assert len(told) < 2100


def test_a_damaged_checkpoint_of_ours_is_known_by_its_digest(tmp_path: Path) -> None:
    _, content = ours(spec_of(ARCHITECTURES[0]))
    told = refusal(tmp_path, content[:-1] + bytes([content[-1] ^ 1]))
    assert "digest" in told
    assert str(tmp_path) not in told


@pytest.mark.parametrize("name", ["rnn.weight_hh_l999999999", "weight_ih_l" + "9" * 150])
def test_a_layer_of_absurd_number_takes_no_memory(tmp_path: Path, name: str) -> None:
    state = {**plain().state_dict(), name: torch.ones(18, 6)}
    assert "layers below 10000" in refusal(tmp_path, safetensors.torch.save(state))


def test_more_layers_than_an_architecture_may_have_are_refused(tmp_path: Path) -> None:
    module = plain(nn.RNN, num_layers=129)
    told = refusal(tmp_path, saved(module))
    assert "layers = 129" in told
    assert "128" in told


def test_a_message_about_very_many_tensors_stays_readable(tmp_path: Path) -> None:
    state = {f"conv{number}.kernel": torch.ones(1, 1, 1) for number in range(3000)}
    told = refusal(tmp_path, safetensors.torch.save(state))
    assert "conv0.kernel" in told
    assert told.endswith("... (and more)")
    assert len(told) < 2100


_READER = """
import sys
from pathlib import Path
import torch
from search.training.model_reading import ModelOptions, read_model
from models.errors import ModelError

torch.set_num_threads(1)
def peak():
    # Of this program alone: what getrusage tells begins with its parent's.
    (line,) = (one for one in open("/proc/self/status") if one.startswith("VmHWM"))
    return int(line.split()[1]) * 1024
small, large, out = map(Path, sys.argv[1:4])
read_model(small, ModelOptions(), out=out, memory_bytes=2**31)
before = peak()
try:
    read_model(large, ModelOptions(), out=out, memory_bytes=int(sys.argv[4]))
    print("taken", peak() - before)
except ModelError as error:
    print("refused", peak() - before)
"""


@pytest.mark.parametrize("kind", ["torch", "low_rank"])
def test_reading_stays_within_its_memory(tmp_path: Path, kind: str) -> None:
    hidden = 512
    if kind == "torch":
        module = nn.ModuleDict({"rnn": nn.GRU(hidden, hidden), "out": nn.Linear(hidden, 8)})
        large, small, numbers = saved(module), saved(plain()), 6 * hidden**2
    else:
        spec, little = (
            spec_of({"kind": "lstm", "hidden_size": size}, kind="low_rank", d=4)
            for size in (hidden, 8)
        )
        large, small, numbers = ours(spec)[1], ours(little)[1], spec.dense_twin().parameter_count()
    files = [written(tmp_path / "small", small), written(tmp_path / "large", large)]
    per_number = 96 if kind == "low_rank" else 40

    def run(memory: int) -> tuple[str, int]:
        command = [sys.executable, "-c", _READER, *map(str, files), str(tmp_path / "out")]
        done = subprocess.run(
            [*command, str(memory)], capture_output=True, text=True, timeout=1200, check=True
        )
        word, taken = done.stdout.split()
        return word, int(taken)

    enough = per_number * (numbers + 200_000)
    word, taken = run(enough)
    assert word == "taken"
    # At least the numbers as they are read and as they are written.
    assert 8 * numbers < taken < enough, f"{taken / numbers:.1f} bytes per number"
    if kind == "torch":
        word, taken = run(per_number * (numbers - 200_000))
        assert word == "refused"
        assert taken < 2**22


def test_a_model_names_the_tasks_whose_shapes_it_has(tmp_path: Path) -> None:
    rows = ModelSpec.model_validate(
        {**spec_of(ARCHITECTURES[2]).model_dump(), "signature": Digits().signature()}
    )
    assert [fit.model_dump() for fit in fitting_tasks(rows)] == [
        {"task": "digits", "layout": "rows"}
    ]
    whole = rows.model_copy(update={"architecture": spec_of(ARCHITECTURES[4]).architecture})
    assert {fit.layout for fit in fitting_tasks(whole)} == {"rows", "pixels"}
    told = misfit(rows, Mnist().signature())
    assert told == "the model has features per step 8, and the task has 28"
    assert misfit(rows, rows.signature.model_copy(update={"sequence_length": 99})) is None
    tokens = rows.signature.model_copy(update={"vocabulary": 7})
    assert "vocabulary" in (misfit(rows, tokens) or "")
