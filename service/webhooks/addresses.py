"""Which addresses a webhook may go to.

A user who names a host has this server speak to it, from inside its network. So only addresses of
the public internet are taken, unless the setting `webhook_private` says otherwise. A name is
resolved when a study is submitted, for the user to know at once, and again before each try: what
it resolves to then is what is connected to, so that the answer cannot change in between.
"""

import logging
import socket
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from urllib.parse import urlsplit

from search.errors import Fault, SpecRefused
from search.studies.spec import StudySpec

_log = logging.getLogger(__name__)

_NAT64 = IPv6Network("64:ff9b::/96")
"""Addresses under which a gateway reaches IPv4 (RFC 6052): the last 32 bits are that address."""
_UNICAST = IPv6Network("2000::/3")
"""All of the public internet's addresses (RFC 4291), among which Python counts others as well."""
_EXAMPLES = IPv6Network("3fff::/20")
"""Addresses for documentation (RFC 9637), which not all versions of Python know."""


class HostRefused(Exception):
    """A host that nothing is sent to; says why."""


def addresses_of(url: str, *, allow_private: bool) -> Sequence[str]:
    """What the URL's host resolves to, now.

    Which address was refused is for the log alone: a user could learn from it what names mean
    inside our network.

    Raises:
        HostRefused: it does not resolve, or one of its addresses is not public.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        found = socket.getaddrinfo(host, _port(url), type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        if allow_private:
            raise HostRefused(f"the host {host!r} cannot be resolved") from error
        raise HostRefused(_refusal(host)) from error
    addresses = list(dict.fromkeys(str(address[0]) for *_, address in found))
    for address in addresses if not allow_private else ():
        if not is_public(address):
            _log.info(
                "a webhook is refused: its host has an address that is not public",
                extra={"host": host, "address": address},
            )
            raise HostRefused(_refusal(host))
    return addresses


def _refusal(host: str) -> str:
    """One sentence for whatever is wrong: unknown names and internal ones look alike."""
    return (
        f"the host {host!r} does not resolve to public addresses alone; allowed are public "
        "addresses, or all of them by the setting REFLECTORY_WEBHOOK_PRIVATE"
    )


def refuse_unreachable(spec: StudySpec, *, allow_private: bool) -> None:
    """Refuse a study whose webhook nothing would be sent to.

    Raises:
        SpecRefused: at `webhook.url`.
    """
    if spec.webhook is None or allow_private:
        return
    try:
        addresses_of(spec.webhook.url, allow_private=False)
    except HostRefused as refused:
        raise SpecRefused([Fault("webhook.url", str(refused))]) from refused


def is_public(address: str) -> bool:
    """Whether an address is one of the public internet, also where it stands for another one."""
    known = ip_address(address.partition("%")[0])
    inner = _embedded(known) if isinstance(known, IPv6Address) else None
    if inner is not None:
        return is_public(str(inner))
    if isinstance(known, IPv6Address) and (known not in _UNICAST or known in _EXAMPLES):
        return False
    return known.is_global and not (known.is_multicast or known.is_reserved)


def _embedded(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that packets to this one end at, if it is such an address."""
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    teredo = address.teredo
    return address.ipv4_mapped or address.sixtofour or (teredo[1] if teredo else None)


def _port(url: str) -> int:
    parts = urlsplit(url)
    return parts.port or (443 if parts.scheme == "https" else 80)
