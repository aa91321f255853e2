"""Spans of requests, in a process of its own: OpenTelemetry's provider is set once per process."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.service.site import Site

_PROGRAM = """
import json, sys
from pathlib import Path

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from starlette.testclient import TestClient

from service.app import create_app
from service.settings import Settings

exporter, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
settings = Settings(data_dir=Path(sys.argv[1]), telemetry=sys.argv[2] == "on")
parent = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}
with TestClient(create_app(settings), base_url="http://localhost:8080") as client:
    client.get("/v1/studies/none", headers=parent)
    client.get("/healthz")
    client.get("/metrics")
spans = [
    {
        "name": span.name,
        "trace": f"{span.context.trace_id:032x}",
        "attributes": {
            name: value for name, value in span.attributes.items() if isinstance(value, str | int)
        },
    }
    for span in exporter.get_finished_spans()
]
print(json.dumps(spans))
"""


def spans(folder: Path, switch: str) -> list[dict[str, Any]]:
    Site(folder).close()
    answer = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(folder), switch],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(answer.stdout)


def test_a_request_is_a_span_of_its_route_within_its_callers_trace(tmp_path: Path) -> None:
    found = spans(tmp_path / "data", "on")
    (request,) = [span for span in found if span["name"].startswith("GET ")]
    assert request["name"] == "GET /v1/studies/{study_id}"
    assert request["attributes"]["http.route"] == "/v1/studies/{study_id}"
    assert request["attributes"]["http.response.status_code"] == 404
    assert {span["trace"] for span in found} == {"a" * 32}, "probes and scrapes are no spans"


def test_nothing_is_traced_unless_it_is_switched_on(tmp_path: Path) -> None:
    assert spans(tmp_path / "data", "off") == []
