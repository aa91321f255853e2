"""`reflectory artifacts copy`: from a folder to a bucket and back, whole, further, and checked."""

import hashlib
import io
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from service.cli import application
from storage.blobs.blocks import BLOCK_BYTES
from storage.blobs.bucket import S3ArtifactStore
from storage.blobs.folder import LocalArtifactStore
from tests.s3_server import S3Server, url_of

CONTENTS = (b"", b"report", b"checkpoint" * 1000, b"large" * (BLOCK_BYTES // 4))

pytestmark = pytest.mark.usefixtures("aws_credentials")


def copy(source: str, target: str, *options: str) -> Result:
    return CliRunner().invoke(application, ["artifacts", "copy", source, target, *options])


def filled(folder: Path) -> list[str]:
    store = LocalArtifactStore(folder)
    digests = [hashlib.sha256(content).hexdigest() for content in CONTENTS]
    for digest, content in zip(digests, CONTENTS, strict=True):
        store.write(digest, io.BytesIO(content))
    return digests


def test_a_folder_moves_to_a_bucket_and_back(tmp_path: Path, s3_server: S3Server) -> None:
    folder, back = tmp_path / "artifacts", tmp_path / "back"
    digests = filled(folder)
    place = s3_server.place()
    there = copy(folder.as_uri(), url_of(place))
    assert there.exit_code == 0, there.output
    size = sum(map(len, CONTENTS))
    assert f"4 artifacts were copied ({size} bytes), 0 were there already" in there.stdout
    assert sorted(S3ArtifactStore(place).digests()) == sorted(digests)
    assert copy(url_of(place), back.as_uri()).exit_code == 0
    for digest, content in zip(digests, CONTENTS, strict=True):
        assert (back / digest[:2] / digest).read_bytes() == content


def test_a_copy_goes_on_where_it_was_and_takes_what_is_new(
    tmp_path: Path, s3_server: S3Server
) -> None:
    folder = tmp_path / "artifacts"
    digests = filled(folder)
    place = s3_server.place()
    store = S3ArtifactStore(place)
    store.write(digests[2], io.BytesIO(CONTENTS[2]))
    answer = json.loads(copy(folder.as_uri(), url_of(place), "--json").stdout)
    size = sum(map(len, CONTENTS)) - len(CONTENTS[2])
    assert answer == {
        "total": 4,
        "copied": 3,
        "present": 1,
        "gone": 0,
        "size": size,
        "damaged": [],
    }
    assert json.loads(copy(folder.as_uri(), url_of(place), "--json").stdout)["present"] == 4


def test_damaged_bytes_are_named_and_not_copied(tmp_path: Path, s3_server: S3Server) -> None:
    folder = tmp_path / "artifacts"
    digests = filled(folder)
    (folder / digests[1][:2] / digests[1]).write_bytes(b"rePort")
    place = s3_server.place()
    copied = copy(folder.as_uri(), url_of(place))
    assert copied.exit_code == 1
    assert f"{digests[1]} is damaged" in copied.stderr
    assert set(S3ArtifactStore(place).digests()) == {*digests} - {digests[1]}


def test_what_cannot_be_copied_is_said(tmp_path: Path, s3_server: S3Server) -> None:
    folder = (tmp_path / "artifacts").as_uri()
    filled(tmp_path / "artifacts")
    nowhere = copy(folder, f"s3://nobody-made-this?endpoint={s3_server.url}&region=us-east-1")
    assert nowhere.exit_code == 1
    assert "there is no bucket" in nowhere.stderr
    assert copy(folder, folder).exit_code == 2
    secret = copy(folder, "s3://AKIAEXAMPLE:hunter2@bucket")
    assert secret.exit_code == 2
    assert "hunter2" not in secret.output
    nothing = copy((tmp_path / "none").as_uri(), folder)
    assert nothing.exit_code == 1
    assert "holds no artifacts" in nothing.stderr
