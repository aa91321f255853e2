"""The choices among which a search allocates."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from models.graphs.fits import CHOICES, AnyChoice, Dense
from models.graphs.layers import Layer

Cost: TypeAlias = Callable[[AnyChoice, Layer], float]


def bytes_of(choice: AnyChoice, layer: Layer) -> float:
    """What a layer takes in a file."""
    return choice.bytes(layer)


def multiply_adds_of(choice: AnyChoice, layer: Layer) -> float:
    """What a layer computes for one vector."""
    return choice.multiply_adds(layer)


def candidates(
    layer: Layer, kinds: Sequence[type[AnyChoice]] = CHOICES, *, cost: Cost = bytes_of
) -> list[AnyChoice]:
    """The layer as it is, and all that these kinds offer which costs less."""
    unchanged = Dense()
    whole = cost(unchanged, layer)
    offered = (choice for kind in kinds for choice in kind.offers(layer))
    return [
        unchanged,
        *(
            choice
            for choice in offered
            if choice != unchanged and choice.refusal(layer) is None and cost(choice, layer) < whole
        ),
    ]
