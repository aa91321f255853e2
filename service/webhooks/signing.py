"""Keys that webhooks are signed with, after the Standard Webhooks specification.

The specification is at standardwebhooks.com, whose library signs: a receiver verifies with its own.
"""

import base64
import hashlib
import hmac

_PURPOSE = b"reflectory webhook of tenant "
_PREFIX = "whsec_"


def webhook_key(secret: bytes, tenant: str) -> bytes:
    """The key of a tenant, which follows from the server's secret."""
    return hmac.digest(secret, _PURPOSE + tenant.encode(), hashlib.sha256)


def shown(key: bytes) -> str:
    """A key as receivers are given it."""
    return _PREFIX + base64.b64encode(key).decode()
