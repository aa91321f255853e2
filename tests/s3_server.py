"""A real S3 server for tests: moto's, as a process of its own on a free loopback port.

What it does not do, and so cannot show: it checks no checksums that are sent with bytes, tells all
unfinished uploads to be of the year 2010, keeps no quota, and holds everything in memory.
"""

import itertools
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Any, BinaryIO, cast

import boto3

from storage.blobs.places import BucketPlace

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "a-test",
    "AWS_SECRET_ACCESS_KEY": "nobody-needs-to-guess-this",
    "AWS_EC2_METADATA_DISABLED": "true",
}
"""What a process needs to speak to the server."""

_SERVER = """
import signal
from search.linux import die_with_parent
from moto.server import main
die_with_parent(signal.SIGKILL)
main(["--port", "0"])
"""


class S3Server:
    """A server with a new bucket for everyone who asks."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        """`environment` has moto's own variables."""
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SERVER],
            env={**os.environ, **CREDENTIALS, **(environment or {})},
            stderr=subprocess.PIPE,
        )
        self._numbers = itertools.count()
        self.port = self._told_port()
        # A pipe that nobody reads is full some day.
        threading.Thread(target=self._listen, daemon=True).start()
        self.client: Any = boto3.client(
            "s3",
            endpoint_url=self.url,
            region_name="us-east-1",
            aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def place(self, *, port: int | None = None) -> BucketPlace:
        """A new bucket, seen through another port if there is a relay."""
        bucket = f"artifacts-{next(self._numbers)}"
        self.client.create_bucket(Bucket=bucket)
        endpoint = self.url if port is None else f"http://127.0.0.1:{port}"
        return BucketPlace(bucket, "reflectory/", endpoint=endpoint, region="us-east-1")

    def objects(self, place: BucketPlace) -> dict[str, bytes]:
        """All that a bucket holds, unfinished uploads excepted."""
        listed = self.client.list_objects_v2(Bucket=place.bucket).get("Contents", [])
        return {
            item["Key"]: self.client.get_object(Bucket=place.bucket, Key=item["Key"])["Body"].read()
            for item in listed
        }

    def unfinished(self, place: BucketPlace) -> list[str]:
        """The keys of uploads that nobody has finished."""
        listed = self.client.list_multipart_uploads(Bucket=place.bucket).get("Uploads", [])
        return [upload["Key"] for upload in listed]

    def suspend(self) -> None:
        """From here on nothing is answered, and connections are still taken: what hangs, hangs."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Answer again."""
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        self.client.close()
        self._process.kill()
        self._process.wait()
        self._output.close()

    @property
    def _output(self) -> BinaryIO:
        return cast("BinaryIO", self._process.stderr)

    def _told_port(self) -> int:
        said = b""
        for line in self._output:
            said += line
            if found := re.search(rb"http://127\.0\.0\.1:(\d+)", line):
                return int(found[1])
        raise AssertionError(f"the S3 server ended:\n{said.decode(errors='replace')}")

    def _listen(self) -> None:
        for _ in self._output:
            pass


def url_of(place: BucketPlace) -> str:
    """The place as a setting names it."""
    return f"{place}?endpoint={place.endpoint}&region={place.region}"
