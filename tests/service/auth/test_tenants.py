"""No route tells or does anything of another tenant's: every one is called with the wrong key."""

import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest
from fastapi.routing import APIRoute
from starlette.testclient import TestClient

from search.optuna_tables import study_name
from service.app import create_app
from service.auth.api_keys import create_key
from service.routers import ROUTERS
from storage.records import StudyRecord, TrialState
from tests.service.model_files import plain, saved
from tests.service.processes import running_dashboard, wait_until
from tests.service.site import SMALL_SPEC, Site
from tests.service.uploading import CSV

OURS, THEIRS = "alice", "bob"
UNKNOWN = "000000000000"

OPEN = {
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/assets/plotly.min.js"),
    ("GET", "/assets/plotly.css"),
    ("GET", "/login"),
    ("POST", "/login"),
    ("POST", "/logout"),
}
"""Routes that know nobody, and tell of nobody."""

TASK = SMALL_SPEC["task"]

BODIES: Mapping[tuple[str, str], dict[str, Any]] = {
    ("POST", "/v1/studies"): {"json": SMALL_SPEC},
    ("POST", "/v1/collections"): {"json": {**SMALL_SPEC, "task": None, "tasks": [TASK]}},
    ("PATCH", "/v1/studies/{study_id}"): {"json": {"budget": {"trials": 9}}},
    ("POST", "/v1/studies/{study_id}/trials"): {"json": {"continues": 0}},
    ("POST", "/v1/datasets"): {"files": {"file": ("other.csv", CSV + b"dog,1,1,1\n")}},
    ("POST", "/datasets"): {"files": {"file": ("another.csv", CSV + b"cat,1,1,1\n")}},
    ("POST", "/v1/models"): {"files": {"file": ("other.safetensors", saved(plain(num_layers=2)))}},
    ("POST", "/models"): {"files": {"file": ("another.safetensors", saved(plain(num_layers=3)))}},
    ("POST", "/v1/keys"): {"json": {"name": "another", "scopes": ["read"]}},
    ("POST", "/v1/keys/{key_id}/rotate"): {"json": {"overlap": "1h"}},
    ("POST", "/studies/new"): {"data": {"task": "digits"}},
    ("POST", "/studies/{study_id}/edit"): {"data": {"name": "another", "tags": "a, b"}},
}
"""What routes are sent that need more than a path; all others that change something need none."""

WITHOUT_BODY = {
    ("POST", "/v1/studies/{study_id}/cancel"),
    ("DELETE", "/v1/studies/{study_id}"),
    ("POST", "/v1/studies/{study_id}/pause"),
    ("POST", "/v1/studies/{study_id}/resume"),
    ("POST", "/v1/studies/{study_id}/trials/{number}/measure"),
    ("POST", "/v1/collections/{collection_id}/pause"),
    ("POST", "/v1/collections/{collection_id}/resume"),
    ("POST", "/v1/collections/{collection_id}/cancel"),
    ("DELETE", "/v1/collections/{collection_id}"),
    ("POST", "/collections/{collection_id}/pause"),
    ("POST", "/collections/{collection_id}/resume"),
    ("POST", "/collections/{collection_id}/cancel"),
    ("DELETE", "/v1/datasets/{dataset_id}"),
    ("DELETE", "/v1/models/{model_id}"),
    ("DELETE", "/v1/keys/{key_id}"),
    ("POST", "/studies/{study_id}/pause"),
    ("POST", "/studies/{study_id}/resume"),
    ("POST", "/studies/{study_id}/cancel"),
    ("POST", "/studies/{study_id}/delete"),
    ("POST", "/studies/{study_id}/trials/{number}/measure"),
}

NOT_THERE_YET = {"/v1/studies/{study_id}/trials/{number}/log"}
"""What not even its owner has here."""

OF_MACHINES = ("/v1/agents/",)
"""Routes that no tenant's key opens, see tests/service/api/test_agents_routes.py."""

DASHBOARD = {
    "/dashboard/{rest:path}": "studies/{optuna}",
    "/static/{rest:path}": "bundle.js",
    "/api/{rest:path}": "studies/{optuna}",
    "/csv/{rest:path}": "{optuna}",
    "/artifacts/{rest:path}": "{optuna}/0/a",
}


def routes() -> list[tuple[str, str]]:
    """Every method and path that the service answers, workers' own excepted."""
    found: list[tuple[str, str]] = []
    for router in ROUTERS:
        for route in router.routes:
            assert isinstance(route, APIRoute)
            if not route.path.startswith(OF_MACHINES):
                found += [(method, route.path) for method in sorted(route.methods or ())]
    return [route for route in found if route != ("POST", "/v1/agents")]


@dataclass
class Two:
    """A server with two tenants, of whom one has everything and the other nothing."""

    site: Site
    client: TestClient
    study: StudyRecord
    keys: dict[str, str]
    values: dict[str, str]
    """Path parameter -> what the one tenant has of it."""
    optuna: int
    secrets: set[str] = field(default_factory=set)
    """Words that only the one tenant may read."""

    def ask(self, tenant: str, method: str, path: str, **given: Any) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {self.keys[tenant]}", **given.pop("headers", {})}
        return self.client.request(method, path, headers=headers, follow_redirects=False, **given)

    def path(self, route: str, **other: str) -> str:
        path = route.replace("{rest:path}", DASHBOARD.get(route, ""))
        path = path.replace("{path:path}", "index.md")
        named = {"optuna": str(self.optuna), "table": "ucr", "name": "front"}
        values = {**self.values, **named, **other}
        for name, value in values.items():
            path = path.replace(f"{{{name}}}", value)
        assert "{" not in path, f"say in this test what {route} is called with"
        return f"{path}?studies={values['study_id']}" if route == COMPARE else path


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    site = Site(tmp_path_factory.mktemp("tenants"), export_wait_seconds=20)
    keys = {
        tenant: create_key(site.database.of(tenant), name=f"key of {tenant}", scopes=("admin",))
        for tenant in (OURS, THEIRS)
    }
    space = {**SMALL_SPEC["space"], "activation": "tanh"}
    study = site.study(tenant=OURS, name="a name of ours", space=space)
    site.run(study)
    site.trial(study, 0, quality=0.75, throughput=50.0)
    site.finish(study)
    # The path of a socket may not be long, and a test's own folder is.
    socket = tmp_path_factory.getbasetemp().parent / f"{study.id}.sock"
    settings = site.settings.model_copy(update={"dashboard_socket": socket})
    log = settings.data_dir / "dashboard.log"
    with (
        running_dashboard(settings, log) as process,
        TestClient(create_app(settings), base_url="http://localhost:8080") as client,
    ):
        two = Two(site, client, study, {t: key.text for t, key in keys.items()}, {}, 0)

        def there() -> bool:
            assert process.poll() is None, log.read_text()
            return two.ask(OURS, "GET", "/api/meta").status_code == 200

        wait_until(there)
        dataset = two.ask(OURS, "POST", "/v1/datasets", files={"file": ("a.csv", CSV)}).json()
        files = {"file": ("gru.safetensors", saved(plain(outputs=10)))}
        model = two.ask(OURS, "POST", "/v1/models", files=files).json()
        two.values |= {
            "study_id": study.id,
            "number": "0",
            "dataset_id": dataset["id"],
            "model_id": model["id"],
            "key_id": keys[OURS].record.id,
        }
        [summary] = two.ask(OURS, "GET", "/api/studies").json()["study_summaries"]
        two.optuna = summary["study_id"]
        several = {**SMALL_SPEC, "name": "several of ours", "task": None, "tasks": [TASK]}
        collection = two.ask(OURS, "POST", "/v1/collections", json=several).json()
        two.values["collection_id"] = collection["id"]
        two.secrets |= {
            study.id,
            study.name,
            collection["id"],
            collection["name"],
            dataset["id"],
            model["id"],
            keys[OURS].record.id,
            keys[OURS].record.name,
        }
        yield two
    site.close()


def rows_of_ours(two: Two) -> list[str]:
    """All rows that name something of ours; when a key was used last does not count."""
    path = two.site.settings.database_url.removeprefix("sqlite:///")
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE api_key SET last_used_at = NULL")
        dump = list(connection.iterdump())
    named = [OURS, *(value for value in two.values.values() if len(value) > 3)]
    rows = [line for line in dump if any(name in line for name in named)]
    assert len(rows) > 10
    return rows


OF_ALL = (
    *("/static/{rest:path}", "/dashboard/{rest:path}"),
    *("/v1/papers/{table}", "/papers/{table}", "/help/{path:path}"),
)
"""Routes that name what belongs to nobody."""


COMPARE = "/v1/figures/compare"
"""Names studies behind its path."""


def names_something(route: str) -> bool:
    return ("{" in route and route not in OF_ALL) or route == COMPARE


def test_every_route_is_known_here() -> None:
    for method, route in routes():
        known = method == "GET" or (method, route) in {*BODIES, *WITHOUT_BODY, *OPEN}
        assert known, f"say in this test what {method} {route} is sent"


def test_the_owner_gets_what_the_walk_asks_for(two: Two) -> None:
    for method, route in routes():
        if method == "GET" and (method, route) not in OPEN:
            answer = two.ask(OURS, method, two.path(route))
            expected = 400 if route.startswith("/artifacts") else 200
            expected = 404 if route in NOT_THERE_YET else expected
            expected = 307 if route == "/help" else expected
            assert answer.status_code == expected, (route, answer.text)


@pytest.mark.parametrize(("method", "route"), [r for r in routes() if r not in OPEN])
def test_another_tenants_key_finds_nothing_and_changes_nothing(
    two: Two, method: str, route: str
) -> None:
    before = rows_of_ours(two)
    sent = BODIES.get((method, route), {})
    page = not route.startswith("/v1/")
    headers = {"Origin": "http://localhost:8080"} if page and method == "POST" else {}
    answer = two.ask(THEIRS, method, two.path(route), headers=headers, **sent)
    if names_something(route):
        unknown = dict.fromkeys(two.values.keys() - {"number"}, UNKNOWN)
        path = two.path(route, **unknown, optuna="4711")
        nothing = two.ask(THEIRS, method, path, headers=headers, **sent)
        # The dashboard has no artifacts, whoever asks.
        expected = 400 if route.startswith("/artifacts") else 404
        assert answer.status_code == nothing.status_code == expected, answer.text
        assert told(answer.text, two.values.values()) == told(nothing.text, [UNKNOWN, "4711"])
    else:
        assert answer.status_code < 500
        for secret in two.secrets:
            assert secret not in answer.text
    assert rows_of_ours(two) == before


def told(text: str, names: Iterable[str]) -> str:
    """What an answer says, whatever it was asked for."""
    for name in names:
        text = text.replace(name, "ID") if len(name) > 3 else text
    return re.sub(r"study_id=\S+", "study_id=ID", text)


def made_of(study: str, dataset: str, model: str) -> list[dict[str, Any]]:
    """Specs that start from another study, train on an upload, or compress one."""
    return [
        {**SMALL_SPEC, "warm_start": [study]},
        {**SMALL_SPEC, "task": {"kind": "dataset", "id": dataset}},
        {"task": {"kind": "digits"}, "compress": {"model": model}},
    ]


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("query", ["", "?dry_run=true"])
def test_a_study_cannot_be_made_of_what_is_anothers(two: Two, which: int, query: str) -> None:
    named = tuple(two.values[name] for name in ("study_id", "dataset_id", "model_id"))
    spec, unknown = made_of(*named)[which], made_of(UNKNOWN, UNKNOWN, UNKNOWN)[which]
    foreign = two.ask(THEIRS, "POST", f"/v1/studies{query}", json=spec)
    nothing = two.ask(THEIRS, "POST", f"/v1/studies{query}", json=unknown)
    assert foreign.status_code == nothing.status_code == 422
    assert told(foreign.text, named) == told(nothing.text, [UNKNOWN])
    own = two.ask(OURS, "POST", "/v1/studies?dry_run=true", json=spec)
    assert own.status_code == 200, own.text


def test_the_same_upload_is_a_data_set_of_each(two: Two) -> None:
    ours = two.ask(OURS, "POST", "/v1/datasets", files={"file": ("a.csv", CSV)})
    theirs = two.ask(THEIRS, "POST", "/v1/datasets", files={"file": ("a.csv", CSV)})
    assert (ours.status_code, theirs.status_code) == (200, 201)
    assert ours.json()["id"] == two.values["dataset_id"] != theirs.json()["id"]
    assert two.ask(THEIRS, "DELETE", theirs.headers["Location"]).status_code == 204
    assert two.ask(OURS, "GET", ours.headers["Location"]).status_code == 200


def test_the_same_upload_is_a_model_of_each(two: Two) -> None:
    files = {"file": ("gru.safetensors", saved(plain(outputs=10)))}
    ours, theirs = (two.ask(one, "POST", "/v1/models", files=files) for one in (OURS, THEIRS))
    assert (ours.status_code, theirs.status_code) == (200, 201)
    assert ours.json()["id"] == two.values["model_id"] != theirs.json()["id"]
    assert two.ask(THEIRS, "DELETE", theirs.headers["Location"]).status_code == 204
    assert two.ask(OURS, "GET", ours.json()["links"]["checkpoint"]).status_code == 200


def test_the_same_idempotency_key_makes_a_study_of_each(two: Two) -> None:
    made = {
        two.ask(
            tenant, "POST", "/v1/studies", json=SMALL_SPEC, headers={"Idempotency-Key": "once"}
        ).json()["id"]
        for tenant in (OURS, THEIRS, OURS)
    }
    assert len(made) == 2


def test_the_dashboard_lists_the_own_studies_alone(two: Two) -> None:
    listed = {
        tenant: [
            study["study_name"]
            for study in two.ask(tenant, "GET", "/api/studies").json()["study_summaries"]
        ]
        for tenant in (OURS, THEIRS)
    }
    for tenant in (OURS, THEIRS):
        own = two.ask(tenant, "GET", "/v1/studies").json()["items"]
        assert sorted(listed[tenant]) == sorted(f"{one['name']} [{one['id']}]" for one in own)
    assert study_name(two.study) in listed[OURS]
    assert study_name(two.study) not in listed[THEIRS]


def test_nobody_says_over_http_for_whom_the_dashboard_is_asked(two: Two) -> None:
    answer = two.ask(THEIRS, "GET", "/api/studies", headers={"X-Reflectory-Tenant": OURS})
    assert study_name(two.study) not in answer.text


def test_a_key_opens_no_attempt_and_a_lease_token_is_no_key(two: Two) -> None:
    study = two.site.study(tenant=OURS)
    two.site.trial(study, 0, state=TrialState.RUNNING)
    lease = two.site.lease(study, 0)
    path = lease.path("artifacts/resume")
    for shown in (lease.headers, {"Authorization": f"Bearer {lease.token}"}):
        for asked in ("/v1/studies", path):
            assert two.client.get(asked, headers=shown).status_code == 401
    for tenant in (OURS, THEIRS):
        assert two.ask(tenant, "GET", path, headers=lease.headers).status_code == 403
