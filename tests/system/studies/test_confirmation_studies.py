"""A study that confirms its front, over HTTP."""

import csv
import io
import statistics
from typing import Any

import pytest

from tests.service.running import Server

SPEC: dict[str, Any] = {
    "task": {"kind": "digits"},
    "architectures": ["rnn"],
    "parametrizations": ["dense"],
    "space": {"hidden_size": {"low": 6, "high": 16}},
    "objectives": ["quality", "parameters"],
    "budget": {"trials": 4, "epochs": 1},
    "sampler": {"kind": "random"},
    "confirm": 2,
    "seed": 4,
}


@pytest.fixture(scope="module")
def study(server: Server) -> dict[str, Any]:
    ended = server.wait(server.submit(SPEC))
    assert (ended["state"], ended["state_reason"]) == ("finished", None)
    return ended


def test_each_point_has_the_mean_and_interval_of_its_seeds(
    server: Server, study: dict[str, Any]
) -> None:
    trials = server.trials(study["id"])
    front = server.get(f"/v1/studies/{study['id']}/front")
    numbers = [point["trial"] for point in front["points"]]
    assert front["unconfirmed"] is None
    assert all(number < 4 for number in numbers)
    confirmations = [trial for trial in trials if trial["origin"] == "confirmation"]
    assert sorted(trial["repeats"] for trial in confirmations) == sorted(numbers * 2)
    means = {trial["number"]: trial["values"]["quality"] for trial in trials[:4]}
    for point in front["points"]:
        qualities = [
            trial["values"]["quality"]
            for trial in trials
            if point["trial"] in (trial["number"], trial["repeats"])
        ]
        assert len(qualities) == point["seeds"] == 3
        assert point["quality_mean"] == pytest.approx(statistics.fmean(qualities))
        low, high = point["quality_interval"]
        # Student's t at 0.975 with 2 degrees of freedom, from a printed table.
        half = 4.302653 * statistics.stdev(qualities) / 3**0.5
        # An end near 0 is a difference of larger numbers.
        assert (low, high) == pytest.approx(
            (point["quality_mean"] - half, point["quality_mean"] + half), abs=1e-6
        )
        means[point["trial"]] = point["quality_mean"]
    counts = {trial["number"]: trial["values"]["parameters"] for trial in trials[:4]}
    for point in front["points"]:
        mine = (-means[point["trial"]], counts[point["trial"]])
        others = [(-means[number], counts[number]) for number in means]
        beaten = any(
            other != mine and all(a <= b for a, b in zip(other, mine, strict=True))
            for other in others
        )
        assert point["on_front_by_mean"] is not beaten


def test_confirmations_cost_no_trials_of_the_budget(server: Server, study: dict[str, Any]) -> None:
    points = server.get(f"/v1/studies/{study['id']}/front")["points"]
    totals = study["progress"]["trials"]
    assert totals["total"] == 4
    assert totals["complete"] == 4 + 2 * len(points)
    assert study["progress"]["epochs_trained"] == 4 + 2 * len(points)


def test_the_same_study_is_confirmed_by_the_same_numbers(
    server: Server, study: dict[str, Any]
) -> None:
    again = server.wait(server.submit(SPEC))
    first, second = (
        sorted((t["repeats"], t["values"]["quality"]) for t in server.trials(ended["id"])[4:])
        for ended in (study, again)
    )
    assert first == second


def test_a_study_out_of_its_budget_is_not_confirmed(server: Server) -> None:
    budget = {"trials": 4, "epochs": 1, "total_epochs": 3}
    study = server.wait(server.submit({**SPEC, "budget": budget}))
    assert study["state_reason"] == "budget: total_epochs"
    assert all(trial["origin"] == "sampler" for trial in server.trials(study["id"]))
    front = server.get(f"/v1/studies/{study['id']}/front")
    assert front["unconfirmed"] == "the study ended before: budget: total_epochs"
    for point in front["points"]:
        assert point["seeds"] == 1
        assert point["quality_interval"] is None
        assert point["quality_mean"] == point["values"]["quality"]
        assert point["on_front_by_mean"] is True


def test_the_page_and_the_table_tell_of_the_seeds(server: Server, study: dict[str, Any]) -> None:
    points = server.get(f"/v1/studies/{study['id']}/front")["points"]
    page = server.http.get(f"/studies/{study['id']}").text
    assert page.count("over 3 seeds") == len(points)
    assert page.count("not on the front by its mean") == sum(
        not point["on_front_by_mean"] for point in points
    )
    text = server.http.get(f"/v1/studies/{study['id']}/front", params={"format": "csv"}).text
    rows = list(csv.DictReader(io.StringIO(text)))
    for row, point in zip(rows, points, strict=True):
        assert float(row["quality_mean"]) == point["quality_mean"]
        assert [float(row["quality_low"]), float(row["quality_high"])] == point["quality_interval"]
        assert (row["seeds"], row["on_front_by_mean"]) == ("3", str(point["on_front_by_mean"]))
