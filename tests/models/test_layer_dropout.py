"""Dropout of what enters layers and of symbols, and starts within one bound, by short loops."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from models.architectures import Gru, Lstm, Rnn
from models.architectures.recurrent_network import RecurrentNetwork
from models.model import ModelSpec
from models.parametrizations import Dense, Householder, LowRankDiagonal
from models.spec import Signature

EVERY = Signature(input_size=4, sequence_length=6, output_size=3, output_steps="every")


def network(
    architecture: Any, signature: Signature, parametrization: Any = None
) -> RecurrentNetwork:
    spec = ModelSpec(
        architecture=architecture, parametrization=parametrization or Dense(), signature=signature
    )
    model = spec.build(seed=3).double()
    assert isinstance(model, RecurrentNetwork)
    return model


def by_loops(model: RecurrentNetwork, x: Tensor, rate: float) -> Tensor:
    """Layers `h_t = tanh(W h_{t-1} + M (m * x_t / (1 - p)) + b)`; x `[T, B, in]`."""
    recurrent = model.recurrent.dense_weight()
    assert model.initial_state is not None
    for layer, project in enumerate(model.inputs):
        x = F.dropout(x, rate)
        h = model.initial_state[layer, 0].expand(x.shape[1], -1)
        states: list[Tensor] = []
        for step in x:
            inputs = step @ project.get_parameter("weight").T + project.get_parameter("bias")
            h = torch.tanh(h @ recurrent[layer].T + inputs)
            states.append(h)
        x = torch.stack(states)
    return model.readout(F.dropout(x.transpose(0, 1), rate))


def test_what_enters_layers_and_the_readout_is_dropped_and_no_state() -> None:
    model = network(Rnn(hidden_size=5, layers=2, activation="tanh", layer_dropout=0.4), EVERY)
    x = torch.randn(7, 6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    torch.manual_seed(0)
    found = model(x)
    torch.manual_seed(0)
    torch.testing.assert_close(found, by_loops(model, x.transpose(0, 1), 0.4))
    torch.testing.assert_close(model.eval()(x), by_loops(model, x.transpose(0, 1), 0.0))


def test_a_last_answer_is_dropped_too() -> None:
    signature = EVERY.model_copy(update={"output_steps": "last", "output_size": 200})
    model = network(Rnn(hidden_size=200, activation="identity", layer_dropout=0.4), signature)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.get_parameter("inputs.0.bias").fill_(1)
        model.readout.get_parameter("weight").copy_(torch.eye(200))
    torch.manual_seed(0)
    answers = model(torch.zeros(5, 6, 4, dtype=torch.float64))
    assert answers.unique().tolist() == pytest.approx([0, 1 / 0.6])
    assert (answers == 0).double().mean().item() == pytest.approx(0.4, abs=0.06)


@pytest.mark.parametrize("embedded", [True, False])
def test_a_symbol_is_hidden_in_all_steps_of_a_sample(*, embedded: bool) -> None:
    """One layer that gives what it reads: the first state of all is 0."""
    symbols, size = 11, 8 if embedded else 11
    signature = Signature(
        input_size=size,
        sequence_length=40,
        output_size=size,
        output_steps="every",
        vocabulary=symbols if embedded else None,
    )
    architecture = Rnn(
        hidden_size=size,
        activation="identity",
        symbol_dropout=0.3,
        learned_initial_state=False,
    )
    model = network(architecture, signature)
    with torch.no_grad():
        model.recurrent.get_parameter("weight").zero_()
        model.get_parameter("inputs.0.weight").copy_(torch.eye(size))
        model.readout.get_parameter("weight").copy_(torch.eye(size))
    tokens = torch.randint(symbols, (50, 40), generator=torch.Generator().manual_seed(1))
    table = model.embedding.weight if model.embedding else torch.eye(symbols).double()
    whole = table[tokens]
    torch.manual_seed(0)
    found = model(tokens if embedded else whole)
    torch.manual_seed(0)
    mask = F.dropout(torch.ones(50, symbols, dtype=torch.float64), 0.3)
    scales = torch.stack([row[sample] for row, sample in zip(mask, tokens, strict=True)])
    torch.testing.assert_close(found, whole * scales.unsqueeze(-1))
    assert scales.unique().tolist() == pytest.approx([0, 1 / 0.7])
    torch.testing.assert_close(model.eval()(tokens if embedded else whole), whole)


@pytest.mark.parametrize("parametrization", [Dense(), LowRankDiagonal(d=3), Householder(m=2)])
@pytest.mark.parametrize("variant", [Rnn, Gru, Lstm])
def test_all_parameters_start_within_the_bound(variant: Any, parametrization: Any) -> None:
    signature = EVERY.model_copy(update={"vocabulary": 30})
    model = network(variant(hidden_size=16, start=0.04), signature, parametrization)
    for name, parameter in model.named_parameters():
        assert parameter.abs().max() <= 0.04, name
        assert parameter.numel() < 16 or parameter.std().item() > 0.04 / 3**0.5 / 2, name
    again = network(variant(hidden_size=16, start=0.04), signature, parametrization)
    for name, parameter in again.named_parameters():
        assert torch.equal(parameter, model.get_parameter(name)), name
    if isinstance(parametrization, Householder):
        matrix = model.recurrent.dense_weight()
        unit = torch.eye(16, dtype=torch.float64).expand_as(matrix)
        torch.testing.assert_close(matrix @ matrix.mT, unit)


def test_documents_of_models_without_these_are_what_they_were() -> None:
    document = Lstm(hidden_size=16).model_dump(mode="json")
    assert not document.keys() & {"layer_dropout", "symbol_dropout", "start"}
    changed = Lstm(hidden_size=16, layer_dropout=0.2, symbol_dropout=0.3, start=0.04)
    assert Lstm.model_validate(changed.model_dump(mode="json")) == changed
