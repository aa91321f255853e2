"""Studies in which most trials train on a predicted speed, by the real server."""

import re
from typing import Any

import pytest

from search.measuring.prediction import LEAST_SHAPES
from tests.service.running import Server, command

SPEC: dict[str, Any] = {
    "task": {"kind": "digits", "layout": "rows", "train_samples": 100},
    "architectures": ["rnn", "gru"],
    "parametrizations": ["dense", "low_rank", "householder_svd"],
    # So far apart that also a busy machine, whose predictions are wide, tells what is too slow.
    "space": {"hidden_size": {"low": 4, "high": 256}},
    "sampler": {"kind": "random"},
    "retention": {"keep": "front"},
    "budget": {"trials": 28, "epochs": 1},
    "seed": 6,
}


@pytest.fixture(scope="module")
def ended(server: Server) -> dict[str, Any]:
    return server.wait(server.submit(SPEC))


def complete(server: Server, study_id: str) -> list[dict[str, Any]]:
    return [trial for trial in server.trials(study_id) if trial["outcome"] == "complete"]


def test_a_front_has_measured_values_alone(server: Server, ended: dict[str, Any]) -> None:
    assert ended["state"] == "finished", ended["state_reason"]
    trials = {trial["number"]: trial for trial in complete(server, ended["id"])}
    assert len(trials) == 28
    unmeasured = [one for one in trials.values() if one["throughput_kind"] == "predicted"]
    assert unmeasured
    assert len(trials) - len(unmeasured) >= LEAST_SHAPES
    front = server.get(f"/v1/studies/{ended['id']}/front")
    points = [trials[point["trial"]] for point in front["points"]]
    assert {one["throughput_kind"] for one in points} == {"measured"}
    for point in front["points"]:
        measured = server.get(f"/v1/studies/{ended['id']}/trials/{point['trial']}")["throughput"]
        assert point["values"]["throughput"] == measured["samples_per_second"]
    for trial in unmeasured:
        assert trial["values"]["throughput"] is None
        assert trial["throughput_ratio"] is None
        for name in ("throughput", "throughput_ratio"):
            told = trial["predicted"][name]
            assert 0 < told["low"] < told["value"] < told["high"]
        # No measured one leaves it a place, even if it were only as fast as its worse end.
        assert any(_dominates(one, trial) for one in trials.values() if one not in unmeasured)
    # What was told of the front while the study ran ends with the front that it has.
    grown = server.get(f"/v1/studies/{ended['id']}/hypervolume")
    assert grown[-1]["hypervolume"] == pytest.approx(front["hypervolume"])
    assert grown[-1]["points"] == len(front["points"])


def _dominates(one: dict[str, Any], other: dict[str, Any]) -> bool:
    own, theirs = one["values"], other["values"]
    return (
        own["quality"] >= theirs["quality"]
        and own["parameters"] <= theirs["parameters"]
        and own["throughput"] >= other["predicted"]["throughput"]["low"]
    )


def test_a_user_may_have_the_others_measured(server: Server, ended: dict[str, Any]) -> None:
    path = f"/v1/studies/{ended['id']}/trials"
    trial = next(
        one for one in complete(server, ended["id"]) if one["throughput_kind"] == "predicted"
    )
    number = trial["number"]
    page = server.http.get(f"/studies/{ended['id']}/trials/{number}").text
    assert "It was not measured: " in page
    assert re.search(r"≈ [\d,]+</span>\s*<span class=\"quiet\">predicted; [\d,]+ to [\d,]+", page)
    address = str(server.http.base_url)
    told = command(address, "trials", ended["id"], number)
    assert re.search(r"throughput, predicted\s+[\d,]+ to [\d,]+ with 95 %", told.stdout), told
    made = command(address, "measure", ended["id"], number)
    assert made.returncode == 0, made
    found = server.get(f"{path}/{number}")
    assert found["throughput_kind"] == "measured"
    assert found["values"]["throughput"] == found["throughput"]["samples_per_second"]
    assert found["throughput"]["used"]
    # Beside it stands what the sampler was told.
    assert found["predicted"] == trial["predicted"]


@pytest.mark.slow
def test_only_a_measurement_refuses_and_only_a_clear_pass_trains_unmeasured(
    server: Server,
) -> None:
    # Dense models are as fast as themselves, and so too slow.
    least = 1.02
    limits, budget = {"min_throughput_ratio": least}, {"trials": 10, "epochs": 1}
    study_id = server.submit({**SPEC, "limits": limits, "budget": budget})
    assert server.wait(study_id)["state"] == "finished"
    trials = server.trials(study_id)
    refused = [one for one in trials if "min_throughput_ratio" in (one["reason"] or "")]
    assert refused
    for trial in refused:
        assert trial["throughput_kind"] == "measured"
        assert trial["throughput_ratio"] < least
    for trial in trials:
        if trial["outcome"] == "complete" and trial["predicted"]:
            assert trial["predicted"]["throughput_ratio"]["low"] >= least
    for point in server.get(f"/v1/studies/{study_id}/front")["points"]:
        assert point["throughput_ratio"] >= least


@pytest.mark.slow
def test_a_study_may_have_all_measured_before_they_train(server: Server) -> None:
    throughput = {"measure": "all"}
    budget = {"trials": 14, "epochs": 1}
    study_id = server.submit({**SPEC, "throughput": throughput, "budget": budget})
    assert server.wait(study_id)["state"] == "finished"
    for trial in complete(server, study_id):
        assert (trial["throughput_kind"], trial["predicted"]) == ("measured", {})
