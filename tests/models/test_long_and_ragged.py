"""Sequences that go on from where they were, that differ in length, and that are made of tokens."""

from typing import Any

import pytest
import torch

from models.checkpoint import load, save_bytes
from models.errors import InputError, SpecError
from models.exports.onnx.export import export
from models.exports.onnx.verify import verify
from models.fused import fuse
from models.model import ModelSpec
from models.report import parameter_report
from models.spec import Signature

NUMBERS = Signature(input_size=3, sequence_length=9, output_size=4)
TOKENS = Signature(input_size=5, sequence_length=9, output_size=11, vocabulary=11)
CELLS = [
    {"kind": "rnn", "activation": "tanh"},
    {"kind": "rnn", "activation": "abs"},
    {"kind": "gru", "reset": "before"},
    {"kind": "gru", "reset": "after"},
    {"kind": "gru", "reset": "after", "candidate_bias": True},
    {"kind": "lstm"},
]
PARAMETRIZATIONS = [{"kind": "dense"}, {"kind": "low_rank_diagonal", "d": 2}]


def spec_of(
    cell: dict[str, Any],
    parametrization: dict[str, Any] | None = None,
    signature: Signature = NUMBERS,
    *,
    steps: str = "last",
    layers: int = 2,
) -> ModelSpec:
    return ModelSpec.model_validate(
        {
            "architecture": {"hidden_size": 6, "layers": layers, **cell},
            "parametrization": parametrization or {"kind": "dense"},
            "signature": signature.model_copy(update={"output_steps": steps}),
        }
    )


def started(spec: ModelSpec, seed: int = 0):
    network = spec.build(seed=seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return network


@pytest.mark.parametrize("backend", ["cpp", "torch"])
@pytest.mark.parametrize("parametrization", PARAMETRIZATIONS, ids=lambda p: p["kind"])
@pytest.mark.parametrize("cell", CELLS, ids=lambda c: "-".join(map(str, c.values())))
def test_padding_changes_neither_answers_nor_gradients(
    cell, parametrization, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REFLECTORY_BACKEND", backend)
    network = started(spec_of(cell, parametrization))
    lengths = torch.tensor([9, 1, 4, 8])
    x = torch.randn(4, 9, 3)
    for row, length in enumerate(lengths):
        x[row, length:] = 1e3 * torch.randn(9 - int(length), 3)
    together = network(x, lengths=lengths)
    grads = torch.autograd.grad(together.square().sum(), list(network.parameters()))
    alone = torch.cat([network(x[i : i + 1, :length]) for i, length in enumerate(lengths)])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-4)
    expected = torch.autograd.grad(alone.square().sum(), list(network.parameters()))
    for one, other in zip(grads, expected, strict=True):
        # Sums over all samples in another order: roundings of the largest entry.
        torch.testing.assert_close(one, other, atol=1e-4 * float(other.abs().max()), rtol=1e-3)
    torch.testing.assert_close(
        fuse(network)(x, lengths=lengths), alone.detach(), atol=1e-5, rtol=1e-4
    )


@pytest.mark.parametrize("parametrization", PARAMETRIZATIONS, ids=lambda p: p["kind"])
@pytest.mark.parametrize("cell", CELLS, ids=lambda c: "-".join(map(str, c.values())))
@pytest.mark.parametrize("steps", ["last", "every"])
def test_a_sequence_in_pieces_is_the_sequence(cell, parametrization, steps: str) -> None:
    network = started(spec_of(cell, parametrization, steps=steps))
    x = torch.randn(4, 9, 3)
    whole = network(x)
    state, outputs = (), []
    for piece in (x[:, :2], x[:, 2:3], x[:, 3:]):
        output, state = network.step(piece, state)
        outputs.append(output)
    found = torch.cat(outputs, dim=1) if steps == "every" else outputs[-1]
    torch.testing.assert_close(found, whole, atol=1e-5, rtol=1e-4)
    assert len(state) == (4 if cell["kind"] == "lstm" else 2)


@pytest.mark.parametrize("cell", CELLS, ids=lambda c: "-".join(map(str, c.values())))
@pytest.mark.parametrize("steps", ["last", "every"])
def test_tokens_are_embedded_counted_stored_and_exported(cell, steps: str) -> None:
    spec = spec_of(cell, {"kind": "low_rank", "d": 2}, TOKENS, steps=steps)
    network = started(spec)
    tokens = torch.randint(11, (4, 7))
    numbers = spec_of(
        cell,
        {"kind": "low_rank", "d": 2},
        TOKENS.model_copy(update={"vocabulary": None}),
        steps=steps,
    ).build(seed=1)
    held = network.state_dict()
    table = held.pop("embedding.weight")
    numbers.load_state_dict(held)
    torch.testing.assert_close(network(tokens), numbers(table[tokens]))
    count = sum(parameter.numel() for parameter in network.parameters())
    assert spec.parameter_count() == count == parameter_report(spec).totals.parameters
    assert count - sum(p.numel() for p in numbers.parameters()) == 11 * 5
    loaded = load(save_bytes(network, spec)).module.eval()
    torch.testing.assert_close(loaded(tokens), network.eval()(tokens))
    content = export(network, spec)
    assert verify(content, network, spec) <= 1


def test_main_parameters_are_those_of_the_papers_that_count_recurrent_matrices_alone() -> None:
    signature = Signature(
        input_size=128,
        sequence_length=300,
        output_size=10_000,
        output_steps="every",
        vocabulary=10_000,
    )

    def main(cell: dict[str, Any], parametrization: dict[str, Any]) -> int:
        model = spec_of(cell, parametrization, signature, steps="every", layers=1)
        return parameter_report(model).totals.main_parameters

    # Spectral-RNN, Table 3 (PTB): 16 Ki, 64 Ki and, for two layers of 31.5 Ki each, 63 Ki.
    assert main({"kind": "rnn", "hidden_size": 128}, {"kind": "dense"}) == 16 * 1024
    assert main({"kind": "lstm", "hidden_size": 128}, {"kind": "dense"}) == 64 * 1024
    spectral = {"kind": "householder_svd", "m1": 32, "m2": 32}
    assert main({"kind": "rnn", "hidden_size": 512}, spectral) == 32_288


def test_what_does_not_fit_is_refused_with_what_is_allowed() -> None:
    network = spec_of(CELLS[0]).build(seed=0)
    x = torch.zeros(2, 9, 3)
    with pytest.raises(InputError, match=r"lengths of shape \[3\].*allowed are \[2\]"):
        network(x, lengths=torch.ones(3, dtype=torch.int64))
    with pytest.raises(
        InputError, match=r"1 parts \(\[2, 5\]\).*allowed are none, or 2 of \[2, 6\]"
    ):
        network.step(x, (torch.zeros(2, 5),))
    reader = spec_of(CELLS[0], signature=TOKENS).build(seed=0)
    with pytest.raises(InputError, match=r"allowed are tokens \[batch, steps >= 1\]"):
        reader(torch.zeros(2, 9, 5))
    with pytest.raises(SpecError, match="tokens"):
        spec_of({"kind": "mlp", "layers": 2, "hidden_size": 6}, signature=TOKENS).check()
    plain = ModelSpec.model_validate(
        {
            "architecture": {"kind": "mlp", "hidden_size": 6, "layers": 2},
            "parametrization": {"kind": "dense"},
            "signature": NUMBERS,
        }
    ).build(seed=0)
    with pytest.raises(InputError, match="has no state"):
        plain.step(x, ())
