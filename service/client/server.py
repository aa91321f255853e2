"""The server itself, from the client: what can be named, and whether it can do its work."""

from service.answers import Catalog, Health
from service.client.connection import Connection


class ServerCalls(Connection):
    """The calls that are about the server, and not about one study."""

    def catalog(self) -> Catalog:
        """Everything that a study may name."""
        return self._ask(Catalog, "GET", "/v1/catalog")

    def health(self) -> Health:
        """Whether the server's process answers.

        Raises:
            Unreachable: it does not.
        """
        return self._ask(Health, "GET", "/healthz")

    def readiness(self) -> Health:
        """Whether the server can do its work.

        Raises:
            Refused: it answers, and cannot; the problem's errors name the parts out of reach.
            Unreachable: it does not answer.
        """
        return self._ask(Health, "GET", "/readyz")
