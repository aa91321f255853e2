"""Strangers' names in sentences for users."""

from collections.abc import Sequence

_LONGEST = 80
_NAMED = 5


def quoted(name: str) -> str:
    """A name in quotes, without what a terminal or a page would take for more than letters."""
    shown = name if len(name) <= _LONGEST else f"{name[:_LONGEST]}..."
    return repr(shown)


def first_of(names: Sequence[str]) -> str:
    """The first five names, and how many more there are."""
    shown = ", ".join(quoted(name) for name in names[:_NAMED])
    return shown if len(names) <= _NAMED else f"{shown} and {len(names) - _NAMED} more"
