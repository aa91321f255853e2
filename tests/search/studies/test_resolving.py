from collections.abc import Iterator
from pathlib import Path

import pytest

from search.errors import SpecRefused, TaskUnresolved
from search.spaces.space import SearchSpace
from search.studies import states as studies
from search.studies import submission
from search.studies.resolving import resolved
from search.studies.spec import StudySpec
from search.tasks import Dataset, DataSources, Ucr
from storage.engine import Database
from storage.errors import IdempotencyConflict
from tests.databases import migrated
from tests.search.uploads.uploaded import FolderShelf, gestures, prices
from tests.storage.records import add_dataset

SPEC = StudySpec(task=Dataset(id="up"), architectures=("rnn",), parametrizations=("dense",))


@pytest.fixture
def shelf(tmp_path: Path) -> FolderShelf:
    shelf = FolderShelf(tmp_path / "shelf")
    shelf.add("up", gestures())
    return shelf


@pytest.fixture
def sources(tmp_path: Path, shelf: FolderShelf) -> DataSources:
    return DataSources(cache=tmp_path / "cache", folder=tmp_path / "data", datasets=shelf)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = migrated(f"sqlite:///{tmp_path / 'ours.db'}")
    with database.write() as session:
        add_dataset(session, id="up")
    yield database
    database.dispose()


def test_a_stored_study_knows_its_data_and_nobody_has_to_look_again(
    database: Database, sources: DataSources
) -> None:
    study = submission.submit(database, SPEC, sources=sources)
    stored = StudySpec.model_validate(study.spec)
    assert stored.trained_task.signature().output_size == 3
    assert stored.task.metric.baseline == pytest.approx(1 / 3, abs=0.01)
    assert SearchSpace(stored).parameter_range.low > 0


def test_a_space_of_data_that_nobody_looked_at_is_a_fault_of_ours() -> None:
    with pytest.raises(TaskUnresolved, match="up"):
        SearchSpace(SPEC)


def test_facts_that_a_user_sends_change_nothing(sources: DataSources) -> None:
    honest = resolved(SPEC, sources)
    assert isinstance(honest.task, Dataset)
    assert honest.task.facts is not None
    lie = honest.task.facts.model_copy(update={"outputs": 100, "sha256": "0" * 64})
    sent = SPEC.model_copy(update={"task": SPEC.task.model_copy(update={"facts": lie})})
    assert resolved(sent, sources) == honest


@pytest.mark.parametrize(
    ("task", "path"), [(Dataset(id="gone"), "task.id"), (Ucr(name="Coffee"), "task.name")]
)
def test_data_that_are_not_there_are_a_fault_of_the_spec_at_their_name(
    sources: DataSources, task: Dataset | Ucr, path: str
) -> None:
    with pytest.raises(SpecRefused) as told:
        resolved(SPEC.model_copy(update={"task": task}), sources)
    (fault,) = told.value.faults
    assert fault.path == path
    assert ("gone" if path == "task.id" else "Coffee") in fault.message


def test_a_task_without_files_is_as_it_was(tmp_path: Path) -> None:
    spec = StudySpec.model_validate({"task": {"kind": "digits"}})
    assert resolved(spec, DataSources(cache=tmp_path)) == spec


def test_the_same_key_gives_the_same_study_although_its_data_changed(
    database: Database, sources: DataSources, shelf: FolderShelf
) -> None:
    first = submission.submit(database, SPEC, sources=sources, idempotency_key="once")
    shelf.add("up", prices())
    again = submission.submit(database, SPEC, sources=sources, idempotency_key="once")
    shelf.remove("up")
    without = submission.submit(database, SPEC, sources=sources, idempotency_key="once")
    assert first.id == again.id == without.id
    assert again.spec == first.spec
    other = SPEC.model_copy(update={"seed": 1})
    with pytest.raises(IdempotencyConflict):
        submission.submit(database, other, sources=sources, idempotency_key="once")


def test_a_study_whose_data_are_not_there_is_not_stored(
    database: Database, sources: DataSources
) -> None:
    spec = SPEC.model_copy(update={"task": Dataset(id="gone")})
    with pytest.raises(SpecRefused, match="gone"):
        submission.submit(database, spec, sources=sources)
    with database.read() as session:
        assert not studies.in_progress(session)
