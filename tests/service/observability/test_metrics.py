"""What `/metrics` shows parses, names every family that the guide names, and names nobody."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from search.dispatch.coordinator_report import CoordinatorFigures
from search.running.ask_times import AskTimes
from service.app import create_app
from service.http.refusals import REASONS
from service.settings import Settings
from storage.fleet.coordinators import CoordinatorRecord, Coordinators, SlotRecord
from storage.records import TrialState
from storage.repositories.studies import Studies
from tests.service.site import Site, now

GUIDE = (Path(__file__).parents[3] / "deploy/docs/how-to/observability.md").read_text()


@dataclass(frozen=True)
class Scraped:
    """One scrape, parsed by Prometheus' own client."""

    samples: dict[tuple[str, frozenset[tuple[str, str]]], float]
    families: dict[str, tuple[str, str]]

    def value(self, name: str, **labels: str) -> float:
        return self.samples[name, frozenset(labels.items())]

    def of(self, name: str) -> dict[frozenset[tuple[str, str]], float]:
        return {labels: value for (known, labels), value in self.samples.items() if known == name}


def parsed(text: str) -> Scraped:
    families = list(text_string_to_metric_families(text))
    return Scraped(
        {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in families
            for sample in family.samples
        },
        {family.name: (family.type, family.documentation) for family in families},
    )


def scrape(client: TestClient) -> Scraped:
    answer = client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return parsed(answer.text)


def coordinator(site: Site, *, silent_seconds: float = 0.0, owner: str = "ada:/data") -> None:
    """A coordinator of two slots and a measuring slot, which asked a sampler three times."""
    clock = iter((0.0, 0.003, 1.0, 1.2, 2.0, 90.0))
    asks = AskTimes(clock=lambda: next(clock))
    for _ in range(3):
        with asks.timed("tpe"):
            pass
    figures = CoordinatorFigures(asks=asks.histograms(), lanes={"lane cpu": "measuring"})
    record = CoordinatorRecord(
        owner=owner,
        slots=(SlotRecord("cpu-0", "cpu", "a CPU", 1.0), SlotRecord("cpu-1", "cpu", "a CPU", 1.0)),
        measuring_slots=(SlotRecord("lane cpu", "cpu", "a CPU", 0.0),),
        figures=figures.model_dump(mode="json"),
        started_at=now(),
        seen_at=now() - timedelta(seconds=silent_seconds),
    )
    with site.database.write() as session:
        Coordinators(session).report(record)


def claimed(site: Site, study_id: str, owner: str) -> None:
    with site.database.write() as session:
        until = datetime(2100, 1, 1, tzinfo=UTC)
        Studies(session).claim(study_id, owner=owner, now=now(), until=until)


def test_requests_are_counted_by_the_template_of_their_route(client: TestClient) -> None:
    for path in ("/v1/studies/one", "/v1/studies/two", "/nowhere/three", "/assets/style.css"):
        client.get(path)
    client.head("/v1/studies")
    client.request("BREW", "/v1/studies")
    found = scrape(client)
    counted = "reflectory_http_requests_total"
    one = {"method": "GET", "route": "/v1/studies/{study_id}", "status": "404"}
    assert found.value(counted, **one) == 2
    assert found.value(counted, method="GET", route="none", status="404") == 1
    assert found.value(counted, method="GET", route="/assets", status="200") == 1
    assert found.value(counted, method="HEAD", route="/v1/studies", status="200") == 1
    assert not any(word in str(found.samples) for word in ("three", "BREW", "style.css"))
    durations = "reflectory_http_request_seconds"
    labels = {"method": "GET", "route": "/v1/studies/{study_id}"}
    assert found.value(f"{durations}_count", **labels) == 2
    assert found.value(f"{durations}_bucket", **labels, le="+Inf") == 2
    assert 0 < found.value(f"{durations}_sum", **labels) < 60
    # The scrape itself is under way while it is answered.
    assert found.value("reflectory_http_requests_in_progress") == 1


def test_what_is_turned_away_is_counted_by_why(client: TestClient, site: Site) -> None:
    counted = "reflectory_http_refusals_total"
    assert scrape(client).of(counted) == {
        frozenset({("reason", reason)}): 0.0 for reason in REASONS
    }
    json = {"Content-Type": "application/json"}
    study = site.study()
    site.trial(study, 0, state=TrialState.RUNNING)
    lease = site.lease(study, 0)
    file = lease.path("artifacts/resume")
    for reason, status, path, headers, content in (
        ("wrong-key", 401, "/v1/studies", {"Authorization": "Bearer wrong"}, b"{}"),
        ("host", 403, "/v1/studies", {"Host": "evil.example"}, b"{}"),
        ("origin", 403, file, {**lease.headers, "Origin": "http://evil.example"}, b"{}"),
        ("not-local", 403, "/v1/studies", {"Origin": "http://evil.example"}, b"{}"),
        ("body-encoded", 415, "/v1/studies", {"Content-Encoding": "gzip"}, b"{}"),
        ("body-too-large", 413, "/v1/studies", json, b" " * (2 << 20)),
        ("body-too-deep", 422, "/v1/studies", json, b"[" * 101),
        ("body-not-text", 400, "/v1/studies", json, b"\xff"),
        ("body-not-plain", 422, "/v1/studies", json, rb'"\ud800"'),
    ):
        before = scrape(client).value(counted, reason=reason)
        method = "PUT" if path.endswith("/resume") else "POST"
        answer = client.request(method, path, headers=headers, content=content)
        assert answer.status_code == status, reason
        assert scrape(client).value(counted, reason=reason) == before + 1, reason
    assert {reason for labels in scrape(client).of(counted) for _, reason in labels} == {*REASONS}
    assert all(f"`{reason}`" in GUIDE for reason in REASONS)


def test_applications_count_for_themselves(client: TestClient, tmp_path: Path) -> None:
    client.get("/v1/studies/one")
    other = Site(tmp_path / "other")
    with TestClient(create_app(other.settings), base_url="http://localhost:8080") as second:
        assert scrape(second).of("reflectory_http_requests_total") == {}
    other.close()


def test_the_open_metrics_form_is_given_to_who_asks_for_it(client: TestClient) -> None:
    client.get("/v1/studies")
    form = "application/openmetrics-text; version=1.0.0"
    answer = client.get("/metrics", headers={"Accept": form})
    assert answer.headers["content-type"].startswith(form)
    assert {family.name for family in open_metrics(answer.text)} >= {"reflectory_http_requests"}


def test_the_databases_figures_are_those_of_its_rows(client: TestClient, site: Site) -> None:
    study = site.study()
    site.run(study)
    site.trial(study, 0, state=TrialState.RUNNING)
    site.trial(study, 1, state=TrialState.QUEUED)
    site.finish(site.study())
    site.lease(study, 0)
    site.lease(study, 0, attempt=2)
    claimed(site, study.id, "ada:/data")
    site.keep(b"seven b")
    coordinator(site)
    coordinator(site, owner="bob:/data", silent_seconds=1000)
    found = scrape(client)
    assert found.value("reflectory_database_up") == 1
    assert found.value("reflectory_studies", state="running") == 1
    assert found.value("reflectory_studies", state="finished") == 1
    assert found.value("reflectory_trials", state="queued") == 1
    assert found.value("reflectory_trials", state="running") == 1
    assert found.value("reflectory_attempts", kind="train", outcome="lost") == 1
    assert found.value("reflectory_attempts", kind="train", outcome="running") == 1
    assert found.value("reflectory_coordinators") == 1
    assert found.value("reflectory_slots", model="a CPU") == 2
    assert found.value("reflectory_slots_busy", model="a CPU") == 1
    assert found.value("reflectory_lanes", model="a CPU", state="measuring") == 1
    seen = "reflectory_coordinator_last_seen_seconds"
    assert 0 <= found.value(seen, coordinator="ada:/data") < 60
    assert found.value(seen, coordinator="bob:/data") >= 1000
    asked = {"coordinator": "ada:/data", "sampler": "tpe"}
    buckets = {
        float(dict(labels)["le"]): value
        for labels, value in found.of("reflectory_ask_seconds_bucket").items()
    }
    assert [buckets[bound] for bound in (0.005, 0.1, 0.25, 60.0, float("inf"))] == [1, 1, 2, 2, 3]
    assert sorted(buckets.values()) == [buckets[bound] for bound in sorted(buckets)]
    assert found.value("reflectory_ask_seconds_count", **asked) == 3
    assert found.value("reflectory_ask_seconds_sum", **asked) == pytest.approx(88.203)
    assert study.id not in str(found.samples)


def test_scrapes_that_come_soon_after_each_other_share_one_look(
    client: TestClient, site: Site
) -> None:
    assert scrape(client).value("reflectory_studies", state="queued") == 0
    site.study()
    assert scrape(client).value("reflectory_studies", state="queued") == 0


def test_without_its_database_a_process_tells_of_itself(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, database_url="postgresql://127.0.0.1:1/nobody")
    with TestClient(create_app(settings), base_url="http://localhost:8080") as client:
        client.get("/healthz")
        found = scrape(client)
    assert found.value("reflectory_database_up") == 0
    assert found.value(
        "reflectory_http_requests_total", method="GET", route="/healthz", status="200"
    )
    assert found.value("reflectory_disk_free_bytes", folder="data") > 0
    assert "reflectory_studies" not in found.families


def test_the_guide_has_every_metric_with_its_labels_and_its_words(
    client: TestClient, site: Site
) -> None:
    study = site.study()
    site.trial(study, 0, state=TrialState.RUNNING)
    coordinator(site)
    client.get("/v1/studies")
    found = scrape(client)
    labels: dict[str, set[str]] = {}
    for name, named in found.samples:
        bare = name if name in found.families else re.sub(r"_(total|bucket|sum|count)$", "", name)
        labels.setdefault(bare, set()).update(label for label, _ in named if label != "le")
    shown = {
        (
            name + ("_total" if kind == "counter" else ""),
            kind,
            ", ".join(f"`{label}`" for label in sorted(labels[name])),
            words,
        )
        for name, (kind, words) in found.families.items()
        if name.startswith("reflectory_")
    }
    rows = re.findall(r"^\| `(reflectory_\w+)` \| (\w+) \| ([^|]*?) \| (.+?) \|$", GUIDE, re.M)
    assert {tuple(row) for row in rows} == shown
    assert len(rows) == len(shown)


def test_every_metric_that_the_guides_examples_use_is_in_its_table() -> None:
    used = set(re.findall(r"(?<!`)\b(reflectory_[a-z_]+)\b(?!`)", GUIDE))
    table = set(re.findall(r"^\| `(reflectory_\w+)`", GUIDE, re.M))
    bare = {re.sub(r"_(bucket|sum|count)$", "", name) for name in used}
    assert used
    assert bare <= table
