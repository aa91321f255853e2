"""What is compressed: tasks, and the plain torch networks that are trained on them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from search.tasks.images.digits import Digits
from search.tasks.images.mnist import Mnist
from search.tasks.timeseries.ucr import Ucr

Task = Mnist | Digits | Ucr


class SequenceClassifier(nn.Module):
    """A stack of torch's own whose last state is read by a linear layer."""

    def __init__(self, stack: nn.LSTM | nn.GRU, outputs: int) -> None:
        super().__init__()
        self.stack = stack
        self.readout = nn.Linear(stack.hidden_size, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """`[B, T, features]` -> `[B, classes]`."""
        return self.readout(self.stack(x)[0][:, -1])


class Perceptron(nn.Module):
    """Linear layers with relu between them, all but the ends square."""

    def __init__(self, inputs: int, width: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.entry = nn.Linear(inputs, width)
        self.hidden = nn.ModuleList(nn.Linear(width, width) for _ in range(hidden))
        self.readout = nn.Linear(width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """`[B, T, features]` -> `[B, classes]`."""
        state = self.entry(x.flatten(1)).relu()
        for layer in self.hidden:
            state = layer(state).relu()
        return self.readout(state)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A task, a network that is trained on it, and what training is given."""

    name: str
    task: Task
    network: Callable[[int], nn.Module]
    """The plain network of a width."""
    width: int
    matrices: tuple[str, ...]
    """Names of the matrices that are compressed."""
    epochs: int
    """Of the original's training."""
    fine_tuning: int
    """Epochs that every contestant gets after it was made of the original."""
    batch_size: int
    original_rate: float = 3e-3
    rates: tuple[float, ...] = (4e-3, 8e-3)
    """Learning rates that every contestant tries; validation chooses."""

    def original(self, seed: int, width: int | None = None) -> nn.Module:
        """A fresh network, the same for equal seeds; torch's global generator is left alone."""
        with torch.random.fork_rng():
            torch.manual_seed(seed)  # pyright: ignore[reportUnknownMemberType] -- untyped
            return self.network(width or self.width)

    def weights(self, module: nn.Module) -> dict[str, Tensor]:
        """The matrices that are compressed."""
        parameters = dict(module.named_parameters())
        return {name: parameters[name] for name in self.matrices}


def _recurrent(
    kind: type[nn.LSTM] | type[nn.GRU], features: int, classes: int
) -> Callable[[int], nn.Module]:
    return lambda width: SequenceClassifier(kind(features, width, batch_first=True), classes)


_RECURRENT = ("stack.weight_hh_l0",)

SETTINGS: Mapping[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting(
            name="mnist-lstm",
            task=Mnist(layout="rows"),
            network=_recurrent(nn.LSTM, 28, 10),
            width=128,
            matrices=_RECURRENT,
            epochs=10,
            fine_tuning=6,
            batch_size=100,
        ),
        Setting(
            name="mnist-gru",
            task=Mnist(layout="rows"),
            network=_recurrent(nn.GRU, 28, 10),
            width=128,
            matrices=_RECURRENT,
            epochs=10,
            fine_tuning=6,
            batch_size=100,
        ),
        Setting(
            name="digits-mlp",
            task=Digits(),
            network=lambda width: Perceptron(64, width, 2, 10),
            width=128,
            matrices=("hidden.0.weight", "hidden.1.weight"),
            epochs=40,
            fine_tuning=30,
            batch_size=32,
            rates=(1e-3, 3e-3),
        ),
        Setting(
            name="digits-lstm",
            task=Digits(),
            network=_recurrent(nn.LSTM, 8, 10),
            width=64,
            matrices=_RECURRENT,
            epochs=40,
            fine_tuning=30,
            batch_size=32,
            original_rate=1e-2,
            rates=(3e-3, 1e-2),
        ),
        Setting(
            name="ecg5000-gru",
            task=Ucr(name="ECG5000"),
            network=_recurrent(nn.GRU, 10, 6),
            width=64,
            matrices=_RECURRENT,
            epochs=60,
            fine_tuning=40,
            batch_size=32,
        ),
        Setting(
            name="permuted-lstm",
            task=Mnist(layout="permuted"),
            network=_recurrent(nn.LSTM, 1, 10),
            width=128,
            matrices=_RECURRENT,
            epochs=30,
            fine_tuning=15,
            batch_size=100,
        ),
    )
}
