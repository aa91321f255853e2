"""Ordinary networks of plain torch, and the files that torch writes of them."""

import itertools
import tempfile
import warnings
from collections.abc import Callable, Mapping

import numpy as np
import onnx
import onnxruntime
import torch
from torch import Tensor, nn

from tests.models.graphs.interpreter.small_graphs import Array


class Cnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2, ceil_mode=True),
            nn.Conv2d(8, 8, 3, groups=8, padding=1),
            nn.Hardswish(),
            nn.AdaptiveAvgPool2d(2),
        )
        self.head = nn.Linear(32, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).flatten(1)).softmax(-1)


class Crnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(6, 12, 5, stride=2, padding=2)
        self.norm = nn.BatchNorm1d(12)
        self.gru = nn.GRU(12, 10, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(20, 4)

    def forward(self, x: Tensor) -> Tensor:
        read = torch.relu(self.norm(self.conv(x))).transpose(1, 2)
        return self.head(self.gru(read)[0])


class NormedLstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 16, batch_first=True)
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.lstm(x)[0][:, -1]))


class TwoGrus(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.GRU(6, 12)
        self.second = nn.GRU(12, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        steps, last = self.second(self.first(x)[0])
        return self.head(steps), last


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 16)
        layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, activation="gelu")
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 4)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.encoder(self.embedding(tokens)).mean(1))


class CellLoop(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(6, 10)
        self.head = nn.Linear(10, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = x.new_zeros(x.shape[0], 10)
        for step in range(x.shape[1]):
            h = self.cell(x[:, step], h)
        return self.head(h)


class ProjectedLstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 16, proj_size=8, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.lstm(x)[0]


class UNet(nn.Module):
    """Down, up again by a transposed convolution and by interpolation, and joined."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(2, 8, 3, stride=2, padding=1)
        self.norm = nn.InstanceNorm2d(8, affine=True)
        self.up = nn.ConvTranspose2d(8, 4, 3, stride=2, padding=1, output_padding=1)
        self.last = nn.Conv2d(12, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        small = nn.functional.silu(self.norm(self.down(x)))
        grown = nn.functional.interpolate(small, scale_factor=2.0, mode="bilinear")
        return torch.sigmoid(self.last(torch.cat([self.up(small), grown], 1)))


def tapered_mlp() -> nn.Module:
    sizes = (20, 32, 16, 8, 3)
    layers: list[nn.Module] = []
    for given, wanted in itertools.pairwise(sizes):
        layers += [nn.Linear(given, wanted), nn.ELU()]
    return nn.Sequential(*layers[:-1])


NETWORKS: Mapping[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "cnn": (Cnn, (3, 1, 15, 15)),
    "crnn": (Crnn, (3, 6, 20)),
    "normed_lstm": (NormedLstm, (3, 9, 6)),
    "two_grus": (TwoGrus, (9, 3, 6)),
    "cell_loop": (CellLoop, (3, 5, 6)),
    "tapered_mlp": (tapered_mlp, (3, 20)),
    "u_net": (UNet, (2, 2, 8, 12)),
}
"""Networks that read real numbers, and the shape of such a batch."""


def made(make: Callable[[], nn.Module], seed: int = 0) -> nn.Module:
    """A network in evaluation, with statistics that are not those of its first day."""
    torch.manual_seed(seed)
    network = make()
    for part in network.modules():
        if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
            assert part.running_mean is not None
            assert part.running_var is not None
            part.running_mean.normal_()
            part.running_var.uniform_(0.5, 2.0)
    return network.eval()


def exported(network: nn.Module, x: Tensor, opset: int = 17) -> onnx.ModelProto:
    """The file that torch writes, as a model."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        # The exporter says of itself that another one takes its place, and of traced loops that
        # they keep their length.
        warnings.simplefilter("ignore")
        path = f"{folder}/network.onnx"
        torch.onnx.export(network, (x,), path, dynamo=False, opset_version=opset, input_names=["x"])
        return onnx.load(path)


def folded(model: onnx.ModelProto, path: str) -> onnx.ModelProto:
    """With its constants computed by onnxruntime, as uploads are."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = path
    options.log_severity_level = 3
    onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return onnx.load(path)


def feeds(shape: tuple[int, ...], count: int = 2) -> list[dict[str, Array]]:
    random = np.random.default_rng(7)
    return [{"x": random.standard_normal(shape).astype(np.float32)} for _ in range(count)]
