"""What the dashboard's page of a study asks for, `/api/studies/N`, answered without the dashboard.

Its own answer compares all trials with all others in Python to find the best ones, and makes every
trial anew at every look: 10,000 take half a minute of processor time. Here each trial's JSON is
kept for as long as the trial does not change. All else of the answer is made by the dashboard's own
functions, and a test compares both answers.
"""

import json
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, cast, final
from urllib.parse import parse_qs

import moocore  # pyright: ignore[reportMissingTypeStubs]  # it has none
import numpy as np
from optuna.distributions import BaseDistribution
from optuna.study import StudyDirection
from optuna.study._frozen import FrozenStudy  # what the dashboard's own functions take
from optuna.trial import FrozenTrial, TrialState
from optuna_dashboard._custom_plot_data import (  # pyright: ignore[reportMissingTypeStubs]
    get_plotly_graph_objects,
)
from optuna_dashboard._serializer import (  # pyright: ignore[reportMissingTypeStubs]
    serialize_attrs,
    serialize_distribution,
    serialize_study_detail,
)

from search.samplers import CONSTRAINTS
from service.processes.dashboard_storage import StudiesOfTenant

_Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

_PATH: Final = re.compile(r"/api/studies/([0-9]{1,10})/?")
_AFTER: Final = re.compile(r"[0-9]{1,10}")
_STUDIES: Final = 64
"""Of so many studies the JSON of trials is kept."""


@final
class WithDetails:
    """A dashboard whose details of studies are made here."""

    def __init__(self, storage: StudiesOfTenant, dashboard: _Wsgi) -> None:
        self._storage = storage
        self._dashboard = dashboard
        self._lock = threading.Lock()
        self._written: dict[int, _WrittenTrials] = {}

    def __call__(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        """Answer, or pass the request on."""
        asked = _PATH.fullmatch(environ["PATH_INFO"])
        after = parse_qs(environ.get("QUERY_STRING", "")).get("after", ["0"])[-1]
        if environ["REQUEST_METHOD"] != "GET" or asked is None or not _AFTER.fullmatch(after):
            return self._dashboard(environ, start_response)
        try:
            body = self.detail(int(asked[1]), int(after))
        except KeyError:
            return self._dashboard(environ, start_response)
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        start_response("200 OK", headers)
        return [body]

    def detail(self, number: int, after: int) -> bytes:
        """The JSON of a study and its trials from a number on.

        Raises:
            KeyError: there is no such study.
        """
        study = FrozenStudy(
            study_name=self._storage.get_study_name_from_id(number),
            direction=None,
            directions=self._storage.get_study_directions(number),
            user_attrs={},
            system_attrs=self._storage.get_study_system_attrs(number),
            study_id=number,
        )
        trials = self._storage.get_all_trials(number, deepcopy=False)
        with self._lock:
            written = self._written.setdefault(number, _WrittenTrials(number))
            while len(self._written) > _STUDIES:
                self._written.pop(next(iter(self._written)))
        best = _best(trials, study.directions)
        answer = serialize_study_detail(
            study,
            [],
            [],
            *_space(trials),
            _attributes(trials),
            has_intermediate_values=False,
            plotly_graph_objects=get_plotly_graph_objects(study.system_attrs),
            skipped_trial_numbers=[],
        )
        del answer["trials"], answer["best_trials"]
        parts = (
            '{"trials": [',
            ", ".join(map(written.json, trials[after:])),
            '], "best_trials": [',
            ", ".join(map(written.json, best)),
            "], ",
            json.dumps(answer)[1:],
        )
        return "".join(parts).encode()


class _WrittenTrials:
    """The JSON of one study's trials, as the dashboard's `serialize_frozen_trial` makes it.

    They have no notes, no artifacts and no intermediate values.
    """

    def __init__(self, study_number: int) -> None:
        self._study_number = study_number
        self._known: dict[int, tuple[FrozenTrial, str]] = {}
        self._distributions: dict[str, tuple[BaseDistribution, str]] = {}

    def json(self, trial: FrozenTrial) -> str:
        """One trial; what does not change is the same object as before."""
        known, text = self._known.get(trial.number, (None, ""))
        if known is not trial:
            text = self._written(trial)
            self._known[trial.number] = trial, text
        return text

    def _written(self, trial: FrozenTrial) -> str:
        answer: dict[str, Any] = {
            "trial_id": trial._trial_id,  # pyright: ignore[reportPrivateUsage]
            "study_id": self._study_number,
            "number": trial.number,
            "state": trial.state.name.capitalize(),
            "fixed_params": [],
            "user_attrs": serialize_attrs(trial.user_attrs),
            "note": {"version": 0, "body": ""},
            "artifacts": [],
            "constraints": trial.system_attrs.get(CONSTRAINTS, []),
            "intermediate_values": [],
        }
        # Optuna gives a trial with one value, too, as a list.
        values = cast("list[float] | None", trial.values)
        if values is not None:
            answer["values"] = values
        if trial.datetime_start is not None:
            answer["datetime_start"] = trial.datetime_start.isoformat()
        if trial.datetime_complete is not None:
            answer["datetime_complete"] = trial.datetime_complete.isoformat()
        params = ", ".join(
            self._parameter(name, value, trial.distributions[name])
            for name, value in trial.params.items()
        )
        return f'{{"params": [{params}], {json.dumps(answer)[1:]}'

    def _parameter(self, name: str, value: Any, distribution: BaseDistribution) -> str:
        known, end = self._distributions.get(name, (None, ""))
        if known is not distribution:
            end = f'"distribution": {json.dumps(serialize_distribution(distribution))}}}'
            self._distributions[name] = distribution, end
        answer = {
            "name": name,
            "param_internal_value": distribution.to_internal_repr(value),
            "param_external_value": str(value),
            "param_external_pytyp": str(type(cast(object, value))),
        }
        return f"{json.dumps(answer)[:-1]}, {end}"


def _best(
    trials: Sequence[FrozenTrial], directions: Sequence[StudyDirection]
) -> Sequence[FrozenTrial]:
    """The best trial, or those that none dominates."""
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    if not complete:
        return []
    maximise = [direction == StudyDirection.MAXIMIZE for direction in directions]
    if len(directions) == 1:
        sign = -1.0 if maximise[0] else 1.0
        return [min(complete, key=lambda trial: sign * cast("list[float]", trial.values)[0])]
    values = np.array([cast("list[float]", trial.values) for trial in complete])
    best = moocore.is_nondominated(values, maximise=maximise, keep_weakly=True)
    return [trial for trial, is_best in zip(complete, best, strict=True) if is_best]


_Space = list[tuple[str, BaseDistribution]]


def _space(trials: Sequence[FrozenTrial]) -> tuple[_Space, _Space]:
    """What all trials have that did not fail, and what any of them has.

    A dimension is the same in all trials of a study.
    """
    shared: dict[str, BaseDistribution] | None = None
    union: dict[str, BaseDistribution] = {}
    for trial in trials:
        if trial.state == TrialState.FAIL:
            continue
        union.update(trial.distributions)
        named = trial.distributions.keys()
        if shared is None:
            shared = dict(trial.distributions)
        elif not shared.keys() <= named:
            shared = {name: found for name, found in shared.items() if name in named}
    return sorted((shared or {}).items(), key=_name), sorted(union.items(), key=_name)


def _attributes(trials: Sequence[FrozenTrial]) -> list[tuple[str, bool]]:
    """The user attributes that trials have, and whether all values of one are numbers."""
    found: dict[str, bool] = {}
    for trial in reversed(trials):
        for name, value in cast(Mapping[str, Any], trial.user_attrs).items():
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            found[name] = found.get(name, True) and is_number
    return list(found.items())


def _name(item: tuple[str, BaseDistribution]) -> str:
    return item[0]
