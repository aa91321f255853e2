"""Trials that are trained together, and what training asks of its caller."""

from search.training.stacks.entries import (
    Clock,
    Entry,
    Left,
    MemberHooks,
    StackHooks,
    TrainingResult,
)
from search.training.stacks.key import stack_key
from search.training.stacks.training import train_stack
from search.training.stacks.widths import KnownWidths

__all__ = [
    "Clock",
    "Entry",
    "KnownWidths",
    "Left",
    "MemberHooks",
    "StackHooks",
    "TrainingResult",
    "stack_key",
    "train_stack",
]
