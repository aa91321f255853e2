"""Whose turn it is: by priority, and equal ones one after the other."""

import pytest

from search.allocation.priority import in_turn, next_turn


def rounds(priorities: dict[str, int], count: int) -> list[list[str]]:
    """The orders of rounds in each of which the first study of priority 0 is given a slot."""
    found: list[list[str]] = []
    for _ in range(count):
        order = in_turn(priorities)
        found.append(order)
        served = {next(study for study in order if priorities[study] == 0)}
        priorities = {one: priorities[one] for one in next_turn(priorities, served=served)}
    return found


def test_the_highest_priority_comes_first_whoever_came_before() -> None:
    assert in_turn({"a": 0, "b": 5, "c": -1, "d": 5}) == ["b", "d", "a", "c"]


@pytest.mark.parametrize("others", [{}, {"x": 1}, {"x": -1}, {"x": 3, "y": -3, "z": -3}])
def test_equal_ones_are_served_in_turn_whatever_else_there_is(others: dict[str, int]) -> None:
    equal = {"a", "b", "c"}
    firsts = [
        next(study for study in order if study in equal)
        for order in rounds({"a": 0, **others, "b": 0, "c": 0}, 9)
    ]
    assert [firsts.count(study) for study in sorted(equal)] == [3, 3, 3]
    assert firsts[:3] == firsts[3:6] == firsts[6:]


def test_who_was_given_nothing_keeps_its_place() -> None:
    priorities = {"a": 2, "b": 0, "c": 2, "d": 0}
    assert next_turn(priorities, served=set()) == ["a", "c", "b", "d"]
    assert next_turn(priorities, served={"a", "b"}) == ["c", "a", "d", "b"]
    assert next_turn({}, served={"gone"}) == []
