"""The coordinator's side of trials that users name (`search.named_trials`): errands become trials.

A coordinator may die between Optuna and our rows here too. The asked trial names its errand before
it is given anything, and the row is written with the errand's answer in one transaction: the next
coordinator adopts the trial for the same errand, or asks for one where there was none.
"""

from functools import partial
from typing import cast

import optuna
from sqlalchemy.orm import Session

from search.configurations import replicate_seed
from search.dimension import Scalar
from search.mirror import Mirror
from search.model_space import Candidate, Hyperparameters
from search.named_trials import NamedFirst, NamedTrial
from search.space import DrawnTrial
from search.study_context import StudyContext
from search.suggestions import Suggestions
from search.trial import TrialSpec
from storage.errands import Errands
from storage.records import ErrandKind, ErrandRecord, TrialOrigin
from storage.trials import Trials

_ERRAND = "errand"
"""The attribute by which Optuna's trial tells whose errand it is."""


class Enqueued:
    """The trials that users named in one study."""

    def __init__(self, study: StudyContext, mirror: Mirror, suggestions: Suggestions) -> None:
        self._study = study
        self._mirror = mirror
        self._suggestions = suggestions

    def ask(self) -> bool:
        """Make a trial of the oldest errand; what the study's document names comes first.

        Returns:
            Whether there was an errand.
        """
        with self._study.database.read() as session:
            errands = Errands(session).open(ErrandKind.ENQUEUE, self._study.id)
            number = Trials(session).counts(self._study.id).total if errands else 0
        if not errands:
            return False
        asked = self._mirror.ask(number)
        if number < self._study.spec.named_first:
            self._suggestions.enter(number, asked)
        else:
            asked.set_user_attr(_ERRAND, errands[0].id)
            self._enter(errands[0], asked)
        return True

    def adopt(self, asked: optuna.Trial) -> bool:
        """Write the row that an asked trial lacks, if it was asked for an errand.

        Returns:
            Whether it was.
        """
        errand_id = asked.user_attrs.get(_ERRAND)
        if not isinstance(errand_id, str):
            return False
        with self._study.database.read() as session:
            errand = Errands(session).find(errand_id)
        if errand is None or errand.trial is not None:
            return False
        self._enter(errand, asked)
        return True

    def _enter(self, errand: ErrandRecord, asked: optuna.Trial) -> None:
        number, named = asked.number, NamedTrial.model_validate(errand.payload)

        def answer(session: Session) -> None:
            Errands(session).answer(errand.id, number)

        if named.continues is None:
            drawn = self._suggestions.draw(number, asked, wrapped=partial(NamedFirst, named))
            self._suggestions.admit(number, asked, drawn, origin=TrialOrigin.USER, also=answer)
            return
        drawn = self._again(named.continues, number)
        self._mirror.give(asked, drawn.drawn, self._study.space.dimensions)
        self._mirror.annotate(asked, drawn.hyperparameters)
        self._suggestions.add(
            number, drawn, origin=TrialOrigin.USER, continues=named.continues, also=answer
        )

    def _again(self, continued: int, number: int) -> DrawnTrial:
        """A trial's configuration, with a seed of its own: the data come in another order."""
        with self._study.database.read() as session:
            trial = Trials(session).get(self._study.id, continued)
        seed = replicate_seed(self._study.spec.seed, number)
        return DrawnTrial(
            candidate=Candidate(
                architecture=trial.architecture, parametrization=trial.parametrization
            ),
            spec=TrialSpec.model_validate(trial.spec).model_copy(update={"seed": seed}),
            hyperparameters=cast(Hyperparameters, dict(trial.hyperparameters)),
            drawn=cast(dict[str, Scalar], dict(trial.drawn)),
        )
