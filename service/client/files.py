"""Files from the client: whole or not at all, and further where a transfer broke."""

from pathlib import Path

from service.answers import Downloaded
from service.client.connection import Connection
from service.downloads import Download, Proof, ToldProgress, named_by_tag


class FileCalls(Connection):
    """What the calls that bring files share."""

    def _download(
        self, path: str, out: Path, told: ToldProgress | None, *, proof: Proof = named_by_tag
    ) -> Downloaded:
        with Download(out, told or tell_nobody) as download:

            def transfer() -> None:
                if not download.is_complete:
                    with self._stream(path, headers=download.headers()) as response:
                        download.take(response)

            self._again(transfer)
            return download.keep(proof)


def tell_nobody(_done: int, _total: int | None) -> None:
    """Nobody wants to know how far a transfer is."""
