"""Fixtures for tests of the API: the real application over a real data directory."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from service.app import create_app
from tests.service.site import Site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path / "data")
    yield site
    site.close()


@pytest.fixture
def client(site: Site) -> Iterator[TestClient]:
    """The application, asked as the local user asks."""
    here = ("127.0.0.1", 50000)
    app = create_app(site.settings)
    with TestClient(app, base_url="http://localhost:8080", client=here) as client:
        yield client
