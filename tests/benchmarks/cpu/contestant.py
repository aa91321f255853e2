"""One way of computing a case's step, and what all of them need."""

import os
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from models.model import ModelSpec
from tests.benchmarks.cpu.cases import Case, Mode

OURS = "ours"
LOOP = "loop over reflectors"
TORCH = "torch.nn"
"""The baseline: what a user without this project would take, at equal sizes."""

Forward = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Data:
    """Inputs `[B, T, I]`, and what reaches the outputs `[B, O]` from the loss."""

    x: Tensor
    cotangent: Tensor


@dataclass(frozen=True)
class Contestant:
    """A step that can be called again and again."""

    run: Callable[[], Tensor]
    """gives the outputs; leaves gradients behind where it trains"""
    shares: nn.Module | None = None
    """the model whose parameters it computes with; None where it has its own"""
    backend: str = ""
    rounds: int | None = None
    """of how many rounds it is part, where it is slow"""


Factories = Mapping[str, Callable[[], Contestant]]


def data_of(case: Case) -> Data:
    """Standard normal, the same every time; the loss is a mean over the batch."""
    generator = torch.Generator().manual_seed(0)
    shape = (case.batch, case.steps, case.inputs)
    return Data(
        torch.randn(shape, generator=generator),
        torch.randn(case.batch, case.outputs, generator=generator) / case.batch,
    )


def step_of(module: nn.Module, forward: Forward, data: Data, mode: Mode) -> Callable[[], Tensor]:
    """A training step without its optimizer, or a prediction."""

    def train() -> Tensor:
        module.zero_grad(set_to_none=True)
        outputs = forward(data.x)
        outputs.backward(data.cotangent)
        return outputs.detach()

    def infer() -> Tensor:
        with torch.no_grad():
            return forward(data.x)

    return train if mode == "train" else infer


def step_of_spec(spec: ModelSpec, batch: int, mode: Mode) -> Callable[[], Tensor]:
    """Such a step of a model on standard normal inputs."""
    network, signature = spec.build(seed=0), spec.signature
    shape = (batch, signature.sequence_length, signature.input_size)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    data = Data(x, torch.ones(batch, signature.output_size))
    return step_of(network, network, data, mode)


@contextmanager
def backend(name: str) -> Generator[None]:
    """Within the context sequences run on the backend of this name, where it computes them."""
    before = os.environ.get("REFLECTORY_BACKEND")
    os.environ["REFLECTORY_BACKEND"] = name
    try:
        yield
    finally:
        if before is None:
            del os.environ["REFLECTORY_BACKEND"]
        else:
            os.environ["REFLECTORY_BACKEND"] = before


def on_backend(name: str, forward: Forward) -> Forward:
    """The same on a backend."""

    def run(x: Tensor) -> Tensor:
        with backend(name):
            return forward(x)

    return run
