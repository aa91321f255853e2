"""Fine-tuning the front of a network of others: when the search is over, points are trained on."""

from collections.abc import Sequence

import numpy as np

from search.fronts import front_of
from search.graphs.fine_tune import FineTune
from search.graphs.model_outputs import ModelOutputs
from search.running import StudyContext
from search.sampling.optuna_study import OptunaStudy
from search.sampling.suggestions import Suggestions
from search.spaces import NetworkSpace
from storage.records import TrialCounts, TrialOrigin, TrialRecord, TrialState
from storage.repositories.studies import Studies
from storage.repositories.trial_summaries import AnyTrial
from storage.repositories.trials import Trials


class FineTuning:
    """The trials of one study that train its front further, each beside the point itself."""

    def __init__(
        self, study: StudyContext, optuna_study: OptunaStudy, suggestions: Suggestions
    ) -> None:
        self._study = study
        self._optuna_study = optuna_study
        self._suggestions = suggestions
        self._nothing_due: TrialCounts | None = None

    def ask(self, counts: TrialCounts) -> bool:
        """Begin the trials that are due, as many as there is room for ahead.

        Returns:
            Whether any was begun.
        """
        how = self._how
        if how is None or not self._study.front_is_settled:
            return False
        did = False
        # What the search has found stays what it is while the first of them train.
        while self._suggestions.have_room(counts) and (due := self.due()):
            self._enter(due[0], how)
            did, counts = True, self._study.trials.counts()
        return did

    def due(self) -> list[TrialRecord]:
        """Points of the front that are to be trained further and are not yet.

        None before the search is over: nothing waits or runs of it, and nothing more is asked for;
        nor where preparing the study has found that its network cannot be trained. It follows from
        the rows alone, so a coordinator that is started again goes on here.
        """
        how = self._how
        if how is None:
            return []
        counts = self._study.trials.counts()
        if counts == self._nothing_due or not self._suggestions.are_over(counts):
            return []
        with self._study.database.read() as session:
            prepared = Studies(session).get(self._study.id).prepared or {}
            trials = Trials(session).summaries(self._study.id, *TrialState)
            searched = [t for t in trials if t.origin != TrialOrigin.FINE_TUNING]
            if not all(trial.state.has_ended for trial in searched):
                return []
            begun = {t.continues for t in trials if t.origin == TrialOrigin.FINE_TUNING}
            front = front_of(searched, self._study.infos)
            points = [
                point.number
                for point in spread([t for t in front if t.origin != TrialOrigin.ORIGINAL], how)
                if point.number not in begun
            ]
            if prepared.get("fine_tuning") is not None:
                points = []
            # A front that is measured anew may be another one: no more are trained for that.
            due = Trials(session).numbered(
                self._study.id, points[: max(0, how.points - len(begun))]
            )
        if not due:
            self._nothing_due = counts
        return list(due)

    @property
    def _how(self) -> FineTune | None:
        task = self._study.spec.task
        return task.fine_tune if isinstance(task, ModelOutputs) else None

    def _enter(self, point: TrialRecord, how: FineTune) -> None:
        """Make a new trial one that trains a point further."""
        space = self._study.space
        assert isinstance(space, NetworkSpace)
        self._suggestions.add(
            self._optuna_study.ask().number,
            space.fine_tuned(point, how),
            origin=TrialOrigin.FINE_TUNING,
            continues=point.number,
        )


def spread(front: Sequence[AnyTrial], how: FineTune) -> list[AnyTrial]:
    """As many points as are trained at most, evenly by their sizes: both ends are among them."""
    ordered = sorted(front, key=lambda trial: (trial.bytes or 0, trial.number))
    count = min(how.points, len(ordered))
    places = np.linspace(0, len(ordered) - 1, count).round().astype(int)
    return [ordered[int(place)] for place in places]
