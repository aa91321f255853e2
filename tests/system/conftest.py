"""Fixtures for tests with real servers: those that ask the application itself, too."""

from tests.service.conftest import client, site

__all__ = ["client", "site"]
