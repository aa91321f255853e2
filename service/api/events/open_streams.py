"""Event streams that are open at this process: how many each tenant and each key has."""

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from typing import final

from service.auth.principal import Principal
from storage.errors import TooManyAtOnce
from storage.tenant_quota import QuotaName, TenantQuota


@final
class OpenStreams:
    """Counts streams from before their first byte until they end; used by one event loop."""

    def __init__(self) -> None:
        self._by_tenant: Counter[str] = Counter()
        self._by_key: Counter[tuple[str, str | None]] = Counter()

    @contextmanager
    def one_more(self, asker: Principal, quota: TenantQuota) -> Generator[None]:
        """A stream for as long as the block.

        Raises:
            TooManyAtOnce: the tenant or the key has as many as it may have.
        """
        tenant, key = asker.tenant, (asker.tenant, asker.key_id)
        _refuse("streams", self._by_tenant[tenant], quota)
        _refuse("streams_per_key", self._by_key[key], quota)
        self._by_tenant[tenant] += 1
        self._by_key[key] += 1
        try:
            yield
        finally:
            self._by_tenant[tenant] -= 1
            self._by_key[key] -= 1
            # Those that have none are forgotten.
            self._by_tenant += Counter()
            self._by_key += Counter()

    def of_tenant(self, tenant: str) -> int:
        """How many a tenant has."""
        return self._by_tenant[tenant]

    def of_key(self, asker: Principal) -> int:
        """How many there are with the key of the request."""
        return self._by_key[asker.tenant, asker.key_id]


def _refuse(name: QuotaName, used: int, quota: TenantQuota) -> None:
    limit = quota.limit(name)
    if limit is not None and used >= limit:
        whose = "the tenant" if name == "streams" else "this key"
        raise TooManyAtOnce(
            f"quota {name}: {whose} has {used} of {limit} event streams open here; close one, "
            "or have the operator raise it (`reflectory quota set`)",
            quota=name,
            used=used,
            limit=limit,
        )
