"""What may be picked for each layer of a network, as preparing a study found it."""

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import TypeAdapter

from models.graphs.fits import AnyChoice
from search.graphs.network_trial import NetworkTrial
from search.graphs.picks import Costs, LayerOffers, Offer, Pick, Picks, changed

_CHOICE: TypeAdapter[AnyChoice] = TypeAdapter(AnyChoice)
_DIGITS = 6
"""Of an error and a sensitivity: what is predicted of them is good to two."""


@dataclass(frozen=True)
class OfferedLayers:
    """Offers for all layers, and what the rest of the file takes."""

    layers: tuple[LayerOffers, ...]
    other_bytes: int
    """Of the file, beside what its layers take."""
    other_parameters: int
    """Numbers of weights that are no layers."""

    @property
    def smallest_bytes(self) -> int:
        """Of a file whose layers all take the least."""
        least = (min(offer.costs.bytes for offer in one.offers) for one in self.layers)
        return self.other_bytes + round(sum(least))

    def trial(self, picks: Picks, *, seed: int, original_bytes: int) -> NetworkTrial:
        """The trial of these picks; the original has the bytes of the file as it was uploaded."""
        kept = dict(sorted(changed(picks), key=lambda pair: pair[0]))
        chosen = [self._offer(one, kept) for one in self.layers]
        whole = [one.offers[0] for one in self.layers]
        predicted = self.other_bytes + round(sum(offer.costs.bytes for offer in chosen))
        return NetworkTrial(
            picks=kept,
            parameters=self.other_parameters + sum(offer.numbers for offer in chosen),
            dense_parameters=self.other_parameters + sum(offer.numbers for offer in whole),
            bytes=predicted if kept else original_bytes,
            seed=seed,
        )

    def costs(self, trial: NetworkTrial) -> Costs:
        """What the search holds against a trial's loss."""
        chosen = (self._offer(one, trial.picks) for one in self.layers)
        return Costs(trial.bytes, sum(offer.costs.multiply_adds for offer in chosen))

    def encoded(self) -> str:
        """As text that is short: a network of a hundred layers has thousands of offers."""
        layers = [
            [
                one.name,
                _short(one.compensated_sensitivity),
                _short(one.plain_sensitivity),
                [_row(offer) for offer in one.offers],
            ]
            for one in self.layers
        ]
        document = [layers, self.other_bytes, self.other_parameters]
        packed = zlib.compress(json.dumps(document, separators=(",", ":")).encode(), 9)
        return base64.b64encode(packed).decode()

    @classmethod
    def decoded(cls, text: str, *, most_bytes: int = 2**28) -> "OfferedLayers":
        """What `encoded` gave.

        Raises:
            ValueError: the text is none of that kind, or unpacks to more than `most_bytes`.
        """
        try:
            unpacking = zlib.decompressobj()
            found = unpacking.decompress(base64.b64decode(text, validate=True), most_bytes)
            layers, other_bytes, other_parameters = json.loads(found)
            return cls(tuple(map(_layer, layers)), int(other_bytes), int(other_parameters))
        except (zlib.error, TypeError, KeyError, RecursionError) as error:
            raise ValueError(f"these are no offers: {error}") from error

    @cached_property
    def _by_pick(self) -> Mapping[tuple[str, Pick], Offer]:
        return {(one.name, offer.pick): offer for one in self.layers for offer in one.offers}

    def _offer(self, one: LayerOffers, picks: Picks) -> Offer:
        pick = picks.get(one.name)
        if pick is None:
            return one.offers[0]
        return self._by_pick[one.name, pick]


def _row(offer: Offer) -> list[object]:
    choice = offer.pick.choice
    return [
        {"kind": choice.kind, **choice.model_dump(mode="json", exclude_defaults=True)},
        int(offer.pick.compensated),
        _short(offer.error),
        offer.costs.bytes,
        _short(offer.costs.multiply_adds),
        offer.numbers,
    ]


def _layer(row: Sequence[Any]) -> LayerOffers:
    name, compensated, plain, offers = row
    found = tuple(map(_offer, offers))
    if not found or not isinstance(name, str):
        raise ValueError(f"the layer {name!r} has no offers")
    return LayerOffers(name, found, float(compensated), float(plain))


def _offer(row: Sequence[Any]) -> Offer:
    choice, compensated, error, size, multiply_adds, numbers = row
    pick = Pick(choice=_CHOICE.validate_python(choice), compensated=bool(compensated))
    return Offer(pick, float(error), Costs(float(size), float(multiply_adds)), int(numbers))


def _short(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
