"""The rows of who may do what, and how much: keys, browser sessions, quotas, the audit."""

from storage.accounts.audit import Audit
from storage.accounts.browser_sessions import BrowserSessions
from storage.accounts.keys import Keys, key_digest, key_record, valid_at
from storage.accounts.quotas import QUOTAS, Quotas, refusal

__all__ = [
    "QUOTAS",
    "Audit",
    "BrowserSessions",
    "Keys",
    "Quotas",
    "key_digest",
    "key_record",
    "refusal",
    "valid_at",
]
