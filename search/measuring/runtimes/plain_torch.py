"""Models as plain torch.nn layers, which have structured weights folded."""

import torch

from models.architectures import Architecture
from models.compression import plain_network, torch_fault
from models.model import ModelSpec
from search.measuring.runtimes.runtime import SEED, Runtime, Subject, call_of, input_of
from search.training.jobs import MeasureJob


class PlainTorch(Runtime):
    """Modules of torch.nn alone, as a user of a dense file has them."""

    def version(self) -> str:
        """That of torch."""
        return torch.__version__

    def fault(self, architecture: Architecture) -> str | None:
        """What no plain layer computes."""
        return torch_fault(architecture)

    def subject(self, model: ModelSpec, job: MeasureJob, device: torch.device) -> Subject:
        """An `nn.GRU` with an `nn.Linear`, say; without dropout, which the layers do not have."""
        module = plain_network(model.build(seed=SEED), model).to(device)
        module.train(job.mode == "training")
        generator = torch.Generator().manual_seed(SEED)
        call = call_of(module, input_of(job, model, generator).to(device), job, generator)
        dtype = str(next(module.parameters()).dtype).removeprefix("torch.")
        return Subject(call, ("torch",), ("dense",), dtype)
