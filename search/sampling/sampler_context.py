"""What a sampler is told of its study beside what Optuna holds."""

from collections.abc import Callable, Mapping
from statistics import median

from models.errors import SpecError
from models.interface import Interface
from search.samplers import Knowledge, Past, SamplerContext
from search.spaces import AnySpace, DrawnTrial, Scalar
from search.studies import StudySpec, bytes_wanted, refusals
from storage.engine import Database
from storage.records import TrialRecord, TrialState
from storage.repositories.metrics import Metrics
from storage.repositories.studies import Studies
from storage.repositories.trials import Trials


def sampler_context_of(
    spec: StudySpec,
    space: AnySpace,
    past: Callable[[], Past],
    knowledge: Knowledge | None = None,
    *,
    interface: Callable[[], Interface | None] = lambda: None,
    slots: Callable[[], int] = lambda: 1,
    pins: Callable[[int], Mapping[str, Scalar]] = lambda _number: {},
) -> SamplerContext:
    """A study's facts; `past` is asked once per suggestion, where a sampler wants it.

    `interface` gives what preparing the study's data found to stand around its models.
    """

    def is_refused(drawn: DrawnTrial) -> bool:
        try:
            drawn.spec.check()
        except SpecError:
            return True
        return any(True for _ in refusals(spec, drawn.spec, interface()))

    return SamplerContext(
        space=space,
        objectives=tuple(spec.objectives),
        region=spec.region,
        metric=spec.task.metric,
        seed=spec.seed,
        epochs=spec.budget.epochs,
        trials=spec.budget.trials,
        replicates=spec.duplicates == "replicate",
        limits=spec.limits,
        is_refused=is_refused,
        file_bytes=lambda trial: bytes_wanted(spec, trial, interface()),
        past=past,
        slots=slots,
        pins=pins,
        knowledge=knowledge or Knowledge(),
    )


class RememberedPast:
    """A study's past as its tables have it now, of which only what may have changed is read.

    See Note [Remembered trials]. A trial that is paused, or has ended with the sampler being told,
    changes by a version of the study's data alone; and the curve of one that ended not at all.
    """

    def __init__(self, database: Database, study_id: str, *, with_seconds: bool = False) -> None:
        """`with_seconds`: how long epochs took is read, too."""
        self._database = database
        self._study_id = study_id
        self._with_seconds = with_seconds
        self._seconds: dict[int, float] = {}
        self._version = -1
        self._trials: dict[int, TrialRecord] = {}
        self._validations: dict[int, dict[int, float]] = {}
        self._unsettled: set[int] = set()
        """Trials that may be others now without a word of it."""
        self._whole: set[int] = set()
        """Trials whose curves were read to their ends."""

    def now(self) -> Past:
        """The past; what is given out is not changed later."""
        with self._database.read() as session:
            study, trials = Studies(session).get(self._study_id), Trials(session)
            first = 1 + max(self._trials, default=-1)
            changed = {
                trial.number: trial
                for trial in (
                    *trials.numbered(study.id, self._unsettled),
                    *trials.changed(study.id, after=self._version, first=first),
                )
            }
            open_curves = changed.keys() - self._whole
            curves = Metrics(session).validations(study.id, open_curves)
            if self._with_seconds:
                seconds = Metrics(session).epoch_seconds(study.id, open_curves)
                # The first epoch is one of warming up.
                self._seconds |= {n: median(of[1:] or of) for n, of in seconds.items()}
        self._trials |= changed
        self._validations |= curves
        ended = {n for n, trial in changed.items() if _has_ended(trial)}
        paused = {n for n, trial in changed.items() if trial.state is TrialState.PAUSED}
        self._unsettled = (self._unsettled | changed.keys()) - ended - paused
        self._whole |= ended
        self._version = study.data_version
        samples = (study.prepared or {}).get("validation")
        return Past(
            trials=[self._trials[number] for number in sorted(self._trials)],
            validations=dict(self._validations),
            validation_samples=samples if isinstance(samples, int) else None,
            epoch_seconds=dict(self._seconds),
        )


def _has_ended(trial: TrialRecord) -> bool:
    return trial.state.has_ended and trial.told_at is not None
