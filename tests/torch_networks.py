"""Nine ordinary networks of plain torch, as files that torch exports, with inputs for them."""

import functools
import itertools
import tempfile
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

STEPS, CHANNELS, TOKENS = 8, 20, 60
LENGTH, WIDTH = 32, 32
"""Of what the transformer reads, and of its states."""
_OPSET = 17
_DECAY = 0.05
"""The least singular value of a weight as a share of the largest."""


class Crnn(nn.Module):
    """Probabilities at every second step, of a convolution and a GRU in both directions."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(CHANNELS, 32, 5, stride=2, padding=2)
        self.norm = nn.BatchNorm1d(32)
        self.gru = nn.GRU(32, 24, bidirectional=True, batch_first=True)
        self.head = nn.Linear(48, 24)

    def forward(self, x: Tensor) -> Tensor:
        """`[N, steps / 2, 24]` of x `[N, steps, channels]`."""
        read = torch.relu(self.norm(self.convolution(x.transpose(1, 2)))).transpose(1, 2)
        return (4 * self.head(self.gru(read)[0])).softmax(-1)


class TwoHeadedLstm(nn.Module):
    """Two outputs of the last state of an LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(CHANNELS, 40, batch_first=True)
        self.classes = nn.Linear(40, 32)
        self.values = nn.Linear(40, 30)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """`[N, 32]` and `[N, 30]` of x `[N, steps, channels]`."""
        last = self.lstm(x)[0][:, -1]
        return self.classes(last), self.values(last)


class NormedLstm(nn.Module):
    """An LSTM whose states are normalised."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(CHANNELS, 36, batch_first=True)
        self.norm = nn.LayerNorm(36)
        self.head = nn.Linear(36, 32)

    def forward(self, x: Tensor) -> Tensor:
        """`[N, steps, 32]` of x `[N, steps, channels]`."""
        return self.head(self.norm(self.lstm(x)[0]))


class TwoGrus(nn.Module):
    """A wide GRU and a narrow one."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.GRU(CHANNELS, 40, batch_first=True)
        self.narrow = nn.GRU(40, 24, batch_first=True)
        self.head = nn.Linear(24, 48)

    def forward(self, x: Tensor) -> Tensor:
        """`[N, steps, 48]` of x `[N, steps, channels]`."""
        return self.head(self.narrow(self.wide(x)[0])[0])


class TaperedMlp(nn.Module):
    """Layers that get narrower."""

    def __init__(self) -> None:
        super().__init__()
        pairs = itertools.pairwise((CHANNELS * 3, 80, 56, 40, 28))
        self.layers = nn.ModuleList(nn.Linear(given, made) for given, made in pairs)
        self.head = nn.Linear(28, 6)

    def forward(self, x: Tensor) -> Tensor:
        """`[N, 6]` of x `[N, 3 * channels]`."""
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return (4 * self.head(x)).softmax(-1)


class Cnn(nn.Module):
    """A convolution, one of each channel by itself and one of kernel 1, added to what they read."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 32, 3, padding=1)
        self.second = nn.Conv2d(32, 48, 3, padding=1)
        self.deep = nn.Conv2d(48, 48, 5, padding=2, groups=48)
        self.point = nn.Conv2d(48, 48, 1)
        self.norms = nn.ModuleList(nn.BatchNorm2d(size) for size in (32, 48, 48))
        self.head = nn.Linear(48, 24)

    def forward(self, x: Tensor) -> Tensor:
        """`[N, 24]` of x `[N, 3, 12, 12]`."""
        one = F.max_pool2d(torch.relu(self.norms[0](self.first(x))), 2)
        two = torch.relu(self.norms[1](self.second(one)))
        joined = two + self.point(torch.relu(self.norms[2](self.deep(two))))
        return (8 * self.head(F.adaptive_avg_pool2d(joined, 1).flatten(1))).softmax(-1)


class Transformer(nn.Module):
    """An encoder of which no step sees a later one."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(TOKENS, WIDTH)
        self.places = nn.Parameter(torch.randn(LENGTH, WIDTH))
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, batch_first=True),
            1,
            enable_nested_tensor=False,
        )
        self.head = nn.Linear(WIDTH, 40)
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """`[N, length, 40]` of tokens x `[N, length]`."""
        states = self.encoder(self.table(x) + self.places, mask=self.mask, is_causal=False)
        return (2 * self.head(states)).softmax(-1)


class CellLoop(nn.Module):
    """A GRU's cell in a loop of Python."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(CHANNELS, 40)
        self.head = nn.Linear(40, 32)

    def forward(self, x: Tensor) -> Tensor:
        """`[N, 32]` of x `[N, steps, channels]`."""
        state = x.new_zeros(x.shape[0], 40)
        for step in range(STEPS):
            state = self.cell(x[:, step], state)
        return self.head(state)


class ProjectedLstm(nn.Module):
    """An LSTM whose states are projected, of which torch's exporter writes no file by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(CHANNELS, 48, proj_size=24, batch_first=True)
        self.head = nn.Linear(24, 44)

    def forward(self, x: Tensor) -> Tensor:
        """`[N, 44]` of x `[N, steps, channels]`, step by step."""
        held = dict(self.lstm.named_parameters())
        state, memory = x.new_zeros(x.shape[0], 24), x.new_zeros(x.shape[0], 48)
        for step in range(STEPS):
            read = F.linear(x[:, step], held["weight_ih_l0"], held["bias_ih_l0"])
            gates = read + F.linear(state, held["weight_hh_l0"], held["bias_hh_l0"])
            entered, kept, new, shown = gates.chunk(4, 1)
            memory = kept.sigmoid() * memory + entered.sigmoid() * new.tanh()
            state = F.linear(shown.sigmoid() * memory.tanh(), held["weight_hr_l0"])
        return self.head(state)


@dataclass(frozen=True)
class Network:
    """How one is made, and what a sample of its input is."""

    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    outputs: tuple[str, ...] = ("y",)
    tokens: int = 0
    """The input holds whole numbers below this, or floats if it is 0."""


_SEQUENCE = (STEPS, CHANNELS)

NETWORKS: Mapping[str, Network] = {
    "crnn": Network(Crnn, (2 * STEPS, CHANNELS)),
    "two_headed_lstm": Network(TwoHeadedLstm, _SEQUENCE, ("classes", "values")),
    "normed_lstm": Network(NormedLstm, _SEQUENCE),
    "two_grus": Network(TwoGrus, _SEQUENCE),
    "tapered_mlp": Network(TaperedMlp, (3 * CHANNELS,)),
    "cnn": Network(Cnn, (3, 12, 12)),
    "transformer": Network(Transformer, (LENGTH,), tokens=TOKENS),
    "cell_loop": Network(CellLoop, _SEQUENCE),
    "projected_lstm": Network(ProjectedLstm, _SEQUENCE),
}


def network(name: str) -> nn.Module:
    """One of the nine in evaluation; its weights are those of a seed, a few directions the most."""
    torch.manual_seed(0)
    made = NETWORKS[name].make().eval()
    for parameter in made.parameters():
        if parameter.ndim > 1:
            _concentrate(parameter)
    norms = [one for one in made.modules() if isinstance(one, nn.BatchNorm1d | nn.BatchNorm2d)]
    for norm in norms:
        # One pass has the statistics of the inputs; those of its first day would do nothing.
        norm.momentum = None
        norm.train()
    if norms:
        with torch.no_grad():
            made(torch.from_numpy(inputs(name, 64, seed=1)["x"]))
    return made.eval()


@functools.cache
def export(name: str) -> bytes:
    """The file that torch writes; it takes any number of samples as `x`, and answers as named."""
    known = NETWORKS[name]
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        # The exporter says of itself that another one takes its place, and of traced loops that
        # they keep their length.
        warnings.simplefilter("ignore")
        path = Path(folder) / "network.onnx"
        torch.onnx.export(
            network(name),
            (torch.from_numpy(inputs(name, 2)["x"]),),
            path,
            dynamo=False,
            opset_version=_OPSET,
            input_names=["x"],
            output_names=[*known.outputs],
            dynamic_axes={port: {0: "N"} for port in ("x", *known.outputs)},
        )
        return path.read_bytes()


def inputs(name: str, samples: int = 160, seed: int = 0) -> dict[str, NDArray[Any]]:
    """Samples `[N, ...]` of the network's input by its name, neighbours alike."""
    known = NETWORKS[name]
    generator = np.random.default_rng(seed)
    shape = (samples, *known.shape)
    if known.tokens:
        # A few tokens are in most places, as words are.
        return {"x": (generator.random(shape) ** 3 * known.tokens).astype(np.int64)}
    size = known.shape[-1]
    mixing = np.random.default_rng(7).standard_normal((size, size)) / np.sqrt(size)
    values = generator.standard_normal(shape) @ (mixing * np.geomspace(3, 0.1, size)).T
    # Samples differ as wholes: pictures in their colours, sequences in each step's level.
    values += generator.standard_normal((*shape[:2], *(1 for _ in shape[2:])))
    return {"x": values.astype(np.float32)}


def _concentrate(parameter: nn.Parameter) -> None:
    """Let singular values fall, as training does; the sum of squares grows to twice its size."""
    with torch.no_grad():
        matrix = parameter.reshape(parameter.shape[0], -1)
        left, values, right = torch.linalg.svd(matrix, full_matrices=False)
        fallen = values * torch.logspace(0, np.log10(_DECAY), len(values))
        fallen *= np.sqrt(2) * values.norm() / fallen.norm()
        parameter.copy_(((left * fallen) @ right).reshape(parameter.shape))
