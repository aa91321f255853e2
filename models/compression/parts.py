"""The modules of a network by their paths, and their modes."""

import contextlib
from collections.abc import Generator, Iterator
from typing import cast

from torch import nn

from models.linear import StructuredLinear


def modules_of(network: nn.Module) -> dict[str, nn.Module]:
    """All modules, the network itself by an empty path."""
    named = cast(Iterator[tuple[str, nn.Module]], network.named_modules())
    return dict(named)


def structured_parts(network: nn.Module) -> dict[str, StructuredLinear]:
    """The structured matrices, whole slots each: what one is put together of is not named."""
    parts = {
        name: part
        for name, part in modules_of(network).items()
        if isinstance(part, StructuredLinear)
    }
    inner = {id(member) for part in parts.values() for member in part.members}
    return {name: part for name, part in parts.items() if id(part) not in inner}


@contextlib.contextmanager
def in_evaluation(network: nn.Module) -> Generator[None, None, None]:
    """Put a network in evaluation mode, and each of its modules back in its own mode afterwards."""
    modes = [(part, part.training) for part in modules_of(network).values()]
    try:
        network.eval()
        yield
    finally:
        for part, training in modes:
            part.training = training
