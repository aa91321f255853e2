"""Members of a stack come to what the same trials come to by themselves."""

from pathlib import Path

import pytest

from models.architectures import Highway
from models.model import ModelSpec
from models.parametrizations import LowRank
from search.errors import TrainingDiverged
from search.tasks import Split, Splits
from search.training.trial_spec import OptimizerName, TrainingSpec
from tests.search.training.stacks.stack_cases import alone, assert_same, together, told
from tests.search.training_cases import (
    MODELS,
    SIGNATURE,
    load_splits,
    make_job,
    make_spoilt_text,
    poisoned,
)


@pytest.fixture(scope="module")
def splits(tmp_path_factory: pytest.TempPathFactory) -> Splits[Split]:
    return load_splits(tmp_path_factory.mktemp("cache"))


@pytest.mark.parametrize("model", list(MODELS))
@pytest.mark.parametrize("optimizer", ["adam", "rmsprop", "adagrad", "sgd"])
def test_each_member_is_as_it_is_alone(
    model: str, optimizer: OptimizerName, splits: Splits[Split]
) -> None:
    trainings = [
        TrainingSpec(optimizer=optimizer, learning_rate=0.003, batch_size=32, decay=0.8),
        TrainingSpec(
            optimizer=optimizer, learning_rate=0.01, batch_size=32, clip_norm=0.1, weight_decay=0.5
        ),
        TrainingSpec(
            optimizer=optimizer,
            learning_rate=0.005,
            batch_size=32,
            clip_norm=None,
            clip_value=0.01,
            nan_recovery=0.1,
        ),
    ]
    entries = told(
        *(make_job(model, seed=seed, training=one) for seed, one in enumerate(trainings))
    )
    for entry, found in zip(entries, together(entries, splits), strict=True):
        assert_same(found, alone(entry, splits))


def test_members_go_on_from_first_states_after_a_window_that_is_no_number(tmp_path: Path) -> None:
    job, splits = make_spoilt_text(tmp_path)
    entries = told(
        *(
            job.model_copy(
                update={
                    "trial": job.trial.model_copy(
                        update={
                            "training": job.trial.training.model_copy(
                                update={"nan_recovery": recovery}
                            ),
                            "seed": seed,
                        }
                    )
                }
            )
            for seed, recovery in enumerate((0.1, 0.3, None))
        )
    )
    found = together(entries, splits)
    for entry, one in zip(entries, found, strict=True):
        assert_same(one, alone(entry, splits))
    for one in found[:2]:
        assert [report.recovered_batches for report in one.reports] == [1, 1]
    assert isinstance(found[2].result, TrainingDiverged)


def test_members_statistics_of_batches_outlive_one_that_overflows(splits: Splits[Split]) -> None:
    damaged = Splits(poisoned(splits.train, 5, 1e30), splits.validation, splits.test)
    model = ModelSpec(
        architecture=Highway(hidden_size=8, layers=2, stack="batch_normalised"),
        parametrization=LowRank(d=2),
        signature=SIGNATURE,
    )
    training = TrainingSpec(learning_rate=0.003, batch_size=32, nan_recovery=0.1)
    jobs = [make_job(seed=seed, epochs=2, training=training) for seed in range(2)]
    entries = told(
        *(
            job.model_copy(update={"trial": job.trial.model_copy(update={"model": model})})
            for job in jobs
        )
    )
    for entry, found in zip(entries, together(entries, damaged), strict=True):
        assert_same(found, alone(entry, damaged))
        assert all(
            bool(number.isfinite().all()) for number in found.outcome.module.state_dict().values()
        )
