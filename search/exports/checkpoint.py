"""The checkpoint, which training stores."""

from typing import ClassVar, Literal

from search.exports.export import Export


class CheckpointExport(Export):
    """The trained model as this project stores it: parameters and spec in one safetensors file."""

    words: ClassVar[str] = "checkpoint"
    file_name: ClassVar[str] = "model.safetensors"

    kind: Literal["checkpoint"] = "checkpoint"
