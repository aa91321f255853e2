"""A few hundred requests that nobody would think of; `python -m tests.fuzz` asks many more."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.fuzz import hooks
from tests.fuzz.run import fuzz


@pytest.mark.slow
def test_no_request_is_answered_as_the_document_does_not_say(tmp_path: Path) -> None:
    done = fuzz(tmp_path, examples=6, seed=1, phases=("fuzzing", "stateful"))
    assert not done.failed, done.report
    assert done.cases > 250


def test_bodies_have_surrogates_and_ids_in_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(hooks.IDS, '["3f1c"]')
    sent: list[str] = []
    for number in range(200):
        case = SimpleNamespace(
            method="POST", path="/v1/studies", body={"name": str(number), "task": {"id": "x"}}
        )
        sending: dict[str, bytes] = {}
        hooks.before_call(None, case, sending)
        sent.append(sending.get("data", json.dumps(case.body).encode()).decode())
    for drawn in ("\\ud800", "3f1c"):
        assert any(f'"name": "{drawn}' in body for body in sent)
        assert any(f'"id": "{drawn}' in body for body in sent)
        assert any(f'"{drawn}": ' in body for body in sent)
    assert any(
        body == json.dumps({"name": str(number), "task": {"id": "x"}})
        for number, body in enumerate(sent)
    )
