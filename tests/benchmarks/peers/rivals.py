"""What people use today, from torch, from libraries, or by training something small."""

import copy
import importlib
import importlib.util
from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.utils import prune

from tests.benchmarks.peers.contestant import (
    Contestant,
    Given,
    Replaced,
    numbers_in,
    others_in,
)

PRUNED_BY = 0.5
"""Gradual pruning is over after this share of the epochs."""


def pruned(given: Given, *, gradual: bool) -> Contestant:
    """Entries of least magnitude at zero (`torch.nn.utils.prune`), trained on with what is left.

    At once, or along the cubic schedule of Zhu and Gupta (arXiv:1710.01878) before each epoch of
    the first half. Only the entries that are left are counted, not where they are.
    """
    module = copy.deepcopy(given.original)
    weights = given.setting.weights(module)
    places = [
        (module.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2]) for name in weights
    ]
    entries = sum(weight.numel() for weight in weights.values())
    final = 1 - given.numbers / entries
    reached = 0.0

    def prune_to(share: float) -> None:
        nonlocal reached
        if share <= reached:
            return
        # Of what is left, as `prune` counts.
        prune.global_unstructured(  # pyright: ignore[reportUnknownMemberType] -- untyped
            places, pruning_method=prune.L1Unstructured, amount=round((share - reached) * entries)
        )
        reached = share

    def before_epoch(behind: float) -> None:
        # One step ahead, so that the last epoch of the first half has the final share.
        done = min(1.0, (behind + 1 / given.setting.fine_tuning) / PRUNED_BY)
        prune_to(final * (1 - (1 - done) ** 3))

    if not gradual:
        prune_to(final)
    return Contestant(
        module=module,
        numbers=lambda: sum(int((getattr(owner, key) != 0).sum()) for owner, key in places),
        others=others_in(given),
        what="entries left of least magnitude pruned",
        before_epoch=before_epoch if gradual else lambda _: None,
        counts_from_share=PRUNED_BY if gradual else 0.0,
    )


class Product(nn.Module):
    """`L R`, with the singular values shared by both."""

    def __init__(self, weight: Tensor, rank: int) -> None:
        super().__init__()
        u, s, v = torch.linalg.svd(weight.detach(), full_matrices=False)
        root = s[:rank].sqrt()
        self.left = nn.Parameter(u[:, :rank] * root)
        self.right = nn.Parameter(root.unsqueeze(-1) * v[:rank])

    def forward(self) -> Tensor:
        """The matrix."""
        return self.left @ self.right


def truncated(given: Given) -> Contestant:
    """A truncated singular value decomposition of each matrix as torch stores it, gates stacked."""
    module = copy.deepcopy(given.original)
    weights = given.setting.weights(module)
    rank = given.numbers // sum(sum(weight.shape) for weight in weights.values())
    makers = {name: Product(weight, rank) for name, weight in weights.items()}
    return _replaced(given, module, dict(makers), f"rank {rank}")


def tensor_train(given: Given) -> Contestant:
    """tensorly-torch's block tensor train of each matrix, at the largest rank that fits."""
    module = copy.deepcopy(given.original)
    weights = given.setting.weights(module)

    def made(rank: int) -> dict[str, nn.Module]:
        return {name: TensorTrain(weight, rank) for name, weight in weights.items()}

    def numbers(rank: int) -> int:
        return sum(numbers_in(maker) for maker in made(rank).values())

    rank = 1
    while numbers(rank + 1) <= given.numbers:
        rank += 1
    return _replaced(given, module, made(rank), f"rank {rank}")


class TensorTrain(nn.Module):
    """A matrix as tensorly-torch's BlockTT."""

    def __init__(self, weight: Tensor, rank: int) -> None:
        super().__init__()
        library = cast(Any, importlib.import_module("tltorch"))
        rows, columns = (_three_factors(size) for size in weight.shape)
        self.tensor = library.TensorizedTensor.from_matrix(
            weight.detach(), rows, columns, rank=rank, factorization="BlockTT"
        )

    def forward(self) -> Tensor:
        """The matrix."""
        return self.tensor.to_matrix()


def channels_pruned(given: Given) -> Contestant | None:
    """Torch-Pruning's magnitude pruner: whole units, and with them rows and columns around.

    It knows how units of linear layers hang together. Not those of torch's recurrent stacks, which
    it breaks or passes by (Torch-Pruning#44, #276): these are left to the others.
    """
    torch_pruning = cast(Any, importlib.import_module("torch_pruning"))
    setting = given.setting
    if any(isinstance(part, nn.RNNBase) for part in given.original.modules()):
        return None
    example = given.train.x[:2]
    width = int((given.numbers / len(setting.matrices)) ** 0.5)
    module = copy.deepcopy(given.original)
    pruner = torch_pruning.pruner.MagnitudePruner(
        module,
        example,
        importance=torch_pruning.importance.MagnitudeImportance(p=2),
        pruning_ratio=1 - width / setting.width,
        ignored_layers=[module.get_submodule("readout")],
    )
    pruner.step()
    return _whole(given, module, f"width {module.get_submodule('readout').in_features}")


def small(given: Given, *, equal: str) -> Contestant:
    """A dense network of less width, from scratch, which gets the original's epochs as well.

    With as many numbers in the matrices that the others compress, or with as many in all.
    """
    setting = given.setting

    def fits(width: int) -> bool:
        module = setting.original(given.seed, width)
        if equal == "in all":
            return numbers_in(module) <= given.numbers + others_in(given)
        return sum(w.numel() for w in setting.weights(module).values()) <= given.numbers

    width = max(width for width in range(1, setting.width) if fits(width))
    module = setting.original(1000 + given.seed, width)
    return _whole(given, module, f"width {width}", starts_untrained=True)


def _whole(
    given: Given, module: nn.Module, what: str, *, starts_untrained: bool = False
) -> Contestant:
    """A network of torch's own layers, smaller than the original."""
    matrices = sum(weight.numel() for weight in given.setting.weights(module).values())
    return Contestant(
        module=module,
        numbers=lambda: matrices,
        others=numbers_in(module) - matrices,
        what=what,
        starts_untrained=starts_untrained,
    )


def _replaced(
    given: Given, module: nn.Module, makers: dict[str, nn.Module], what: str
) -> Contestant:
    matrices = sum(map(numbers_in, makers.values()))
    return Contestant(
        module=Replaced(module, makers),
        numbers=lambda: matrices,
        others=others_in(given),
        what=what,
    )


def _three_factors(size: int) -> tuple[int, int, int]:
    """Three factors of a size, as alike as they can be, the larger ones last."""
    choices = [
        (a, b, size // (a * b))
        for a in range(1, size + 1)
        if size % a == 0
        for b in range(a, size // a + 1)
        if (size // a) % b == 0 and size // (a * b) >= b
    ]
    return min(choices, key=lambda factors: factors[2] - factors[0])


CONTESTANTS: Mapping[str, Callable[[Given], Contestant | None]] = {
    "pruned at once": lambda given: pruned(given, gradual=False),
    "pruned gradually": lambda given: pruned(given, gradual=True),
    "truncated SVD": truncated,
    "tensor train (tensorly-torch)": tensor_train,
    "channels (Torch-Pruning)": channels_pruned,
    "small dense, as many in these matrices": lambda given: small(given, equal="matrices"),
    "small dense, as many in all": lambda given: small(given, equal="in all"),
}

_LIBRARIES = {
    "tensor train (tensorly-torch)": "tltorch",
    "channels (Torch-Pruning)": "torch_pruning",
}


def is_installed(name: str) -> bool:
    """Whether a contestant's library is there: the extra `peers` has them all."""
    library = _LIBRARIES.get(name)
    return library is None or importlib.util.find_spec(library) is not None
