"""Trials that users name over HTTP: their own configurations, and those that go on from others."""

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from models.checkpoint import load
from service.client import Client, Refused
from storage.engine import Database
from storage.repositories.exchanges import Exchanges
from storage.repositories.trials import Trials
from tests.service.running import Server, wait_until

SPACE: dict[str, Any] = {"hidden_size": {"low": 8, "high": 24}, "batch_size": 32}
DENSE: dict[str, Any] = {
    "task": {"kind": "digits"},
    "architectures": ["rnn"],
    "parametrizations": ["dense"],
    "space": SPACE,
    "objectives": ["quality", "parameters"],
    "sampler": {"kind": "random"},
    "seed": 5,
}
SMALL: dict[str, Any] = {
    **DENSE,
    "parametrizations": ["dense", "low_rank"],
    "space": {**SPACE, "low_rank.d": {"options": [2, 4]}},
}
NAMED: dict[str, Any] = {
    "architecture": "rnn",
    "parametrization": "low_rank",
    "hyperparameters": {"rnn.hidden_size": 12, "d": 4, "training.batch_size": 32},
}


def post(server: Server, study_id: str, body: Any, key: str | None = None) -> httpx2.Response:
    headers = {} if key is None else {"Idempotency-Key": key}
    return server.http.post(f"/v1/studies/{study_id}/trials", json=body, headers=headers)


def entered(server: Server, study_id: str, body: Any, key: str | None = None) -> int:
    """The number of the trial that is asked for: of a busy server, not with the first answer."""
    key = key or uuid4().hex

    def answer_with_its_number() -> httpx2.Response | None:
        answer = post(server, study_id, body, key=key)
        assert answer.status_code == 202, answer.text
        return answer if answer.json()["number"] is not None else None

    answer = wait_until(answer_with_its_number, what="the trial's number")
    assert answer.headers["location"] == answer.json()["links"]["trial"]
    number: int = answer.json()["number"]
    return number


def begun(server: Server, study_id: str) -> list[int]:
    """Trials by when they were begun."""
    trials = [trial for trial in server.trials(study_id) if trial["started_at"] is not None]
    return [trial["number"] for trial in sorted(trials, key=lambda one: one["started_at"])]


@pytest.mark.slow
def test_a_named_trial_overtakes_what_waits_and_counts_in_the_budget(server: Server) -> None:
    # Long enough that what waits still does when the named one is entered.
    study_id = server.submit({**SMALL, "budget": {"trials": 8, "epochs": 40}})

    def behind_full_slots() -> list[int]:
        outcomes = {trial["number"]: trial["outcome"] for trial in server.trials(study_id)}
        full = list(outcomes.values()).count("running") == 2
        return [number for number, outcome in outcomes.items() if full and outcome == "queued"]

    waiting = wait_until(behind_full_slots, what="suggestions that wait")
    number = entered(server, study_id, NAMED)
    assert number > max(waiting)
    study = server.wait(study_id)
    assert study["state"] == "finished"
    assert study["progress"]["trials"]["complete"] == 8
    order = begun(server, study_id)
    overtaken = [one for one in order[order.index(number) :] if one < number]
    assert overtaken, order
    trial = server.get(f"/v1/studies/{study_id}/trials/{number}")
    assert (trial["origin"], trial["outcome"]) == ("user", "complete")
    assert trial["hyperparameters"]["rnn.hidden_size"] == 12
    assert trial["hyperparameters"]["low_rank.d"] == 4
    # What was left out is drawn.
    assert 3e-4 <= trial["hyperparameters"]["training.learning_rate"] <= 3e-2
    assert trial["spec"]["model"]["architecture"]["hidden_size"] == 12


def test_a_finished_study_runs_on_for_a_named_trial_once_per_key(server: Server) -> None:
    study_id = server.submit({**SMALL, "budget": {"trials": 2, "epochs": 1}})
    server.wait(study_id)
    assert [entered(server, study_id, NAMED, key="mine") for _ in range(2)] == [2, 2]
    study = server.wait(study_id)
    assert study["progress"]["trials"]["complete"] == 3
    other = post(server, study_id, {**NAMED, "hyperparameters": {}}, key="mine")
    assert other.status_code == 422
    assert other.json()["errors"][0]["path"] == "Idempotency-Key"
    assert entered(server, study_id, NAMED, key="mine") == 2
    assert server.study(study_id)["state"] == "finished"


def test_a_repeated_configuration_and_one_over_a_limit_end_as_the_studys_rules_say(
    server: Server,
) -> None:
    limited = {"limits": {"parameters": 700}, "budget": {"trials": 1, "epochs": 2}}
    study_id = server.submit({**DENSE, **limited})
    server.wait(study_id)
    fixed = {"rnn.hidden_size": 10, "training.learning_rate": 0.003}
    own = {**NAMED, "parametrization": "dense", "hyperparameters": fixed}
    first, again = (entered(server, study_id, own) for _ in range(2))
    big = {**own, "hyperparameters": {**fixed, "rnn.hidden_size": 24}}
    refused = entered(server, study_id, big)
    server.wait(study_id)
    trials = {trial["number"]: trial for trial in server.trials(study_id)}
    assert trials[first]["outcome"] == "complete"
    assert (trials[again]["outcome"], trials[again]["repeats"]) == ("complete", first)
    assert trials[again]["attempts"] == []
    assert trials[refused]["outcome"] == "infeasible"
    assert "over the limit of 700" in trials[refused]["reason"]


def test_what_does_not_lie_in_the_space_is_refused_with_its_path(server: Server) -> None:
    study_id = server.submit({**SMALL, "budget": {"trials": 1, "epochs": 1}})
    path = "hyperparameters.rnn.hidden_size"
    for change, where, words in (
        ({"architecture": "gru"}, "architecture", "rnn with dense, rnn with low_rank"),
        ({"parametrization": "householder"}, "parametrization", "no candidate"),
        ({"architecture": None}, "architecture", "required"),
        ({"architecture": "perceptron"}, "architecture", "perceptron"),
        ({"hyperparameters": {"rnn.hidden_size": 25}}, path, '"low":8,"high":24'),
        ({"hyperparameters": {"rnn.hidden_size": None}}, path, "None"),
        ({"hyperparameters": {"colour": 1}}, "hyperparameters.colour", "rnn.hidden_size"),
        ({"hyperparameters": {"low_rank.d": 3}}, "hyperparameters.low_rank.d", "[2,4]"),
        ({"hyperparameters": {"batch_size": 64}}, "hyperparameters.batch_size", "32"),
        ({"hyperparameters": {"d": 2, "m1": 1}}, "hyperparameters.m1", "no 'm1'"),
        ({"colour": 1}, "colour", "allowed are"),
        ({"continues": 0}, "continues", "architecture"),
    ):
        answer = post(server, study_id, {**NAMED, **change})
        assert answer.status_code == 422, (change, answer.text)
        assert [fault["path"] for fault in answer.json()["errors"]] == [where], answer.text
        assert words in answer.text.replace("\\", ""), answer.text
    two = {"rnn.hidden_size": 7, "low_rank.d": 3}
    answer = post(server, study_id, {**NAMED, "hyperparameters": two})
    assert len(answer.json()["errors"]) == 2
    server.wait(study_id)
    assert len(server.trials(study_id)) == 1


def test_a_study_that_is_over_takes_no_trial(server: Server) -> None:
    assert post(server, "nothing", NAMED).status_code == 404
    study_id = server.submit({**SMALL, "budget": {"trials": 2, "epochs": 5000}})
    server.http.post(f"/v1/studies/{study_id}/cancel")
    server.wait(study_id)
    assert post(server, study_id, NAMED).status_code == 409
    used_up = server.submit({**SMALL, "budget": {"trials": 50, "epochs": 2, "total_epochs": 2}})
    server.wait(used_up)
    answer = post(server, used_up, NAMED)
    assert answer.status_code == 409
    assert "budget: total_epochs" in answer.json()["detail"]


def test_a_held_study_takes_a_trial_and_begins_it_when_it_is_resumed(server: Server) -> None:
    study_id = server.submit({**SMALL, "budget": {"trials": 2, "epochs": 1}})
    server.http.post(f"/v1/studies/{study_id}/pause")
    number = entered(server, study_id, NAMED)
    assert server.study(study_id)["state"] in ("paused", "finished")
    server.http.post(f"/v1/studies/{study_id}/resume")
    server.wait(study_id)
    assert server.trials(study_id)[number]["outcome"] == "complete"


def continued_while_it_is_there(server: Server) -> tuple[str, int, dict[str, Any]]:
    """A study, the trial that continues its first one, and the first one as it was.

    Nothing is kept, so that the checkpoint is there for a moment, unless it is asked for meanwhile;
    where the machine was too busy for that another study is asked.
    """
    spec = {**DENSE, "retention": {"keep": "none"}, "budget": {"trials": 1, "epochs": 15}}
    while True:
        study_id = server.submit(spec)

        def has_its_trial(study_id: str = study_id) -> bool:
            study = server.study(study_id)
            return study["state"] == "finished" or study["progress"]["trials"]["complete"]

        wait_until(has_its_trial, what="the first trial")
        answer = post(server, study_id, {"continues": 0}, key="once")
        if answer.status_code != 409 or "has no checkpoint any more" not in answer.text:
            number = entered(server, study_id, {"continues": 0}, key="once")
            return study_id, number, server.trials(study_id)[0]


def test_a_trial_goes_on_from_anothers_checkpoint_and_leaves_it_as_it_was(server: Server) -> None:
    study_id, number, before = continued_while_it_is_there(server)
    server.wait(study_id)
    source, trial = server.trials(study_id)
    assert (trial["number"], trial["outcome"], trial["continues"]) == (number, "complete", 0)
    assert trial["origin"] == "user"
    assert trial["hyperparameters"] == source["hyperparameters"] == before["hyperparameters"]
    assert source["values"]["quality"] == before["values"]["quality"]
    assert source["epochs_trained"] == 15
    losses = [[row["train_loss"] for row in server.curve(study_id, n)] for n in (0, number)]
    assert len(losses[1]) == 15
    # The first epoch begins where the source ended, and far from where it began.
    assert abs(losses[1][0] - losses[0][-1]) < 0.2 * abs(losses[1][0] - losses[0][0])
    assert trial["values"]["quality"] >= source["values"]["quality"] - 0.02
    page = server.http.get(f"/studies/{study_id}").text
    assert "continues trial 0" in page
    table = server.http.get(f"/v1/studies/{study_id}/front", params={"format": "csv"}).text
    continues = {row["trial"]: row["continues"] for row in csv.DictReader(io.StringIO(table))}
    assert continues in ({"1": "0"}, {"0": "", "1": "0"}, {"0": ""})


def test_a_continued_checkpoint_tells_what_it_goes_on_from(server: Server, tmp_path: Path) -> None:
    study_id = server.submit({**SMALL, "budget": {"trials": 1, "epochs": 2}})
    server.wait(study_id)
    number = entered(server, study_id, {"continues": 0})
    # Not a second time trained: the same configuration of the search is.
    server.wait(study_id)
    content = server.http.get(f"/v1/studies/{study_id}/trials/{number}/checkpoint").content
    assert load(content).metadata["continues"] == "0"


def test_only_a_trial_with_a_checkpoint_can_be_continued(server: Server) -> None:
    spec = {**SMALL, "retention": {"keep": "none"}, "budget": {"trials": 1, "epochs": 1}}
    study_id = server.submit(spec)
    server.wait(study_id)
    wait_until(
        lambda: server.trials(study_id)[0]["links"]["checkpoint"] is None, what="the retention"
    )
    gone = post(server, study_id, {"continues": 0})
    assert gone.status_code == 409
    assert "no checkpoint" in gone.json()["detail"]
    assert post(server, study_id, {"continues": 7}).status_code == 404
    assert server.study(study_id)["state"] == "finished"


def test_the_client_and_the_command_line_enqueue(server: Server) -> None:
    study_id = server.submit({**SMALL, "budget": {"trials": 1, "epochs": 1}})
    server.wait(study_id)
    url = str(server.http.base_url).rstrip("/")
    with Client(url) as client:
        number = client.enqueue(study_id, "rnn", "dense", {"rnn.hidden_size": 9})
        assert client.continue_trial(study_id, 0) == number + 1
        with pytest.raises(Refused, match="hidden_size"):
            client.enqueue(study_id, "rnn", "dense", {"rnn.hidden_size": 1})
    words = ["enqueue", study_id, "--server", url, "--json"]
    candidate = ["--architecture", "rnn", "--parametrization", "low_rank"]
    ways = ([*candidate, "-p", "low_rank.d=2", "-p", "hidden_size=11"], ["--continues", "0"])
    told = [
        subprocess.run(
            [sys.executable, "-m", "service.cli", *words, *way],
            capture_output=True,
            check=True,
            text=True,
        )
        for way in ways
    ]
    assert [json.loads(one.stdout)["number"] for one in told] == [number + 2, number + 3]
    server.wait(study_id)
    trials = server.trials(study_id)
    assert [trial["outcome"] for trial in trials] == ["complete"] * 5
    assert trials[number + 2]["hyperparameters"]["rnn.hidden_size"] == 11
    assert [trial["continues"] for trial in trials] == [None, None, 0, None, 0]


def test_while_no_coordinator_answers_the_number_is_null_and_the_key_tells_it_later(
    server: Server,
) -> None:
    study_id = server.submit({**SMALL, "budget": {"trials": 1, "epochs": 1}})
    server.wait(study_id)
    with server.without_coordinator():
        answer = post(server, study_id, NAMED, key="late")
        assert answer.status_code == 202
        assert answer.json()["number"] is None
        assert answer.json()["links"]["trials"] == f"/v1/studies/{study_id}/trials"
        assert answer.headers["retry-after"] == "1"

    def number() -> int | None:
        return post(server, study_id, NAMED, key="late").json()["number"]

    assert wait_until(lambda: number() is not None, what="the next coordinator")
    assert number() == 1
    server.wait(study_id)
    database = Database(f"sqlite:///{server.data_dir / 'reflectory.db'}")
    with database.read() as session:
        assert len(Trials(session).list(study_id)) == 2
        asked = [row.trial for row in Exchanges(session).list(study_id) if row.kind == "ask"]
    database.dispose()
    assert asked == [0, 1]
    assert server.http.delete(f"/v1/studies/{study_id}").status_code == 204
