"""A study of many trials, made as rows alone: nothing is trained, and no file is stored."""

import math
import random
from dataclasses import replace
from typing import Any

from search.spaces.draws import CornerSource
from search.spaces.space import SearchSpace
from search.studies.spec import StudySpec
from storage.records import Json, StudyRecord, TrialState
from storage.repositories.events import Events
from storage.repositories.metrics import Metrics
from storage.repositories.trials import Trials
from tests.service.site import Site, now
from tests.storage.records import metric, trial

_SHARES = {"dense": 1.0, "low_rank": 0.4, "householder_svd": 0.3, "packed_rotations": 0.1}
_GATES = {"rnn": 1, "gru": 3, "lstm": 4}
_REASONS = {
    TrialState.FAILED: "the loss is not finite",
    TrialState.INFEASIBLE: "parameters: 90,000 is over 50,000",
    TrialState.STOPPED: "pareto_gain at epoch 2: could add 0.001, less than 0.02",
}


def many_trials(
    site: Site, count: int, *, seed: int = 0, with_curves: int = 6, **changes: Any
) -> StudyRecord:
    """A running study of so many trials, whose qualities grow with their sizes, with noise."""
    study = site.study(
        **{
            "architectures": list(_GATES),
            "parametrizations": list(_SHARES),
            "space": {"hidden_size": {"low": 8, "high": 128, "step": 8}},
            "budget": {"trials": max(count, 1), "epochs": 8},
            **changes,
        }
    )
    site.run(study)
    drawn = SearchSpace(StudySpec.model_validate(study.spec)).draw(CornerSource(highest=False))
    spec = drawn.spec.model_dump(mode="json")
    chance = random.Random(seed)
    with site.database.write() as session:
        for number in range(count):
            record = _trial(study, number, chance)
            training = {**spec["training"], "learning_rate": 10 ** chance.uniform(-4, -1.5)}
            own = {**spec, "training": training, "seed": number}
            Trials(session).add(replace(record, drawn=dict(drawn.drawn), spec=own))
            if number < with_curves:
                for epoch in range(1, 9):
                    Metrics(session).put(study.id, number, _epoch(epoch, chance))
        for number in range(min(count, 5)):
            payload: dict[str, Json] = {
                "trials": [number],
                "hypervolume": 0.2 + 0.12 * number - 0.01 * number**2,
                "trial": number,
                "epochs_trained": 8 * number**2 + 4,
                "wall_seconds": 1.5,
            }
            Events(session).append(study.id, "front", payload, now())
    return study


def _trial(study: StudyRecord, number: int, chance: random.Random) -> Any:
    architecture, parametrization = chance.choice(list(_GATES)), chance.choice(list(_SHARES))
    size, d = chance.choice(range(8, 129, 8)), chance.randint(1, 16)
    inner = size**2 * _SHARES[parametrization] * (0.5 + d / 16)
    count = int((inner + 20 * size) * _GATES[architecture])
    quality = 0.99 - 0.6 * math.exp(-count / 2500) - abs(chance.gauss(0, 0.05))
    state = TrialState.COMPLETE
    if chance.random() > 0.93:
        state = chance.choice(list(_REASONS))
    is_complete = state is TrialState.COMPLETE
    values: dict[str, Any] = {"training.batch_size": 64, f"{architecture}.hidden_size": size}
    if parametrization != "dense":
        values[f"{parametrization}.d"] = d
    return trial(
        study.id,
        number,
        state=state,
        architecture=architecture,
        parametrization=parametrization,
        hyperparameters=values,
        parameters=count,
        dense_parameters=size**2 + 20 * size,
        shape_key=f"shape {number}",
        dispatched=True,
        created_at=now(),
        started_at=now(),
        finished_at=now(),
        epochs_trained=8,
        quality=round(max(0.1, quality) * 400) / 400 if is_complete else None,
        test_quality=max(0.1, quality - 0.01) if is_complete else None,
        throughput=3e5 / (1 + size / 30) * chance.uniform(0.8, 1.2),
        throughput_ratio=chance.uniform(0.5, 2.5),
        detail=_REASONS.get(state),
    )


def _epoch(number: int, chance: random.Random) -> Any:
    return replace(
        metric(number),
        validation=0.9 * (1 - math.exp(-number / 2)),
        train_loss=2 * math.exp(-number / 3),
        spectral_margin=abs(chance.gauss(0, 0.004)),
        gradient_first=10.0**-number,
        gradient_last=0.5,
        seconds=1.5,
    )
