"""What a sampler is told of its study beside what Optuna holds."""

from collections.abc import Callable

from models.errors import SpecError
from search.limits import excesses
from search.samplers import Knowledge, Past, Surroundings
from search.samplers.sampler import Drawn
from search.space import SearchSpace
from search.spec import StudySpec
from storage.engine import Database
from storage.metrics import Metrics
from storage.studies import Studies
from storage.trials import Trials


def surroundings_of(
    spec: StudySpec,
    space: SearchSpace,
    past: Callable[[], Past],
    knowledge: Knowledge | None = None,
) -> Surroundings:
    """A study's facts; `past` is asked once per suggestion, where a sampler wants it."""

    def is_refused(drawn: Drawn) -> bool:
        try:
            drawn.spec.model.check()
        except SpecError:
            return True
        return any(True for _ in excesses(spec.limits, drawn.spec.model))

    return Surroundings(
        space=space,
        objectives=spec.objectives,
        metric=spec.task.metric,
        seed=spec.seed,
        epochs=spec.budget.epochs,
        most_parameters=spec.limits.parameters,
        least_throughput_ratio=spec.limits.min_throughput_ratio,
        is_refused=is_refused,
        past=past,
        knowledge=knowledge or Knowledge(),
    )


def past_of(database: Database, study_id: str) -> Past:
    """A study's past as its tables have it now."""
    with database.read() as session:
        prepared = Studies(session).get(study_id).prepared or {}
        trials = Trials(session).list(study_id)
        validations = Metrics(session).validations(study_id)
    samples = prepared.get("validation")
    return Past(
        trials=trials,
        validations=validations,
        validation_samples=samples if isinstance(samples, int) else None,
    )
