"""Training the numbers of a trial's file further, by the original's answers.

`fine_tuned` trains one trial, and `untrainable` says why a network cannot be trained. An agent's
process alone imports this; `search.graphs.fine_tune` is what documents say of it.
"""

from search.graphs.fine_tuning.tuning import AfterEpoch, Epoch, fine_tuned
from search.graphs.fine_tuning.untrainable import untrainable

__all__ = ["AfterEpoch", "Epoch", "fine_tuned", "untrainable"]
