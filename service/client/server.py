"""The server itself, from the client: what can be named, who has keys, how it is."""

from search.documents.catalog import Catalog
from search.documents.papers import TableDocument, TableEntry, TableList
from service.api.agents.schemas import MachineDocument, MachineList
from service.api.audit.schemas import AuditDocument, AuditPage
from service.api.devices.schemas import DeviceDocument, DeviceList
from service.api.health.schemas import Alive, Ready
from service.api.keys.schemas import KeyDocument, KeyPage, NewKeyDocument
from service.api.paths import KEYS, PAPERS, key_path, rotation_path, table_path
from service.api.quotas.schemas import QuotaDocument
from service.api.webhooks.schemas import WebhookSecret
from service.client.transport.described import Described
from service.client.transport.steps import Steps, Stream, call, stream


class ServerCalls(Described):
    """The calls that are about the server, and not about one study."""

    @call
    def catalog(self) -> Steps[Catalog]:
        """Everything that a study may name."""
        return (yield from self.ask(Catalog, "GET", "/v1/catalog"))

    @call
    def papers(self) -> Steps[list[TableEntry]]:
        """The tables of the papers whose rows can be trained."""
        return list((yield from self.ask(TableList, "GET", PAPERS)).items)

    @call
    def paper_table(self, table: str) -> Steps[TableDocument]:
        """One table of the papers, with a study for each of its rows.

        Raises:
            Refused: there is no table of this name; the problem tells those that are near.
        """
        return (yield from self.ask(TableDocument, "GET", table_path(table)))

    @call
    def devices(self) -> Steps[list[DeviceDocument]]:
        """Every device with its slots, what runs on them, and its measurement lock."""
        return list((yield from self.ask(DeviceList, "GET", "/v1/devices")).items)

    @call
    def machines(self) -> Steps[list[MachineDocument]]:
        """The machines that joined with their slots, also those that went away lately."""
        return list((yield from self.ask(MachineList, "GET", "/v1/agents")).items)

    @call
    def quota(self) -> Steps[QuotaDocument]:
        """What the key's tenant may have of each thing that is limited, and what it has."""
        return (yield from self.ask(QuotaDocument, "GET", "/v1/quota"))

    @call
    def webhook_secret(self) -> Steps[str]:
        """The secret that verifies what webhooks are sent; keep it as a password is kept."""
        return (yield from self.ask(WebhookSecret, "GET", "/v1/webhooks/secret")).secret

    @call
    def create_key(
        self, name: str, *scopes: str, expires_in: str | None = None
    ) -> Steps[NewKeyDocument]:
        """Make an API key for the same tenant; its text is in the answer, this once.

        This is asked once and never again by itself: a lost answer may have made a key that nobody
        has, which `keys` shows and `revoke_key` ends.

        Args:
            name: what it is for, or who has it.
            scopes: of `read`, `write` and `admin`; by default `write`.
            expires_in: after how long it ends by itself, as `90d` or `12h`; by default never.
        """
        body = {
            "name": name,
            "scopes": list(scopes or ("write",)),
            **({} if expires_in is None else {"expires_in": expires_in}),
        }
        return (yield from self.ask(NewKeyDocument, "POST", KEYS, body=body, repeatable=False))

    @call
    def rotate_key(
        self, key_id: str, *, overlap: str = "1d", expires_in: str | None = None
    ) -> Steps[NewKeyDocument]:
        """Make a key that takes another's place; its text is in the answer, this once.

        A key is rotated once, and asked once: of a lost answer `keys` shows the `successor`.

        Args:
            key_id: the key to replace; it goes on for the overlap, and then ends.
            overlap: as `7d` or `12h`; `0d` ends it now.
            expires_in: after how long the new key ends; by default after as long as the old one
                was made for.

        Raises:
            Refused: the key has ended, was rotated before, or is a machine's.
        """
        body = {"overlap": overlap, **({} if expires_in is None else {"expires_in": expires_in})}
        return (
            yield from self.ask(
                NewKeyDocument, "POST", rotation_path(key_id), body=body, repeatable=False
            )
        )

    @stream
    def keys(self) -> Stream[KeyDocument]:
        """All keys of the tenant, newest first, those that have ended included."""
        yield from self.pages(KeyPage, KEYS, {})

    @call
    def revoke_key(self, key_id: str) -> Steps[None]:
        """Let a key open nothing any more. Asking twice is harmless."""
        yield from self._remove(key_path(key_id))

    @stream
    def audit(self) -> Stream[AuditDocument]:
        """What was done for the tenant, and with which key, newest first."""
        yield from self.pages(AuditPage, "/v1/audit", {})

    @call
    def health(self) -> Steps[Alive]:
        """Whether the server's process answers.

        Raises:
            Unreachable: it does not.
        """
        return (yield from self.ask(Alive, "GET", "/healthz"))

    @call
    def readiness(self) -> Steps[Ready]:
        """Whether the server can do its work.

        Raises:
            Refused: it answers, and cannot; the problem's errors name the parts out of reach.
            Unreachable: it does not answer.
        """
        return (yield from self.ask(Ready, "GET", "/readyz"))

    @call
    def server_metrics(self) -> Steps[str]:
        """What the server tells Prometheus, in its text format."""
        return (yield from self._text("/metrics"))
