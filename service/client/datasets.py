"""Data sets from the client: upload, look at, delete."""

from collections.abc import Iterator
from pathlib import Path

import httpx2

from service.answers import Dataset
from service.client.connection import Connection
from service.client.files import tell_nobody
from service.client.paths import DATASETS, dataset_path
from service.downloads import ToldProgress
from service.upload_bodies import form_files

# An upload is answered when it was read, which may wait for others that are read before it.
_READING_SECONDS = 900.0


class DatasetCalls(Connection):
    """The calls for one's own data."""

    def datasets(self) -> Iterator[Dataset]:
        """All uploaded data sets, newest first."""
        return self._pages(Dataset, DATASETS, {})

    def dataset(self, dataset_id: str) -> Dataset:
        """One uploaded data set: its shapes, classes and first samples."""
        return self._ask(Dataset, "GET", dataset_path(dataset_id))

    def upload_dataset(
        self,
        path: Path,
        test: Path | None = None,
        *,
        name: str | None = None,
        problem: str | None = None,
        label: str | None = None,
        unequal_lengths: str | None = None,
        missing: str | None = None,
        told: ToldProgress | None = None,
    ) -> Dataset:
        """Upload a data set; the same files with the same options are stored once.

        Args:
            path: a `.npz`, `.csv`, `.tsv` or `.ts` with all of the data, or their training part.
            test: an official test part, of the same format.
            name: by default the file's own.
            problem: `classification`, `regression`, `multilabel` or `forecasting`; by default what
                the targets look like.
            label: csv, tsv: the target's column, by name or by number from 0; by default the first.
            unequal_lengths: `refuse` or `pad` series of different lengths.
            missing: `refuse` missing values, or replace them by their feature's `mean`.
            told: called with the bytes sent so far and in all.

        Raises:
            Refused: the files cannot be read; the problem says where and why.
            OSError: a file is not there.
        """
        paths = {"file": path} | ({} if test is None else {"test": test})
        options = {
            "name": name,
            "problem": problem,
            "label": label,
            "unequal_lengths": unequal_lengths,
            "missing": missing,
        }
        fields = {option: value for option, value in options.items() if value is not None}
        timeout = httpx2.Timeout(self._timeout, read=_READING_SECONDS)

        def send() -> httpx2.Response:
            with form_files(paths, told or tell_nobody) as files:
                response = self._http.post(DATASETS, data=fields, files=files, timeout=timeout)
            self._check(response)
            return response

        return self._read(Dataset, self._again(send))

    def delete_dataset(self, dataset_id: str) -> None:
        """Delete an uploaded data set that no study needs any more."""
        self._remove(dataset_path(dataset_id))
