"""The file of plain torch.nn layers."""

import copy
from typing import ClassVar, Literal

import safetensors.torch
import torch
from torch import nn

from models.checkpoint import plain_bytes
from models.compression import plain_module, to_torch, torch_fault
from models.exports.comparison import Bound, in_double_precision, normal_inputs
from models.model import ModelSpec
from models.network import Network
from search.exports.export import ExportContext, Made, MadeExport
from search.exports.verification import around, on_random_inputs, verified


class DenseExport(MadeExport):
    """The tensors of plain torch.nn layers, structured matrices folded, as a safetensors file."""

    words: ClassVar[str] = "dense file"
    file_name: ClassVar[str] = "dense.safetensors"
    linked_before_made: ClassVar[bool] = True

    kind: Literal["dense"] = "dense"

    @classmethod
    def fault(cls, model: ModelSpec) -> str | None:
        """Which part of the architecture torch.nn does not have."""
        return torch_fault(model.architecture)

    @classmethod
    def make(cls, context: ExportContext) -> Made:
        """Tensors under the names of torch.nn's layers, which compute with them first."""
        model, interface, samples = context.model, context.interface, context.samples
        assert isinstance(model.module, Network)
        tensors = to_torch(model.module, model.spec)
        metadata = {
            # What torch's own tools call tensors of theirs.
            "format": "pt",
            "architecture": model.spec.architecture.model_dump_json(),
            "signature": model.spec.signature.model_dump_json(),
            "checkpoint_sha256": context.sha256,
        }
        content = plain_bytes(tensors, metadata)
        plain = plain_module(model.spec, safetensors.torch.load(content))
        _compare(plain, model.module, model.spec)
        runtime = {"runtime": "torch", "runtime_version": torch.__version__}
        if interface is None or samples is None:
            return Made(content, on_random_inputs(**runtime))
        run = around(plain, interface, model.spec)
        return Made(content, verified(run, model, context.task, samples, **runtime))


@torch.no_grad()
def _compare(plain: nn.Module, network: Network, spec: ModelSpec) -> None:
    exact = in_double_precision(network, spec)
    single = copy.deepcopy(exact).float()
    for x in normal_inputs(spec):
        expected = exact(x.double() if x.is_floating_point() else x)
        Bound(expected, single(x)).share(plain(x).double(), "the dense file")
