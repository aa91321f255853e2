"""The file of plain torch.nn layers."""

from typing import ClassVar, Literal

from models.checkpoint import plain_bytes
from models.compression import to_torch, torch_fault
from models.model import ModelSpec
from models.network import Network
from search.exports.export import ExportContext, Made, MadeExport


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
        """Tensors under the names of torch.nn's layers."""
        model = context.model
        assert isinstance(model.module, Network)
        tensors = to_torch(model.module, model.spec)
        metadata = {
            # What torch's own tools call tensors of theirs.
            "format": "pt",
            "architecture": model.spec.architecture.model_dump_json(),
            "signature": model.spec.signature.model_dump_json(),
            "checkpoint_sha256": context.sha256,
        }
        return Made(plain_bytes(tensors, metadata))
