"""Replayed functions: on a GPU as CUDA graphs; elsewhere with a recorder that runs them again."""

import logging
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from models.backends.cuda_graphs import Graphs, capture

Call = Callable[[], tuple[Tensor, ...]]


class Rerun:
    """Fills the tensors of a first call with the results of another, as a graph would."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.results = tuple(result.detach().clone() for result in call())

    def replay(self) -> None:
        for kept, result in zip(self.results, self.call(), strict=True):
            kept.copy_(result.detach())


class Recorder:
    """Counts what it records, and fails on demand."""

    def __init__(self, error: RuntimeError | None = None) -> None:
        self.count = 0
        self.error = error

    def __call__(self, call: Call) -> tuple[Rerun, tuple[Tensor, ...]]:
        self.count += 1
        if self.error is not None:
            raise self.error
        rerun = Rerun(call)
        return rerun, rerun.results


def function(x: Tensor, w: Tensor, unused: Tensor) -> tuple[Tensor, ...]:
    y = (x @ w).tanh()
    return y, y.square().sum(-1) * x[:, 0]


def tensors(seed: int, *, batch: int = 3, device: str = "cpu") -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(batch, 4, generator=generator).to(device).requires_grad_(),
        torch.randn(4, 5, generator=generator).to(device).requires_grad_(),
        torch.zeros(2, device=device),
    )


def test_the_second_call_is_recorded_and_later_ones_are_replayed() -> None:
    recorder = Recorder()
    graphs = Graphs(recorder)
    for seed in range(4):
        with torch.no_grad():
            found = graphs.run("f", function, tensors(seed))
            assert all(map(torch.equal, found, function(*tensors(seed))))
        assert recorder.count == (0 if seed == 0 else 1)


def test_what_a_replay_gave_is_not_touched_by_the_next() -> None:
    graphs = Graphs(Recorder())
    with torch.no_grad():
        results = [graphs.run("f", function, tensors(seed)) for seed in range(4)]
        for seed, found in enumerate(results):
            assert all(map(torch.equal, found, function(*tensors(seed))))


def check_interleaved_gradients(graphs: Graphs, device: str) -> None:
    """Forward passes of one shape follow each other before the first backward pass."""
    for _ in range(3):
        given = [tensors(seed, device=device) for seed in (1, 2)]
        totals = [
            y.square().sum() + z.sum()
            for y, z in (graphs.run("f", function, each) for each in given)
        ]
        for (x, w, unused), total in zip(given, totals, strict=True):
            found = torch.autograd.grad(total, (x, w))
            y, z = function(x, w, unused)
            expected = torch.autograd.grad(y.square().sum() + z.sum(), (x, w))
            for one, other in zip(found, expected, strict=True):
                torch.testing.assert_close(one, other)


def test_two_layers_of_one_shape_do_not_spoil_each_others_gradients() -> None:
    recorder = Recorder()
    check_interleaved_gradients(Graphs(recorder), "cpu")
    assert recorder.count == 2  # forward and backward


def test_only_what_learns_gets_gradients() -> None:
    graphs = Graphs(Recorder())
    x, w, unused = tensors(0)
    x = x.detach()
    for _ in range(3):
        y, _ = graphs.run("f", function, (x, w, unused))
        (found,) = torch.autograd.grad(y.sum(), (w,))
        (expected,) = torch.autograd.grad(function(x, w, unused)[0].sum(), (w,))
        torch.testing.assert_close(found, expected)


def test_a_recording_made_in_inference_mode_serves_training_later() -> None:
    graphs = Graphs(Recorder())
    with torch.inference_mode():
        for _ in range(3):
            graphs.run("f", function, tensors(0))
    check_interleaved_gradients(graphs, "cpu")
    with torch.inference_mode():
        found = graphs.run("f", function, tensors(5))
        assert all(map(torch.equal, found, function(*tensors(5))))


def test_shapes_names_and_learning_have_recordings_of_their_own() -> None:
    recorder = Recorder()
    graphs = Graphs(recorder)
    with torch.no_grad():
        for _ in range(2):
            graphs.run("f", function, tensors(0))
            graphs.run("f", function, tensors(0, batch=2))
            graphs.run("g", lambda x, *_: (x,), tensors(0))
    assert recorder.count == 3
    for _ in range(2):
        graphs.run("f", function, tensors(0))
    assert recorder.count == 5


def test_the_latest_used_are_kept() -> None:
    recorder = Recorder()
    graphs = Graphs(recorder, kept=2)
    with torch.no_grad():
        for name in ("a", "a", "b", "b", "a", "c", "c", "a"):
            graphs.run(name, function, tensors(0))
        assert recorder.count == 3
        graphs.run("b", function, tensors(0))
        graphs.run("b", function, tensors(0))
    assert recorder.count == 4


def test_what_cannot_be_recorded_is_called_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    recorder = Recorder(RuntimeError("operation not permitted when stream is capturing\nat ..."))
    graphs = Graphs(recorder)
    with caplog.at_level(logging.WARNING):
        for seed in range(4):
            x, w, unused = tensors(seed)
            y, _ = graphs.run("f", function, (x, w, unused))
            assert torch.equal(y, function(x, w, unused)[0])
            assert y.requires_grad
    (line,) = caplog.messages
    assert line.endswith("operation not permitted when stream is capturing")
    assert recorder.count == 1


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_gpu_graphs_are_captured_and_give_the_same() -> None:
    captured: list[Call] = []

    def counted(call: Call) -> tuple[object, tuple[Tensor, ...]]:
        captured.append(call)
        return capture(call)

    check_interleaved_gradients(Graphs(counted), "cuda")  # pyright: ignore[reportArgumentType]
    assert len(captured) == 2
    with torch.no_grad():
        graphs = Graphs(counted)  # pyright: ignore[reportArgumentType]
        for seed in range(4):
            given = tensors(seed, device="cuda")
            for one, other in zip(graphs.run("f", function, given), function(*given), strict=True):
                torch.testing.assert_close(one, other)
    assert len(captured) == 3


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_gpu_what_waits_for_the_device_runs_without_a_graph(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def waits(x: Tensor, *_: Tensor) -> tuple[Tensor, ...]:
        return (x * x.sum().item(),)

    graphs = Graphs()
    with caplog.at_level(logging.WARNING), torch.no_grad():
        for _ in range(3):
            x, *others = tensors(0, device="cuda")
            (found,) = graphs.run("waits", waits, (x, *others))
            torch.testing.assert_close(found, x * x.sum())
    assert len(caplog.messages) == 1
    # The device still works.
    assert torch.ones(2, device="cuda").sum().item() == 2
