"""How far a study is."""

from models.spec import Spec


class TrialTotals(Spec):
    """Trials by state; `total` is the budget."""

    total: int
    queued: int
    running: int
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
    wall_seconds: float
    device_hours: float
    hypervolume: float | None
    measuring_share: float
    """Share of the running time in which the measurement lock was in use."""
    eta_seconds: float | None
