"""Fixtures for tests of the API: the real application over a real data directory."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from service.api import openapi
from service.app import create_app
from tests.service.site import Site


@pytest.fixture(scope="session", autouse=True)
def _one_document() -> Iterator[None]:
    """All applications have the same document, which each would make at its first refusal."""
    describe = openapi.describe
    made: list[dict[str, Any]] = []

    def describe_once(app: FastAPI) -> None:
        describe(app)
        make, routes = app.openapi, len(app.routes)

        def document() -> dict[str, Any]:
            # A test may have given its application more routes.
            if len(app.routes) != routes:
                return make()
            if not made:
                made.append(make())
            return made[0]

        app.openapi = document

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(openapi, "describe", describe_once)
        yield


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
