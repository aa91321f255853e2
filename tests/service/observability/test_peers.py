"""Whichever API process is asked tells what all of the machine have counted."""

import os
import time
from http import HTTPStatus
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics import exposition, parser
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from service.app import create_app
from service.http.request_watch import RequestSeen
from service.observability.peers import WithPeers
from service.observability.request_metrics import RequestMetrics
from tests.service.site import Site


def value(client: TestClient, sample: str, **labels: str) -> float:
    text = client.get("/metrics").text
    return sum(
        found.value
        for family in text_string_to_metric_families(text)
        for found in family.samples
        if found.name == sample and labels.items() <= found.labels.items()
    )


def test_counts_of_all_processes_are_added_up(tmp_path: Path) -> None:
    site = Site(tmp_path / "data", counters_file=tmp_path / "run" / "counters")
    (tmp_path / "run").mkdir()
    studies = {"route": "/v1/studies", "status": "200"}
    with TestClient(create_app(site.settings), base_url="http://localhost") as one:
        ended = create_app(site.settings)
        with TestClient(ended, base_url="http://localhost") as other:
            for _ in range(3):
                assert other.get("/v1/studies").status_code == HTTPStatus.OK
            assert other.get("/v1/nothing").status_code == HTTPStatus.NOT_FOUND
            ended.state.metrics.tell_peers()
            assert one.get("/v1/studies").status_code == HTTPStatus.OK
            assert value(one, "reflectory_http_requests_total", **studies) == 4
            # The one that asks, and the other one's, of which none was under way.
            assert value(one, "reflectory_http_requests_in_progress") == 1
        # What it counted stays when it has ended, and is silent.
        for file in (tmp_path / "run" / "api-metrics").glob("*.json"):
            long_ago = time.time() - 3600
            os.utime(file, (long_ago, long_ago))
        assert value(one, "reflectory_http_requests_total", **studies) == 4
        assert value(one, "reflectory_http_request_seconds_count", route="/v1/studies") == 4
    # One that has answered nothing yet knows what the others have.
    with TestClient(create_app(site.settings), base_url="http://localhost") as fresh:
        assert value(fresh, "reflectory_http_requests_total", **studies) == 4
        assert value(fresh, "reflectory_http_request_seconds_count", route="/v1/studies") == 4
    site.close()


def test_series_that_others_alone_have_stay_together(tmp_path: Path) -> None:
    """OpenMetrics wants each with its buckets in order, and no other one in between."""
    here, there = RequestMetrics(), RequestMetrics()
    here.answered(RequestSeen("GET", "/v1/studies", 200, 0.02))
    for route in ("/v1/studies", "/healthz"):
        for method in ("POST", "GET"):
            there.answered(RequestSeen(method, route, 200, 0.3))
    WithPeers((there,), tmp_path / "peers").write()
    registry = CollectorRegistry()
    registry.register(WithPeers((here,), tmp_path / "peers"))
    text = exposition.generate_latest(registry).decode()
    families = {family.name: family for family in parser.text_string_to_metric_families(text)}
    counts = [
        sample.value
        for sample in families["reflectory_http_request_seconds"].samples
        if sample.name.endswith("_count")
    ]
    assert sorted(counts) == [1, 1, 1, 2]
