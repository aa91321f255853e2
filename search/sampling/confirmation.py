"""Confirming the front: when the search is over, its points are trained with further seeds."""

from collections.abc import Sequence

import optuna

from search.fronts import front_of
from search.running import StudyContext
from search.sampling.optuna_study import OptunaStudy
from search.sampling.suggestions import Suggestions
from search.studies import configuration_of, is_trained_afresh
from storage.records import TrialCounts, TrialOrigin, TrialRecord, TrialState
from storage.repositories.trials import Trials


class Confirmation:
    """The confirmations of one study: trials of their own, numbered as Optuna numbers them."""

    def __init__(
        self, study: StudyContext, optuna_study: OptunaStudy, suggestions: Suggestions
    ) -> None:
        self._study = study
        self._optuna_study = optuna_study
        self._suggestions = suggestions
        self._nothing_due: TrialCounts | None = None

    def ask(self, counts: TrialCounts) -> bool:
        """Begin the confirmations that are due, as many as there is room for ahead.

        Returns:
            Whether any was begun.
        """
        if self._study.spec.confirm == 0 or not self._study.front_is_settled:
            return False
        did = False
        # The front stays what it is while the first of them train, and slots wait for none.
        while self._suggestions.have_room(counts) and (due := self.due()):
            self._enter(self._optuna_study.ask(), due[0])
            did, counts = True, self._study.trials.counts()
        return did

    def due(self) -> list[TrialRecord]:
        """Points that lack confirmations, those that have the fewest first.

        None before the search is over: nothing waits or trains of it, and nothing more is asked
        for. It follows from the rows alone, so a coordinator that is started again goes on here.
        """
        if self._study.spec.confirm == 0:
            return []
        counts = self._study.trials.counts()
        if counts == self._nothing_due or not self._suggestions.are_over(counts):
            return []
        with self._study.database.read() as session:
            trials = Trials(session).summaries(self._study.id, *TrialState)
            if any(t.origin != TrialOrigin.CONFIRMATION and not t.state.has_ended for t in trials):
                return []
            front = {trial.number for trial in front_of(trials, self._study.infos)}
            begun = {t.number for t in trials if t.origin == TrialOrigin.CONFIRMATION}
            records = Trials(session).numbered(self._study.id, front | begun)
        due = _lacking(
            [trial for trial in records if trial.number in begun],
            [trial for trial in records if trial.number in front],
            wanted=self._study.spec.confirm,
        )
        if not due:
            self._nothing_due = counts
        return due

    def _enter(self, asked: optuna.Trial, point: TrialRecord) -> None:
        """Make an asked trial a confirmation of a point."""
        self._suggestions.again(asked, point, origin=TrialOrigin.CONFIRMATION, repeats=point.number)


def _lacking(
    confirmations: Sequence[TrialRecord], front: Sequence[TrialRecord], *, wanted: int
) -> list[TrialRecord]:
    """Points with fewer than the wanted confirmations, which count however they ended.

    Of points with the same configuration the first stands for all.
    """
    begun: dict[str, int] = {}
    for trial in confirmations:
        configuration = configuration_of(trial.spec)
        begun[configuration] = begun.get(configuration, 0) + 1
    points: dict[str, TrialRecord] = {}
    for point in front:
        # A model that is not trained has no other seed.
        if is_trained_afresh(point) and point.origin != TrialOrigin.ORIGINAL:
            points.setdefault(configuration_of(point.spec), point)
    lacking = {
        configuration: point
        for configuration, point in points.items()
        if begun.get(configuration, 0) < wanted
    }
    return sorted(lacking.values(), key=lambda point: begun.get(configuration_of(point.spec), 0))
