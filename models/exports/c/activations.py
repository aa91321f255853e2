"""The activations of `models.math.activations` as expressions of C."""

from collections.abc import Callable, Mapping

from models.exports.c.source import Source
from models.exports.c.text import number
from models.math.activations import Activation

Write = Callable[[Source, str, float], str]


def activate(source: Source, name: Activation, value: str, *, leak: float) -> str:
    """The activation of a variable; `leak` is the slope of leaky_relu below 0."""
    return ACTIVATIONS[name](source, value, leak)


ACTIVATIONS: Mapping[Activation, Write] = {
    "leaky_relu": lambda _source, v, leak: f"{v} < 0.0f ? {number(leak)} * {v} : {v}",
    "abs": lambda _source, v, _leak: f"{v} < 0.0f ? -{v} : {v}",
    "relu": lambda _source, v, _leak: f"{v} < 0.0f ? 0.0f : {v}",
    "tanh": lambda source, v, _leak: f"{source.use('squash')}({v})",
    "identity": lambda _source, v, _leak: v,
}
