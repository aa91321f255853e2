"""Trials: stored as they came, ended once, told once, paged by number."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy.orm import Session

from storage.cursors import cursor_of
from storage.endings import StudyCause, TrialCause
from storage.engine import Database
from storage.errors import BadCursor, Conflict, NotFound
from storage.records import ArtifactRecord, StudyState, TrialOutcome, TrialState
from storage.repositories.artifact_rows import ArtifactRows
from storage.repositories.studies import Studies
from storage.repositories.trials import Trials
from tests.storage.records import START, add_study, add_trial, after, digest, measurement, trial

ENDS = [state for state in TrialState if state.has_ended]


def test_a_trial_comes_back_as_it_was_stored(database: Database) -> None:
    record = trial(
        "s",
        3,
        state=TrialState.INFEASIBLE,
        detail="1200 parameters, allowed are 1000",
        drawn={"r": 0.1, "kind": "gru", "tied": False, "none": None, "small": 5e-324},
        parameters=2**40,
        violation=200.0,
        finished_at=after(1.000001),
    )
    with database.write() as session:
        add_study(session, id="s")
        Trials(session).add(record)
    with database.read() as session:
        assert Trials(session).get("s", 3) == record


def test_a_number_is_used_once_per_study(database: Database) -> None:
    with database.write() as session:
        add_study(session, id="a")
        add_study(session, id="b")
        add_trial(session, "a", 0)
        add_trial(session, "b", 0)
        with pytest.raises(Conflict, match="'a' has a trial 0"):
            add_trial(session, "a", 0)


def test_a_trial_of_no_study_is_refused(database: Database) -> None:
    with pytest.raises(NotFound, match="'none'"), database.write() as session:
        add_trial(session, "none", 0)


@pytest.mark.parametrize("number", [1, -1, 2**31, 10**30])
def test_an_unknown_trial_is_not_found_by_any_method(database: Database, number: int) -> None:
    with database.write() as session:
        add_study(session, id="s")
        add_trial(session, "s", 0)
        trials = Trials(session)
        for call in (
            lambda: trials.get("s", number),
            lambda: trials.start("s", number, START),
            lambda: trials.set_epochs("s", number, 1),
            lambda: trials.set_throughput("s", number, measurement("s")),
            lambda: trials.end("s", number, state=TrialState.FAILED, at=START),
            lambda: trials.mark_told("s", number, START),
        ):
            with pytest.raises(NotFound, match=f"no trial {number}"):
                call()


def test_lists_and_pages_are_of_one_study_and_by_number(database: Database) -> None:
    with database.write() as session:
        for study_id in ("a", "b"):
            add_study(session, id=study_id)
            for number in (4, 0, 2, 1, 3):
                add_trial(session, study_id, number)
        trials = Trials(session)
        trials.start("a", 2, START)
        trials.start("a", 4, START)
        assert [record.number for record in trials.list("a")] == [0, 1, 2, 3, 4]
        assert [record.number for record in trials.list("a", TrialState.RUNNING)] == [2, 4]
        first = trials.page("a", limit=3)
        second = trials.page("a", limit=3, cursor=first.next_cursor)
        running = trials.page("a", limit=1, state=TrialState.RUNNING)
        more_running = trials.page(
            "a", limit=1, state=TrialState.RUNNING, cursor=running.next_cursor
        )
    assert [record.number for record in first.items] == [0, 1, 2]
    assert [record.number for record in second.items] == [3, 4]
    assert second.next_cursor is None
    assert [record.number for record in running.items] == [2]
    assert [record.number for record in more_running.items] == [4]


def test_a_table_is_ranked_by_a_value_and_unknown_ones_come_last(database: Database) -> None:
    with database.write() as session:
        add_study(session, id="s")
        add_study(session, id="other")
        Trials(session).add(trial("other", 9, quality=9.0))
        for number, quality in enumerate((0.5, None, 0.9, 0.5)):
            state = TrialState.COMPLETE if number else TrialState.STOPPED
            Trials(session).add(trial("s", number, quality=quality, state=state))
    with database.read() as session:
        trials = Trials(session)

        def ranked(descending: bool, **given: Any) -> list[int]:
            found = trials.ranked("s", by="quality", descending=descending, **given)
            return [one.number for one in found]

        assert ranked(True, limit=9) == [2, 0, 3, 1]
        assert ranked(False, limit=9) == [0, 3, 2, 1]
        assert ranked(True, limit=2, offset=1) == [0, 3]
        assert ranked(True, limit=9, state=TrialState.COMPLETE) == [2, 3, 1]
        with pytest.raises(ValueError, match="offset -1"):
            ranked(True, limit=1, offset=-1)
        assert trials.find("s", 2) == trials.get("s", 2)
        assert trials.find("s", 4) is None


@pytest.mark.parametrize("cursor", ["x", cursor_of("4"), cursor_of(2**31), cursor_of(-1, 2)])
def test_a_cursor_of_no_page_is_refused(database: Database, cursor: str) -> None:
    with database.read() as session, pytest.raises(BadCursor):
        Trials(session).page("s", limit=2, cursor=cursor)


def test_counts_are_by_state_and_of_what_was_dispatched(database: Database) -> None:
    with database.write() as session:
        add_study(session, id="s")
        trials = Trials(session)
        for number in range(4):
            add_trial(session, "s", number)
        add_trial(session, "s", 4, state=TrialState.INFEASIBLE, finished_at=START)
        for number in (0, 1):
            trials.start("s", number, START)
        trials.end("s", 1, state=TrialState.COMPLETE, at=START)
        counts = trials.counts("s")
    assert counts.by_state == {
        TrialState.QUEUED: 2,
        TrialState.RUNNING: 1,
        TrialState.COMPLETE: 1,
        TrialState.INFEASIBLE: 1,
    }
    assert (counts.total, counts.dispatched) == (5, 2)


def test_a_second_attempt_does_not_move_the_start(database: Database) -> None:
    with database.write() as session:
        add_study(session, id="s")
        add_trial(session, "s")
        Trials(session).start("s", 0, after(1))
        Trials(session).start("s", 0, after(2))
        record = Trials(session).get("s", 0)
    assert (record.state, record.dispatched) == (TrialState.RUNNING, True)
    assert record.started_at == after(1)


def test_an_end_keeps_what_it_is_given(database: Database) -> None:
    with database.write() as session:
        add_study(session, id="s")
        before = add_trial(session, "s")
        Trials(session).start("s", 0, after(1))
        ended = Trials(session).end(
            "s",
            0,
            state=TrialState.COMPLETE,
            at=after(2),
            outcome=TrialOutcome(quality=0.9, test_quality=0.88, best_epoch=4),
            epochs_trained=5,
        )
    assert ended == replace(
        before,
        state=TrialState.COMPLETE,
        dispatched=True,
        started_at=after(1),
        finished_at=after(2),
        quality=0.9,
        test_quality=0.88,
        best_epoch=4,
        epochs_trained=5,
    )
    with database.read() as session:
        assert Trials(session).get("s", 0) == ended


def test_an_end_without_epochs_keeps_those_that_were_reported(database: Database) -> None:
    with database.write() as session:
        add_study(session, id="s")
        add_trial(session, "s")
        Trials(session).set_epochs("s", 0, 3)
        outcome = TrialOutcome(detail="traceback")
        ended = Trials(session).end("s", 0, state=TrialState.FAILED, at=START, outcome=outcome)
    assert (ended.epochs_trained, ended.reason) == (3, "traceback")


@pytest.mark.parametrize("end", ENDS)
def test_a_trial_ends_once_and_does_not_start_again(database: Database, end: TrialState) -> None:
    with database.write() as session:
        add_study(session, id="s")
        add_trial(session, "s")
        ended = Trials(session).end("s", 0, state=end, at=after(1))
        for other in ENDS:
            with pytest.raises(Conflict, match=f"it ended as '{end}'"):
                Trials(session).end("s", 0, state=other, at=after(2))
        with pytest.raises(Conflict, match=f"it ended as '{end}'"):
            Trials(session).start("s", 0, after(2))
        assert Trials(session).get("s", 0) == ended


def test_a_trial_cannot_end_as_what_is_no_outcome(database: Database) -> None:
    with database.write() as session:
        add_study(session, id="s")
        add_trial(session, "s")
        with pytest.raises(ValueError, match="'running' is no outcome"):
            Trials(session).end("s", 0, state=TrialState.RUNNING, at=START)


def test_of_those_who_end_a_trial_at_once_one_succeeds(database: Database) -> None:
    with database.write() as session:
        add_study(session, id="s")
        add_trial(session, "s")
    together = threading.Barrier(6)

    def end(index: int) -> bool:
        together.wait()
        try:
            with database.write() as session:
                outcome = TrialOutcome(quality=index / 8)
                Trials(session).end("s", 0, state=TrialState.COMPLETE, at=START, outcome=outcome)
        except Conflict:
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        outcomes = list(pool.map(end, range(6)))
    assert sorted(outcomes) == [False] * 5 + [True]
    with database.read() as session:
        assert Trials(session).get("s", 0).quality == outcomes.index(True) / 8


def test_a_prediction_is_kept_as_it_was_first(database: Database) -> None:
    with database.write() as session:
        study_id = add_study(session, id="predicted").id
        add_trial(session, study_id, 0)
        Trials(session).set_predicted(study_id, 0, {"throughput": (2.0, 1.0, 3.0)})
        Trials(session).set_predicted(study_id, 0, {"throughput": (5.0, 4.0, 6.0)})
        assert Trials(session).get(study_id, 0).predicted == {"throughput": [2.0, 1.0, 3.0]}
        with pytest.raises(NotFound):
            Trials(session).set_predicted(study_id, 1, {"throughput": (5.0, 4.0, 6.0)})


def test_an_ended_trial_may_turn_out_to_break_a_limit(database: Database) -> None:
    broken = TrialOutcome(cause=TrialCause.LIMIT, detail="too slow", violation=0.5)
    with database.write() as session:
        study_id = add_study(session, id="slow").id
        add_trial(session, study_id, 0)
        with pytest.raises(Conflict, match="queued"):
            Trials(session).note_violation(study_id, 0, broken)
        ended = TrialOutcome(quality=0.5, best_epoch=1)
        Trials(session).end(study_id, 0, state=TrialState.COMPLETE, at=START, outcome=ended)
        before = Studies(session).get(study_id).data_version
        Trials(session).note_violation(study_id, 0, broken)
        trial = Trials(session).get(study_id, 0)
        assert (trial.state, trial.quality, trial.best_epoch) == (TrialState.COMPLETE, 0.5, 1)
        assert (trial.cause, trial.detail, trial.violation) == (TrialCause.LIMIT, "too slow", 0.5)
        assert Studies(session).get(study_id).data_version > before


def test_throughput_comes_from_a_measurement(database: Database) -> None:
    with database.write() as session:
        add_study(session, id="s")
        add_trial(session, "s")
        taken = measurement("s", samples_per_second=800.0, ratio=1.25)
        Trials(session).set_throughput("s", 0, taken)
        record = Trials(session).get("s", 0)
    assert (record.throughput, record.throughput_ratio) == (800.0, 1.25)
    assert record.measurement_id == taken.id


def test_a_measurement_is_shared_by_the_unmeasured_trials_of_its_shape(database: Database) -> None:
    shapes = ["a", "a", "b", "a"]
    with database.write() as session:
        add_study(session, id="s")
        trials = Trials(session)
        for number, shape in enumerate(shapes):
            trials.add(trial("s", number, shape_key=shape))
        first = measurement("s", id="first", shape_key="a", samples_per_second=100.0)
        trials.set_throughput("s", 0, first)
        second = measurement("s", id="second", shape_key="a", samples_per_second=200.0)
        trials.share_throughput("s", second)
        found = [(record.measurement_id, record.throughput) for record in trials.list("s")]
    assert found == [("first", 100.0), ("second", 200.0), (None, None), ("second", 200.0)]


def test_untold_trials_come_in_the_order_of_their_ends(database: Database) -> None:
    with database.write() as session:
        add_study(session, id="s")
        trials = Trials(session)
        for number in range(5):
            add_trial(session, "s", number)
        for number, at in ((3, 1.0), (2, 2.0), (0, 2.0), (4, 0.5)):
            trials.end("s", number, state=TrialState.COMPLETE, at=after(at))
        assert trials.mark_told("s", 4, after(3))
        assert [record.number for record in trials.untold("s")] == [3, 0, 2]


def test_a_trial_is_told_once(database: Database) -> None:
    with database.write() as session:
        add_study(session, id="s")
        add_trial(session, "s")
        with pytest.raises(Conflict, match="has not ended: it is 'queued'"):
            Trials(session).mark_told("s", 0, START)
        Trials(session).end("s", 0, state=TrialState.STOPPED, at=START)
        assert Trials(session).mark_told("s", 0, after(1))
        assert not Trials(session).mark_told("s", 0, after(2))
        assert Trials(session).get("s", 0).told_at == after(1)
        assert Trials(session).untold("s") == []


def test_artifacts_are_of_their_trial_and_the_last_of_a_role_counts(database: Database) -> None:
    digests = {letter: letter * 64 for letter in "abc"}
    artifacts = {
        letter: ArtifactRecord(sha256=digest, size=2**33, created_at=START)
        for letter, digest in digests.items()
    }
    with database.write() as session:
        add_study(session, id="s")
        for number in range(3):
            add_trial(session, "s", number)
        rows = ArtifactRows(session)
        rows.link("s", 0, "checkpoint", artifacts["a"])
        rows.link("s", 2, "checkpoint", artifacts["a"])
        rows.link("s", 2, "report", artifacts["b"])
        rows.link("s", 2, "checkpoint", artifacts["c"])
        assert rows.of_trial("s", 2) == {"checkpoint": artifacts["c"], "report": artifacts["b"]}
        assert rows.of_trial("s", 1) == {}
        assert rows.of_trial("s", 10**20) == {}
        listed = [record.artifacts for record in Trials(session).list("s")]
        got = Trials(session).get("s", 2).artifacts
    assert listed == [
        {"checkpoint": digests["a"]},
        {},
        {"checkpoint": digests["c"], "report": digests["b"]},
    ]
    assert got == listed[2]


def test_an_artifact_of_no_trial_is_refused(database: Database) -> None:
    artifact = ArtifactRecord(sha256="a" * 64, size=1, created_at=START)
    with database.write() as session:
        add_study(session, id="s")
    with pytest.raises(NotFound, match="no trial 5"), database.write() as session:
        ArtifactRows(session).link("s", 5, "checkpoint", artifact)


def test_a_study_has_another_version_whenever_what_figures_follow_from_has_changed(
    database: Database,
) -> None:
    with database.write() as session:
        study_id = add_study(session).id
        add_trial(session, study_id, shape_key="k")

    def changes(work: Callable[[Session], object]) -> bool:
        with database.read() as session:
            before = Studies(session).get(study_id).data_version
        with database.write() as session:
            work(session)
        with database.read() as session:
            return Studies(session).get(study_id).data_version > before

    measured = measurement(study_id, shape_key="k")
    file = ArtifactRecord(sha256=digest("a file"), size=6, created_at=START)
    assert not changes(lambda session: Trials(session).start(study_id, 0, START))
    assert not changes(lambda session: Trials(session).set_epochs(study_id, 0, 1))
    assert not changes(lambda session: ArtifactRows(session).link(study_id, 0, "resume", file))
    assert changes(lambda session: Trials(session).share_throughput(study_id, measured))
    assert changes(lambda session: Trials(session).set_throughput(study_id, 0, measured))
    assert changes(
        lambda session: Trials(session).end(study_id, 0, state=TrialState.COMPLETE, at=after(1))
    )
    assert not changes(lambda session: Trials(session).mark_told(study_id, 0, after(2)))
    assert changes(lambda session: ArtifactRows(session).link(study_id, 0, "onnx", file))
    assert changes(lambda session: ArtifactRows(session).unlink(study_id, {0: ["onnx"]}))
    assert not changes(lambda session: ArtifactRows(session).unlink(study_id, {0: ["onnx"]}))
    assert changes(
        lambda session: Studies(session).set_ending(study_id, StudyCause.BUDGET, "trials")
    )
    assert changes(
        lambda session: Studies(session).set_state(study_id, StudyState.FINISHED, at=after(3))
    )
