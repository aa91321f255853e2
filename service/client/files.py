"""Files from the client: whole or not at all, and further where a transfer broke."""

from http import HTTPStatus
from pathlib import Path

import httpx2

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
                if download.is_complete:
                    return
                with self._stream(path, headers=download.headers()) as response:
                    etag, elsewhere = response.headers.get("ETag"), _elsewhere(response)
                    if elsewhere is None:
                        download.take(response)
                        return
                headers = download.headers_elsewhere(etag)
                with self._stream_elsewhere(elsewhere, headers=headers) as response:
                    download.take(response, etag=etag)

            self._again(transfer)
            return download.keep(proof)


def _elsewhere(response: httpx2.Response) -> str | None:
    """Where the bytes are, if the server does not send them itself."""
    if response.status_code != HTTPStatus.TEMPORARY_REDIRECT:
        return None
    return str(response.request.url.join(response.headers["Location"]))


def tell_nobody(_done: int, _total: int | None) -> None:
    """Nobody wants to know how far a transfer is."""
