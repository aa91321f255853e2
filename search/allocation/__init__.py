"""Slots: which there are, what is on them, and which attempt may have one next."""

from search.allocation.allocator import Allocator, SlotNews
from search.allocation.occupancy import Occupant, StackGroup
from search.allocation.priority import in_turn, interleaved, next_turn, take_turns
from search.allocation.tenant_shares import TenantShares

__all__ = [
    "Allocator",
    "Occupant",
    "SlotNews",
    "StackGroup",
    "TenantShares",
    "in_turn",
    "interleaved",
    "next_turn",
    "take_turns",
]
