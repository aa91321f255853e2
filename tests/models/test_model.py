import subprocess
import sys

import pytest
import torch

from models.architectures import Gru, Rnn
from models.model import ModelSpec
from models.parametrizations import Dense, HouseholderSvd, LowRank, PackedRotations
from models.spec import Signature

SIGNATURE = Signature(input_size=8, sequence_length=8, output_size=10)


def spec_of(**changes: object) -> ModelSpec:
    document = {
        "architecture": Rnn(hidden_size=16),
        "parametrization": HouseholderSvd(m1=3, m2=5, r=0.1),
        "signature": SIGNATURE,
    }
    return ModelSpec.model_validate({**document, **changes})


def test_shape_key_ignores_what_only_changes_values() -> None:
    same = spec_of(parametrization=HouseholderSvd(m1=3, m2=5, r=0.4, sigma_star=0.5))
    assert same.shape_key() == spec_of().shape_key()


@pytest.mark.parametrize(
    "changes",
    [
        {"parametrization": HouseholderSvd(m1=5, m2=3, r=0.1)},
        {"parametrization": Dense()},
        {"architecture": Rnn(hidden_size=17)},
        {"architecture": Rnn(hidden_size=16, activation="abs")},
        {"architecture": Rnn(hidden_size=16, layers=2)},
        {"architecture": Rnn(hidden_size=16, recurrent_dropout=0.5)},
        {"architecture": Gru(hidden_size=16)},
        {"signature": SIGNATURE.model_copy(update={"sequence_length": 9})},
    ],
    ids=repr,
)
def test_shape_key_follows_everything_that_changes_the_work(changes: dict[str, object]) -> None:
    assert spec_of(**changes).shape_key() != spec_of().shape_key()


def test_shape_key_follows_how_matrices_are_made_of_equal_shapes() -> None:
    """The exponential takes many times as long as the Cayley transform."""
    one, other = (
        spec_of(parametrization={"kind": "factorized_svd", "orthogonal_map": name})
        for name in ("cayley", "exponential")
    )
    assert one.tensor_shapes() == other.tensor_shapes()
    assert one.shape_key() != other.shape_key()


def test_shape_key_is_the_same_in_another_process() -> None:
    code = (
        "import sys; from models.model import ModelSpec; "
        "print(ModelSpec.model_validate_json(sys.argv[1]).shape_key())"
    )
    command = [sys.executable, "-c", code, spec_of().model_dump_json()]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == spec_of().shape_key()


def test_counts_shapes_and_keys_take_no_memory_for_the_model() -> None:
    giant = spec_of(architecture=Gru(hidden_size=65536), parametrization=Dense())
    assert giant.tensor_shapes()["recurrent.weight"] == (3, 65536, 65536)
    assert giant.parameter_count() > 12e9
    assert giant.shape_key() == giant.shape_key()


def test_dense_twin_differs_in_nothing_but_the_matrices() -> None:
    spec = spec_of()
    twin = spec.dense_twin()
    assert twin == spec_of(parametrization=Dense())
    assert twin.dense_twin() == twin


def test_building_without_a_seed_differs_every_time() -> None:
    one, other = spec_of().build().state_dict(), spec_of().build().state_dict()
    assert not torch.equal(one["inputs.0.weight"], other["inputs.0.weight"])


def test_importing_models_starts_no_thread_and_moves_no_generator() -> None:
    """A fork server preloads the package; after a threaded tensor operation a fork may hang."""
    code = (
        "import threading, os, torch; state = torch.get_rng_state();"
        "tasks = len(os.listdir('/proc/self/task'));"
        "from torch.utils._python_dispatch import TorchDispatchMode\n"
        "class Seen(TorchDispatchMode):\n"
        "    def __torch_dispatch__(self, func, types, args=(), kwargs=None):\n"
        "        raise SystemExit(f'{func} ran at import')\n"
        "with Seen():\n"
        "    import models.checkpoint, models.report, models.architectures\n"
        "assert len(os.listdir('/proc/self/task')) == tasks\n"
        "assert torch.equal(torch.get_rng_state(), state)\n"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr


@pytest.mark.parametrize("parametrization", [LowRank(d=3), PackedRotations(count=4)], ids=repr)
def test_a_training_step_does_not_depend_on_what_ran_before(
    parametrization: LowRank | PackedRotations,
) -> None:
    model = spec_of(parametrization=parametrization).build(seed=0)
    x = torch.randn(4, 8, 8)
    first = torch.autograd.grad(model(x).sum(), list(model.parameters()))
    model(torch.randn(2, 3, 8)).sum().backward()
    again = torch.autograd.grad(model(x).sum(), list(model.parameters()))
    assert all(map(torch.equal, first, again))
