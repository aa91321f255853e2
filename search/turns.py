"""Whose turn it is among studies that want the same slots.

Note [Priorities]: in every round each study takes what is free and what it is ready to use, the one
of the highest priority first. Nothing is kept free for one that is not ready (its data are being
prepared, its suggestions measured), and nothing that runs is ended. So a study of a lower priority
has what the others leave. The measuring lane and the jobs that prepare data go the same way; what
was begun for another study is waited for.
"""

from collections.abc import Mapping, Set


def in_turn(priorities: Mapping[str, int]) -> list[str]:
    """Studies by their priority, the highest first, and equal ones as they stand."""
    return sorted(priorities, key=lambda study_id: -priorities[study_id])


def next_turn(priorities: Mapping[str, int], *, served: Set[str]) -> list[str]:
    """Their order in the next round: whoever was given a slot comes after its equals."""
    return sorted(in_turn(priorities), key=lambda one: (-priorities[one], one in served))
