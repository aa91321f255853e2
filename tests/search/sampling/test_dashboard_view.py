"""What Optuna's dashboard is given to show: plots and a note that are bounded, whole and ours."""

import json
import re
import time
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import optuna
from optuna.storages import RDBStorage
from optuna.trial import TrialState as OptunaState
from optuna_dashboard._custom_plot_data import get_plotly_graph_objects
from optuna_dashboard._note import get_note_from_system_attrs

from search.documents.objectives import Objective
from search.documents.region import Region
from search.fronts.dominance import front_of
from search.fronts.figures import Figures
from search.fronts.pareto import objective_infos
from search.optuna_tables import open_storage, study_name
from search.samplers.adapters.frozen import CONSTRAINTS
from search.sampling.dashboard_plots import MOST_POINTS, PARETO, RATIO, plots
from search.sampling.optuna_copy import OptunaCopy
from search.sampling.optuna_dashboard import note_of, shown_beside_trials
from search.spaces.space import SearchSpace
from search.studies.spec import Limits, StudySpec
from storage.endings import TrialCause
from storage.records import StudyRecord, TrialOrigin, TrialOutcome, TrialState
from storage.repositories.studies import Studies
from storage.repositories.trial_summaries import TrialSummary
from storage.repositories.trials import Trials
from tests.service.site import Site, now

SPEC = StudySpec.model_validate({"task": {"kind": "digits"}})
INFOS = objective_infos(SPEC.task, SPEC.objectives)


def summary(number: int, **given: Any) -> TrialSummary:
    summary = TrialSummary(
        latency_p50=None,
        latency_p99=None,
        bytes=None,
        number=number,
        state=TrialState.COMPLETE,
        origin=TrialOrigin.SAMPLER,
        quality=0.5,
        parameters=100 + number,
        throughput=1000.0,
        measurement_id="m",
        predicted={},
        continues=None,
        finished_at=now(),
        architecture="rnn",
        parametrization="low_rank",
        dense_parameters=1000,
        violation=None,
        throughput_ratio=1.5,
        best_epoch=None,
    )
    return replace(summary, **given)


def drawn(
    complete: list[TrialSummary],
    limits: Limits | None = None,
    objectives: Collection[Objective] = SPEC.objectives,
    region: Region | None = None,
) -> dict[str, Any]:
    front = front_of(complete, objective_infos(SPEC.task, objectives))
    found = plots(
        complete,
        front,
        quality=INFOS[0],
        objectives=objectives,
        limits=limits or Limits(),
        region=region or Region(),
    )
    return {name: json.loads(plot) for name, plot in found.items()}


def test_the_front_and_the_rest_are_told_apart_by_all_objectives() -> None:
    best = summary(0, quality=0.9, parameters=100)
    slow = summary(1, quality=0.8, parameters=200)
    # Worse and larger, but faster: on the front of three objectives.
    quick = summary(2, quality=0.7, parameters=300, throughput=2000.0, throughput_ratio=3.0)
    found = drawn([best, slow, quick], Limits(parameters=5000, min_throughput_ratio=0.5))
    others, front = found[PARETO]["data"]
    assert (others["x"], others["y"]) == ([200], [0.8])
    assert (front["x"], front["y"]) == ([100, 300], [0.9, 0.7])
    assert front["marker"]["color"] == [1000, 2000]
    assert front["text"][0] == "trial 0: rnn, low_rank"
    assert found[PARETO]["layout"]["xaxis"]["type"] == "log"
    assert "accuracy" in found[PARETO]["layout"]["yaxis"]["title"]["text"]
    assert [line["x0"] for line in found[PARETO]["layout"]["shapes"]] == [5000]
    others, front = found[RATIO]["data"]
    assert (front["x"], front["y"]) == ([0.1, 0.3], [1.5, 3.0])
    assert [line["y0"] for line in found[RATIO]["layout"]["shapes"]] == [1.0, 0.5]


def test_a_study_without_trials_or_throughput_has_plots_too() -> None:
    assert [trace["x"] for trace in drawn([])[PARETO]["data"]] == [[], []]
    unmeasured = summary(0, throughput=None, throughput_ratio=None, measurement_id=None)
    assert set(drawn([unmeasured])) == {PARETO, f"{PARETO}-throughput"}


def test_every_objective_of_a_study_has_a_plot_with_its_limit() -> None:
    small = summary(0, quality=0.6, bytes=2000, latency_p50=2e-6)
    large = summary(1, quality=0.9, bytes=9000, latency_p50=5e-6)
    worse = summary(2, quality=0.5, bytes=9500, latency_p50=9e-6)
    limits = Limits(bytes=10_000, latency_seconds=1e-4)
    found = drawn([small, large, worse], limits, ("quality", "bytes", "latency"))
    assert set(found) == {PARETO, f"{PARETO}-latency", RATIO}
    for name, values, colours, limit in (
        (PARETO, [2000, 9000], [2e-6, 5e-6], 10_000),
        (f"{PARETO}-latency", [2e-6, 5e-6], [2000, 9000], 1e-4),
    ):
        _, front = found[name]["data"]
        assert (front["x"], front["y"]) == (values, [0.6, 0.9])
        assert front["marker"]["color"] == colours
        assert [line["x0"] for line in found[name]["layout"]["shapes"]] == [limit]
        assert found[name]["layout"]["xaxis"]["type"] == "log"
    assert found[PARETO]["layout"]["xaxis"]["title"]["text"] == "bytes"
    assert found[f"{PARETO}-latency"]["layout"]["xaxis"]["title"]["text"] == "latency, s"


def test_the_ends_of_the_region_of_interest_are_drawn_beside_the_limit() -> None:
    region = Region({"quality": ("at_least", 0.7), "parameters": ("at_most", 300)})
    found = drawn([summary(0)], Limits(parameters=500), region=region)
    lines = [
        (line.get("xref"), line["x0"], line["y0"]) for line in found[PARETO]["layout"]["shapes"]
    ]
    assert lines == [("x", 500, 0), ("x", 300, 0), ("paper", 0, 0.7)]
    others = [line["y0"] for line in found[f"{PARETO}-throughput"]["layout"]["shapes"]]
    assert others == [0.7]


def test_a_study_for_quality_alone_is_drawn_over_its_parameters() -> None:
    (best,) = drawn([summary(0)], objectives=("quality",))[PARETO]["data"][1]["x"]
    assert best == 100


def test_plots_do_not_grow_with_their_study() -> None:
    complete = [
        summary(number, quality=(number % 977) / 977, parameters=100 + (number * 7919) % 9973)
        for number in range(10_000)
    ]
    # All on the front at once, too.
    for front in (front_of(complete, INFOS), complete):
        began = time.process_time()
        found = plots(
            complete,
            front,
            quality=INFOS[0],
            objectives=SPEC.objectives,
            limits=Limits(),
            region=Region(),
        )
        assert time.process_time() - began < 1
        for plot in found.values():
            assert len(plot) < 30_000
            for trace in json.loads(plot)["data"]:
                assert len(trace["x"]) == len(trace["y"]) == len(trace["text"]) <= MOST_POINTS
    names = [trace["name"] for trace in json.loads(found[PARETO])["data"]]
    assert names[1].endswith("of 10000)")


def test_a_note_shows_what_users_wrote_as_they_wrote_it(site: Site) -> None:
    name = "<script>alert(1)</script> [x](javascript:y) *b* `c` | #"
    study = site.study(name=name, limits={"parameters": 700})
    note = note_of(study, StudySpec.model_validate(study.spec))
    assert f"(/studies/{study.id})" in note
    assert "parameters 700" in note.replace("\\", "")
    assert name in note.replace("\\", "")
    shown = note.removeprefix("**").partition("**, see ")[0]
    # Markdown takes a mark behind a backslash for itself.
    assert not re.search(r"(?<!\\)[<>\[\]()*`|#]", shown)


def optunas_tables(site: Site) -> RDBStorage:
    return open_storage(f"sqlite:///{site.settings.data_dir / 'optuna-copy.db'}")


def copy_of(site: Site, study: StudyRecord, storage: RDBStorage) -> OptunaCopy:
    spec = StudySpec.model_validate(study.spec)
    dimensions = SearchSpace(spec).dimensions
    return OptunaCopy(site.database, study.id, spec, dimensions, storage=lambda: storage)


def test_the_dashboard_finds_the_note_and_the_plots(site: Site) -> None:
    study = site.study()
    for number in range(40):
        site.trial(study, number, quality=0.5 + number / 100, throughput=50.0)
    with site.database.read() as session:
        record = Studies(session).get(study.id)
        found = shown_beside_trials(
            session, record, StudySpec.model_validate(record.spec), Figures()
        )
    drawn = get_plotly_graph_objects(found)
    assert set(drawn) == {PARETO, f"{PARETO}-throughput", RATIO}
    # Longer than the pieces in which the dashboard writes, and whole all the same.
    assert max(map(len, drawn.values())) > 2045
    assert all(set(json.loads(plot)) == {"data", "layout"} for plot in drawn.values())
    note = get_note_from_system_attrs(found, None)
    assert note["body"] == note_of(record, StudySpec.model_validate(record.spec))


def trials_in(storage: RDBStorage, study: StudyRecord) -> list[optuna.trial.FrozenTrial]:
    return optuna.load_study(study_name=study_name(study), storage=storage).trials


def test_the_copy_tells_how_trials_ended_copied_before_or_after(site: Site) -> None:
    study, storage = site.study(), optunas_tables(site)
    copy = copy_of(site, study, storage)
    copy.write()
    assert trials_in(storage, study) == []
    waiting = site.trial(study, 0, state=TrialState.QUEUED)
    copy.write()
    assert [trial.state for trial in trials_in(storage, study)] == [OptunaState.RUNNING]
    with site.database.write() as session:
        Trials(session).end(
            study.id,
            waiting.number,
            state=TrialState.INFEASIBLE,
            at=now(),
            outcome=TrialOutcome(cause=TrialCause.LIMIT, detail="too large", violation=2.0),
        )
    others = [
        site.trial(study, 1, quality=0.75, throughput=50.0, ratio=0.5),
        site.trial(study, 2, state=TrialState.STOPPED, reason="it could add too little"),
        site.trial(study, 3, state=TrialState.FAILED, reason="exited with code 1"),
    ]
    copy.write()
    found = trials_in(storage, study)
    assert [trial.state for trial in found] == [
        OptunaState.PRUNED,
        OptunaState.COMPLETE,
        OptunaState.PRUNED,
        OptunaState.FAIL,
    ]
    assert [trial.user_attrs for trial in found] == [
        {"outcome": "infeasible", "reason": "too large"},
        {"throughput_ratio": 0.5},
        {"outcome": "stopped", "reason": "it could add too little"},
        {"outcome": "failed", "reason": "exited with code 1"},
    ]
    assert found[0].system_attrs == {CONSTRAINTS: [2.0]}
    assert [trial.params for trial in found] == [one.drawn for one in (waiting, *others)]
    # Another coordinator finds it as it is, and makes it anew when it is lost.
    copy_of(site, study, storage).write()
    assert trials_in(storage, study) == found
    optuna.delete_study(study_name=study_name(study), storage=storage)
    copy_of(site, study, storage).write()
    again = trials_in(storage, study)
    assert [(one.state, one.params, one.user_attrs, one.values) for one in again] == [
        (one.state, one.params, one.user_attrs, one.values) for one in found
    ]


def test_optunas_tables_that_do_not_answer_hold_nobody_up(site: Site) -> None:
    """Their file is another's; once it is gone the copy is there."""
    study, file = site.study(), site.settings.data_dir / "copy.db"
    file.write_bytes(b"no database" * 100)
    spec = StudySpec.model_validate(study.spec)
    copy = OptunaCopy(
        site.database,
        study.id,
        spec,
        SearchSpace(spec).dimensions,
        storage=lambda: open_storage(f"sqlite:///{file}"),
    )
    site.trial(study, 0, quality=0.75)
    copy.write()
    file.unlink()
    copy.write()
    theirs = optuna.load_study(study_name=study_name(study), storage=f"sqlite:///{file}")
    assert [trial.number for trial in theirs.trials] == [0]


def test_a_copy_that_another_coordinator_writes_as_well_ends_up_as_our_rows(site: Site) -> None:
    study, storage = site.study(), optunas_tables(site)
    one, two = copy_of(site, study, storage), copy_of(site, study, storage)
    waiting = site.trial(study, 0, state=TrialState.QUEUED)
    one.write()
    two.write()
    with site.database.write() as session:
        Trials(session).end(study.id, waiting.number, state=TrialState.CANCELLED, at=now())
    one.write()
    # It finds the trial ended, which it thought open; and the study gone, after that.
    two.write()
    assert [trial.state for trial in trials_in(storage, study)] == [OptunaState.FAIL]
    optuna.delete_study(study_name=study_name(study), storage=storage)
    site.trial(study, 1, quality=0.5, throughput=50.0)
    one.write()
    one.write()
    states = [trial.state for trial in trials_in(storage, study)]
    assert states == [OptunaState.FAIL, OptunaState.COMPLETE]
