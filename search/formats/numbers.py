"""Numbers in text files: decimal ones only, and only those that a float32 holds."""

import re

import numpy as np

# Stricter than `float`, which also takes 1_000, infinity and other scripts' digits.
_DECIMAL = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_DIGITS = re.compile(r"[0-9]{1,18}")
_LARGEST = float(np.finfo(np.float32).max)
_SHOWN_CHARACTERS = 40


def decimal(field: str) -> float:
    """Read a decimal number such as `-0.5` or `9.5e-05`.

    Raises:
        ValueError: It is none, or beyond float32; the message shows it.
    """
    if not _DECIMAL.fullmatch(field):
        raise ValueError(f"{shown(field)} is not a number")
    number = float(field)
    if abs(number) > _LARGEST:
        raise ValueError(f"{shown(field)} is beyond {_LARGEST:.4g}, the largest float32")
    return number


def whole(field: str, *, low: int = 0, high: int) -> int:
    """Read a whole number of low..high, written in digits alone.

    Raises:
        ValueError: It is none, or out of the range; the message shows it and the range.
    """
    if not _DIGITS.fullmatch(field) or not low <= int(field) <= high:
        raise ValueError(f"{shown(field)} is not a whole number of {low}..{high}")
    return int(field)


def shown(field: str) -> str:
    """Quote a field for a message, cut to a readable length."""
    whole_field = len(field) <= _SHOWN_CHARACTERS
    return repr(field if whole_field else f"{field[:_SHOWN_CHARACTERS]}...")
