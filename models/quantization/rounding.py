"""Rounding the parameters of a module, for good or for a while, and what their bits are."""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import cast

import torch
from torch import Tensor, nn

from models.errors import RoundingError
from models.quantization.scheme import Bits, Encoded, Layout, Quantised, Scheme


def layouts(module: nn.Module, bits: Bits | None) -> dict[str, Layout]:
    """What the rounded parameters are stored as, by their names in `state_dict`; shapes suffice.

    With None none is rounded.
    """
    if bits is None:
        return {}
    return {
        name: scheme.layout(tuple(parameter.shape), bits)
        for name, parameter, scheme in _rounded(module)
    }


@torch.no_grad()
def round_(module: nn.Module, bits: Bits) -> None:
    """Round all parameters that have a scheme, in place; doing it twice changes no bit.

    Raises:
        RoundingError: a number is NaN or infinite; names the parameter.
    """
    for name, parameter, scheme in _rounded(module):
        refuse_not_finite(name, parameter)
        parameter.copy_(scheme.encode(parameter, bits).values())


@torch.no_grad()
def encoded(module: nn.Module, bits: Bits) -> dict[str, Encoded]:
    """Integers and scales of all parameters that have a scheme, by their names in `state_dict`.

    Raises:
        RoundingError: a number is NaN or infinite, or not rounded to these bits; names the
            parameter.
    """
    return {
        name: _encoded(name, parameter, scheme, bits)
        for name, parameter, scheme in _rounded(module)
    }


@torch.no_grad()
def encode(owner: nn.Module, attribute: str, bits: Bits) -> Encoded | None:
    """Integers and scales of one parameter, by its attribute of the module that owns it.

    None where it is never rounded: biases, singular values, diagonals and first states.

    Raises:
        RoundingError: see `encoded`.
    """
    scheme = _schemes(owner).get(attribute)
    if scheme is None:
        return None
    return _encoded(attribute, owner.get_parameter(attribute), scheme, bits)


def decode(layout: Layout, stored: Tensor, scale: Tensor | None) -> Tensor:
    """The numbers of a parameter, of what a file holds of it."""
    return Encoded.of_stored(layout, stored, scale).values()


def refuse_not_finite(name: str, tensor: Tensor) -> None:
    """Refuse numbers that cannot be rounded.

    Raises:
        RoundingError: one is NaN or infinite; names the tensor and the first such place.
    """
    finite = torch.isfinite(tensor)
    if not finite.all():
        place = tuple(map(int, (~finite).nonzero()[0]))
        raise RoundingError(
            f"{name} has {float(tensor[place])} at {list(place)}; only finite numbers are rounded"
        )


@contextmanager
def rounded_weights(module: nn.Module, bits: Bits | None) -> Generator[None]:
    """Within the context the parameters are rounded; then they are again what they were before.

    With None nothing happens. A number that is not finite makes NaN of its parameter.
    """
    with in_their_place(_replacements(module, bits, _values)):
        yield


@contextmanager
def rounded_for_a_step(module: nn.Module, bits: Bits | None) -> Generator[None]:
    """A context for a forward and a backward pass: gradients are those at the rounded numbers.

    They are for the parameters as they were before, and are again behind it: rounding counts as
    the identity (the straight-through estimator, Bengio, Leonard, Courville, arXiv:1308.3432).
    """
    with in_their_place(_replacements(module, bits, _for_a_step)):
        yield


@contextmanager
def in_their_place(
    replaced: Sequence[tuple[Tensor, Callable[[Tensor], Tensor]]],
) -> Generator[None]:
    """Within the context parameters are what functions make of them."""
    kept: list[tuple[Tensor, Tensor]] = []
    try:
        with torch.no_grad():
            for parameter, replace in replaced:
                kept.append((parameter, parameter.detach().clone()))
                parameter.copy_(replace(parameter))
        yield
    finally:
        with torch.no_grad():
            for parameter, numbers in kept:
                parameter.copy_(numbers)


def rounded_names(module: nn.Module) -> dict[str, Scheme]:
    """The schemes of the parameters that have one, by their names in `state_dict`."""
    return {name: scheme for name, _, scheme in _rounded(module)}


def _replacements(
    module: nn.Module, bits: Bits | None, replace: Callable[[Scheme, Tensor, Bits], Tensor]
) -> list[tuple[Tensor, Callable[[Tensor], Tensor]]]:
    if bits is None:
        return []

    def of(scheme: Scheme) -> Callable[[Tensor], Tensor]:
        def rounded(parameter: Tensor) -> Tensor:
            # No integer is NaN: what diverged would look as if it had not.
            sound = torch.isfinite(parameter).all()
            return torch.where(sound, replace(scheme, parameter, bits), torch.nan)

        return rounded

    return [(parameter, of(scheme)) for _, parameter, scheme in _rounded(module)]


def _values(scheme: Scheme, parameter: Tensor, bits: Bits) -> Tensor:
    return scheme.encode(parameter, bits).values()


def _for_a_step(scheme: Scheme, parameter: Tensor, bits: Bits) -> Tensor:
    return scheme.for_a_step(parameter, bits)


def _rounded(module: nn.Module) -> Iterator[tuple[str, nn.Parameter, Scheme]]:
    parts = cast(Iterator[tuple[str, nn.Module]], module.named_modules())
    for path, part in parts:
        for attribute, scheme in _schemes(part).items():
            name = f"{path}.{attribute}" if path else attribute
            yield name, part.get_parameter(attribute), scheme


def _schemes(part: nn.Module) -> Mapping[str, Scheme]:
    return part.schemes() if isinstance(part, Quantised) else {}


def _encoded(name: str, parameter: Tensor, scheme: Scheme, bits: Bits) -> Encoded:
    refuse_not_finite(name, parameter)
    found = scheme.encode(parameter, bits)
    if not torch.equal(found.values().to(parameter.dtype), parameter):
        raise RoundingError(f"{name} is not rounded to {bits} bits; round the model first")
    return found
