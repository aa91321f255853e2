"""Constants of a graph as initializers, each once, without a runtime.

`opened` takes them out of the nodes that hold, turn or hand them on; `share_equal_weights` keeps
one of those that are equal, and `share_turned_weights` one of those that a runtime turned.
`names_of_halves` says which stand for half as many bytes, and `remove_inserted_casts` brings back
those that a runtime computes with in single precision.
"""

from models.graphs.reading.constants.halves import names_of_halves
from models.graphs.reading.constants.inserted_casts import remove_inserted_casts
from models.graphs.reading.constants.opened_constants import opened
from models.graphs.reading.constants.shared_weights import (
    share_equal_weights,
    share_turned_weights,
)

__all__ = [
    "names_of_halves",
    "opened",
    "remove_inserted_casts",
    "share_equal_weights",
    "share_turned_weights",
]
