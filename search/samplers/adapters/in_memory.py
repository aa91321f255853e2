"""Studies of Optuna's in memory, each of which is made of our rows for a single suggestion."""

from collections.abc import Mapping, Sequence

from optuna.samplers import BaseSampler
from optuna.storages import InMemoryStorage
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial

from search.samplers.sampler import Space
from search.spaces import Scalar, TrialSource
from storage.records import TrialRecord

_NAME = "in memory"


def suggested(
    sampler: BaseSampler,
    space: Space,
    trials: Sequence[FrozenTrial],
    directions: Sequence[StudyDirection],
) -> Mapping[str, Scalar]:
    """What a sampler suggests after these trials, as dimension name -> value."""
    storage = InMemoryStorage()
    storage.create_new_study(directions, study_name=_NAME)
    study = Study(study_name=_NAME, storage=storage, sampler=sampler)
    study.add_trials(trials)
    return space.draw(TrialSource(study.ask())).drawn


def has_ended(trial: TrialRecord) -> bool:
    """Whether a trial is over as far as samplers know, see Note [Asks and tells].

    One that Optuna was not told of yet still runs: else what is suggested would depend on whether
    its end or the ask was quicker.
    """
    return trial.state.has_ended and trial.told_at is not None
