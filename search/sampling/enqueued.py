"""Trials that users name (`search.studies.named_trials`): their commands become trials.

The row is written with the command's answer in one transaction, so that a command becomes one trial
whenever a coordinator dies.
"""

from functools import partial

import optuna
from sqlalchemy.orm import Session

from search.running import StudyContext
from search.sampling.optuna_study import OptunaStudy
from search.sampling.suggestions import Suggestions
from search.studies import NamedFirst, NamedTrial
from storage.records import CommandRecord, TrialOrigin
from storage.repositories.commands import Commands
from storage.repositories.trials import Trials


class Enqueued:
    """The trials that users named in one study."""

    def __init__(
        self, study: StudyContext, optuna_study: OptunaStudy, suggestions: Suggestions
    ) -> None:
        self._study = study
        self._optuna_study = optuna_study
        self._suggestions = suggestions

    def enter(self, command: CommandRecord) -> None:
        """Make a trial of a command; what the study's document names comes first."""
        asked = self._optuna_study.ask()
        if asked.number < self._study.spec.named_first:
            self._suggestions.enter(asked)
        else:
            self._enter(command, asked)

    def _enter(self, command: CommandRecord, asked: optuna.Trial) -> None:
        number, named = asked.number, NamedTrial.model_validate(command.payload)

        def answer(session: Session) -> None:
            Commands(session).answer(command.id, number)

        if named.continues is None:
            drawn = self._suggestions.draw(number, asked, wrapped=partial(NamedFirst, named))
            self._suggestions.admit(number, asked, drawn, origin=TrialOrigin.USER, also=answer)
            return
        with self._study.database.read() as session:
            continued = Trials(session).get(self._study.id, named.continues)
        # With a seed of its own: the data come in another order.
        self._suggestions.again(
            asked, continued, origin=TrialOrigin.USER, continues=named.continues, also=answer
        )
