"""Dense to `per_layer`: each layer by the algorithm of its own family."""

from collections.abc import Callable, Mapping
from typing import Any

from models.compression.target import Target
from models.errors import ConversionError
from models.linear import StructuredLinear
from models.parametrizations import Parametrization
from models.parametrizations.per_layer import PerLayerLinear


def fit_per_layer_(
    linear: PerLayerLinear,
    target: Target,
    *,
    fits: Mapping[type[Parametrization], Callable[[Any, Target], None]],
) -> None:
    """Bring each layer near its own matrices, in place; `fits` are those of the families.

    What holds of a family's algorithm holds of each layer, monotony included.

    Raises:
        ConversionError: what it has to keep up with has other layers.
    """
    layers = target.by_layer(_earlier(linear, target.earlier))
    for member, family, part in zip(linear.members, linear.families, layers, strict=True):
        fits[family](member, part)


def _earlier(
    linear: PerLayerLinear, earlier: StructuredLinear | None
) -> list[StructuredLinear | None]:
    """What each layer must not fall behind."""
    if earlier is None:
        return [None] * len(linear.members)
    if not isinstance(earlier, PerLayerLinear) or earlier.families != linear.families:
        raise ConversionError(
            "what was converted earlier has other layers; allowed are the same families, layer "
            "by layer"
        )
    return list(earlier.members)
