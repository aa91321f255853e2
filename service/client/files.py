"""Files from the client: whole or not at all, and further where a transfer broke."""

import zipfile
from collections.abc import Iterator, Mapping
from functools import partial
from http import HTTPStatus
from pathlib import Path, PurePosixPath
from typing import TypeVar

import httpx2
from pydantic import BaseModel

from service.api.fronts.schemas import MISSING, MissingFile, MissingFiles
from service.client.downloaded import Downloaded
from service.client.downloads import Download, Proof, ToldProgress, named_by_tag
from service.client.reading import read
from service.client.transport.described import Described
from service.client.transport.steps import Close, Form, Open, Send, Steps, opened, send
from service.data_dir.whole_files import write_whole

_A = TypeVar("_A", bound=BaseModel)


class FileCalls(Described):
    """What the calls that bring files share."""

    def _download(
        self,
        path: str,
        out: Path | str,
        told: ToldProgress | None,
        *,
        proof: Proof = named_by_tag,
    ) -> Steps[Downloaded]:
        with Download(Path(out), told or tell_nobody) as download:

            def transfer() -> Steps[None]:
                if download.is_complete:
                    return
                answer = yield from self._stream(path, headers=download.headers())
                etag, url = answer.response.headers.get("ETag"), _elsewhere(answer.response)
                if url is not None:
                    yield Close(answer)
                    headers = download.headers_elsewhere(etag)
                    answer = yield from opened(Open(url=url, headers=headers, elsewhere=True))
                yield from download.take(answer, etag=None if url is None else etag)
                yield Close(answer)

            yield from self._again(transfer)
            return download.keep(proof)

    def _upload(
        self,
        kind: type[_A],
        path: str,
        files: Mapping[str, Path | str],
        told: ToldProgress | None,
        **options: str | None,
    ) -> Steps[_A]:
        """Send a form with files; options that are null are left out."""
        fields = {name: value for name, value in options.items() if value is not None}
        paths = {part: Path(file) for part, file in files.items()}
        form = Form(fields=fields, files=paths, told=told or tell_nobody)
        request = Send(method="POST", path=path, form=form)
        return self._read(kind, (yield from self._again(partial(send, request))))


def missing_in(file: Path) -> tuple[MissingFile, ...]:
    """What a ZIP file of ours says that it lacks."""
    with zipfile.ZipFile(file) as archive:
        if MISSING not in archive.namelist():
            return ()
        return read(MissingFiles, archive.read(MISSING)).missing


def unpack(file: Path, place: str, out: Path) -> Iterator[Path]:
    """Write the files that lie below `place` in a ZIP file into the folder `out`, each whole.

    Only plain names are taken: whatever the server sends, nothing is written elsewhere.
    """
    out.mkdir(exist_ok=True)
    with zipfile.ZipFile(file) as archive:
        for name in archive.namelist():
            folder, _, last = name.partition("/")
            if folder == place and last and PurePosixPath(last).name == last:
                write_whole(out / last, archive.read(name), private=False)
                yield out / last


def _elsewhere(response: httpx2.Response) -> str | None:
    """Where the bytes are, if the server does not send them itself."""
    if response.status_code != HTTPStatus.TEMPORARY_REDIRECT:
        return None
    return str(response.request.url.join(response.headers["Location"]))


def tell_nobody(_done: int, _total: int | None) -> None:
    """Nobody wants to know how far a transfer is."""
