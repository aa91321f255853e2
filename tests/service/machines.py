"""A machine's agent as far as HTTP shows it; it runs nothing."""

import json
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

import httpx2
from starlette.testclient import TestClient

from search.agents.protocol import SYNC_TYPE
from search.training.jobs import EpochReport, MeasurementReport
from tests.service.site import Lease, sha256

MACHINE, SESSION = "a" * 16, "b" * 16
SLOTS = [
    {"name": f"cpu-{index}", "device": "cpu", "model": "a CPU", "share": 1.0} for index in range(2)
]


class Machine:
    """A machine as far as HTTP shows it; it runs nothing."""

    def __init__(self, client: TestClient, **given: Any) -> None:
        self.client = client
        self.id = given.pop("machine", MACHINE)
        self.session = given.pop("session", SESSION)
        self.number = 0
        self.headers = given.pop("headers", {})
        """What it shows, where a key is asked for."""
        body = {"name": "ada", "version": version("reflectory"), "slots": SLOTS, **given}
        self.joined = client.post(
            "/v1/agents",
            json={"machine": self.id, "session": self.session, **body},
            headers=self.headers,
        )

    def ask(self, what: str, **body: Any) -> httpx2.Response:
        return self.client.post(
            f"/v1/agents/{self.id}/{what}",
            json={"session": self.session, **body},
            headers=self.headers,
        )

    def poll(self, *running: str, **given: Any) -> dict[str, Any]:
        self.number += 1
        body = {"number": self.number, "wait_seconds": 0, "running": running, **given}
        answer = self.ask("poll", **body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def say(
        self, *items: dict[str, Any], contents: Sequence[bytes] = (), **given: Any
    ) -> httpx2.Response:
        """One sync, with the bytes of those items that bring some."""
        words = json.dumps({"session": self.session, "items": items, **given}).encode()
        return self.say_bytes(len(words).to_bytes(4, "big") + words + b"".join(contents))

    def say_bytes(self, body: bytes) -> httpx2.Response:
        headers = {"Content-Type": SYNC_TYPE, **self.headers}
        return self.client.post(f"/v1/agents/{self.id}/sync", content=body, headers=headers)

    def exit(self, attempt: str, **given: Any) -> httpx2.Response:
        detail = {"returncode": 0, "detail": "exited with code 0", **given}
        return self.say({"kind": "exit", "attempt": attempt, **detail})

    def speak(
        self, lease: Lease[Any], *items: dict[str, Any], beat: float | None = None, **given: Any
    ) -> dict[str, Any]:
        """Say words of one attempt with its token; what is answered."""
        contents = [item["content"] for item in items if "content" in item]
        told = [
            {"attempt": lease.attempt, **{k: v for k, v in item.items() if k != "content"}}
            for item in items
        ]
        beats = {} if beat is None else {lease.attempt: {"held_seconds": beat}}
        tokens = {lease.attempt: lease.token}
        answer = self.say(*told, contents=contents, tokens=tokens, beats=beats, **given)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def why_not(self, lease: Lease[Any], *items: dict[str, Any]) -> list[tuple[str, str]]:
        """Why words of one attempt are refused, and in which words that is told."""
        return [(one["why"], one["detail"]) for one in self.speak(lease, *items)["refused"]]


def epoch(number: int, **given: Any) -> dict[str, Any]:
    """The word about one epoch."""
    report = {"epoch": number, "train_loss": 1.0, "validation": number / 4, "seconds": 0.1}
    return {"kind": "epoch", "report": {**report, **given}}


def reported(report: EpochReport | MeasurementReport) -> dict[str, Any]:
    """The word that brings a report."""
    kind = "epoch" if isinstance(report, EpochReport) else "measurement"
    return {"kind": kind, "report": report.model_dump(mode="json")}


def artifact(role: str, content: bytes, **given: Any) -> dict[str, Any]:
    """The word that brings bytes."""
    known = {"role": role, "sha256": sha256(content), "size": len(content), "content": content}
    return {"kind": "artifact", **known, **given}


def log(content: bytes, cut: int = 0) -> dict[str, Any]:
    """The word that brings the end of a log."""
    return {"kind": "log", "size": len(content), "cut": cut, "content": content}


def end(**given: Any) -> dict[str, Any]:
    """The last word of an attempt."""
    known = {
        "outcome": "complete",
        "quality": 0.5,
        "test_quality": 0.45,
        "test_metrics": {"accuracy": 0.45},
        "best_epoch": 2,
        "epochs_trained": 2,
    }
    return {"kind": "end", "completion": {**known, **given}}


def word(call: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """The word that brings a report of a kind, or the last one."""
    return {"kind": call, "completion" if call == "end" else "report": dict(body)}


def say(
    client: TestClient, lease: Lease[Any], call: str, body: Mapping[str, Any]
) -> list[tuple[str, str]]:
    """Have a machine say one word; why it is refused, and in which words that is told."""
    return Machine(client).why_not(lease, word(call, body))


def beat(client: TestClient, lease: Lease[Any], seconds: float = 1.0) -> list[tuple[str, str]]:
    """Have a machine say that an attempt is alive; why that is refused."""
    refused = Machine(client).speak(lease, beat=seconds)["refused"]
    return [(one["why"], one["detail"]) for one in refused]
