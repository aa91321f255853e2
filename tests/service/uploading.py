"""Small files that users might upload, and what a server keeps of them."""

import io
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
from sqlalchemy import func, select
from starlette.testclient import TestClient

from storage.tables import ArtifactRow, DatasetRow
from tests.service.site import Site

CSV = b"label,t0,t1,t2\ncat,0.1,0.2,0.3\ndog,1.5,1.25,1\ncat,0,0.5,-0.5\ndog,2,2,2.5\n"
TSV = b"1\t0.1\t0.2\n2\t1.5\t1.25\n1\t0\t0.5\n2\t2\t2.5\n"
TS = b"""# a comment
@problemName Small
@timeStamps false
@univariate false
@dimensions 2
@equalLength false
@classLabel true left right
@data
1,2,3:4,5,6:left
7,8:9,10:right
1,1,1:2,2,2:left
0.5,0.25:3,3:right
"""


def npz(**arrays: Any) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def good_npz() -> bytes:
    x = np.arange(6 * 4 * 2, dtype=np.float32).reshape(6, 4, 2)
    split = np.array(["train", "train", "train", "validation", "test", "test"])
    return npz(x=x, y=np.array([0, 1, 0, 1, 0, 1]), split=split)


def upload(
    client: TestClient, content: bytes, filename: str = "data.csv", **fields: str
) -> httpx2.Response:
    return client.post("/v1/datasets", files={"file": (filename, content)}, data=fields)


def files_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def rows_of(site: Site) -> tuple[int, int]:
    """How many data sets and artifacts there are."""
    with site.database.read() as session:
        return (
            session.scalar(select(func.count()).select_from(DatasetRow)) or 0,
            session.scalar(select(func.count()).select_from(ArtifactRow)) or 0,
        )


def unfinished(site: Site) -> list[Path]:
    """What lies where uploads wait until they are stored."""
    folder = site.settings.uploads_dir
    return list(folder.iterdir()) if folder.exists() else []


def assert_nothing_is_left(site: Site) -> None:
    assert rows_of(site) == (0, 0)
    assert files_below(site.settings.artifacts_dir) == []
    assert unfinished(site) == []
