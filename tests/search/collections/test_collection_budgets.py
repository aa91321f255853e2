"""What the studies of a collection may take together, as a coordinator looks at it."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from search.collections import CollectionBudgets, CollectionSpec, submit_collection
from storage.records import CollectionStudyRecord, StudyRecord, TrialState
from storage.repositories.collections import Collections
from storage.repositories.metrics import Metrics
from storage.repositories.studies import Studies
from tests.service.site import SMALL_SPEC, Site
from tests.storage.records import metric


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("budgets"))
    yield site
    site.close()


def two_studies(site: Site, budget: dict[str, Any], **changes: Any) -> list[StudyRecord]:
    """The studies of a collection with this budget, both running."""
    document = {name: part for name, part in SMALL_SPEC.items() if name != "task"}
    tasks = [{"kind": "digits"}, {"kind": "digits", "layout": "pixels"}]
    spec = CollectionSpec.model_validate(
        {
            **document,
            "sampler": {"kind": "random"},
            "tasks": tasks,
            "collection_budget": budget,
            **changes,
        }
    )
    collection = submit_collection(site.database, spec, sources=site.sources)
    with site.database.read() as session:
        members = Collections(session).members([collection.id])[collection.id]
    studies = [_study(site, member) for member in members]
    for study in studies:
        site.run(study)
    return studies


def _study(site: Site, member: CollectionStudyRecord) -> StudyRecord:
    with site.database.read() as session:
        return Studies(session).get(member.study_id)


def endings(site: Site, studies: Sequence[StudyRecord]) -> list[str | None]:
    with site.database.read() as session:
        return [Studies(session).get(study.id).ending for study in studies]


def train(site: Site, study: StudyRecord, number: int, *epochs: int) -> None:
    with site.database.write() as session:
        for epoch in epochs:
            Metrics(session).put(study.id, number, metric(epoch))


def test_trials_of_all_studies_count_and_the_last_one_may_end(site: Site) -> None:
    first, second = two_studies(site, {"trials": 2})
    budgets = CollectionBudgets(site.database)
    site.trial(first, 0)
    budgets.look()
    assert budgets.may_begin(first.id)
    site.trial(second, 0, state=TrialState.RUNNING)
    assert not budgets.may_begin(first.id)
    assert not budgets.may_begin(second.id)
    CollectionBudgets(site.database).look()
    assert endings(site, [first, second]) == [None, None]
    site.trial(second, 1)
    CollectionBudgets(site.database).look()
    assert set(endings(site, [first, second])) == {"budget: collection_budget.trials"}


def test_epochs_of_all_studies_count(site: Site) -> None:
    studies = two_studies(site, {"total_epochs": 3, "device_hours": 100})
    for study in studies:
        site.trial(study, 0, state=TrialState.RUNNING)
    train(site, studies[0], 0, 1, 2)
    CollectionBudgets(site.database).look()
    assert endings(site, studies) == [None, None]
    train(site, studies[1], 0, 1)
    CollectionBudgets(site.database).look()
    assert set(endings(site, studies)) == {"budget: collection_budget.total_epochs"}


def test_of_a_sampler_that_pauses_trials_whole_trainings_count(site: Site) -> None:
    studies = two_studies(site, {"trials": 1}, sampler={"kind": "freeze_thaw"})
    for study in studies:
        site.trial(study, 0, state=TrialState.PAUSED)
    # Two epochs are a training, whichever trials have them.
    train(site, studies[0], 0, 1)
    CollectionBudgets(site.database).look()
    assert endings(site, studies) == [None, None]
    train(site, studies[1], 0, 1)
    CollectionBudgets(site.database).look()
    assert set(endings(site, studies)) == {"budget: collection_budget.trials"}


def test_a_study_of_no_collection_may_always_begin_and_ended_ones_stay(site: Site) -> None:
    alone = site.study()
    first, second = two_studies(site, {"trials": 1})
    site.finish(first)
    site.trial(second, 0)
    budgets = CollectionBudgets(site.database)
    budgets.look()
    assert budgets.may_begin(alone.id)
    assert endings(site, [alone, first, second]) == [
        None,
        None,
        "budget: collection_budget.trials",
    ]
