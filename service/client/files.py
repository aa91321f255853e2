"""Files from the client: whole or not at all, and further where a transfer broke."""

import zipfile
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import TypeVar

import httpx2
from pydantic import BaseModel

from service.api.fronts.schemas import MISSING, MissingFile, MissingFiles
from service.client.connection import Connection
from service.client.downloaded import Downloaded
from service.client.downloads import Download, Proof, ToldProgress, named_by_tag
from service.client.reading import read
from service.client.upload_bodies import form_files

_A = TypeVar("_A", bound=BaseModel)

# An upload is answered when it was read, which may wait for others that are read before it.
_READING_SECONDS = 900.0


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

    def _upload(
        self,
        kind: type[_A],
        path: str,
        files: Mapping[str, Path],
        told: ToldProgress | None,
        **options: str | None,
    ) -> _A:
        """Send a form with files; options that are null are left out."""
        fields = {name: value for name, value in options.items() if value is not None}
        timeout = httpx2.Timeout(self._timeout, read=_READING_SECONDS)

        def send() -> httpx2.Response:
            with form_files(files, told or tell_nobody) as opened:
                response = self._http.post(path, data=fields, files=opened, timeout=timeout)
            self._check(response)
            return response

        return self._read(kind, self._again(send))


def missing_in(file: Path) -> tuple[MissingFile, ...]:
    """What a ZIP file of ours says that it lacks."""
    with zipfile.ZipFile(file) as archive:
        if MISSING not in archive.namelist():
            return ()
        return read(MissingFiles, archive.read(MISSING)).missing


def _elsewhere(response: httpx2.Response) -> str | None:
    """Where the bytes are, if the server does not send them itself."""
    if response.status_code != HTTPStatus.TEMPORARY_REDIRECT:
        return None
    return str(response.request.url.join(response.headers["Location"]))


def tell_nobody(_done: int, _total: int | None) -> None:
    """Nobody wants to know how far a transfer is."""
