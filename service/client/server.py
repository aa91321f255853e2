"""The server itself, from the client: what can be named, who has keys, how it is."""

from collections.abc import Iterator

from service.answers import (
    AuditEvent,
    Catalog,
    Device,
    Devices,
    Health,
    Key,
    Machine,
    Machines,
    NewKey,
    WebhookSecret,
)
from service.client.connection import Connection
from service.client.paths import KEYS, key_path


class ServerCalls(Connection):
    """The calls that are about the server, and not about one study."""

    def catalog(self) -> Catalog:
        """Everything that a study may name."""
        return self._ask(Catalog, "GET", "/v1/catalog")

    def devices(self) -> list[Device]:
        """Every device with its slots, what runs on them, and its measuring lane."""
        return self._ask(Devices, "GET", "/v1/devices").items

    def machines(self) -> list[Machine]:
        """The machines that joined with their slots, also those that went away lately."""
        return self._ask(Machines, "GET", "/v1/workers").items

    def webhook_secret(self) -> str:
        """The secret that verifies what webhooks are told; keep it as a password is kept."""
        return self._ask(WebhookSecret, "GET", "/v1/webhooks/secret").secret

    def create_key(self, name: str, *scopes: str) -> NewKey:
        """Make an API key for the same tenant; its text is in the answer, this once.

        This is asked once and never again by itself: a lost answer may have made a key that nobody
        has, which `keys` shows and `revoke_key` ends.

        Args:
            name: what it is for, or who has it.
            scopes: of `read`, `write` and `admin`; by default `write`.
        """
        body = {"name": name, "scopes": list(scopes or ("write",))}
        return self._ask(NewKey, "POST", KEYS, body=body, repeatable=False)

    def keys(self) -> Iterator[Key]:
        """All keys of the tenant, newest first, revoked ones included."""
        return self._pages(Key, KEYS, {})

    def revoke_key(self, key_id: str) -> None:
        """Let a key open nothing any more. Asking twice is harmless."""
        self._remove(key_path(key_id))

    def audit(self) -> Iterator[AuditEvent]:
        """What was done for the tenant, and with which key, newest first."""
        return self._pages(AuditEvent, "/v1/audit", {})

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

    def server_metrics(self) -> str:
        """What the server tells Prometheus, in its text format."""
        return self._text("/metrics")
