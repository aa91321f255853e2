"""Model files that users might upload: good ones, and ones that are wrong in one way each."""

import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx2
import safetensors.torch
import torch
from sqlalchemy import func, select
from starlette.testclient import TestClient
from torch import Tensor, nn

from models.checkpoint import save_bytes
from models.model import ModelSpec
from models.network import Network
from storage.tables import ArtifactRow, UploadedModelRow
from tests.service.site import Site
from tests.service.uploading import files_below, unfinished


class Plain(nn.Module):
    """A recurrent layer of torch's own and its readout, as anybody would write it."""

    def __init__(self, layer: nn.RNNBase, outputs: int = 3) -> None:
        super().__init__()
        self.rnn = layer
        self.readout = nn.Linear(layer.hidden_size, outputs)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.rnn(x)
        return self.readout(states[:, -1])


def plain(kind: Callable[..., nn.RNNBase] = nn.GRU, **given: Any) -> Plain:
    """Reads 8 numbers per step, as rows of digits have them."""
    torch.manual_seed(5)
    outputs = given.pop("outputs", 3)
    return Plain(kind(8, 6, batch_first=True, **given), outputs)


def perceptron() -> nn.Sequential:
    torch.manual_seed(6)
    sizes = [(64, 12), (12, 12), (12, 12), (12, 10)]
    layers = [layer for size in sizes for layer in (nn.Linear(*size), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def saved(module: nn.Module, metadata: dict[str, str] | None = None) -> bytes:
    return safetensors.torch.save(module.state_dict(), metadata)


def state_of(module: nn.Module, **changes: Tensor | None) -> bytes:
    """A state dict with tensors replaced, or taken out where null is given."""
    state: dict[str, Tensor | None] = {**module.state_dict()}
    state |= {name.replace("__", "."): tensor for name, tensor in changes.items()}
    return safetensors.torch.save({n: t.contiguous() for n, t in state.items() if t is not None})


def spec_of(architecture: Mapping[str, Any], **parametrization: Any) -> ModelSpec:
    return ModelSpec.model_validate(
        {
            "architecture": architecture,
            "parametrization": parametrization or {"kind": "dense"},
            "signature": {"input_size": 8, "sequence_length": 8, "output_size": 10},
        }
    )


def ours(spec: ModelSpec, *, seed: int = 7) -> tuple[Network, bytes]:
    network = spec.build(seed=seed)
    return network, save_bytes(network, spec, extra={"epoch": "3"})


def raw(header: Any, data: bytes = b"", *, length: int | None = None) -> bytes:
    """A file with a header that is written as it is given, and a length that may lie."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensor(shape: list[Any], begin: Any, end: Any, dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def upload_model(
    client: TestClient, content: bytes, filename: str = "model.safetensors", **fields: str
) -> httpx2.Response:
    return client.post("/v1/models", files={"file": (filename, content)}, data=fields)


def model_rows(site: Site) -> tuple[int, int]:
    """How many models and artifacts there are."""
    with site.database.read() as session:
        return (
            session.scalar(select(func.count()).select_from(UploadedModelRow)) or 0,
            session.scalar(select(func.count()).select_from(ArtifactRow)) or 0,
        )


def assert_no_model_is_left(site: Site) -> None:
    assert model_rows(site) == (0, 0)
    assert files_below(site.settings.artifacts_dir) == []
    assert unfinished(site) == []


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path
