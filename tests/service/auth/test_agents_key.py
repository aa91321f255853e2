"""Agents that the service starts itself have a key as soon as the server asks anybody for one."""

import pytest

from service.auth.api_keys import create_key
from service.processes.agents_key import AgentsKey
from storage.accounts.keys import Keys
from storage.records import LOCAL
from tests.service.site import Site


def _keys(site: Site) -> int:
    with site.database.read() as session:
        return len(Keys(session).page(limit=10).items)


def test_without_any_key_there_is_none(site: Site) -> None:
    assert AgentsKey(site.database, name="agents").text() is None


@pytest.mark.parametrize("tenant", [LOCAL, "vision"])
def test_a_key_of_any_tenant_calls_for_one(site: Site, tenant: str) -> None:
    create_key(site.database.of(tenant), name="laptop", scopes=("read",))
    key = AgentsKey(site.database, name="agents")
    text = key.text()
    assert text is not None
    assert key.text() == text
    assert _keys(site) == 2
