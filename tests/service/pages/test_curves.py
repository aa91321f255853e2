"""A learning curve on its whole way, from a worker's words to the document that tells it."""

from typing import Any

import pytest
from starlette.testclient import TestClient

from storage.records import TrialState
from tests.service.machines import Machine, say, word
from tests.service.site import Site

SOUND = {
    "epoch": 1,
    "train_loss": 0.5,
    "validation": 0.25,
    "validation_loss": 0.75,
    "spectral_margin": 1e-9,
    "gradient_first": 1e-300,
    "gradient_last": 2.5,
    "recovered_batches": 3,
    "seconds": 0.1,
}
BARE = {"epoch": 2, "train_loss": 0.5, "validation": 0.25, "seconds": 0.1}


def test_every_number_of_a_report_comes_back(client: TestClient, site: Site) -> None:
    study = site.study()
    site.run(study)
    site.trial(study, 0, state=TrialState.RUNNING)
    lease = site.lease(study, 0)
    for report in (SOUND, BARE):
        assert say(client, lease, "epoch", report) == []
    unknown = {"spectral_margin": None, "gradient_first": None, "gradient_last": None}
    curve = client.get(f"/v1/studies/{study.id}/trials/0/metrics").json()
    assert curve == [SOUND, {**BARE, **unknown, "recovered_batches": 0}]


def test_gradients_of_single_updates_come_back(client: TestClient, site: Site) -> None:
    study = site.study()
    site.run(study)
    site.trial(study, 0, state=TrialState.RUNNING)
    lease = site.lease(study, 0)
    probes = [
        {"update": 7, "first": 1e-300, "last": 2.5},
        {"update": 14, "first": None, "last": None},
    ]
    assert say(client, lease, "epoch", {**SOUND, "probes": probes}) == []
    [told] = client.get(f"/v1/studies/{study.id}/trials/0/metrics").json()
    assert told == {**SOUND, "probes": probes}


@pytest.mark.parametrize(
    ("field", "value"),
    [("gradient_first", float("nan")), ("gradient_last", float("inf")), ("recovered_batches", -1)],
)
def test_a_diagnostic_that_cannot_be_is_refused(
    client: TestClient, site: Site, field: str, value: Any
) -> None:
    study = site.study()
    site.run(study)
    site.trial(study, 0, state=TrialState.RUNNING)
    lease = site.lease(study, 0)
    # As Python writes it: with NaN and Infinity.
    item = {"attempt": lease.attempt, **word("epoch", {**SOUND, field: value})}
    answer = Machine(client).say(item, tokens={lease.attempt: lease.token})
    assert answer.status_code == 422
    assert f"report.{field}: " in answer.json()["detail"]
    assert client.get(f"/v1/studies/{study.id}/trials/0/metrics").json() == []
