"""What every sampler is to a study, and what a study is to a sampler."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import Study
from optuna.trial import FrozenTrial

from models.spec import Spec
from search.documents.objectives import Objective
from search.documents.region import Region
from search.samplers.adapters.distributions import distribution_of
from search.samplers.modelling.sampler_cache import SamplerCache
from search.spaces import Dimension, DrawnTrial, Limits, Proposal, Scalar, Source
from search.tasks import Metric
from search.training.trial_spec import TrialSpec
from storage.records import TrialRecord


class Space(Protocol):
    """The space that a sampler draws from."""

    @property
    def dimensions(self) -> Mapping[str, Dimension]:
        """Every dimension by name; one configuration has some of them."""
        ...

    def draw(self, source: Source) -> DrawnTrial:
        """One configuration by the source's answers."""
        ...


@dataclass(frozen=True, kw_only=True)
class Past:
    """What a study did so far, as its tables have it."""

    trials: Sequence[TrialRecord]
    """By number."""
    validations: Mapping[int, Mapping[int, float]]
    """Trial number -> epoch -> the validation metric."""
    validation_samples: int | None
    """How many the metric is over; null until the data were looked at."""
    epoch_seconds: Mapping[int, float] = field(default_factory=dict[int, float])
    """Trial number -> the median of its epochs' seconds, but for the first where there are more.
    Empty where the sampler does not ask for them (`Sampler.asks_for_seconds`)."""


@dataclass(frozen=True, kw_only=True)
class RankedTrials:
    """Trials of a study whose values do not compare with this one's, for it has another task.

    How they rank among each other may tell something all the same.
    """

    trials: Sequence[TrialRecord]
    """Complete ones, numbered as those of `Knowledge`; they need not lie in the study's space."""
    ranks: Sequence[float]
    """In (0, 1), the lower the better: (rank - 1/2) / n of each among the n."""


@dataclass(frozen=True, kw_only=True)
class Knowledge:
    """What a study was given of other studies before its first suggestion; it never changes.

    Their trials have negative numbers, from the lowest on, and lie in the study's space.
    """

    trials: Sequence[TrialRecord] = ()
    validations: Mapping[int, Mapping[int, float]] = field(
        default_factory=dict[int, Mapping[int, float]]
    )
    """Trial number -> epoch -> the validation metric."""
    ranked: Sequence[RankedTrials] = ()
    """Of studies of other tasks, for samplers that learn from ranks."""


def _no_pins(_number: int) -> Mapping[str, Scalar]:
    return {}


@dataclass(frozen=True, kw_only=True)
class SamplerContext:
    """What a sampler may know of its study beside what Optuna holds of it."""

    space: Space
    objectives: Sequence[Objective]
    metric: Metric
    seed: int
    epochs: int
    """Of every trial that is not stopped."""
    trials: int
    """That the budget names."""
    limits: Limits
    is_refused: Callable[[DrawnTrial], bool]
    """Whether a configuration cannot be built, or breaks a limit that is known beforehand."""
    file_bytes: Callable[[TrialSpec], int | None]
    """The size of the file that a trial will have; null where nobody asks, or there is none."""
    past: Callable[[], Past]
    slots: Callable[[], int] = lambda: 1
    """How many trials train at once."""
    pins: Callable[[int], Mapping[str, Scalar]] = _no_pins
    """By the number of a trial: values that it has whatever is drawn, by dimension."""
    replicates: bool = False
    """Whether a configuration that was trained may be trained again, with another seed."""
    region: Region = field(default_factory=Region)
    """From where gains count."""
    knowledge: Knowledge = Knowledge()
    sampler_cache: SamplerCache = field(default_factory=SamplerCache)


NO_LIMIT = 1e9
"""A limit that every error keeps; with a minus sign none does. JSON knows no infinity."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is to be ranked, and what there is to spend."""

    decision: int
    """How many decisions the study has made: what is drawn follows from the seed and this."""
    epochs_left: int | None
    """That the budgets leave, beyond what running trials train before they are judged again; None:
    no end."""
    slots: int
    ready: Set[int]
    """Those that may begin or go on now; others still wait for being measured."""
    wanted: Set[int] = frozenset()
    """Paused trials that are to go on to their end whatever they promise: others wait for them."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A trial that could train next, and how far."""

    trial: int
    until: int
    """The epoch after which it is judged again."""
    index: float
    """The hypervolume that it is expected to add for each unit of `price`."""
    price: float
    """Of training it until then."""
    limits: Sequence[tuple[int, float]] = ()
    """For each epoch from `until` on at which it is judged, the largest log error with which it
    goes on."""


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """What is to train next, as the past and the seed have it."""

    choices: Sequence[Choice] = ()
    """The best first; of all but the first one no limits are known yet, unless `together`."""
    limits: Mapping[int, Sequence[tuple[int, float]]] = field(
        default_factory=dict[int, Sequence[tuple[int, float]]]
    )
    """By running trial, as they are once the first choice runs."""
    together: bool = False
    """Whether all choices may begin at once: nothing is known that one would tell of another."""
    superseded: Sequence[int] = ()
    """Trials that wait and are not worth it any more, since better ones wait."""
    let_go: Mapping[int, str] = field(default_factory=dict[int, str])
    """Paused trials that never go on, and why."""
    over: bool = False
    """Whether nothing that could begin or go on would come to its end."""


class WholeSampler(BaseSampler):
    """Answers all dimensions of a trial at once, by values that are chosen for its number."""

    def __init__(
        self,
        dimensions: Mapping[str, Dimension],
        choose: Callable[[int], Mapping[str, Scalar]],
        *,
        seed: int,
    ) -> None:
        self._dimensions = dimensions
        self._choose = choose
        self._random = RandomSampler(seed=seed)

    def values_for(self, number: int) -> Mapping[str, Scalar]:
        """The values of trial `number`, by the dimensions that its configuration has."""
        return self._choose(number)

    def infer_relative_search_space(
        self,
        study: Study,  # noqa: ARG002
        trial: FrozenTrial,  # noqa: ARG002
    ) -> dict[str, BaseDistribution]:
        """Every dimension of the space."""
        return {name: distribution_of(one) for name, one in self._dimensions.items()}

    def sample_relative(
        self,
        study: Study,  # noqa: ARG002
        trial: FrozenTrial,
        search_space: dict[str, BaseDistribution],  # noqa: ARG002
    ) -> dict[str, Scalar]:
        """The values that were chosen; dimensions that a configuration lacks are not among them."""
        return dict(self.values_for(trial.number))

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Scalar:
        """A random value for what the choice leaves open.

        That happens where a coordinator died while the trial was drawn: what the trial has by then
        stands, and may ask for other dimensions.
        """
        return self._random.sample_independent(study, trial, param_name, param_distribution)


class Sampler(Spec):
    """A sampler by its name and settings."""

    proposes: ClassVar[bool] = False
    """Whether `propose` gives configurations as wholes, and Optuna is asked for none."""

    @abstractmethod
    def build_for(self, study: SamplerContext, /, *, seed: int) -> BaseSampler:
        """A sampler for one suggestion of a study; the next suggestion gets another.

        The suggestion follows from `seed`, which each has of its own (`study.seed` is the study's),
        the trial's number, the trials told so far and the study's past: nothing else is there after
        a restart, what a sampler of Optuna's noted in Optuna's tables neither.
        """

    def propose(self, _study: SamplerContext, _number: int, /) -> Proposal:
        """The whole configuration of a suggestion, where `proposes` says that there is one."""
        raise NotImplementedError(f"{type(self).__name__} proposes no whole configurations")

    def rungs(self, _epochs: int, /) -> tuple[int, ...]:
        """The epochs of a training of so many after which a trial may be paused; none: it never is.

        Where there are some, `rank` says which trial trains next, and how far.
        """
        return ()

    def learns_from_ranks(self) -> bool:
        """Whether the sampler makes use of how trials of other tasks rank."""
        return False

    def asks_for_seconds(self) -> bool:
        """Whether the sampler goes by how long epochs take."""
        return False

    def rank(self, _study: SamplerContext, _question: Question, /) -> Ranking:
        """What is to train next of all that waits and all that is paused.

        It follows from the study's past, its seed and the question.
        """
        raise NotImplementedError(f"{type(self).__name__} pauses no trials")

    def fault(self, _space: Space, _objectives: Sequence[str], /) -> str | None:
        """Why the sampler cannot search this space for these objectives, or None where it can."""
        return None

    def most_trials(self) -> int | None:
        """With the budget of how many trials the sampler keeps up; None: with any."""
        return None

    def size(self, _space: Space, /) -> int | None:
        """How many suggestions the sampler has at all; None where there is no end to them."""
        return None
