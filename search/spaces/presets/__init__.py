"""The named systems of the papers, as configurations that a study can begin with.

One file for each family of systems, and this union is the registry.
"""

from collections.abc import Mapping

from search.spaces.presets.feed_forward import FEED_FORWARD
from search.spaces.presets.gated import GATED
from search.spaces.presets.preset import Preset
from search.spaces.presets.recurrent import RECURRENT
from search.spaces.presets.rotations import ROTATIONS

PRESETS: Mapping[str, Preset] = {
    preset.name: preset for preset in (*RECURRENT, *FEED_FORWARD, *GATED, *ROTATIONS)
}
"""Every preset by its name."""

__all__ = ["PRESETS", "Preset"]
