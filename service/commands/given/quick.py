"""Lists asked for with what comes with Python: the client takes longer to import than to answer."""

import json
import os
import urllib.request
from collections.abc import Iterator, Mapping
from http.client import HTTPException
from typing import Any
from urllib.parse import urlencode, urlsplit

_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_PAGE = 100
_SECONDS = 10.0

FAULTS = (OSError, HTTPException, ValueError, KeyError, TypeError)
"""What may go wrong. The client then asks again: it knows what to say of each."""


def pages(server: str, path: str, params: Mapping[str, str | None]) -> Iterator[dict[str, Any]]:
    """The items of all pages of a list, as JSON; null parameters are left out."""
    query = {name: value for name, value in params.items() if value is not None}
    query["limit"] = str(_PAGE)
    key = os.environ.get("REFLECTORY_KEY", "").strip()
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    if urlsplit(server).scheme not in ("http", "https"):
        raise ValueError(f"{server!r} is no URL of a server")
    # A proxy that the environment names cannot lead to this machine's own loopback.
    proxies = dict[str, str]() if urlsplit(server).hostname in _LOOPBACK else None
    # No handler of redirects: the key is shown to nobody else.
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(proxies),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.HTTPDefaultErrorHandler(),
    ):
        opener.add_handler(handler)
    while True:
        url = f"{server.rstrip('/')}{path}?{urlencode(query)}"
        with opener.open(urllib.request.Request(url, headers=headers), timeout=_SECONDS) as answer:
            page = json.load(answer)
        yield from page["items"]
        if page["next_cursor"] is None:
            return
        query["cursor"] = page["next_cursor"]
