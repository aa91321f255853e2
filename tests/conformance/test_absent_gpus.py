"""What can be known without a GPU: every model trains and answers on one that is not here.

On torch's `meta` device nothing has numbers. What is made on the CPU by mistake meets it there and
raises, as does whoever reads a number back, for which a GPU would be waited for. Fake tensors add
that results are said to be on the GPU, through the branches that ask for one.
"""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call
from torch.overrides import TorchFunctionMode

from models.architectures import Architecture
from models.architectures.recurrent import Recurrent
from models.backends.triton import backend as triton_backend
from models.backends.triton.tiles import SHARED_BYTES
from models.kernels.choice import Backend, prefer
from models.model import after_step, parameter_groups, penalty
from models.parametrizations import Family
from search.documents.runtimes import Mode
from search.measuring.runtimes import RUNTIMES
from search.training.gradients import clip_gradients
from search.training.jobs import MeasureJob
from search.training.optimizers import decay_weights
from search.training.trial_spec import TrainingSpec
from tests.conformance.model_specs import pair_name, pairs, small, spec_of

Pair = tuple[type[Architecture], type[Family]]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """Every tensor without numbers of which one was read; it reads as 1."""
    found: list[Tensor] = []
    read = Tensor.item

    def item(tensor: Tensor) -> Any:
        # An optimizer counts its steps on the CPU.
        if not tensor.is_meta:
            return read(tensor)
        found.append(tensor)
        return 1.0

    monkeypatch.setattr(Tensor, "item", item)
    return found


@pytest.mark.sampled
@pytest.mark.parametrize("pair", pairs(), ids=pair_name)
def test_a_training_step_makes_nothing_on_the_cpu_and_reads_one_number(
    pair: Pair, reads: list[Tensor]
) -> None:
    """That is the gradients' norm, by which a trial's divergence is found."""
    network = spec_of(small(pair[0]), pair[1]).build_on_meta().train()
    training = TrainingSpec(clip_norm=1.0, clip_value=10.0)
    optimizer = torch.optim.Adam(parameter_groups(network, 1e-3))
    before = [parameter.shape for parameter in network.parameters()]
    for _ in range(2):
        optimizer.zero_grad(set_to_none=True)
        answer = network(torch.empty(2, 5, 3, device="meta"))
        targets = torch.zeros(2, dtype=torch.int64, device="meta")
        loss = nn.functional.cross_entropy(answer, targets)
        own = penalty(network)
        total = loss if own is None else loss + own
        total.backward()
        clip_gradients(network, training)
        decay_weights(optimizer, 0.1)
        optimizer.step()
        after_step(network)
    assert all(one.is_meta for one in network.state_dict().values())
    assert all(one.grad is not None and one.grad.is_meta for one in network.parameters())
    assert [parameter.shape for parameter in network.parameters()] == before
    assert [tensor.shape for tensor in reads] == [()] * 2


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("pair", "who"),
    [
        pytest.param(pair, who, id=f"{pair_name(pair)}-{who}")
        for pair in pairs()
        for who in ("torch", "triton", "vendor")
        if who == "torch" or issubclass(pair[0], Recurrent)
    ],
)
def test_answers_are_on_the_gpu(pair: Pair, who: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_backend, "triton_runs", lambda device: device.type == "cuda")
    monkeypatch.setattr(triton_backend, "shared_bytes_of", lambda _: SHARED_BYTES[90])
    network = spec_of(small(pair[0]), pair[1]).build_on_meta().eval()
    numbers = {**dict(network.named_parameters()), **dict(network.named_buffers())}
    with FakeTensorMode(), prefer(who), _Unguarded():
        fakes = {
            name: torch.empty(one.shape, dtype=one.dtype, device="cuda")
            for name, one in numbers.items()
        }
        answer = functional_call(network, fakes, (torch.empty(2, 5, 3, device="cuda"),))
    assert answer.device.type == "cuda"


@pytest.mark.sampled
@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize("pair", pairs(), ids=pair_name)
def test_what_is_measured_reads_nothing_back(pair: Pair, mode: Mode, reads: list[Tensor]) -> None:
    """Neither the model nor its dense baseline: a call would wait for the GPU in between."""
    model = spec_of(small(pair[0]), pair[1])
    job = MeasureJob(shapes=(), mode=mode, batch_size=2, sequence_length=5)
    runtime, device = RUNTIMES["reflectory"], torch.device("meta")
    for subject in (
        *runtime.subjects(model, job, device),
        *runtime.rivals(model.dense_twin(), job, device),
    ):
        subject.calls(2)
    assert not reads


class _Unguarded(TorchFunctionMode):
    """Some methods without a guard of the device, of which CPU builds have none for GPUs."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is Tensor.__getitem__:
            return _indexed(*args)
        if func is Tensor.contiguous:
            return torch.ops.aten.clone(args[0], memory_format=torch.contiguous_format)
        return func(*args, **(kwargs or {}))


def _indexed(tensor: Tensor, key: Any) -> Tensor:
    keys = list(key) if isinstance(key, tuple) else [key]
    named = sum(one is not None and one is not Ellipsis for one in keys)
    if Ellipsis in [one for one in keys if not isinstance(one, Tensor)]:
        place = next(place for place, one in enumerate(keys) if one is Ellipsis)
        keys[place : place + 1] = [slice(None)] * (tensor.dim() - named)
    dimension = 0
    for one in keys:
        if one is None:
            tensor = tensor.unsqueeze(dimension)
        elif isinstance(one, int):
            tensor = tensor.select(dimension, one)
            continue
        elif isinstance(one, Tensor):
            tensor = torch.index_select(tensor, dimension, one)
        else:
            start, stop, step = one.indices(tensor.shape[dimension])
            tensor = torch.ops.aten.slice.Tensor(tensor, dimension, start, stop, step)
        dimension += 1
    return tensor
