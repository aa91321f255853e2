"""Collections: one document, several tasks or data sets, an ordinary study for each.

What their studies found is compared here, and the budget watched that they share.
"""

from search.collections.collecting import submit_collection, try_collection
from search.collections.collection_budgets import CollectionBudgets, counted_epochs
from search.collections.collection_spec import CollectionBudget, CollectionSpec
from search.collections.kind_comparison import (
    ComparedKind,
    Comparison,
    SetResults,
    compare,
    results_of,
)

__all__ = [
    "CollectionBudget",
    "CollectionBudgets",
    "CollectionSpec",
    "ComparedKind",
    "Comparison",
    "SetResults",
    "compare",
    "counted_epochs",
    "results_of",
    "submit_collection",
    "try_collection",
]
