"""Ranges as people write them: `16`, `8 to 64`, `8 to 64 by 8`, `0.001 to 0.1 log`."""

import json
import re
from typing import Any, cast

from search.spaces.dimension import Dimension

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_RANGE = re.compile(
    rf"({_NUMBER})(?:\s*(?:to|\.\.|–)\s*({_NUMBER})(?:\s*,?\s*(?:by\s+({_NUMBER})|(log|linear)))?)?"
)
_SCALES = {True: "log", False: "linear"}


def override_of(text: str, dimension: Dimension) -> Any:
    """What a text says of a dimension: one value, or a range as documents have it.

    A range without a word for its scale is on the scale that the dimension has by default.

    Raises:
        ValueError: the text is neither.
    """
    found = _RANGE.fullmatch(text)
    if found is None:
        raise ValueError(
            f"{text!r} is no range; allowed are a value such as '16', '8 to 64', '8 to 64 by 8' "
            "and '0.001 to 0.1 log'"
        )
    low, high, step, scale = found.groups()
    if high is None:
        return _number(low)
    ends = {"low": _number(low), "high": _number(high)}
    if step is not None:
        return {**ends, "step": _number(step)}
    log = getattr(dimension, "log", False) if scale is None else scale == "log"
    return {**ends, "log": log}


def text_of(override: Any, dimension: Dimension) -> str | None:
    """The text that says so; null where there is none, as for a list of options."""
    if isinstance(override, int | float) and not isinstance(override, bool):
        return json.dumps(override)
    if not isinstance(override, dict) or not {"low", "high"} <= override.keys():
        return None
    found = cast(dict[str, Any], override)
    text = f"{json.dumps(found['low'])} to {json.dumps(found['high'])}"
    log = bool(found.get("log", False))
    if found.get("step") is not None:
        return None if log else f"{text} by {json.dumps(found['step'])}"
    return text if log == getattr(dimension, "log", False) else f"{text} {_SCALES[log]}"


def usual_text(dimension: Dimension) -> str:
    """The range that a dimension has by default, in such words."""
    described: dict[str, Any] = dimension.model_dump(mode="json")
    text = f"{described['low']:g} to {described['high']:g}"
    if described["log"]:
        return f"{text} log"
    return f"{text} by {described['step']:g}" if described["step"] not in (None, 1) else text


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)
