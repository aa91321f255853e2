"""HTTP clients of the service's own processes and machines, over TCP or over a Unix socket.

A service on this machine may be named by its socket: `unix:///folder/api.sock`.
"""

from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, unquote

import httpx2

from models.spec import Spec

_UNIX = "unix://"


def unix_url(socket: Path) -> str:
    """The URL of the service behind a Unix socket, whose path is absolute."""
    return f"{_UNIX}{quote(str(socket))}"


def api_client(
    url: str, path: str, *, timeout: float = 5.0, headers: Mapping[str, str] | None = None
) -> httpx2.Client:
    """A client of `path` below the service at `url`, which may be a `unix://` URL.

    It uses no proxy and no .netrc: credentials go to the service alone.
    """
    if url.startswith(_UNIX):
        transport = httpx2.HTTPTransport(uds=unquote(url.removeprefix(_UNIX)), verify=False)
        host = "http://localhost"
    else:
        # Reading the trusted certificates takes longer than a fork; plain HTTP needs none.
        transport = httpx2.HTTPTransport(verify=not url.startswith("http://"), trust_env=False)
        host = url.rstrip("/")
    return httpx2.Client(
        base_url=f"{host}{path}",
        headers=headers,
        timeout=timeout,
        trust_env=False,
        transport=transport,
    )


class ApiLink:
    """A line to the service, closed at the end of its `with` block.

    Safe to call from several threads.
    """

    def __init__(self, url: str, path: str, *, key: str | None, timeout: float) -> None:
        """`key` is shown as a bearer token, if there is one."""
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self._client = api_client(url, path, timeout=timeout, headers=headers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def sent_json(body: Spec | None) -> dict[str, Any]:
    """The arguments of a request that has this document for its body."""
    if body is None:
        return {}
    headers = {"Content-Type": "application/json"}
    return {"content": body.model_dump_json().encode(), "headers": headers}


def may_pass(response: httpx2.Response) -> bool:
    """Whether the service has trouble, or too much to do, that may be over at the next try."""
    return response.is_server_error or response.status_code == HTTPStatus.TOO_MANY_REQUESTS
