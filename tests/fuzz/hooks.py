"""What schemathesis draws of no schema by itself: lone surrogates, and ids of what is there.

It is read by schemathesis' own process, which finds the ids in the environment.
"""

import json
import os
import random
from collections.abc import Iterator
from typing import Any

import schemathesis

IDS = "FUZZ_IDS"
"""The variable with the ids of studies, data sets, models, keys and attempts, as a JSON list."""

_SURROGATES = ("\ud800", "a\udfffb", "\udc00\ud83d")
_SHARE = 0.5


@schemathesis.hook
def before_call(_context: Any, case: Any, kwargs: dict[str, Any]) -> None:
    """Put a surrogate or an id in place of a text or a name of half of all JSON bodies."""
    if not isinstance(case.body, dict | list):
        return
    body = json.loads(json.dumps(case.body))
    # The same request is changed in the same way when it is sent again.
    draw = random.Random(f"{case.method} {case.path} {json.dumps(body, sort_keys=True)}")
    texts = list(_texts(body))
    if not texts or draw.random() > _SHARE:
        return
    inside, key, is_name = draw.choice(texts)
    new = draw.choice((*_SURROGATES, *json.loads(os.environ[IDS])))
    if is_name:
        inside[new] = inside.pop(key)
    else:
        inside[key] = new
    if new in _SURROGATES:
        # Sent as it is: schemathesis itself cannot look into a case that holds one.
        kwargs["data"] = json.dumps(body).encode()
    else:
        case.body = body


def _texts(part: Any) -> Iterator[tuple[Any, Any, bool]]:
    """Every text of a document: what it is in, its key or place, and whether it is the key."""
    members = list(part.items()) if isinstance(part, dict) else list(enumerate(part))
    for key, value in members:
        if isinstance(part, dict):
            yield part, key, True
        if isinstance(value, str):
            yield part, key, False
        elif isinstance(value, dict | list):
            yield from _texts(value)
