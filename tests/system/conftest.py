"""Fixtures for tests with real servers: those that ask the application itself, too."""

from collections.abc import Generator

import pytest

from tests.service.conftest import client, site
from tests.service.running import Server

__all__ = ["client", "site"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    """One server for all tests of a file that leave it running; studies do not see each other."""
    running = Server(tmp_path_factory.mktemp("server") / "data")
    yield running.start()
    running.close()
