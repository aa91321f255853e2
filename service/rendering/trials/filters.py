"""Which trials a reader wants to see, in words: `d<=8 accuracy>0.9`."""

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

from search.documents.objectives import OBJECTIVE_KINDS
from storage.repositories.trial_summaries import ShownTrial

Read = Callable[[ShownTrial], Any]

_TERM: Final = re.compile(r"""\s*([\w.-]+)\s*(<=|>=|!=|==|=|<|>)\s*("[^"]*"|[^\s"]+)""")
_EXAMPLE: Final = "d<=8 accuracy>0.9 parametrization=low_rank"

_COMPARE: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
}
_EQUALS: Final = ("=", "==", "!=")


class FilterRefused(ValueError):
    """Words that name no filter; the message says what is allowed."""


@dataclass(frozen=True)
class Fields:
    """What trials of a study can be sorted and filtered by."""

    fixed: Mapping[str, Read]
    """By name, also by those that stand in headings."""
    hyperparameters: frozenset[str]

    @classmethod
    def of(cls, trials: Iterable[ShownTrial], *, metric: str, on_front: frozenset[int]) -> "Fields":
        """Those of a study, whose task calls quality so."""
        fixed: dict[str, Read] = {name: kind.value for name, kind in OBJECTIVE_KINDS.items()}
        fixed |= {
            "number": lambda trial: trial.number,
            "trial": lambda trial: trial.number,
            "test": lambda trial: trial.test_quality,
            "ratio": lambda trial: trial.throughput_ratio,
            "epochs": lambda trial: trial.epochs_trained,
            "outcome": lambda trial: str(trial.state),
            "origin": lambda trial: str(trial.origin),
            "architecture": lambda trial: trial.architecture,
            "parametrization": lambda trial: trial.parametrization,
            "front": lambda trial: "yes" if trial.number in on_front else "no",
            re.sub(r"\W+", "_", metric): lambda trial: trial.quality,
        }
        names = frozenset(name for trial in trials for name in trial.hyperparameters)
        return cls(fixed, names)

    def reader(self, name: str) -> Read:
        """How to read what a name stands for.

        A hyperparameter goes by its whole name, or by the part behind its last dot.

        Raises:
            FilterRefused: nothing goes by it.
        """
        if name in self.fixed:
            return self.fixed[name]
        found = [one for one in self.hyperparameters if name in (one, one.rpartition(".")[2])]
        if not found:
            known = [*self.fixed, *sorted(self.hyperparameters)]
            near = get_close_matches(name, known, n=3, cutoff=0.6)
            meant = f" Did you mean {' or '.join(near)}?" if near else ""
            raise FilterRefused(
                f"No trial has {name!r}.{meant} Allowed are {', '.join(self.fixed)}, and the names "
                "of hyperparameters."
            )

        def read(trial: ShownTrial) -> Any:
            values = (trial.hyperparameters[one] for one in found if one in trial.hyperparameters)
            return next(values, None)

        return read


def matching(words: str, fields: Fields) -> Callable[[ShownTrial], bool]:
    """Whether a trial is what all terms of a filter say; one without the value is not.

    Raises:
        FilterRefused: a term cannot be read, or nothing goes by its name.
    """
    terms: list[tuple[Read, str, str]] = []
    place = 0
    text = words.strip()
    while place < len(text):
        match = _TERM.match(text, place)
        if match is None:
            rest = text[place:].split()[0]
            raise FilterRefused(
                f"{rest!r} is no condition. Write a name, one of <, <=, =, !=, >=, > and a value: "
                f"{_EXAMPLE}"
            )
        name, sign, value = match.groups()
        value = value.strip('"').rstrip(",;")
        if sign not in _EQUALS and _number(value) is None:
            raise FilterRefused(f"{value!r} is no number. {sign} takes one: {_EXAMPLE}")
        terms.append((fields.reader(name), sign, value))
        place = match.end()
    return lambda trial: all(_holds(read(trial), sign, value) for read, sign, value in terms)


def ordered(trials: Sequence[ShownTrial], read: Read, *, descending: bool) -> list[ShownTrial]:
    """By a value, numbers before words; those without one come last, and equal ones by number."""
    known = [trial for trial in trials if read(trial) is not None]
    rest = [trial for trial in trials if read(trial) is None]

    def key(trial: ShownTrial) -> tuple[bool, float, str]:
        value = read(trial)
        is_number = isinstance(value, int | float)
        return not is_number, float(value) if is_number else 0.0, str(value)

    # A stable sort keeps equal ones by number, whichever way.
    return [*sorted(known, key=key, reverse=descending), *rest]


def _number(value: str) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None


def _holds(found: Any, sign: str, value: str) -> bool:
    if found is None:
        return False
    number = _number(value)
    if number is not None and isinstance(found, int | float) and not isinstance(found, bool):
        return _COMPARE[sign](found, number)
    text = str(found).lower() if isinstance(found, bool) else str(found)
    return sign in _EQUALS and _COMPARE[sign](text, value)
