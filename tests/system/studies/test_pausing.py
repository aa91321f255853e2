"""A study that is paused for a while, and goes on."""

import time
from typing import Any

from tests.service.running import Server, wait_until

SPEC: dict[str, Any] = {
    "task": {"kind": "digits"},
    "architectures": ["rnn"],
    "parametrizations": ["dense"],
    "space": {"hidden_size": 8},
    "objectives": ["quality", "parameters"],
    "sampler": {"kind": "random"},
    "budget": {"trials": 1, "epochs": 5000},
}


def test_the_time_of_a_study_stands_while_it_is_paused(server: Server) -> None:
    study_id = server.submit(SPEC)

    def trains() -> bool:
        return any(trial["epochs_trained"] for trial in server.trials(study_id))

    def seconds() -> float:
        wall: float = server.study(study_id)["progress"]["wall_seconds"]
        return wall

    def attempts_at_work() -> int:
        (trial,) = server.trials(study_id)
        detail = server.http.get(f"/v1/studies/{study_id}/trials/{trial['number']}").json()
        return sum(attempt["ended_at"] is None for attempt in detail["attempts"])

    wait_until(trains, what="an epoch")
    server.http.post(f"/v1/studies/{study_id}/pause")
    wait_until(lambda: not attempts_at_work(), what="the end of the attempt")
    before = seconds()
    time.sleep(5)
    assert seconds() == before
    resumed = time.monotonic()
    server.http.post(f"/v1/studies/{study_id}/resume")
    wait_until(attempts_at_work, what="another attempt")
    wait_until(lambda: seconds() > before, what="time that is counted")
    assert seconds() - before <= time.monotonic() - resumed
    server.http.post(f"/v1/studies/{study_id}/cancel")
    server.wait(study_id)
