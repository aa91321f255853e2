"""How far a study is."""

from models.spec import Spec


class TrialTotals(Spec):
    """Trials by state; `total` is the budget."""

    total: int
    queued: int
    running: int
    paused: int = 0
    complete: int
    stopped: int
    infeasible: int
    failed: int
    cancelled: int
    refused: int
    """Those of the infeasible that were refused before dispatch, and so cost no budget."""

    @property
    def ended(self) -> int:
        """Trials that used up budget: those with an outcome, without what was never dispatched."""
        return self.complete + self.stopped + self.infeasible - self.refused + self.failed


class StudyProgress(Spec):
    """How far a study is."""

    trials: TrialTotals
    epochs_trained: int
    epochs_left: int | None = None
    """Of `budget.trials` whole trainings, where the sampler says how far each trial trains; null:
    trials are counted."""
    wall_seconds: float
    device_hours: float
    hypervolume: float | None
    front_points: int | None = None
    """How many trials are on the front; null from older servers."""
    measuring_share: float
    """Share of the running time in which the measurement lock was in use."""
    share: float | None = None
    """How much of the budget is used up, from 0 to 1, by the part of it of which most is; epochs of
    trials that train count. Null from older servers."""
    eta_seconds: float | None
    """Seconds to the end at the pace so far; null before the first epoch."""

    @property
    def steps(self) -> tuple[int, int]:
        """How many of the budget's steps are done, and how many there are: trials or epochs."""
        if self.epochs_left is None:
            return min(self.trials.ended, self.trials.total), self.trials.total
        return self.epochs_trained, self.epochs_trained + self.epochs_left
