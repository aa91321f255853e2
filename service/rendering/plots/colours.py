"""Colours of plots; each can be seen on a light and on a dark page."""

SERIES = ("#3b82c4", "#c2702c", "#2f9e6e", "#a657b8", "#8a8f2a", "#c94f6d")
"""One per line of a plot, in turn."""

UNKNOWN = "#888888"

_SCALE = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37))
"""Viridis at five places: readable without telling red from green, and in grey."""


def on_scale(share: float) -> str:
    """The colour of a value that lies at this share, 0 to 1, of a scale."""
    place = min(max(share, 0.0), 1.0) * (len(_SCALE) - 1)
    index = min(int(place), len(_SCALE) - 2)
    rest = place - index
    mixed = (
        round(a + rest * (b - a)) for a, b in zip(_SCALE[index], _SCALE[index + 1], strict=True)
    )
    return "#" + "".join(f"{part:02x}" for part in mixed)
