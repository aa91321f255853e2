"""How long a study may take, as far as that is known before it begins."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from search.studies.spec import Budget
from service.rendering.filters import duration, number


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How long an epoch of a task took."""

    seconds: float
    study: str
    """The name of the study that measured it."""


@dataclass(frozen=True)
class Estimate:
    """The time that the trials of a filled-in form would train, and how it follows."""

    paces: Mapping[str, Pace]
    """By kinds of tasks."""
    task: str
    trials: str
    epochs: str

    @property
    def words(self) -> str:
        """The estimate as a sentence."""
        pace = self.paces.get(self.task)
        trials, epochs = self._count(self.trials, "trials"), self._count(self.epochs, "epochs")
        if pace is None or trials is None or epochs is None:
            return "unknown until the first trial"
        return (
            f"about {duration(trials * epochs * pace.seconds)} on one slot: {trials} trials × "
            f"{epochs} epochs × {number(pace.seconds, 2)} s, as in study “{pace.study}”"
        )

    @property
    def known(self) -> dict[str, Any]:
        """The same for a script that says it anew while the form is filled in."""
        return {kind: asdict(pace) for kind, pace in self.paces.items()}

    def _count(self, text: str, name: str) -> int | None:
        try:
            return int(text) if text else int(Budget.model_fields[name].default)
        except ValueError:
            return None
