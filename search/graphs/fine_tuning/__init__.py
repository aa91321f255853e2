"""Training a trial's numbers further, so that its file answers as the original does.

`FineTune` says how, and is part of documents: this package alone loads nothing of torch. What runs
is imported by its modules' names, in a worker's process.
"""

from search.graphs.fine_tuning.fine_tune import FineTune

__all__ = ["FineTune"]
