"""What a study pins of architectures where it says nothing, and what torch alone makes of that."""

import json
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn

from models.architectures import Gru, Rnn
from models.checkpoint import plain_bytes
from models.compression import to_torch, torch_fault
from models.network import Network
from search.spaces import SearchSpace
from search.spaces.model_space import DrawnTrial
from search.studies.resolving import with_defaults, without_defaults
from search.studies.spec import StudySpec
from search.tasks import DataSources
from search.training.jobs import TrainJob
from search.training.run import train
from tests.search.training_cases import RecordingHooks

EXAMPLE = Path(__file__).parents[3] / "deploy" / "examples" / "small_digits.json"
PINS = {"gru.reset": "after", "rnn.activation": "tanh"}


def study(**fields: Any) -> StudySpec:
    return StudySpec.model_validate({"task": {"kind": "digits"}, **fields})


@pytest.mark.parametrize(
    ("architectures", "space", "expected"),
    [
        (["rnn", "gru"], {}, PINS),
        (["gru"], {"gru.hidden_size": 8}, {"gru.hidden_size": 8, "gru.reset": "after"}),
        (["lstm", "mlp"], {}, {}),
        (["rnn"], {"rnn.activation": "abs"}, {"rnn.activation": "abs"}),
        (
            ["rnn", "gru"],
            {"activation": "relu", "reset": {"options": ["before", "after"]}},
            {"activation": "relu", "reset": {"options": ["before", "after"]}},
        ),
    ],
)
def test_what_a_study_does_not_say_is_pinned(
    architectures: list[str], space: dict[str, Any], expected: dict[str, Any]
) -> None:
    given = study(architectures=architectures, space=space)
    assert with_defaults(given).space == study(architectures=architectures, space=expected).space


def test_what_was_stored_is_sent_again_as_the_same_study() -> None:
    new = with_defaults(study(space={"hidden_size": 8}))
    assert without_defaults(new).space == {"hidden_size": 8}
    assert with_defaults(without_defaults(new)).space == new.space
    old = study(space={"hidden_size": 8})
    own = {"gru.reset": "before", "rnn.activation": "leaky_relu"}
    assert without_defaults(old).space == {"hidden_size": 8, **own}
    assert with_defaults(without_defaults(old)).space == {"hidden_size": 8, **own}


def test_a_study_that_was_stored_without_them_keeps_the_architectures_own() -> None:
    drawn = SearchSpace(study(space={"hidden_size": 8})).ends(highest=False)
    architectures = [one.spec.model.architecture for one in drawn]
    assert {one.reset for one in architectures if isinstance(one, Gru)} == {"before"}
    assert {one.activation for one in architectures if isinstance(one, Rnn)} == {"leaky_relu"}


def test_the_pins_name_fields_that_their_architectures_have() -> None:
    every = with_defaults(study())
    assert every.space == PINS
    assert without_defaults(every).space == {}
    for architecture in (Gru(reset="after"), Rnn(activation="tanh")):
        assert torch_fault(architecture) is None
    for architecture in (Gru(), Rnn()):
        assert torch_fault(architecture) is not None


def example_draws() -> list[DrawnTrial]:
    """A configuration of each candidate of the example, at both ends of its ranges."""
    space = SearchSpace(with_defaults(StudySpec.model_validate_json(EXAMPLE.read_text())))
    return [drawn for highest in (False, True) for drawn in space.ends(highest=highest)]


class Plain(nn.Module):
    """What the documented names of a dense file make up, of torch.nn alone."""

    def __init__(self, state: dict[str, torch.Tensor], layer: type[nn.RNN] | type[nn.GRU]) -> None:
        super().__init__()
        gates = {nn.RNN: 1, nn.GRU: 3}[layer]
        rows, features = state["rnn.weight_ih_l0"].shape
        self.rnn = layer(features, rows // gates, batch_first=True)
        self.readout = nn.Linear(rows // gates, state["readout.weight"].shape[0])
        self.h_0 = nn.Parameter(torch.zeros(1, 1, rows // gates))
        self.load_state_dict(state)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        _, last = self.rnn(x, self.h_0.expand(-1, len(x), -1).contiguous())
        return self.readout(last[-1])


def test_every_candidate_of_the_example_has_a_file_that_torch_alone_loads(tmp_path: Path) -> None:
    """Trained for an epoch; the same classes on all validation samples."""
    spec = StudySpec.model_validate_json(EXAMPLE.read_text())
    splits = spec.trained_task.load(DataSources(cache=tmp_path))
    draws = example_draws()
    candidates = {str(drawn.candidate) for drawn in draws}
    assert len(candidates) == len(spec.architectures) * len(spec.parametrizations)
    rows = splits.validation
    x = rows.take(torch.arange(len(rows))).x
    for drawn in draws:
        job = TrainJob(
            task=spec.trained_task, trial=drawn.spec, number=0, epochs=1, checkpoint_seconds=1e9
        )
        result = train(job, splits, task=spec.trained_task, hooks=RecordingHooks())
        assert isinstance(result.module, Network)
        content = plain_bytes(to_torch(result.module, drawn.spec.model), {})
        state = safetensors.torch.load(content)
        layer = nn.RNN if drawn.candidate.architecture == "rnn" else nn.GRU
        with torch.no_grad():
            expected = result.module.eval()(x)
            found = Plain(state, layer).eval()(x)
        assert torch.equal(found.argmax(-1), expected.argmax(-1)), drawn.candidate
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_the_example_leaves_the_defaults_as_they_are() -> None:
    space = json.loads(EXAMPLE.read_text())["space"]
    assert not {"gru.reset", "rnn.activation", "reset", "activation"} & set(space)
