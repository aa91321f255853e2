"""What stays of trials that ended: rows by the study's policy, bytes while a row names them."""

import io
import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from search.fronts.retention import Retention
from search.running.attempts import AttemptHandler
from search.studies.named_trials import NamedTrial, enqueue
from storage.blobs.artifacts import store_stream
from storage.blobs.folder import LocalArtifactStore
from storage.errors import ArtifactNotFound
from storage.records import ArtifactRecord, StudyRecord, TrialState
from storage.repositories.artifact_rows import ArtifactRows
from storage.repositories.commands import Commands
from storage.repositories.trials import Trials
from tests.search.honest_words import files
from tests.service.site import Site, sha256

OBJECTIVES = {"objectives": ["quality", "parameters"]}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path / "data")
    yield site
    site.close()


@pytest.fixture
def retention(site: Site) -> Retention:
    return Retention(site.database, site.store)


def link(site: Site, study: StudyRecord, number: int, role: str, content: bytes) -> ArtifactRecord:
    artifact = site.keep(content)
    with site.database.write() as session:
        ArtifactRows(session).link(study.id, number, role, artifact)
    return artifact


def roles(site: Site, study: StudyRecord) -> dict[int, list[str]]:
    with site.database.read() as session:
        return {row.number: sorted(row.artifacts) for row in Trials(session).list(study.id)}


def stored(site: Site) -> set[str]:
    return set(site.store.digests())


def named(site: Site) -> set[str]:
    with site.database.read() as session:
        return set(ArtifactRows(session).digests())


def four_trials(site: Site, **retention: object) -> StudyRecord:
    """Quality and size: 0 and 3 are the front; 1 is the second best; 2 is the worst."""
    changes: dict[str, Any] = {**OBJECTIVES, "retention": retention}
    study = site.study(**changes)
    site.run(study)
    for number, (quality, size) in enumerate([(0.9, 500), (0.8, 600), (0.2, 900), (0.5, 100)]):
        site.trial(study, number, quality=quality, parameters=size)
        # Equal models have equal bytes; these are each its own.
        link(site, study, number, "checkpoint", f"checkpoint of {number}".encode())
    return study


def test_the_state_to_resume_from_goes_with_the_end_of_its_trial(site, retention) -> None:
    study = site.study()
    site.run(study)
    for number, state in enumerate([TrialState.RUNNING, *(s for s in TrialState if s.has_ended)]):
        site.trial(study, number, state=state, quality=0.5)
        link(site, study, number, "resume", f"state {number}".encode())
    assert retention.tidy() == sum(state.has_ended for state in TrialState)
    assert [number for number, has in roles(site, study).items() if "resume" in has] == [0]
    assert sha256(b"state 0") in stored(site)
    assert sha256(b"state 1") not in stored(site)
    assert stored(site) == named(site)
    assert retention.tidy() == 0


@pytest.mark.parametrize(
    ("policy", "kept"),
    [
        ({}, [0, 1, 2, 3]),
        ({"keep": "all", "top": 1}, [0, 1, 2, 3]),
        ({"keep": "front"}, [0, 3]),
        ({"keep": "front", "top": 2}, [0, 1, 3]),
        ({"keep": "none"}, []),
        ({"keep": "none", "top": 2}, [0, 1]),
    ],
)
def test_checkpoints_stay_by_the_policy_and_reports_always(site, retention, policy, kept) -> None:
    study = four_trials(site, **policy)
    for number in range(4):
        link(site, study, number, "onnx", f"exported {number}".encode())
    retention.tidy()
    for number, has in roles(site, study).items():
        assert has == (["checkpoint", "onnx", "report"] if number in kept else ["report"])
        assert (sha256(f"checkpoint of {number}".encode()) in stored(site)) == (number in kept)
        assert (sha256(f"exported {number}".encode()) in stored(site)) == (number in kept)
    assert named(site) <= stored(site)


def test_a_later_trial_pushes_an_earlier_one_off_the_front(site, retention) -> None:
    study = four_trials(site, keep="front")
    retention.tidy()
    site.trial(study, 4, quality=0.95, parameters=50)
    retention.tidy()
    kept = [number for number, has in roles(site, study).items() if "checkpoint" in has]
    assert kept == [4]


def test_a_study_that_has_ended_is_tidied_by_the_first_look_of_a_new_process(site) -> None:
    study = four_trials(site, keep="none")
    site.finish(study)
    Retention(site.database, site.store).tidy()
    assert all(has == ["report"] for has in roles(site, study).values())


def test_a_study_that_began_and_ended_between_two_looks_is_tidied(site, retention) -> None:
    retention.tidy()
    study = four_trials(site, keep="none")
    site.finish(study)
    assert retention.tidy() == 4
    assert retention.tidy() == 0


def test_a_checkpoint_stays_while_somebody_is_to_go_on_from_it(site, retention) -> None:
    study = four_trials(site, keep="none")
    site.trial(study, 4, state=TrialState.STOPPED)
    link(site, study, 4, "checkpoint", b"checkpoint of 4")
    command = enqueue(site.database, study.id, NamedTrial(continues=2))
    retention.tidy()
    has = [number for number, kept in roles(site, study).items() if "checkpoint" in kept]
    assert has == [2, 4]
    site.trial(study, 5, state=TrialState.QUEUED, continues=2)
    with site.database.write() as session:
        Commands(session).answer(command.id, 5)
    site.finish(study)
    retention.tidy()
    assert "checkpoint" in roles(site, study)[2]
    with site.database.write() as session:
        Trials(session).end(study.id, 5, state=TrialState.FAILED, at=datetime.now(UTC))
    Retention(site.database, site.store).tidy()
    assert "checkpoint" not in roles(site, study)[2]


def test_bytes_that_another_row_names_stay(site, retention) -> None:
    study = four_trials(site, keep="front")
    link(site, study, 2, "checkpoint", b"checkpoint of 0")
    retention.tidy()
    assert roles(site, study)[2] == ["report"]
    assert sha256(b"checkpoint of 0") in stored(site)


def test_young_bytes_without_a_row_are_left_to_whoever_is_about_to_name_them(
    site, retention
) -> None:
    old, young = site.keep(b"old"), site.keep(b"young")
    path = site.settings.artifacts_dir / old.sha256[:2] / old.sha256
    hours_ago = time.time() - 2 * 3600
    os.utime(path, (hours_ago, hours_ago))
    assert retention.sweep() == 1
    assert stored(site) == {young.sha256}
    assert retention.sweep(older_than_seconds=0.0) == 1
    assert stored(site) == set()


class _SweptInBetween(LocalArtifactStore):
    """Bytes are swept between the moment they are stored and the moment they are named."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.sweeper: Retention | None = None

    def write(self, artifact_id: str, content_body: BinaryIO) -> None:
        super().write(artifact_id, content_body)
        if self.sweeper is not None:
            sweeper, self.sweeper = self.sweeper, None
            assert sweeper.sweep(older_than_seconds=0.0) == 1


def test_bytes_that_were_swept_before_they_were_named_are_stored_again(site) -> None:
    study = site.study()
    site.run(study)
    site.trial(study, 0, state=TrialState.RUNNING)
    lease = site.lease(study, 0)
    store = _SweptInBetween(site.settings.artifacts_dir)
    store.sweeper = Retention(site.database, store)
    handler = AttemptHandler(site.database, store, lease_seconds=30)
    content = files(lease.job)["checkpoint"]
    given = io.BytesIO(content)
    said = handler.store_artifact(lease.attempt, lease.token, "checkpoint", given, sha256=None)
    assert store.sweeper is None, "nothing was swept"
    with site.store.open_reader(said.sha256) as reader:
        assert reader.read() == content


def test_what_is_dropped_cannot_be_had_any_more(site, retention) -> None:
    artifact = store_stream(site.store, io.BytesIO(b"gone"), datetime.now(UTC))
    retention.sweep(older_than_seconds=0.0)
    with pytest.raises(ArtifactNotFound):
        site.store.open_reader(artifact.sha256)


def test_what_an_unmeasured_trial_dominates_stays_until_it_is_known_to_be_fast_enough(
    site, retention
) -> None:
    limits = {"min_throughput_ratio": 1.0}
    study = site.study(**OBJECTIVES, limits=limits, retention={"keep": "front"})
    site.run(study)
    # 0 is not measured; 1 and 2 are, and 2 is worse than 1 in everything.
    for number, (quality, size) in enumerate([(0.9, 500), (0.8, 600), (0.7, 700)]):
        speed = {} if number == 0 else {"throughput": 100.0, "ratio": 2.0}
        site.trial(study, number, quality=quality, parameters=size, **speed)
        link(site, study, number, "checkpoint", f"checkpoint of {number}".encode())
    retention.tidy()
    kept = {number for number, found in roles(site, study).items() if "checkpoint" in found}
    assert kept == {0, 1}
