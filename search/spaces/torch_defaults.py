"""What a study pins of architectures where it says nothing: what torch.nn has layers for.

The architectures' own defaults stay those of the papers, which presets and checkpoints rest on.
"""

from collections.abc import Mapping
from typing import Final

from search.spaces.dimension import Scalar

TORCH_DEFAULTS: Final[Mapping[str, Scalar]] = {"gru.reset": "after", "rnn.activation": "tanh"}
"""Full field name -> value: with these the model computes what nn.GRU and nn.RNN compute."""
