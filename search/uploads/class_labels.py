"""Names of classes as users write them, and the numbers that stand for them."""

import re
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from search.errors import DataError
from search.uploads.dataset_metadata import MOST_CLASSES

LONGEST_NAME = 200

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_MISSING = ("", "?", "nan")
_MOST_DIGITS = 18

Label: TypeAlias = str | int | float


def labels_of(targets: Sequence[str] | Sequence[float]) -> list[str] | list[int] | list[float]:
    """One label a sample, with numbers where all of them are numbers: `1`, `1.0` and `01` are one.

    Raises:
        DataError: A sample has none.
    """
    for index, target in enumerate(targets):
        # The only value that differs from itself is NaN.
        if target != target or (isinstance(target, str) and target.strip().lower() in _MISSING):
            raise DataError(f"sample {index} (from 0) has no target: it is {target!r}")
    words = [target.strip() for target in targets if isinstance(target, str)]
    whole = [target for target in targets if isinstance(target, int)]
    if len(whole) == len(targets):
        return whole
    if not words:
        values = [float(target) for target in targets]
    elif all(len(word) <= _MOST_DIGITS and _NUMBER.fullmatch(word) for word in words):
        values = [float(word) for word in words]
    else:
        return words
    if all(value.is_integer() and abs(value) < 2**53 for value in values):
        return [int(value) for value in values]
    return values


def numbered(
    labels: Sequence[str] | Sequence[int] | Sequence[float],
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Number the classes of some samples: numbers by size, words by the alphabet.

    Returns:
        The samples' classes `[N]`, and the classes' names in the order of their numbers.

    Raises:
        DataError: There is one class only, or so many that they can be none.
    """
    classes = sorted(set(labels))
    names = tuple(_name(label) for label in classes)
    if len(classes) == 1:
        raise DataError(f"all {len(labels)} samples are of one class, {names[0]!r}; 2 are needed")
    advice = (
        "classes are shared by several samples; is this another column than the target, or is it "
        'problem: "regression"?'
    )
    if len(classes) > MOST_CLASSES:
        raise DataError(f"there are {len(classes)} classes; at most {MOST_CLASSES}: {advice}")
    if len(classes) == len(labels) > 2:
        raise DataError(f"each of the {len(labels)} samples is of a class of its own: {advice}")
    numbers = {label: number for number, label in enumerate(classes)}
    return np.array([numbers[label] for label in labels], dtype=np.int64), names


def _name(label: Label) -> str:
    name = label if isinstance(label, str) else repr(label)
    if len(name) > LONGEST_NAME or not name.isprintable():
        raise DataError(
            f"the class {name[:40]!r} has no usable name: at most {LONGEST_NAME} characters, all "
            "of which can be printed"
        )
    return name
