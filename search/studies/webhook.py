"""Where a user wants to be notified of a study's end."""

from ipaddress import IPv6Address
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from models.spec import Spec

_SCHEMES = ("http", "https")


def _plain(url: str) -> str:
    """A URL that all who read it take apart alike."""
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        raise ValueError(
            f"{url!r} holds characters that no URL has; allowed is printable ASCII without blanks "
            "and backslashes (names of other alphabets as punycode)"
        )
    try:
        parts = urlsplit(url)
        host, _port = parts.hostname, parts.port
        if host is not None and "[" in parts.netloc:
            # Later versions of IP have names in brackets, which nothing else can read.
            IPv6Address(host)
            after = parts.netloc.rpartition("]")[2]
            if after and not after.startswith(":"):
                raise ValueError(f"{after!r} follows the address")
    except ValueError as error:
        raise ValueError(f"{url!r} is no URL: {error}") from error
    if parts.scheme not in _SCHEMES or not host:
        raise ValueError(f"{url!r} is not http:// or https:// and a host")
    if "@" in parts.netloc:
        raise ValueError("the URL names a user or a password; allowed is none: words are signed")
    if parts.fragment:
        raise ValueError(f"{url!r} has a fragment, which is not sent; allowed is none")
    return url


class Webhook(Spec):
    """A user's own server, which is notified when the study ends."""

    url: Annotated[str, AfterValidator(_plain)] = Field(
        max_length=2000,
        description="http:// or https://, without user and password; public addresses only, unless "
        "the server is set otherwise",
        examples=["https://example.org/hooks/reflectory"],
    )
