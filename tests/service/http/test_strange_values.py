"""What no honest client has in a document: in every place of every body, and never a server error.

What cannot be said in JSON at all, or is none of a document's business, is refused before a route;
what is said well and is only absurd, by the routes themselves.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from service.app import create_app
from service.auth.api_keys import create_key
from tests.service.auth.test_door import running
from tests.service.machines import Machine
from tests.service.site import SMALL_SPEC, Site

HUGE = 10**400

UNSPEAKABLE = {
    "half a surrogate pair": '"\\ud800"',
    "the other half": '"a\\udfffb"',
    "a NUL": '"a\\u0000b"',
    "10^400": str(HUGE),
    "1e400": "1e400",
    "5,000 digits": "-" + "9" * 5000,
    "200 levels": "[" * 200 + "]" * 200,
    "text of 2 MB": json.dumps("x" * (2 << 20)),
}
"""JSON that no route sees."""

ABSURD = {
    "10^99": str(10**99),
    "-2^63": str(-(2**63)),
    "2^64": str(2**64),
    "1e308": "1e308",
    "-1e308": "-1e308",
    "infinite": "99999e306",
    "not a number": "NaN",
    "Infinity": "-Infinity",
    "tiny": "5e-324",
    "minus zero": "-0.0",
    "empty": '""',
    "long": json.dumps("é" * 100_000),
    "no character yet": json.dumps("\uffff\ufdd0"),
    "a control": json.dumps("\x01\x7f\x9f"),
    "a line end": json.dumps("a\r\nX-Injected: yes"),
    "right to left": json.dumps("\u202e\U0001f4a9"),
    "no URL": json.dumps("http://[::1"),
    "true": "true",
    "null": "null",
    "a list": "[[], {}, 1]",
    "an object": '{"": {}}',
}
"""JSON that means nothing."""

SPEC: dict[str, Any] = {
    **SMALL_SPEC,
    "task": {"kind": "dataset", "id": "000000000000", "metric": None, "seed": 1},
    "space": {
        "hidden_size": {"low": 8, "high": 16, "step": 8, "log": False},
        "training.learning_rate": {"low": 1e-4, "high": 1e-2, "log": True},
        "training.batch_size": 32,
        "activation": {"options": ["tanh", "relu"]},
    },
    "objectives": ["quality", "parameters", "throughput"],
    "limits": {"parameters": 2000, "memory_bytes": 10**6, "min_throughput_ratio": 0.5},
    "budget": {
        "trials": 4,
        "epochs": 3,
        "total_epochs": 9,
        "wall_seconds": 60.0,
        "device_hours": 1.0,
    },
    "sampler": {"kind": "tpe", "startup_trials": 5},
    "early_stopping": {"kind": "pareto_gain", "min_epochs": 1},
    "throughput": {"mode": "inference", "batch_size": 4, "sequence_length": 8, "device": "a CPU"},
    "resources": {"device": "any", "fraction": 0.5},
    "retention": {"keep": "front", "top": 3},
    "warm_start": ["000000000000"],
    "presets": [],
    "compress": {"model": "000000000000"},
    "webhook": {"url": "https://example.com/hook"},
    "priority": 1,
    "confirm": 1,
    "duplicates": "reuse",
}
DIGITS = {
    **{name: value for name, value in SPEC.items() if name not in ("warm_start", "compress")},
    "task": {"kind": "digits", "layout": "rows"},
    "webhook": None,
}

MACHINE = "4f1d2c3b5a697887"
SESSION = "0a1b2c3d4e5f6071"
ATTEMPT = "9e107d9d372bb682"

BODIES: dict[str, tuple[str, str, Any]] = {
    "a study": ("POST", "/v1/studies?dry_run=true", SPEC),
    "a study that could run": ("POST", "/v1/studies?dry_run=true", DIGITS),
    "a study that is kept": ("POST", "/v1/studies", {**SMALL_SPEC, "name": "kept"}),
    "a change": (
        "PATCH",
        "/v1/studies/{study}",
        {"budget": {"trials": 9, "total_epochs": 90, "wall_seconds": 60.0}, "priority": 3},
    ),
    "a trial": (
        "POST",
        "/v1/studies/{study}/trials",
        {
            "architecture": "rnn",
            "parametrization": "low_rank",
            "hyperparameters": {"hidden_size": 8, "training.learning_rate": 0.01},
        },
    ),
    "a trial that goes on": ("POST", "/v1/studies/{study}/trials", {"continues": 0}),
    "a key": ("POST", "/v1/keys", {"name": "laptop", "scopes": ["read"]}),
    "a machine": (
        "POST",
        "/v1/agents",
        {
            "machine": MACHINE,
            "session": SESSION,
            "name": "ada",
            "version": "0.1.0",
            "slots": [{"name": "cpu-0", "device": "cpu", "model": "a CPU", "share": 1.0}],
        },
    ),
    "a poll": (
        "POST",
        f"/v1/agents/{MACHINE}/poll",
        {
            "session": SESSION,
            "number": 1,
            "running": [ATTEMPT],
            "ending": {ATTEMPT: 1.0},
            "wait_seconds": 0.0,
        },
    ),
    "an exit": (
        "SAY",
        "",
        {"kind": "exit", "attempt": ATTEMPT, "returncode": 0, "signal": None, "detail": "over"},
    ),
    "progress": (
        "SAY",
        "",
        {
            "kind": "progress",
            "attempt": ATTEMPT,
            "report": {"file": "a.gz", "received": 1, "total": 2},
        },
    ),
    "an epoch": (
        "SAY",
        "",
        {
            "kind": "epoch",
            "attempt": ATTEMPT,
            "report": {
                "epoch": 1,
                "train_loss": 1.0,
                "validation": 0.5,
                "spectral_margin": 0.1,
                "gradient_first": 0.1,
                "gradient_last": 0.1,
                "recovered_batches": 0,
                "seconds": 0.1,
                "stood_still_seconds": 0.0,
                "held_seconds": 1.0,
            },
        },
    ),
    "a measurement": (
        "SAY",
        "",
        {
            "kind": "measurement",
            "attempt": ATTEMPT,
            "report": {
                "trial": 0,
                "shape_key": "a",
                "device": "a CPU",
                "samples_per_second": 10.0,
                "ratio": 1.0,
                "seconds": 0.5,
                "record": {"batch_size": 64, "threads": 1},
            },
        },
    ),
    "an end": (
        "SAY",
        "",
        {
            "kind": "end",
            "attempt": ATTEMPT,
            "completion": {
                "outcome": "failed",
                "reason": "because",
                "quality": 0.5,
                "test_quality": 0.5,
                "test_metrics": {"accuracy": 0.5},
                "best_epoch": 1,
                "epochs_trained": 1,
                "prepared": {"samples": 1},
            },
        },
    ),
}


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, TestClient]]:
    """The application, which raises what it does not expect."""
    site = Site(tmp_path_factory.mktemp("strange"), requests_per_minute=10**6)
    with TestClient(create_app(site.settings), base_url="http://localhost:8080") as client:
        yield site, client
    site.close()


def places(document: Any) -> Iterator[str]:
    """The document again and again, as JSON with `@` in place of another of its parts or keys."""
    mark = "\x02mark\x02"

    def marked(node: Any) -> Iterator[Any]:
        yield mark
        if isinstance(node, dict):
            for name, value in node.items():
                for inner in marked(value):
                    yield {**node, name: inner}
                yield {**{other: v for other, v in node.items() if other != name}, mark: value}
        if isinstance(node, list):
            for index, value in enumerate(node):
                for inner in marked(value):
                    yield [*node[:index], inner, *node[index + 1 :]]

    for one in marked(document):
        yield json.dumps(one).replace(json.dumps(mark), "@")


LONG = ("a study", "a study that could run", "a study that is kept", "an epoch", "an end")


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(body, marks=pytest.mark.slow) if body in LONG else pytest.param(body)
        for body in BODIES
    ],
)
def test_no_place_of_a_document_takes_a_strange_value_for_a_server_error(
    asked: tuple[Site, TestClient], body: str
) -> None:
    site, client = asked
    method, path, document = BODIES[body]
    study = site.study()
    site.trial(study, 0, quality=0.5)
    lease = running(site)
    says = method == "SAY"
    scope = "work" if says or path.startswith("/v1/agents") else "admin"
    key = create_key(site.database, name="strange", scopes=(scope,)).text

    shown = {"Authorization": f"Bearer {key}"}

    def ask(content: str) -> int:
        if says:
            return said(content)
        given = path.replace("{study}", study.id)
        headers = {"Content-Type": "application/json", **shown}
        return client.request(method, given, content=content.encode(), headers=headers).status_code

    def said(content: str) -> int:
        nonlocal lease
        machine = Machine(client, headers=shown)
        tokens = json.dumps({lease.attempt: lease.token})
        item = content.replace(ATTEMPT, lease.attempt)
        words = f'{{"session": "{machine.session}", "tokens": {tokens}, "items": [{item}]}}'
        encoded = words.encode()
        answer = machine.say_bytes(len(encoded).to_bytes(4, "big") + encoded)
        if answer.status_code == 200 and answer.json()["refused"]:
            # What was said may have ended the attempt.
            lease = running(site)
        return answer.status_code

    for template in places(document):
        # In place of a key as well, where it is text.
        is_key = "@:" in template.replace("@ :", "@:")
        for name, value in ABSURD.items():
            if not is_key or value.startswith('"'):
                status = ask(template.replace("@", value))
                assert status < 500, (template, name, status)
        for name, value in UNSPEAKABLE.items():
            if not is_key or value.startswith('"'):
                status = ask(template.replace("@", value))
                # A sync is taken: its text is stored without what no column holds, and what cannot
                # be is refused word by word.
                assert status in ((200, 413, 422) if says else (413, 422)), (template, name, status)
