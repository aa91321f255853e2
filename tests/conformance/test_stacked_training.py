"""Trials that are trained together come to what each comes to alone: every pair, 20 steps."""

import pytest
import torch

from models.architectures import Architecture
from models.parametrizations import Family
from search.tasks import Digits, Split, Splits
from search.training.jobs import TrainJob
from search.training.stacks import stack_key
from search.training.trial_spec import TrainingSpec, TrialSpec
from tests.conformance.model_specs import LAST, pair_name, pairs, small, spec_of
from tests.search.training.stacks.stack_cases import alone, assert_same, together, told

Pair = tuple[type[Architecture], type[Family]]

pytestmark = pytest.mark.sampled


def drawn_samples(count: int, *, seed: int) -> Split:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, LAST.sequence_length, LAST.input_size, generator=generator)
    return Split(x, torch.randint(LAST.output_size, (count,), generator=generator))


SPLITS = Splits(*(drawn_samples(40, seed=seed) for seed in range(3)))


@pytest.mark.parametrize("pair", pairs(), ids=pair_name)
def test_every_pair_is_trained_as_alone(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    jobs = [
        TrainJob(
            task=Digits(),
            trial=TrialSpec(
                model=spec_of(small(pair[0]), pair[1], share=share),
                training=TrainingSpec(learning_rate=rate, batch_size=8, decay=0.7),
                seed=seed,
            ),
            number=seed,
            epochs=4,
            checkpoint_seconds=1e9,
        )
        for seed, (share, rate) in enumerate([(0.9, 1e-3), (0.3, 3e-3), (0.3, 1e-3)])
    ]
    assert len({stack_key(job) for job in jobs}) == 1
    entries = told(*jobs)
    for entry, found in zip(entries, together(entries, SPLITS), strict=True):
        assert_same(found, alone(entry, SPLITS), bound=1e-3)
    assert not caplog.records
