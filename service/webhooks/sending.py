"""One try to tell a user's server: to a checked address, over TLS to the named host, in time."""

import asyncio
from collections.abc import Mapping, Sequence
from http import HTTPStatus

import httpx2

from service.webhooks.addresses import HostRefused, addresses_of

SECONDS = 10.0
"""How long a try may take in all; slow answers are not waited for."""


class NotTaken(Exception):
    """The receiver did not take it this time; says why, in words that are ours."""


class Unwanted(NotTaken):
    """The receiver wants nothing more of the kind."""


async def send(url: str, body: bytes, headers: Mapping[str, str], *, allow_private: bool) -> None:
    """POST the body; returns when the receiver has answered with a status of 200 to 299.

    Nothing of the answer but its status is read, and no redirect is followed.

    Raises:
        Unwanted: it answered 410.
        NotTaken: it answered anything else, or could not be reached, or not in time.
    """
    try:
        async with asyncio.timeout(SECONDS):
            addresses = await asyncio.to_thread(addresses_of, url, allow_private=allow_private)
            status = await _post(url, addresses, body, headers)
    except TimeoutError as error:
        raise NotTaken(f"no answer within {SECONDS:.0f} s") from error
    except HostRefused as refused:
        raise NotTaken(str(refused)) from refused
    if status == HTTPStatus.GONE:
        raise Unwanted("the receiver answered HTTP 410: it wants no more of it")
    if not 200 <= status < 300:
        redirects = 300 <= status < 400
        raise NotTaken(f"HTTP {status}" + (", which is not followed" if redirects else ""))


async def _post(url: str, addresses: Sequence[str], body: bytes, headers: Mapping[str, str]) -> int:
    """The status that the first address answers with which can be connected to."""
    named = httpx2.URL(url)
    all_headers = {**headers, "Host": named.netloc.decode(), "Content-Type": "application/json"}
    refused = "the host has no address"
    async with httpx2.AsyncClient(
        verify=httpx2.create_ssl_context(), timeout=SECONDS, trust_env=False
    ) as client:
        for address in addresses:
            request = client.build_request(
                "POST",
                # Not the name, which would be resolved once more; TLS is held against the name.
                named.copy_with(host=address),
                content=body,
                headers=all_headers,
                extensions={"sni_hostname": named.host},
            )
            try:
                answer = await client.send(request, stream=True, follow_redirects=False)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                # Written by the system and by TLS: nothing of an answer is in it.
                refused = f"no connection: {error}"
                continue
            except httpx2.TransportError as error:
                raise NotTaken("the connection ended before there was an answer") from error
            await answer.aclose()
            return answer.status_code
    raise NotTaken(refused)
