"""The space of a study that compresses a network of others: a choice for each of its layers.

See Note [Networks of others] in `search/README.md`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NoReturn, TypeAlias

from search.documents.spaces import ParameterRange, SpaceDescription
from search.errors import Fault, SpecRefused
from search.graphs.fine_tune import FineTune
from search.graphs.front import Proposals
from search.graphs.model_outputs import ModelOutputs
from search.graphs.network_trial import FORMS, NETWORK, NetworkTrial, label_of
from search.graphs.offered_layers import OfferedLayers
from search.graphs.picks import Measured, Objective, Picks
from search.spaces.dimension import Dimension, Scalar
from search.spaces.draws import Source
from search.spaces.limits import Limits, excesses_of_a_network
from search.spaces.model_space import Candidate, Hyperparameters
from storage.records import TrialRecord, TrialState

LATER: Literal["later"] = "later"
"""Nothing can be proposed before more is known of what runs."""


@dataclass(frozen=True, kw_only=True)
class DrawnNetwork:
    """One configuration: the document, and what of it is shown."""

    candidate: Candidate
    spec: NetworkTrial
    hyperparameters: Hyperparameters
    """Layer -> its choice in words, of layers that are not as they were."""
    drawn: dict[str, Scalar] = field(default_factory=dict[str, Scalar])
    """None: Optuna models nothing of it."""


Proposal: TypeAlias = DrawnNetwork | Literal["later"] | None
"""The configuration of a suggestion; None: there are no others."""


class NetworkSpace:
    """The space of one study. What may be picked is known once the study is prepared."""

    def __init__(
        self,
        task: ModelOutputs,
        *,
        costs: Sequence[Objective],
        seed: int,
        limits: Limits | None = None,
        offered: Callable[[], OfferedLayers | None] = lambda: None,
    ) -> None:
        """`offered` gives what preparing the study found; None before that.

        What is beyond `limits` on bytes or parameters is proposed only where nothing is within.
        """
        self._task, self._costs, self._seed = task, tuple(costs), seed
        self._limits = Limits() if limits is None else limits
        self._read_offers = offered
        self._offered: OfferedLayers | None = None
        self._proposals: Proposals | None = None
        self._told: set[int] = set()

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """Networks whose numbers are rounded alone, and those with factors."""
        return tuple(Candidate(architecture=NETWORK, parametrization=form) for form in FORMS)

    @property
    def dimensions(self) -> Mapping[str, Dimension]:
        """None: Optuna models nothing of it."""
        return {}

    @property
    def parameter_range(self) -> ParameterRange:
        """Up to those of the network; how few they can be shows when the study is prepared."""
        return ParameterRange(low=0, high=self._task.known.parameters)

    @property
    def offered(self) -> OfferedLayers | None:
        """What may be picked; None before the study is prepared."""
        if self._offered is None:
            self._offered = self._read_offers()
        return self._offered

    def named(self) -> Sequence[DrawnNetwork]:
        """The network as it was uploaded."""
        return [self.original()]

    def ends(self, *, highest: bool) -> Sequence[DrawnNetwork]:  # noqa: ARG002
        """The network itself: what is smaller is known once the study is prepared."""
        return [self.original()]

    def original(self) -> DrawnNetwork:
        """The network as it was uploaded."""
        known = self._task.known
        trial = NetworkTrial(
            picks={},
            parameters=known.parameters,
            dense_parameters=known.parameters,
            bytes=known.file_bytes,
            seed=self._seed,
        )
        return self._drawn(trial)

    def fine_tuned(self, point: TrialRecord, how: FineTune) -> DrawnNetwork:
        """The same as a trial, with its numbers trained further."""
        trial = NetworkTrial.model_validate(point.spec)
        return self._drawn(trial.model_copy(update={"fine_tune": how}))

    def proposal(self, number: int, past: Sequence[TrialRecord]) -> Proposal:
        """The trial of a number, by all that is known of those before it.

        It follows from the offers, the seed, what ended so far, and what is under way.
        """
        offered = self.offered
        if offered is None:
            return LATER
        if self._proposals is None:
            self._proposals = Proposals(
                offered.layers,
                objectives=self._costs,
                seed=self._seed,
                within=self._within(offered),
            )
        proposals = self._proposals
        self._tell(proposals, offered, past)
        if number >= len(proposals.first) and not proposals.front:
            waits = any(not trial.state.has_ended for trial in past)
            return LATER if waits else None
        picks = proposals.ask(number)
        return None if picks is None else self._drawn(self._trial(offered, picks))

    def draw(self, source: Source) -> NoReturn:  # noqa: ARG002
        """Nothing is drawn.

        Raises:
            SpecRefused: a trial was named, or another sampler asked.
        """
        raise SpecRefused([Fault("task", "trials of a network's layers are proposed by by_layer")])

    def place(self, spec: object) -> None:
        """Nothing lies in a space without dimensions."""

    def preset(self, name: str) -> NoReturn:
        """There are none.

        Raises:
            SpecRefused: always.
        """
        raise SpecRefused([Fault("presets", f"{name!r} trains a model; allowed here are none")])

    def describe(self) -> SpaceDescription:
        """The space, as a dry run shows it."""
        return SpaceDescription(
            dimensions=(),
            candidates=tuple(
                {"architecture": one.architecture, "parametrization": one.parametrization}
                for one in self.candidates
            ),
            parameter_range=self.parameter_range,
        )

    def _tell(
        self, proposals: Proposals, offered: OfferedLayers, past: Sequence[TrialRecord]
    ) -> None:
        best = next((trial.quality for trial in past if trial.number == 0), None)
        for record in past:
            if record.number in self._told:
                continue
            trial = NetworkTrial.model_validate(record.spec)
            if trial.fine_tune is not None:
                # Other picks lose as much as their fits do.
                self._told.add(record.number)
                continue
            if not record.state.has_ended:
                proposals.begin(record.number, trial.picks)
                continue
            self._told.add(record.number)
            loss = None
            if record.state == TrialState.COMPLETE:
                loss = self._loss(record.quality, best)
            # What was refused or broke down is proposed no more, and is nothing to go on from. What
            # was measured beyond a limit is: others near it may keep the limit.
            early = float("inf") if loss is None else loss
            found = Measured(trial.picks, offered.costs(trial), early, loss)
            proposals.tell(record.number, found)

    def _loss(self, quality: float | None, original: float | None) -> float | None:
        """The metric as what is lost, which 0 is none of."""
        if quality is None:
            return None
        if self._task.compared_by.direction == "minimize":
            return max(0.0, quality)
        return max(0.0, (1.0 if original is None else original) - quality)

    def _within(self, offered: OfferedLayers) -> Callable[[Picks], bool] | None:
        """Whether picks keep the limits that are known of before a file is made; None: no limit."""
        limits = self._limits
        if limits.bytes is None and limits.parameters is None:
            return None

        def is_within(picks: Picks) -> bool:
            return not any(excesses_of_a_network(limits, self._trial(offered, picks)))

        return is_within

    def _trial(self, offered: OfferedLayers, picks: Picks) -> NetworkTrial:
        return offered.trial(picks, seed=self._seed, original_bytes=self._task.known.file_bytes)

    def _drawn(self, trial: NetworkTrial) -> DrawnNetwork:
        candidate = Candidate(architecture=NETWORK, parametrization=trial.form)
        picks = {name: label_of(pick) for name, pick in trial.picks.items()}
        return DrawnNetwork(candidate=candidate, spec=trial, hyperparameters={**picks})
