"""The proxy's configuration, read by a parser that knows nginx's directives and their places."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import crossplane
import pytest

from service.app import create_app
from service.auth.origins import _FORWARDING  # pyright: ignore[reportPrivateUsage]
from service.http.body_limits import BODIES
from service.settings import Settings
from tests.deploy.files import DEPLOY, compose

FILE = DEPLOY / "proxy" / "nginx.conf"
UNITS = {"k": 10, "m": 20, "g": 30}
WORKERS = ("/v1/agents",)


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


def http() -> list[dict[str, Any]]:
    (block,) = directives(parsed(), "http")
    return block["block"]


def own(block: list[dict[str, Any]], name: str) -> list[list[str]]:
    """The arguments of the directives of a name that stand in a block itself."""
    return [one["args"] for one in block if one["directive"] == name]


def servers() -> dict[str, list[dict[str, Any]]]:
    """What stands in each server, by its port."""
    blocks = [one["block"] for one in http() if one["directive"] == "server"]
    return {own(block, "listen")[0][0]: block for block in blocks}


def location(port: str, path: str) -> list[dict[str, Any]]:
    """Where nginx takes a path: exact, longest prefix if by ^~, expression, longest prefix."""
    found: list[tuple[str, str, list[dict[str, Any]]]] = []
    for one in servers()[port]:
        if one["directive"] == "location":
            *sign, pattern = one["args"]
            found.append((sign[0] if sign else "", pattern, one["block"]))
    for sign, pattern, block in found:
        if sign == "=" and path == pattern:
            return block
    prefixes = [one for one in found if one[0] in ("", "^~") and path.startswith(one[1])]
    longest = max(prefixes, key=lambda one: len(one[1]))
    if longest[0] == "^~":
        return longest[2]
    for sign, pattern, block in found:
        if sign == "~" and re.search(pattern, path):
            return block
    return longest[2]


def passes(port: str, path: str) -> bool:
    block = location(port, path)
    if own(block, "return"):
        assert own(block, "return") == [["404"]]
        return False
    assert own(block, "proxy_pass") == [["http://api"]]
    return True


def largest_body(port: str, path: str) -> int:
    """What is taken at most at a path, by the nearest directive."""
    for block in (location(port, path), servers()[port], http()):
        for (limit,) in own(block, "client_max_body_size"):
            return int(limit[:-1]) << UNITS[limit[-1]]
    raise AssertionError(f"nothing limits {path}")


def paths(folder: Path) -> Iterator[str]:
    for path in create_app(Settings(data_dir=folder)).openapi()["paths"]:
        yield re.sub(r"\{\w+\}", "3f1c", path)


def test_every_directive_exists_and_stands_where_it_may() -> None:
    assert set(servers()) == {"8080", "8081"}


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
    # A server or a location with headers of its own would have none of those above it.
    for block in directives(parsed(), "server") + directives(parsed(), "location"):
        assert not directives(block.get("block", []), "proxy_set_header")


def test_the_public_server_has_no_worker_paths_and_the_other_nothing_else(tmp_path: Path) -> None:
    seen = list(paths(tmp_path))
    of_workers = [path for path in seen if path.startswith(WORKERS)]
    assert len(of_workers) > 5
    for path in of_workers:
        assert not passes("8080", path), path
        assert passes("8081", path), path
    for path in {*seen, "/", "/login", "/studies/new", "/healthz"} - {*of_workers}:
        assert passes("8080", path) == (path != "/metrics"), path
        assert not passes("8081", path), path
    # Nor by another spelling.
    assert not passes("8080", "/v1/agents/")


@pytest.mark.parametrize("port", ["8080", "8081"])
def test_nobody_has_more_than_a_share(port: str) -> None:
    zones = {
        zone.split("=")[1].split(":")[0]: args[0]
        for name in ("limit_req_zone", "limit_conn_zone")
        for args in own(http(), name)
        for zone in args
        if zone.startswith("zone=")
    }
    block = servers()[port]
    (requests,) = own(block, "limit_req")
    assert zones[requests[0].removeprefix("zone=")] == "$binary_remote_addr"
    limits = {zones[zone]: int(most) for zone, most in own(block, "limit_conn")}
    assert set(limits) == {"$binary_remote_addr", "$server_port"}
    assert 0 < limits["$binary_remote_addr"] < limits["$server_port"]
    (workers,) = directives(parsed(), "worker_connections")
    # A connection here has another one behind it.
    assert 2 * limits["$server_port"] <= int(workers["args"][0])
    # A limit of a location would take the place of its server's.
    for one in block:
        assert not directives(one.get("block", []), "limit_conn")
    for name in ("limit_req_status", "limit_conn_status"):
        assert own(http(), name) == [["429"]]


def test_a_connection_that_says_nothing_is_closed() -> None:
    for name in ("client_header_timeout", "client_body_timeout", "send_timeout"):
        ((time,),) = own(http(), name)
        assert 0 < int(time.removesuffix("s")) <= 60
        assert len(directives(parsed(), name)) == 1, "no place has a longer one"


def test_streams_and_uploads_pass_as_they_come(tmp_path: Path) -> None:
    for name in ("proxy_buffering", "proxy_request_buffering"):
        assert [directive["args"] for directive in directives(parsed(), name)] == [["off"]]
    events = [path for path in paths(tmp_path) if path.endswith("/events")]
    assert events
    for path in events:
        assert own(location("8080", path), "proxy_read_timeout") == [["1h"]], path


def test_a_body_is_as_large_as_its_route_takes_it_and_hardly_larger(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    limits = {
        re.sub(r"\{\w+\}", "3f1c", path): body.limit(settings)
        for (_method, path), body in BODIES.items()
    }
    for path in paths(tmp_path):
        limits.setdefault(path, settings.max_spec_bytes)
    for path, limit in limits.items():
        port = "8081" if path.startswith(WORKERS) else "8080"
        if passes(port, path):
            assert limit <= largest_body(port, path) <= 2 * max(limit, 1 << 20), path


def test_it_writes_nowhere_but_in_tmp() -> None:
    """Its root file system is read-only."""
    for directive in directives(parsed(), "pid") + [
        path
        for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        for path in directives(parsed(), f"{name}_temp_path")
    ]:
        assert directive["args"][0].startswith("/tmp/")
