"""What a study pins of architectures where it says nothing: what torch.nn has layers for.

The architectures' own defaults stay those of the papers, which presets and checkpoints rest on. A
study is submitted with these in its `space`, so that it keeps them whatever becomes of the
defaults; a study that was stored without them has the architectures' own.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from search.spaces.dimension import Override, Scalar
from search.spaces.draws import names_of
from search.spaces.model_space import ARCHITECTURE_KINDS

TORCH_DEFAULTS: Final[Mapping[str, Scalar]] = {"gru.reset": "after", "rnn.activation": "tanh"}
"""Full field name -> value: with these the model computes what nn.GRU and nn.RNN compute."""


def with_torch_defaults(
    space: Mapping[str, Override], architectures: Iterable[str]
) -> Mapping[str, Override]:
    """The overrides of a new study, completed by what it says nothing of."""
    pins = {name: TORCH_DEFAULTS[name] for name in _unsaid(space, architectures)}
    return {**space, **pins}


def without_torch_defaults(
    space: Mapping[str, Override], architectures: Iterable[str]
) -> Mapping[str, Override]:
    """The overrides that, sent again, give the same study: `with_torch_defaults` backwards.

    A study that was stored without the pins is sent with the architectures' own defaults, by name.
    """
    own = {name: _own_default(name) for name in _unsaid(space, architectures)}
    said = {name: value for name, value in space.items() if TORCH_DEFAULTS.get(name) != value}
    return {**said, **own}


def _unsaid(space: Mapping[str, Override], architectures: Iterable[str]) -> Iterator[str]:
    """The fields of the architectures that the overrides do not name, by no name of theirs."""
    kinds = set(architectures)
    for name in TORCH_DEFAULTS:
        if name.partition(".")[0] in kinds and not space.keys() & set(names_of(name)):
            yield name


def _own_default(name: str) -> Scalar:
    kind, _, field = name.partition(".")
    return ARCHITECTURE_KINDS[kind].model_fields[field].default
