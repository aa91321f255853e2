"""Fits of layers, kept as long as there is room."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from models.graphs.fits import Fit, LayerFitter, LowRank, Statistics
from models.graphs.layers import Layer
from search.graphs.picks import Pick

MOST_BYTES = 256 * 2**20
"""Of the arrays of all fits that are kept."""


class FitCache:
    """Fits by layer and pick; those that were used last are kept."""

    def __init__(
        self,
        layers: Sequence[Layer],
        statistics: Mapping[str, Statistics],
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._layers = {layer.name: layer for layer in layers}
        self._statistics = statistics
        self._most_bytes = most_bytes
        self._bytes = 0
        self._kept: OrderedDict[tuple[str, Pick], Fit] = OrderedDict()

    def fit(self, name: str, pick: Pick) -> Fit:
        """One pick of a layer.

        Raises:
            ConversionError: the layer cannot be stored so; says what is allowed.
        """
        return next(iter(self.fits(name, [pick]).values()))

    def fits(self, name: str, picks: Iterable[Pick]) -> dict[Pick, Fit]:
        """Several picks of a layer; what serves more than one of them is computed once.

        Raises:
            ConversionError: see `fit`.
        """
        # It holds decompositions as large as the layer for each rounding, and is not kept.
        fitter = LayerFitter(self._layers[name], self._statistics[name])
        return {pick: self._fit(fitter, pick) for pick in picks}

    def _fit(self, fitter: LayerFitter, pick: Pick) -> Fit:
        choice = pick.choice
        stored = choice
        if isinstance(choice, LowRank) and choice.run:
            # The same numbers are stored whether factors run or are multiplied.
            stored = choice.model_copy(update={"run": False})
            choice.refuse(fitter.layer)
        key = (fitter.layer.name, Pick(choice=stored, compensated=pick.compensated))
        fit = self._kept.get(key)
        if fit is None:
            fit = fitter.fit(stored, compensated=pick.compensated)
            self._keep(key, fit)
        self._kept.move_to_end(key)
        return fit if stored == choice else replace(fit, choice=choice)

    def _keep(self, key: tuple[str, Pick], fit: Fit) -> None:
        self._kept[key] = fit
        self._bytes += _size(fit)
        while self._bytes > self._most_bytes and len(self._kept) > 1:
            _, dropped = self._kept.popitem(last=False)
            self._bytes -= _size(dropped)


def _size(fit: Fit) -> int:
    return sum(array.nbytes for part in fit.parts.values() for array in part.arrays())
