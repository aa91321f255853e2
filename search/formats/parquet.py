"""Parquet files as tables of text; the library that reads them is an extra."""

import csv
import io
from importlib import import_module
from typing import Any, BinaryIO

from search.errors import DataError

_ROWS = 4096
"""That are turned to text at a time."""

_MISSING = "?"
"""In place of null: a table of one column would have a blank line, which is no row."""


def as_csv(stream: BinaryIO, most_bytes: int) -> BinaryIO:
    """The rows of a Parquet file as CSV, under the names of its columns.

    Args:
        stream: the file, seekable.
        most_bytes: that the text may take.

    Raises:
        DataError: it is no such file, has columns of lists, takes more, or nothing here reads it.
    """
    try:
        arrow: Any = import_module("pyarrow")
        parquet: Any = import_module("pyarrow.parquet")
    except ImportError as error:
        raise DataError(
            "this server reads no .parquet; allowed are the other formats, or install its extra: "
            "pip install 'reflectory[parquet]'"
        ) from error
    arrow.set_cpu_count(1)
    arrow.set_io_thread_count(1)
    text = io.StringIO()
    try:
        file: Any = parquet.ParquetFile(stream)
        writer = csv.writer(text, lineterminator="\n")
        names: list[str] = list(file.schema_arrow.names)
        for field in file.schema_arrow:
            if arrow.types.is_nested(field.type):
                raise DataError(f"the column {field.name!r} holds {field.type}; allowed are values")
        writer.writerow(names)
        for batch in file.iter_batches(batch_size=_ROWS, use_threads=False):
            columns = [
                [_MISSING if cell is None or cell == "" else cell for cell in column.to_pylist()]
                for column in batch.columns
            ]
            writer.writerows(zip(*columns, strict=True))
            if text.tell() > most_bytes:
                raise DataError(f"as text, the table takes more than {most_bytes} bytes")
    except (arrow.ArrowException, OSError) as error:
        raise DataError(f"the file is no whole Parquet file: {error}") from error
    return io.BytesIO(text.getvalue().encode())
