"""What each pick of each layer would lose: local errors of fits, and probes of the network."""

from collections.abc import Sequence

from models.graphs.allocation import Probed, probes, sensitivities
from models.graphs.fits import CHOICES, AnyChoice
from models.graphs.layers import Layer
from models.graphs.writing import added_bytes
from search.graphs.evaluator.network_evaluator import Evaluator
from search.graphs.picks import Costs, LayerOffers, Offer, Pick, offered_picks


def probed_offers(
    evaluator: Evaluator, kinds: Sequence[type[AnyChoice]] = CHOICES
) -> tuple[LayerOffers, ...]:
    """All picks of all layers with their errors and costs, and the layers' sensitivities.

    Each layer is fitted in all ways. Two or three files are measured for it on the whole choosing
    part: 4 bits in both roundings, and a low rank where that is possible.
    """
    return tuple(_offers(evaluator, layer, kinds) for layer in evaluator.layers)


def _offers(evaluator: Evaluator, layer: Layer, kinds: Sequence[type[AnyChoice]]) -> LayerOffers:
    picks = offered_picks(layer, evaluator.objectives, kinds)
    errors = {pick: fit.error for pick, fit in evaluator.fits.fits(layer.name, picks).items()}
    compensated, plain = _sensitivities(evaluator, layer)
    offers = [
        Offer(
            pick,
            errors[pick],
            Costs(
                bytes=layer.stored_bytes + added_bytes(layer, pick.choice),
                multiply_adds=evaluator.layer_multiply_adds(layer.name, pick),
            ),
        )
        for pick in picks
    ]
    return LayerOffers(layer.name, tuple(offers), compensated, plain)


def _sensitivities(evaluator: Evaluator, layer: Layer) -> tuple[float, float]:
    """With compensated and with plain rounding."""
    by_rounding: dict[str, list[Probed]] = {"compensated": [], "plain": []}
    for choice in probes(layer):
        if choice.bits == 32:
            one = _probed(evaluator, layer, Pick(choice=choice))
            for found in by_rounding.values():
                found.append(one)
            continue
        for name, found in by_rounding.items():
            pick = Pick(choice=choice, compensated=name == "compensated")
            found.append(_probed(evaluator, layer, pick))
    known = sensitivities(by_rounding)
    return known["compensated"], known["plain"]


def _probed(evaluator: Evaluator, layer: Layer, pick: Pick) -> Probed:
    measured = evaluator.measure({layer.name: pick})
    assert measured.loss is not None, "without a front everything is within reach"
    return Probed(measured.loss, evaluator.fits.fit(layer.name, pick).error)
