"""Signatures of webhooks, after the Standard Webhooks specification (standardwebhooks.com).

A receiver takes the key from `whsec_<base64>`, computes HMAC-SHA256 of `<id>.<timestamp>.<body>`,
and compares it with what follows `v1,` in `webhook-signature`.
"""

import base64
import hashlib
import hmac
from collections.abc import Mapping

_PURPOSE = b"reflectory webhook of tenant "
_PREFIX = "whsec_"


def webhook_key(secret: bytes, tenant: str) -> bytes:
    """The key of a tenant, which follows from the server's secret."""
    return hmac.digest(secret, _PURPOSE + tenant.encode(), hashlib.sha256)


def shown(key: bytes) -> str:
    """A key as receivers are given it."""
    return _PREFIX + base64.b64encode(key).decode()


def signed_headers(key: bytes, delivery_id: str, *, timestamp: int, body: bytes) -> dict[str, str]:
    """The headers that prove where a body comes from; `timestamp` is in seconds since 1970."""
    signature = hmac.digest(key, f"{delivery_id}.{timestamp}.".encode() + body, hashlib.sha256)
    headers: Mapping[str, str] = {
        "webhook-id": delivery_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"v1,{base64.b64encode(signature).decode()}",
    }
    return {**headers}
