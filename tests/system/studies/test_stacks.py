"""Trials that a slot trains in the same calls: what users see is what they see of trials alone."""

import signal
from collections.abc import Generator, Mapping, Sequence
from datetime import datetime
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.service.running import Server, wait_until

_EPOCHS = 3
_SPEC: Mapping[str, Any] = {
    "task": {"kind": "digits", "layout": "rows"},
    "architectures": ["gru"],
    "parametrizations": ["low_rank"],
    "objectives": ["quality", "parameters"],
    "sampler": {"kind": "grid"},
    "space": {
        "hidden_size": 16,
        "d": {"options": [2, 5]},
        "learning_rate": {"options": [0.002, 0.01]},
        "batch_size": 64,
    },
    "budget": {"trials": 4, "epochs": _EPOCHS},
}
"""Four trials that are drawn in one order, whatever else happens."""
_ROUNDING = 2e-3
"""How far the losses of some 70 steps may be apart, as a share: sums are added in another order."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    folder: Path = tmp_path_factory.mktemp("stacks")
    running = Server(folder / "data", workers=1)
    try:
        yield running.start()
    finally:
        running.close()


@pytest.fixture(scope="module")
def together(server: Server) -> Sequence[Mapping[str, Any]]:
    return _trials(server, {"stack": 4})


def _trials(server: Server, resources: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    study_id = server.submit({**_SPEC, "resources": resources})
    assert server.wait(study_id)["state"] == "finished"
    trials = [
        {**trial, "curve": server.curve(study_id, trial["number"])}
        for trial in server.trials(study_id)
    ]
    return sorted(trials, key=lambda trial: trial["number"])


def _spans(trials: Sequence[Mapping[str, Any]]) -> list[tuple[datetime, datetime]]:
    return [_span(attempt) for trial in trials for attempt in trial["attempts"]]


def _span(attempt: Mapping[str, Any]) -> tuple[datetime, datetime]:
    began, ended = (datetime.fromisoformat(attempt[name]) for name in ("started_at", "ended_at"))
    return began, ended


def test_trials_of_one_size_train_together_on_one_slot(
    together: Sequence[Mapping[str, Any]],
) -> None:
    assert [trial["outcome"] for trial in together] == ["complete"] * 4
    assert {attempt["slot"] for trial in together for attempt in trial["attempts"]} == {
        together[0]["attempts"][0]["slot"]
    }
    pairs = list(combinations(_spans(together), 2))
    assert any(a[0] < b[1] and b[0] < a[1] for a, b in pairs)


def test_their_numbers_are_those_of_trials_alone(
    server: Server, together: Sequence[Mapping[str, Any]]
) -> None:
    alone = _trials(server, {"stack": 1})
    for one, other in zip(alone, together, strict=True):
        assert one["hyperparameters"] == other["hyperparameters"]
        assert [row["epoch"] for row in one["curve"]] == [row["epoch"] for row in other["curve"]]
        for row, beside in zip(one["curve"], other["curve"], strict=True):
            assert beside["train_loss"] == pytest.approx(row["train_loss"], rel=_ROUNDING)
            assert beside["validation"] == pytest.approx(row["validation"], abs=0.02)


def test_a_share_of_the_slot_counts_for_each(
    server: Server, together: Sequence[Mapping[str, Any]]
) -> None:
    spans = _spans(together)
    whole = (max(end for _, end in spans) - min(begin for begin, _ in spans)).total_seconds()
    study_id = together[0]["links"]["trial"].split("/")[3]
    used = 3600 * server.study(study_id)["progress"]["device_hours"]
    # Beside the trials the data were prepared.
    assert 0 < used <= whole + 5
    seconds = sum(row["seconds"] for trial in together for row in trial["curve"])
    assert seconds <= whole


def test_suggestions_come_in_series_of_one_size(server: Server) -> None:
    study_id = server.submit(
        {
            **_SPEC,
            "sampler": {"kind": "random"},
            "space": {"hidden_size": {"low": 8, "high": 64}, "batch_size": 64},
            "budget": {"trials": 12, "epochs": 1},
            "resources": {"stack": 4},
        }
    )
    assert server.wait(study_id)["state"] == "finished"
    trials = sorted(server.trials(study_id), key=lambda trial: trial["number"])
    drawn = [trial["hyperparameters"] for trial in trials]
    sizes = [one["gru.hidden_size"] for one in drawn]
    assert [len(set(sizes[first : first + 4])) for first in (0, 4, 8)] == [1, 1, 1]
    assert sizes[0] != sizes[4]
    assert len({one["training.learning_rate"] for one in drawn}) == 12


@pytest.mark.parametrize("stack", [0, 65, "all", 2.5])
def test_other_stacks_are_refused_by_name(server: Server, stack: object) -> None:
    with pytest.raises(AssertionError, match=r"resources\.stack|resources.*stack"):
        server.submit({**_SPEC, "resources": {"stack": stack}})


@pytest.mark.slow
def test_those_of_a_process_that_broke_down_are_trained_apart_from_then_on(server: Server) -> None:
    """Whose doing it was is not known, and one of them may do it again."""
    spec = {**_SPEC, "budget": {"trials": 4, "epochs": 150}, "resources": {"stack": 4}}
    study_id = server.submit(spec)
    wait_until(
        lambda: (
            [bool(server.curve(study_id, trial["number"])) for trial in server.trials(study_id)]
            == [True] * 4
        ),
        what="an epoch of four trials",
    )
    for process in server.workers_at_work():
        process.send_signal(signal.SIGSEGV)
    assert server.wait(study_id)["state"] == "finished"
    trials = server.trials(study_id)
    assert [trial["outcome"] for trial in trials] == ["complete"] * 4
    states = [[one["state"] for one in trial["attempts"]] for trial in trials]
    assert states == [["lost", "ended"]] * 4
    again = sorted(_span(trial["attempts"][1]) for trial in trials)
    assert all(first[1] <= second[0] for first, second in pairwise(again))
