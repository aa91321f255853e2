"""What a process remembers of trials is what it would read anew."""

import random
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy.orm import Session

from search.fronts.complete_trials import CompleteTrials
from search.fronts.dominance import front_of
from search.fronts.figures import Figures
from search.fronts.pareto import Front, objective_infos
from search.studies.configurations import configuration_of, over_seeds
from search.studies.spec import StudySpec
from storage.engine import Database
from storage.records import StudyRecord, TrialOrigin, TrialOutcome, TrialRecord, TrialState
from storage.repositories.artifact_rows import ArtifactRows
from storage.repositories.measurements import Measurements
from storage.repositories.studies import Studies
from storage.repositories.trials import Trials
from tests.service.site import SMALL_SPEC, Site
from tests.storage.records import START, add_study, after, measurement, trial

INFOS = objective_infos(StudySpec.model_validate(SMALL_SPEC).task, ["quality", "parameters"])


def add(session: Session, study: str, number: int, generator: random.Random) -> None:
    """A complete trial; its configuration and its seed are two of few."""
    seed, size = generator.randrange(3), generator.randrange(8)
    Trials(session).add(
        trial(
            study,
            number,
            state=TrialState.RUNNING,
            spec={"model": {"size": size}, "training": {}, "seed": seed},
            parameters=generator.randrange(100, 130),
            origin=TrialOrigin.CONFIRMATION if seed == 2 else TrialOrigin.SAMPLER,
            continues=0 if generator.random() < 0.1 and number else None,
        )
    )
    Trials(session).end(
        study,
        number,
        state=TrialState.COMPLETE,
        at=START,
        outcome=TrialOutcome(quality=generator.randrange(20) / 20),
    )


def change(site: Site, session: Session, study: str, turn: int, generator: random.Random) -> None:
    """One of the things that happen to a study's trials."""
    numbers = [record.number for record in Trials(session).list(study, TrialState.COMPLETE)]
    kind = generator.randrange(4) if numbers else 0
    if kind == 0:
        add(session, study, Trials(session).counts(study).total, generator)
        return
    number = generator.choice(numbers)
    speed = generator.uniform(1, 9)
    if kind == 1:
        made = measurement(
            study,
            id=f"{study} {turn}",
            trial=number,
            samples_per_second=speed,
            created_at=after(turn),
        )
        Measurements(session).add(study, made)
        Trials(session).set_throughput(study, number, made)
    elif kind == 2:
        stored = site.keep(str(turn).encode())
        ArtifactRows(session).link(study, number, generator.choice(["report", "onnx"]), stored)
    else:
        ArtifactRows(session).unlink(study, {number: ["report"], number + 1: ["onnx"]})


def slowly(trials: Sequence[TrialRecord], latest: float | None = None) -> list[dict[str, Any]]:
    """The points of a front from whole records; all that are measured have one shape."""
    if latest is not None:
        trials = [replace(t, throughput=latest) if t.measurement_id else t for t in trials]
    seeds: dict[str, dict[Any, float]] = {}
    for one in trials:
        if one.continues is None and one.quality is not None:
            seeds.setdefault(configuration_of(one.spec), {}).setdefault(
                one.spec["seed"], one.quality
            )

    def over(one: TrialRecord) -> Any:
        if one.continues is not None:
            return None
        return over_seeds(list(seeds[configuration_of(one.spec)].values()))

    means = [replace(one, quality=o.mean) if (o := over(one)) else one for one in trials]
    by_mean = {one.number for one in front_of(means, INFOS)}
    return [
        {
            "trial": one.number,
            "quality": one.quality,
            "throughput": one.throughput,
            "mean": one.quality if over(one) is None else over(one).mean,
            "seeds": 1 if over(one) is None else over(one).seeds,
            "by_mean": one.number in by_mean,
            "artifacts": tuple(sorted(one.artifacts)),
        }
        for one in front_of(trials, INFOS)
    ]


def told(front: Front) -> list[dict[str, Any]]:
    return [
        {
            "trial": point.trial,
            "quality": point.values["quality"],
            "throughput": point.values["throughput"],
            "mean": point.quality_mean,
            "seeds": point.seeds,
            "by_mean": point.on_front_by_mean,
            "artifacts": point.artifacts,
        }
        for point in front.points
    ]


def test_a_front_that_was_brought_up_to_date_is_the_one_of_all_trials(site: Site) -> None:
    figures, wanted = Figures(), ("quality", "parameters")
    marks: set[bool] = set()
    for seed in range(3):
        generator, study = random.Random(seed), site.study(objectives=list(wanted)).id
        for turn in range(40):
            with site.database.write() as session:
                for part in range(generator.randrange(3)):
                    change(site, session, study, 3 * turn + part, generator)
            with site.database.read() as session:
                now = Studies(session).get(study)
                complete = Trials(session).list(study, TrialState.COMPLETE)
                records = Measurements(session).of_study(study)
                newest = records[-1].samples_per_second if records else None
                front = figures.front(session, now)
                assert told(front) == slowly(complete)
                assert told(figures.front(session, now, latest=True)) == slowly(complete, newest)
                summaries = figures.complete(session, now)
                assert list(summaries) == Trials(session).summaries(study, TrialState.COMPLETE)
            marks |= {point.on_front_by_mean for point in front.points}
    assert marks == {True, False}


def test_a_session_that_sees_an_older_version_is_given_that_one(database: Database) -> None:
    known, generator = CompleteTrials(), random.Random(0)

    def numbers(session: Session, study: StudyRecord) -> list[int]:
        found = [summary.number for summary in known.summaries(session, study)]
        assert list(known.seeded(session, study)) == found
        assert [*known.records(session, study, found)] == found
        return found

    with database.write() as session:
        study = add_study(session).id
        add(session, study, 0, generator)
    with database.read() as older:
        before = Studies(older).get(study)
        with database.write() as session:
            add(session, study, 1, generator)
        with database.read() as session:
            assert numbers(session, Studies(session).get(study)) == [0, 1]
        assert numbers(older, before) == [0]
    with database.read() as session:
        assert numbers(session, Studies(session).get(study)) == [0, 1]


def test_nothing_is_read_again_but_what_has_changed(site: Site) -> None:
    known, generator, study = CompleteTrials(), random.Random(1), site.study().id

    def look() -> list[Any]:
        with site.database.read() as session:
            now = Studies(session).get(study)
            return [*known.summaries(session, now)]

    with site.database.write() as session:
        for number in range(5):
            add(session, study, number, generator)
    first = look()
    with site.database.write() as session:
        add(session, study, 5, generator)
    second = look()
    assert [one.number for one in second] == list(range(6))
    assert all(a is b for a, b in zip(first, second, strict=False))


def test_no_more_trials_are_remembered_than_there_is_room_for(site: Site) -> None:
    known, generator = CompleteTrials(most=3), random.Random(2)
    studies = [site.study().id for _ in range(3)]
    with site.database.write() as session:
        for study in studies:
            for number in range(2):
                add(session, study, number, generator)
    with site.database.read() as session:
        seen = [known.summaries(session, Studies(session).get(study)) for study in studies]
        again = [known.summaries(session, Studies(session).get(study)) for study in studies[::-1]]
    assert seen == again[::-1]
    assert seen[2] is again[0]
    assert seen[0] is not again[2]


def test_threads_that_ask_at_once_are_given_the_same(site: Site) -> None:
    known, generator, study = CompleteTrials(), random.Random(3), site.study().id
    with site.database.write() as session:
        for number in range(30):
            add(session, study, number, generator)
    found: list[Any] = []

    def look() -> None:
        with site.database.read() as session:
            now = Studies(session).get(study)
            found.append((known.summaries(session, now), known.seeded(session, now)))

    threads = [threading.Thread(target=look) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6
    assert all(one == found[0] for one in found)
    assert len(found[0][0]) == len(found[0][1]) == 30
