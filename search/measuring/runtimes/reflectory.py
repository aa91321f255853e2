"""Models as this project runs them: our kernels, torch's, or its single operations."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import nn

from models.fused import fuse
from models.kernels.choice import Backend, prefer
from models.linear import stored_matrices
from models.model import ModelSpec
from search.measuring.runtimes.runtime import SEED, Runtime, Subject, call_of, input_of
from search.training.jobs import MeasureJob

_RIVALS: tuple[Backend, ...] = ("cpp", "vendor")


class Reflectory(Runtime):
    """Our own modules."""

    def version(self) -> str:
        """That of torch, which our kernels stand in."""
        return torch.__version__

    def subject(self, model: ModelSpec, job: MeasureJob, device: torch.device) -> Subject:
        """Structured weights in the forms that they are applied in."""
        network = model.build(seed=SEED).to(device)
        dtype = str(next(network.parameters()).dtype).removeprefix("torch.")
        generator = torch.Generator().manual_seed(SEED)
        x = input_of(job, model, generator).to(device)
        module = network.train() if job.mode == "training" else fuse(network)
        call = call_of(module, x, job, generator)
        backends = module.backends(batch_size=job.batch_size)
        return Subject(call, backends, _evaluation_form(module, backends), dtype)

    def rivals(self, dense: ModelSpec, job: MeasureJob, device: torch.device) -> Sequence[Subject]:
        """On what it would run on anyway, and on the vendor's kernels and ours."""
        rivals = [self.subject(dense, job, device)]
        for backend in _RIVALS:
            with prefer(backend):
                subject = self.subject(dense, job, device)
            if all(subject.backend != other.backend for other in rivals):
                rivals.append(replace(subject, call=_preferring(backend, subject.call)))
        return rivals


def _preferring(backend: Backend, call: Callable[[], None]) -> Callable[[], None]:
    def preferring() -> None:
        with prefer(backend):
            call()

    return preferring


def _evaluation_form(module: nn.Module, backends: Sequence[str]) -> tuple[str, ...]:
    """The forms' names; where no kernel of ours runs, those of what a loop in torch applies."""
    with torch.no_grad():
        forms = [part.form() for part in stored_matrices(module)]
        applied = forms if "cpp" in backends else [form.for_loop() for form in forms]
    return tuple(sorted({form.name for form in applied}))
