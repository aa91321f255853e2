"""What each pick of each layer would lose: local errors of fits, and probes of the network."""

import logging
import math
from collections.abc import Callable, Sequence

import numpy as np

from models.graphs.allocation import Probed, probes, sensitivities
from models.graphs.fits import CHOICES, AnyChoice
from models.graphs.layers import Layer
from models.graphs.writing import added_bytes
from search.errors import TrainingDiverged
from search.graphs.evaluator.answered_parts import AnsweredPart
from search.graphs.evaluator.network_evaluator import Evaluator
from search.graphs.picks import Costs, LayerOffers, Offer, Pick, offered_picks

MOST_PROBED = 1000
"""Samples that all probes together answer, as long as each answers an eighth."""
_LOST = 100.0
"""What a probe loses at most, also one whose answers are NaN or have other shapes than the
original's: more than any file of use loses, and a number to compute with."""

_log = logging.getLogger(__name__)


def probed_offers(
    evaluator: Evaluator,
    kinds: Sequence[type[AnyChoice]] = CHOICES,
    *,
    between: Callable[[], None] = lambda: None,
) -> tuple[LayerOffers, ...]:
    """All picks of all layers with their errors and costs, and the layers' sensitivities.

    Each layer is fitted in all ways. Two or three files are measured for it: 4 bits in both
    roundings, and a low rank where that is possible; on the whole choosing part if the layers are
    few, else on samples that are spread over it. One whose answers cannot be compared is taken for
    a large loss, as its trial would be infeasible. `between` is called after each layer.
    """
    part = _probed_part(evaluator)
    found: list[LayerOffers] = []
    for layer in evaluator.layers:
        found.append(_offers(evaluator, layer, part, kinds))
        between()
    return tuple(found)


def _probed_part(evaluator: Evaluator) -> AnsweredPart:
    files = sum(
        2 if choice.bits < 8 else 1 for layer in evaluator.layers for choice in probes(layer)
    )
    whole = len(evaluator.choosing.places)
    count = min(whole, max(len(evaluator.early.places), MOST_PROBED // max(1, files)))
    return evaluator.choosing.some(np.linspace(0, whole - 1, count).round().astype(np.int64))


def _offers(
    evaluator: Evaluator, layer: Layer, part: AnsweredPart, kinds: Sequence[type[AnyChoice]]
) -> LayerOffers:
    picks = offered_picks(layer, evaluator.objectives, kinds)
    errors = {pick: fit.error for pick, fit in evaluator.fits.fits(layer.name, picks).items()}
    compensated, plain = _sensitivities(evaluator, layer, part)
    offers = [
        Offer(
            pick,
            errors[pick],
            Costs(
                bytes=layer.stored_bytes + added_bytes(layer, pick.choice),
                multiply_adds=evaluator.layer_multiply_adds(layer.name, pick),
            ),
            pick.choice.numbers(layer),
        )
        for pick in picks
    ]
    return LayerOffers(layer.name, tuple(offers), compensated, plain)


def _sensitivities(evaluator: Evaluator, layer: Layer, part: AnsweredPart) -> tuple[float, float]:
    """With compensated and with plain rounding."""
    by_rounding: dict[str, list[Probed]] = {"compensated": [], "plain": []}
    for choice in probes(layer):
        if choice.bits == 32:
            one = _probed(evaluator, layer, part, Pick(choice=choice))
            for found in by_rounding.values():
                found.append(one)
            continue
        for name, found in by_rounding.items():
            pick = Pick(choice=choice, compensated=name == "compensated")
            found.append(_probed(evaluator, layer, part, pick))
    known = sensitivities(by_rounding)
    return known["compensated"], known["plain"]


def _probed(evaluator: Evaluator, layer: Layer, part: AnsweredPart, pick: Pick) -> Probed:
    found = evaluator.answers(evaluator.content({layer.name: pick}), part)
    try:
        loss = evaluator.loss(part, found)
    except TrainingDiverged as error:
        _log.info("a probe of the layer %s is lost: %s", layer.name, error)
        loss = math.inf
    return Probed(min(loss, _LOST), evaluator.fits.fit(layer.name, pick).error)
