"""What figures of one study are made of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from search.documents.fronts import ObjectiveInfo
from search.documents.objectives import OBJECTIVE_KINDS, Objective
from search.documents.region import Region
from search.fronts.noise import Noise
from search.graphs.network_trial import BITS, STRUCTURE, WHOLE
from service.figures.references import Reference
from storage.repositories.trial_summaries import TrialSummary

NETWORK_FORMS: Mapping[str, str] = {
    WHOLE: "as it was uploaded",
    BITS: "fewer bits",
    STRUCTURE: "low rank and fewer bits",
}
"""What trials of a network of others are called, by what stands where others have a
parametrization."""


@dataclass(frozen=True, kw_only=True)
class ShownStudy:
    """One study as its figures show it, all of one transaction."""

    trials: Sequence[TrialSummary]
    """The complete ones but confirmations, by number."""
    on_front: frozenset[int]
    infos: Mapping[Objective, ObjectiveInfo]
    """The study's own objectives, then those that every trial has."""
    own: Sequence[Objective]
    """The study's own objectives, in the order in which they are shown."""
    region: Region = field(default_factory=Region)
    named: Mapping[int, str] = field(default_factory=dict[int, str])
    """Trial -> the system of the papers that it is, or that it is the original."""
    original: int | None = None
    intervals: Mapping[int, tuple[float, float]] = field(
        default_factory=dict[int, tuple[float, float]]
    )
    """Point of the front -> where its mean over seeds lies, for those with several."""
    noise: Noise | None = None
    references: Sequence[Reference] = ()
    is_network: bool = False
    recommended: int | None = None
    selected: frozenset[int] = frozenset()
    """Trials that a reader chose."""

    def colour_name(self, trial: TrialSummary) -> str:
        """What a trial's colour stands for."""
        return NETWORK_FORMS[trial.parametrization] if self.is_network else trial.parametrization

    def value(self, trial: TrialSummary, objective: Objective) -> float | None:
        """A trial's value of one objective."""
        return OBJECTIVE_KINDS[objective].value(trial)

    def words(self, trial: TrialSummary) -> list[str]:
        """What a pointer shows, one fact a line."""
        name = f" ({self.named[trial.number]})" if trial.number in self.named else ""
        form = self.colour_name(trial)
        model = form if self.is_network else f"{trial.architecture} × {form}"
        found = [f"trial {trial.number}{name}: {model}"]
        metric = self.infos["quality"].metric
        for kind in OBJECTIVE_KINDS.values():
            value = kind.value(trial)
            if value is not None:
                found.append(kind.told.format(metric=metric, value=kind.shown(value)))
        if trial.throughput_ratio is not None:
            beside = "the original's" if self.is_network else "its dense baseline's"
            found.append(f"{trial.throughput_ratio:.2f} × {beside} throughput")
        if trial.number in self.on_front:
            found.append("on the front")
        if trial.number == self.recommended:
            found.append("recommended")
        if self.region.is_outside(trial):
            found.append("outside the region of interest")
        return found

    def axes(
        self, x: Objective | None = None, y: Objective | None = None
    ) -> tuple[Objective, Objective]:
        """Two objectives; an axis that is named twice gives way to another one."""
        names: list[Objective] = [
            *self.own,
            *(name for name in self.infos if name not in self.own),
        ]
        up: Objective = y or "quality"
        costs: list[Objective] = [name for name in names if name not in ("quality", up)]
        across: Objective = x or costs[0]
        if across == up:
            rest: list[Objective] = [name for name in names if name != across]
            up = rest[0]
        return across, up
