"""Members of a stack come to what the same trials come to by themselves."""

import pytest

from search.tasks import Split, Splits
from search.training.trial_spec import OptimizerName, TrainingSpec
from tests.search.training.stacks.stack_cases import alone, assert_same, together, told
from tests.search.training_cases import MODELS, load_splits, make_job


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
