"""The proxy's configuration, read by a parser that knows nginx's directives and their places."""

import re
from typing import Any

import crossplane

from service.app import create_app
from service.auth import _FORWARDING  # pyright: ignore[reportPrivateUsage]
from service.settings import Settings
from tests.deploy.files import DEPLOY, compose

FILE = DEPLOY / "proxy" / "nginx.conf"


def directives(inside: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """Every directive of a name, wherever it stands."""
    found: list[dict[str, Any]] = []
    for directive in inside:
        if directive["directive"] == name:
            found.append(directive)
        found += directives(directive.get("block", []), name)
    return found


def parsed() -> list[dict[str, Any]]:
    payload = crossplane.parse(str(FILE), strict=True, single=True)
    assert payload["errors"] == []
    return payload["config"][0]["parsed"]


def test_every_directive_exists_and_stands_where_it_may() -> None:
    assert directives(parsed(), "server")


def test_every_api_process_is_behind_it() -> None:
    upstreams = {
        directive["args"][0]
        for directive in directives(parsed(), "server")
        if not directive.get("block")
    }
    services = [name for name in compose()["services"] if name.startswith("api")]
    assert upstreams == {f"{name}:8080" for name in services}
    assert len(services) == 2


def test_no_header_of_a_client_says_who_asks() -> None:
    headers = {
        directive["args"][0].lower(): directive["args"][1]
        for directive in directives(parsed(), "proxy_set_header")
    }
    assert set(headers) >= _FORWARDING, "the gate takes these for marks of a proxy"
    given = {name: value for name, value in headers.items() if value}
    # Whatever is passed on is the proxy's own word. One mark has to be left: a request without any
    # could be taken for a local user's.
    assert given == {
        "host": "$http_host",
        "x-forwarded-proto": "$scheme",
        "x-forwarded-for": "$remote_addr",
    }
    # A location with headers of its own would have none of those above it.
    for location in directives(parsed(), "location"):
        assert not directives(location["block"], "proxy_set_header")


def test_streams_and_uploads_pass_as_they_come(tmp_path: Any) -> None:
    server = parsed()
    for name in ("proxy_buffering", "proxy_request_buffering"):
        assert [directive["args"] for directive in directives(server, name)] == [["off"]]
    streams = [
        location
        for location in directives(server, "location")
        if directives(location["block"], "proxy_read_timeout")
    ]
    (pattern,) = (location["args"][1] for location in streams)
    paths = create_app(Settings(data_dir=tmp_path)).openapi()["paths"]
    events = [path for path in paths if path.endswith("/events")]
    assert events
    for path in events:
        assert re.search(pattern, re.sub(r"\{\w+\}", "3f1c", path)), path
    (limit,) = (directive["args"][0] for directive in directives(server, "client_max_body_size"))
    largest = int(limit.removesuffix("g")) << 30
    settings = Settings(data_dir=tmp_path)
    assert largest >= max(settings.max_artifact_bytes, settings.largest_upload)


def test_it_writes_nowhere_but_in_tmp() -> None:
    """Its root file system is read-only."""
    for directive in directives(parsed(), "pid") + [
        path
        for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        for path in directives(parsed(), f"{name}_temp_path")
    ]:
        assert directive["args"][0].startswith("/tmp/")
