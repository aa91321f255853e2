"""API, coordinator and agent die at each point where half of what they do is known elsewhere.

One server runs all; see `tests.service.dying_server` for the points.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from storage.engine import Database
from tests.chaos.audit import audit_fleet, audit_folders, audit_study
from tests.service.dying_server import BETWEEN, POINT_FILE, POINTS
from tests.service.running import Server, wait_until

TRIALS = 4
pytestmark = pytest.mark.slow

SPEC: dict[str, Any] = {
    "task": {"kind": "digits"},
    "architectures": ["rnn"],
    "parametrizations": ["dense", "low_rank"],
    "space": {"hidden_size": {"low": 4, "high": 16}, "batch_size": 256},
    "objectives": ["quality", "parameters"],
    "sampler": {"kind": "random"},
    "budget": {"trials": TRIALS, "epochs": 3},
}


@dataclass
class Crashed:
    """What became of a study in which somebody died."""

    study: str
    state: str
    died: bool
    trials: list[dict[str, Any]]
    outcomes: dict[str, int]


def answer(server: Server, path: str) -> Any:
    """A document, as soon as an API lives that gives it."""

    def asked() -> Any:
        with suppress(httpx2.TransportError):
            given = server.http.get(path)
            return given.json() if given.status_code == 200 else None
        return None

    return wait_until(asked, what=f"an answer to {path}; log {server.log}")


def ended(server: Server, study_id: str) -> str:
    def state() -> str | None:
        now = str(answer(server, f"/v1/studies/{study_id}")["state"])
        return now if now in ("finished", "failed", "cancelled") else None

    return str(wait_until(state, what=f"the end of {study_id}; log {server.log}", pause=0.15))


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Crashed]]:
    folder = tmp_path_factory.mktemp("points")
    file = folder / "point"
    server = Server(
        folder / "data",
        workers=1,
        environment={POINT_FILE: str(file)},
        program="tests.service.dying_server",
    )
    found: dict[str, Crashed] = {}
    fronts: dict[str, Any] = {}
    try:
        server.start()
        for seed, point in enumerate(POINTS):
            study_id = server.submit({**SPEC, "seed": seed})
            # What runs from then on is trials, with some of them still to be asked for.
            trials_path = f"/v1/studies/{study_id}/trials"
            wait_until(lambda path=trials_path: answer(server, path)["items"], what="a trial")
            file.write_text(point)
            state = ended(server, study_id)
            trials = answer(server, trials_path)["items"]
            fronts[study_id] = answer(server, f"/v1/studies/{study_id}/front")
            found[point] = Crashed(study_id, state, not file.exists(), trials, {})
            file.unlink(missing_ok=True)
        assert server.stop() == 0
        database = Database(f"sqlite:///{server.data_dir / 'reflectory.db'}")
        optuna = f"sqlite:///{server.data_dir / 'optuna.db'}"
        for one in found.values():
            one.outcomes = dict(audit_study(database, optuna, one.study, fronts[one.study]))
        audit_fleet(database)
        audit_folders(server.data_dir)
        database.dispose()
        yield found
    finally:
        server.close()


@pytest.mark.parametrize("point", POINTS)
def test_a_process_that_dies_at_a_point_loses_and_doubles_nothing(
    crashed: dict[str, Crashed], point: str
) -> None:
    one = crashed[point]
    assert one.died, "nobody came to that point"
    assert (one.state, one.outcomes) == ("finished", {"complete": TRIALS})


@pytest.mark.parametrize("point", [*[p for p in POINTS if p.endswith("not answered")], BETWEEN])
def test_what_was_taken_is_not_done_again(crashed: dict[str, Crashed], point: str) -> None:
    """The API's death costs no attempt, and neither does that of an agent whose work was taken."""
    attempts = [[a["state"] for a in trial["attempts"]] for trial in crashed[point].trials]
    assert attempts == [["ended"]] * TRIALS
