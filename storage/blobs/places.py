"""Where artifacts may be kept: a folder or a bucket, as a URL names it.

`file:///absolute/folder` or `s3://bucket/prefix?endpoint=https://host:9000&region=eu-central-1`;
prefix, endpoint and region can be left out. Credentials are never part of it.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

from storage.errors import BadStoreUrl

FORMS = "file:///absolute/folder or s3://bucket/prefix?endpoint=https://host&region=name"
"""How URLs of stores look; endpoint and region may be left out."""

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PREFIX = re.compile(r"[A-Za-z0-9!_.*'()-]+(?:/[A-Za-z0-9!_.*'()-]+)*")
_REGION = re.compile(r"[a-z0-9-]{1,40}")
_OPTIONS = ("endpoint", "region")


@dataclass(frozen=True)
class FolderPlace:
    """A folder of this machine, or of a file system that several machines share."""

    path: Path

    def __str__(self) -> str:
        """The place as a URL."""
        return self.path.as_uri()


@dataclass(frozen=True)
class BucketPlace:
    """A part of a bucket of Amazon S3, or of any server that speaks its protocol."""

    bucket: str
    prefix: str = ""
    """What all keys begin with: empty, or it ends in a slash."""
    endpoint: str | None = None
    """The server; without one, Amazon's of the region."""
    region: str | None = None

    def __str__(self) -> str:
        """The place as people may read it: without the host that it is at."""
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")


Place = FolderPlace | BucketPlace


def place_of(url: str) -> Place:
    """The place that a URL names.

    Raises:
        BadStoreUrl: it names none, or holds credentials, and is then not repeated.
    """
    if "@" in unquote(url):
        raise BadStoreUrl(
            "the URL of an artifact store holds no credentials and no @; they belong into "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or into a profile"
        )
    try:
        parts = urlsplit(url)
        read = _SCHEMES.get(parts.scheme)
        if read is None:
            raise BadStoreUrl(f"{_shown(url)} names no artifact store; allowed: {FORMS}")
        return read(parts)
    except BadStoreUrl:
        raise
    except ValueError as error:
        # Its own words may repeat what stands behind the question mark.
        raise BadStoreUrl(f"{_shown(url)} is no URL; allowed: {FORMS}") from error


def _folder(parts: SplitResult) -> FolderPlace:
    path = Path(unquote(parts.path))
    if parts.netloc not in ("", "localhost") or parts.query or parts.fragment:
        raise BadStoreUrl(f"{_shown(parts.geturl())} is no folder; write file:///absolute/folder")
    if not path.is_absolute() or "\x00" in str(path):
        raise BadStoreUrl(
            f"{_shown(parts.geturl())} is no absolute folder; write file:///absolute/folder"
        )
    return FolderPlace(path)


def _bucket(parts: SplitResult) -> BucketPlace:
    if not _BUCKET.fullmatch(parts.netloc):
        raise BadStoreUrl(
            f"{_shown(parts.netloc)} is no name of a bucket: 3 to 63 small letters, digits, dots "
            "and hyphens"
        )
    prefix = parts.path.strip("/")
    if prefix and (not _PREFIX.fullmatch(prefix) or {".", ".."} & {*prefix.split("/")}):
        raise BadStoreUrl(
            f"{_shown(prefix)} is no prefix of keys: words of letters, digits and !_.*'()- with "
            "single slashes between them"
        )
    options = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    for name, _ in options:
        if name not in _OPTIONS:
            raise BadStoreUrl(f"{_shown(name)} is no option; allowed: {', '.join(_OPTIONS)}")
    given = dict(options)
    if len(given) < len(options) or parts.fragment:
        raise BadStoreUrl(f"an option stands twice, or a # behind it; allowed: {FORMS}")
    return BucketPlace(
        bucket=parts.netloc,
        prefix=f"{prefix}/" if prefix else "",
        endpoint=_endpoint(given.get("endpoint")),
        region=_region(given.get("region")),
    )


def _endpoint(text: str | None) -> str | None:
    if text is None:
        return None
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise BadStoreUrl(f"the endpoint {_shown(text)} is no http:// or https:// URL of a server")
    return text.rstrip("/")


def _region(text: str | None) -> str | None:
    if text is not None and not _REGION.fullmatch(text):
        raise BadStoreUrl(f"{_shown(text)} is no name of a region, such as eu-central-1")
    return text


def _shown(text: str) -> str:
    # Whatever stands behind the question mark may be a secret that somebody put there by mistake.
    return repr(quote(text.partition("?")[0], safe="/:'!()*[]%")[:120])


_SCHEMES: Mapping[str, Callable[[SplitResult], Place]] = {"file": _folder, "s3": _bucket}
