"""URLs of artifact stores: what they name, and what is refused without being repeated."""

from pathlib import Path

import pytest

from storage.blobs.places import BucketPlace, FolderPlace, place_of
from storage.errors import BadStoreUrl

PLACES = {
    "file:///var/lib/artifacts": FolderPlace(Path("/var/lib/artifacts")),
    "file:///a%20folder": FolderPlace(Path("/a folder")),
    "s3://bucket": BucketPlace("bucket"),
    "s3://my.bucket-1/": BucketPlace("my.bucket-1"),
    "s3://bucket/team/reflectory/": BucketPlace("bucket", "team/reflectory/"),
    "s3://bucket/a?region=eu-central-1": BucketPlace("bucket", "a/", region="eu-central-1"),
    "s3://bucket?endpoint=http://127.0.0.1:9000/": BucketPlace(
        "bucket", endpoint="http://127.0.0.1:9000"
    ),
    "s3://bucket?endpoint=https%3A%2F%2Fminio%3A9000&region=x": BucketPlace(
        "bucket", endpoint="https://minio:9000", region="x"
    ),
}

REFUSED = (
    "",
    "artifacts",
    "/var/lib/artifacts",
    "file://artifacts",
    "file://elsewhere/folder",
    "file:relative",
    "file:///a%00b",
    "gs://bucket",
    "s3://",
    "s3:///prefix",
    "s3://Bucket",
    "s3://bucket:9000/prefix",
    "s3://bucket/a//b",
    "s3://bucket/../b",
    "s3://bucket/a b",
    "s3://bucket/a#b",
    "s3://bucket?endpoint=minio:9000",
    "s3://bucket?endpoint=ftp://minio",
    "s3://bucket?endpoint=http://",
    "s3://bucket?region=",
    "s3://bucket?region=a&region=b",
    "s3://bucket?regoin=a",
    "s3://bucket?region",
    "s3://[bucket",
)

WITH_SECRETS = (
    "s3://AKIAEXAMPLE:hunter2@bucket/prefix",
    "s3://bucket?endpoint=https://root:hunter2@minio:9000",
    "s3://bucket?endpoint=https%3A%2F%2Froot%3Ahunter2%40minio",
    "s3://bucket?aws_secret_access_key=hunter2",
    "s3://bucket?region=x&token=hunter2",
    "minio://root:hunter2@host/bucket",
    "s3://bucket/prefix?hunter2",
)


@pytest.mark.parametrize("url", PLACES)
def test_a_url_names_a_place(url: str) -> None:
    assert place_of(url) == PLACES[url]


@pytest.mark.parametrize("url", REFUSED)
def test_what_names_no_store_is_refused(url: str) -> None:
    with pytest.raises(BadStoreUrl):
        place_of(url)


@pytest.mark.parametrize("url", WITH_SECRETS)
def test_a_url_with_credentials_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(BadStoreUrl) as refused:
        place_of(url)
    assert "hunter2" not in str(refused.value)


def test_a_bucket_is_shown_without_the_host_that_it_is_at() -> None:
    place = place_of("s3://bucket/team?endpoint=https://inner.example&region=eu-central-1")
    assert str(place) == "s3://bucket/team"
