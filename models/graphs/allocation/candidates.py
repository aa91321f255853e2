"""The choices among which a search allocates."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from models.graphs.fits import CHOICES, AnyChoice, Choice, Dense
from models.graphs.layers import Layer

Cost: TypeAlias = Callable[[AnyChoice, Layer], float]


def candidates(
    layer: Layer, kinds: Sequence[type[AnyChoice]] = CHOICES, *, cost: Cost = Choice.bytes
) -> list[AnyChoice]:
    """The layer as it is, and all that these kinds offer which costs less.

    Costs are bytes, or for instance `Choice.multiply_adds`.
    """
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
