"""What every runtime is to a measurement, and what those of torch have in common."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from models.architectures import Architecture
from models.example_input import example_input
from models.model import ModelSpec, after_step, parameter_groups
from search.training.jobs import MeasureJob

SEED = 0
"""Of the numbers of models and inputs that are timed."""


@dataclass(frozen=True)
class Subject:
    """A model that is ready to be timed, and what is to be said about it."""

    call: Callable[[], None]
    """One forward pass, or one step of training."""
    backend: tuple[str, ...]
    evaluation_form: tuple[str, ...]
    dtype: str
    form: str | None = None
    """How its weights stand in the file that is run; null where no file is."""
    repeated: Callable[[int], None] | None = None
    """So many calls in a row, where Python would take a part of each call's time."""

    def calls(self, count: int) -> None:
        """So many calls in a row."""
        if self.repeated is not None:
            self.repeated(count)
            return
        for _ in range(count):
            self.call()


class Runtime(ABC):
    """Runs models."""

    @abstractmethod
    def version(self) -> str:
        """Of the library that runs them."""

    def compiler(self) -> str | None:
        """What compiled a model for this runtime, with its version; null where nothing does."""
        return None

    def fault(self, architecture: Architecture) -> str | None:  # noqa: ARG002 -- it runs all
        """Why models of an architecture cannot be run; null where they can."""
        return None

    def subjects(
        self, model: ModelSpec, job: MeasureJob, device: torch.device
    ) -> Sequence[Subject]:
        """The ways in which a model may be run; the first one, unless another is 3 % faster.

        Raises:
            ModelError: it cannot be built, or not be run here.
        """
        return [self.subject(model, job, device)]

    @abstractmethod
    def subject(self, model: ModelSpec, job: MeasureJob, device: torch.device) -> Subject:
        """A model with fixed random numbers and input, as a job wants it run.

        Raises:
            ModelError: it cannot be built, or not be run here.
        """

    def rivals(self, dense: ModelSpec, job: MeasureJob, device: torch.device) -> Sequence[Subject]:
        """A dense baseline on whatever may run it here; the fastest is what counts."""
        return [self.subject(dense, job, device)]


def steps_of(job: MeasureJob, model: ModelSpec) -> int:
    """Steps of a sample."""
    return job.sequence_length or model.signature.sequence_length


def input_of(job: MeasureJob, model: ModelSpec, generator: torch.Generator) -> Tensor:
    """A random batch as the job wants it, on the CPU."""
    steps = steps_of(job, model)
    return example_input(model.signature, batch=job.batch_size, steps=steps, generator=generator)


def call_of(
    module: nn.Module, x: Tensor, job: MeasureJob, generator: torch.Generator
) -> Callable[[], None]:
    """A call of a module on an input in the job's mode."""
    if job.mode == "training":
        return _training_step(module, x, generator=generator)
    return _forward(module, x)


def _forward(module: nn.Module, x: Tensor) -> Callable[[], None]:
    @torch.inference_mode()
    def call() -> None:
        module(x)

    return call


def _training_step(
    module: nn.Module, x: Tensor, *, generator: torch.Generator
) -> Callable[[], None]:
    # Steps so small that the numbers stay what they are at the start of a training: a model that
    # had learned the target by heart would compute with denormal gradients, which are slow.
    groups = [{**group} for group in parameter_groups(module, 1e-6)]
    optimizer = torch.optim.AdamW(groups, weight_decay=0, fused=False)
    with torch.no_grad():
        shape = module(x).shape
    target = torch.rand(shape, generator=generator).to(x.device)

    def call() -> None:
        optimizer.zero_grad(set_to_none=True)
        nn.functional.mse_loss(module(x), target).backward()  # pyright: ignore[reportUnknownMemberType] -- untyped
        optimizer.step()  # pyright: ignore[reportUnknownMemberType] -- untyped
        after_step(module)

    return call
