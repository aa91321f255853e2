"""Constants of a graph as initializers, each once, without a runtime.

`opened` takes them out of the nodes that hold, turn or hand them on; `share_equal_weights` keeps
one of those that are equal. `names_of_halves` says which stand for half as many bytes.
"""

from models.graphs.reading.constants.halves import names_of_halves
from models.graphs.reading.constants.opened_constants import opened
from models.graphs.reading.constants.shared_weights import share_equal_weights

__all__ = ["names_of_halves", "opened", "share_equal_weights"]
