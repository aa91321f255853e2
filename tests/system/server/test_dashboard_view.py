"""A real study in Optuna's dashboard: our plots, a link to our page, outcomes, after losses too."""

import json
import re
from typing import Any

import pytest

from search.sampling.dashboard_plots import PARETO, RATIO
from tests.service.running import Server, wait_until
from tests.service.site import SMALL_SPEC

SPEC: dict[str, Any] = {
    **SMALL_SPEC,
    "space": {"hidden_size": {"options": [8, 16]}, "batch_size": 64},
    "sampler": {"kind": "random"},
    "budget": {"trials": 3, "epochs": 1},
    "duplicates": "replicate",
    # No dense model is that small, and some of low rank are.
    "limits": {"parameters": 300},
}


def shown(server: Server, study_id: str) -> dict[str, Any]:
    """The study as the dashboard's own page gets it."""

    def there() -> list[int]:
        answer = server.http.get("/api/studies")
        found = answer.json()["study_summaries"] if answer.status_code == 200 else []
        return [one["study_id"] for one in found if study_id in one["study_name"]]

    (number,) = wait_until(there, what="the study in the dashboard")
    return server.get(f"/api/studies/{number}")


def plots(study: dict[str, Any]) -> dict[str, Any]:
    return {plot["id"]: json.loads(plot["graph_object"]) for plot in study["plotly_graph_objects"]}


def assert_shown(server: Server, study_id: str) -> None:
    study = shown(server, study_id)
    front = server.get(f"/v1/studies/{study_id}/front")["points"]
    found = plots(study)
    over_throughput = f"{PARETO}-throughput"
    assert set(found) == {PARETO, over_throughput, RATIO}
    for name, cost in ((PARETO, "parameters"), (over_throughput, "throughput")):
        for axis, value in (("x", cost), ("y", "quality")):
            drawn = found[name]["data"][1][axis]
            expected = [point["values"][value] for point in front]
            assert drawn == pytest.approx(expected, rel=1e-4)
    ratios = [point["throughput_ratio"] for point in front]
    assert found[RATIO]["data"][1]["y"] == pytest.approx(ratios, rel=1e-4)
    (link,) = re.findall(r"\]\((/[^)]*)\)", study["note"]["body"])
    assert server.http.get(link).status_code == 200
    assert study["objective_names"] == ["accuracy", "parameters", "throughput"]
    # Optuna was told how every trial ended before the study did.
    assert {each["state"] for each in study["trials"]} <= {"Complete", "Pruned"}
    refused = [one for one in server.trials(study_id) if one["outcome"] == "infeasible"]
    assert refused
    for one in refused:
        theirs = study["trials"][one["number"]]
        attributes = {each["key"]: each["value"] for each in theirs["user_attrs"]}
        assert (theirs["state"], attributes["outcome"]) == ("Pruned", "infeasible")
        assert attributes["reason"] == one["reason"]
        assert theirs["constraints"][0] > 0


def test_the_dashboard_shows_our_plots_our_page_and_what_became_of_trials(server: Server) -> None:
    study_id = server.submit(SPEC)
    assert server.wait(study_id)["state"] == "finished"
    assert_shown(server, study_id)


def test_what_is_shown_comes_back_when_optunas_tables_are_lost(server: Server) -> None:
    study_id = server.submit(SPEC)
    server.wait(study_id)
    server.kill_everything()
    for file in server.data_dir.glob("optuna.db*"):
        file.unlink()
    server.start()
    grown = server.http.patch(f"/v1/studies/{study_id}", json={"budget": {"trials": 4}})
    assert grown.status_code == 200
    server.wait(study_id)
    assert_shown(server, study_id)
