"""What each tenant may have, as an API process remembers it for a moment."""

import time
from typing import final

from anyio import to_thread

from storage.accounts.quotas import Quotas
from storage.engine import Database
from storage.tenant_quota import TenantQuota

_REMEMBERED = 1024


@final
class QuotaBook:
    """Finds quotas. What an operator sets acts here after `seconds` at the latest.

    All methods raise `DatabaseUnavailable` when the database does not answer.
    """

    def __init__(self, database: Database, *, seconds: float = 1.0) -> None:
        self._database = database
        self._seconds = seconds
        self._known: dict[str, tuple[float, TenantQuota]] = {}

    async def of(self, tenant: str) -> TenantQuota:
        """What a tenant may have."""
        known = self._known.get(tenant)
        if known is not None and time.monotonic() < known[0]:
            return known[1]
        began = time.monotonic()
        found = await to_thread.run_sync(self._look, tenant)
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known[tenant] = (began + self._seconds, found)
        return found

    def _look(self, tenant: str) -> TenantQuota:
        with self._database.read() as session:
            return Quotas(session).of(tenant)
