"""The coordinator dies between Optuna and our rows, at each of the points there are.

And is started again.

API, coordinator, fork server, workers and both databases are the real ones.
"""

import sqlite3
from collections.abc import Generator
from contextlib import closing

import optuna
import pytest

from storage.records import TrialState
from storage.repositories.exchanges import Exchanges
from storage.repositories.trials import Trials
from tests.search.coordinating import Site, break_off, finish

TRIALS = 4
SPEC = {
    "task": {"kind": "digits"},
    "architectures": ["rnn"],
    "parametrizations": ["dense", "low_rank"],
    "space": {"rnn.hidden_size": {"low": 8, "high": 16}},
    "objectives": ["quality", "parameters"],
    "budget": {"trials": TRIALS, "epochs": 1},
    "sampler": {"kind": "tpe", "startup_trials": 2},
}

PRESETS_SPEC = {
    **SPEC,
    "parametrizations": ["dense"],
    "presets": ["rnn-32", "svd-rnn-32-16"],
    "space": {
        "rnn.hidden_size": {"low": 8, "high": 32},
        "rnn.activation": "leaky_relu",
        "learning_rate": {"low": 1e-4, "high": 1e-2, "log": True},
        "batch_size": {"options": [16, 64]},
        "epoch_updates": 50,
    },
}
"""The first preset lies in the space, the second does not."""

IN_THE_SPACE = {
    "rnn.hidden_size": 32,
    "training.learning_rate": 3e-3,
    "training.batch_size": 16,
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Generator[Site]:
    """One for all tests: each begins its study when that of the one before has ended."""
    made = Site(tmp_path_factory.mktemp("crash"))
    yield made
    made.close()


def assert_whole(site: Site, study_id: str) -> list[dict]:
    """Each trial is there once, ended once, told once; Optuna has the same ones."""
    with site.database.read() as session:
        trials = Trials(session).list(study_id)
        exchanges = Exchanges(session).list(study_id)
    assert [trial.number for trial in trials] == list(range(TRIALS))
    assert {trial.state for trial in trials} == {TrialState.COMPLETE}
    for kind in ("ask", "tell"):
        assert sorted(row.trial for row in exchanges if row.kind == kind) == list(range(TRIALS))
    mirrored = optuna.load_study(
        study_name=f"study [{study_id}]", storage=f"sqlite:///{site.folder / 'optuna.db'}"
    )
    assert len(mirrored.trials) == TRIALS
    for ours, theirs in zip(trials, mirrored.trials, strict=True):
        assert theirs.state == optuna.trial.TrialState.COMPLETE
        assert theirs.params == ours.drawn
        assert theirs.values == [ours.quality, float(ours.parameters)]
    return [dict(trial.drawn) for trial in trials]


@pytest.fixture(scope="module")
def unbroken(site: Site) -> list[dict]:
    """What the same study draws when nobody dies."""
    study_id = site.http.post("/v1/studies", json=SPEC).json()["id"]
    finish(site, study_id)
    return assert_whole(site, study_id)


@pytest.mark.parametrize(
    "point",
    [
        "asked",
        pytest.param("given", marks=pytest.mark.slow),
        pytest.param("ended", marks=pytest.mark.slow),
        "told",
    ],
)
def test_a_coordinator_that_dies_between_optuna_and_our_rows_loses_nothing(
    site: Site, unbroken: list[dict], point: str
) -> None:
    study_id = site.http.post("/v1/studies", json=SPEC).json()["id"]
    break_off(site, point, 2)
    finish(site, study_id)
    drawn = assert_whole(site, study_id)
    # What was asked before the death is the same.
    assert drawn[:3] == unbroken[:3]


def test_a_study_survives_the_loss_of_optunas_tables(site: Site) -> None:
    study_id = site.http.post("/v1/studies", json=SPEC).json()["id"]
    break_off(site, "told", 2)
    for file in site.folder.glob("optuna.db*"):
        file.unlink()
    finish(site, study_id)
    assert_whole(site, study_id)


@pytest.mark.slow
def test_a_study_survives_the_loss_of_what_its_own_tables_knew_last(site: Site) -> None:
    """They are set back to when trials were open of which Optuna has been told since."""
    study_id = site.http.post("/v1/studies", json=SPEC).json()["id"]
    # The first: on a busy machine all have ended before Optuna is told of the third.
    break_off(site, "told", 0)
    ours, before = site.folder / "reflectory.db", site.folder / "before.db"
    with closing(sqlite3.connect(ours)) as now, closing(sqlite3.connect(before)) as kept:
        now.backup(kept)
    finish(site, study_id)
    with (
        closing(sqlite3.connect(ours, timeout=600)) as now,
        closing(sqlite3.connect(before)) as old,
    ):
        old.backup(now)
    with site.database.read() as session:
        trials = Trials(session).list(study_id)
    assert not all(trial.state.has_ended for trial in trials) or len(trials) < TRIALS
    finish(site, study_id)
    assert_whole(site, study_id)


@pytest.mark.parametrize(
    ("point", "number"), [pytest.param("given", 0, marks=pytest.mark.slow), ("asked", 1)]
)
def test_presets_come_first_whenever_the_coordinator_dies(
    site: Site, point: str, number: int
) -> None:
    study_id = site.http.post("/v1/studies", json=PRESETS_SPEC).json()["id"]
    break_off(site, point, number)
    finish(site, study_id)
    drawn = assert_whole(site, study_id)
    assert drawn[:2] == [IN_THE_SPACE, {}]
    assert_presets_are_noted(site, study_id)


def test_presets_survive_the_loss_of_optunas_tables(site: Site) -> None:
    study_id = site.http.post("/v1/studies", json=PRESETS_SPEC).json()["id"]
    break_off(site, "told", 2)
    for file in site.folder.glob("optuna.db*"):
        file.unlink()
    finish(site, study_id)
    assert assert_whole(site, study_id)[:2] == [IN_THE_SPACE, {}]
    assert_presets_are_noted(site, study_id)


def assert_presets_are_noted(site: Site, study_id: str) -> None:
    """The dashboard tells both presets, and shows all of their configurations."""
    mirrored = optuna.load_study(
        study_name=f"study [{study_id}]", storage=f"sqlite:///{site.folder / 'optuna.db'}"
    )
    inside, outside, *others = (trial.user_attrs for trial in mirrored.trials)
    assert inside["preset"] == "rnn-32"
    assert inside["training.epoch_updates"] == 50
    assert outside["preset"] == "svd-rnn-32-16"
    assert outside["rnn.hidden_size"] == 32
    assert outside["householder_svd.m1"] == 16
    assert all("preset" not in attributes for attributes in others)
