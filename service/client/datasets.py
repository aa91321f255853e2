"""Data sets from the client: upload, look at, delete."""

from pathlib import Path
from typing import Literal

from service.api.datasets.schemas import DatasetDocument, DatasetPage
from service.api.paths import DATASETS, dataset_path
from service.client.downloads import ToldProgress
from service.client.files import FileCalls
from service.client.transport.steps import Steps, Stream, call, stream


class DatasetCalls(FileCalls):
    """The calls for one's own data."""

    @stream
    def datasets(self) -> Stream[DatasetDocument]:
        """All uploaded data sets, newest first."""
        yield from self.pages(DatasetPage, DATASETS, {})

    @call
    def dataset(self, dataset_id: str) -> Steps[DatasetDocument]:
        """One uploaded data set: its shapes, classes and first samples, or its arrays."""
        return (yield from self.ask(DatasetDocument, "GET", dataset_path(dataset_id)))

    @call
    def upload_dataset(
        self,
        path: Path | str,
        test: Path | str | None = None,
        *,
        name: str | None = None,
        holds: Literal["samples", "arrays"] | None = None,
        problem: str | None = None,
        label: str | None = None,
        unequal_lengths: str | None = None,
        missing: str | None = None,
        told: ToldProgress | None = None,
    ) -> Steps[DatasetDocument]:
        """Upload a data set; the same files with the same options are stored once.

        Args:
            path: a `.npz`, `.csv`, `.tsv` or `.ts` with all of the data, or their training part.
            test: an official test part, of the same format.
            name: by default the file's own.
            holds: `samples` to train on, which is the default, or `arrays`: a `.npz` of arrays of
                any names, samples first, for the inputs of a network; it has no other options.
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
        return (
            yield from self._upload(
                DatasetDocument,
                DATASETS,
                paths,
                told,
                name=name,
                holds=holds,
                problem=problem,
                label=label,
                unequal_lengths=unequal_lengths,
                missing=missing,
            )
        )

    @call
    def delete_dataset(self, dataset_id: str) -> Steps[None]:
        """Delete an uploaded data set that no study needs any more."""
        yield from self._remove(dataset_path(dataset_id))
