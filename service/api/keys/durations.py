"""Lengths of time as people write them: `90d`, `12h`."""

import re
from datetime import timedelta

PATTERN = r"^[0-9]{1,4}[mhdw]$"
"""The form, for schemas."""

LIFETIME_PATTERN = r"^[1-9][0-9]{0,3}[mhdw]$"
"""The form of a length that is not zero."""

_FORM = re.compile(r"([0-9]{1,4})([mhdw])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def duration(text: str) -> timedelta:
    """The length of time that a text names.

    Raises:
        ValueError: it has another form; says which are allowed.
    """
    found = _FORM.fullmatch(text)
    if found is None:
        raise ValueError(
            f"{text!r} is no length of time; allowed are 0 to 9999 minutes, hours, days or weeks, "
            "such as 30m, 12h, 90d and 4w"
        )
    return timedelta(**{_UNITS[found[2]]: int(found[1])})
