"""What takes part in the comparison."""

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor, nn

from search.tasks import Split
from tests.benchmarks.peers.settings import Setting


@dataclass(frozen=True, kw_only=True)
class Given:
    """What every contestant is made of."""

    setting: Setting
    original: nn.Module
    """Trained; it is left as it is."""
    numbers: int
    """At most so many may stand for the original's compressed matrices."""
    train: Split
    seed: int


def _nothing(_: float) -> None:
    """Nothing changes between epochs."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Contestant:
    """A compressed network that is ready to be trained on."""

    module: nn.Module
    numbers: Callable[[], int]
    """Those that stand for the compressed matrices, counted when training is over."""
    others: int
    """All other trainable numbers."""
    what: str
    """Its counts, for the table."""
    before_epoch: Callable[[float], None] = field(default=_nothing)
    """Called with the share of epochs that are behind."""
    starts_untrained: bool = False
    """Whether nothing of the original is in it: it gets the original's epochs as well."""
    counts_from_share: float = 0.0
    """From which share of the epochs on it has its size."""


class Replaced(nn.Module):
    """A module some of whose matrices other modules make anew in each forward pass.

    In the way of `torch.nn.utils.prune`, which takes parameters out of a module and sets plain
    tensors in their place: stacks of torch's own notice that, where `functional_call` and
    parametrizations pass them by.
    """

    def __init__(self, module: nn.Module, matrices: dict[str, nn.Module]) -> None:
        super().__init__()
        self.module = module
        self.makers = nn.ModuleList(matrices.values())
        self._places = [name.rpartition(".") for name in matrices]
        for owner, _, key in self._places:
            delattr(module.get_submodule(owner), key)

    def forward(self, x: Tensor) -> Tensor:
        """As the module."""
        for (owner, _, key), maker in zip(self._places, self.makers, strict=True):
            setattr(self.module.get_submodule(owner), key, maker())
        return self.module(x)


def numbers_in(module: nn.Module) -> int:
    """Trainable numbers."""
    return sum(parameter.numel() for parameter in module.parameters())


def others_in(given: Given) -> int:
    """Numbers of the original that are not compressed."""
    compressed = sum(weight.numel() for weight in given.setting.weights(given.original).values())
    return numbers_in(given.original) - compressed
