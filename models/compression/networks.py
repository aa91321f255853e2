"""Whole networks from one parametrization to another, and back to plain matrices."""

import math

import torch
from torch import Tensor, nn

from models.compression.fit.convert import convert_weight, refuse_unconvertible
from models.compression.fit.dense import fit_dense_
from models.compression.highway_middles import fold_middles, neutralise_middles_, shift_norms_
from models.compression.moments import moments_of
from models.compression.parts import in_evaluation, modules_of, structured_parts
from models.compression.report import (
    ConversionReport,
    LayerConversion,
    costs_of,
    layers_of,
    numbers_of,
    plain_costs,
    relative_distance,
    stored_weight,
)
from models.compression.target import Target, refuse_not_finite
from models.errors import ConversionError
from models.linear import Affine, StructuredAffine, StructuredLinear
from models.math.weight_norm import NormalisedRows
from models.model import ModelSpec
from models.network import Network
from models.quantization import round_, rounded_weights


def convert(
    network: Network,
    target: ModelSpec,
    *,
    calibration: Tensor | None = None,
    earlier: Network | None = None,
    rounds: bool = True,
) -> tuple[Network, ConversionReport]:
    """A network of the target's spec that answers as nearly as a given one as its numbers allow.

    With few bits it is what is nearest that is rounded, and the report tells of the rounded one.

    Args:
        network: of the target's architecture and signature, with any parametrization; it is left as
            it is. Which input matrices are structured may differ.
        target: the spec of the result.
        calibration: a batch that the network takes. Output errors are those on it, and families
            with a closed form for it keep outputs rather than weights.
        earlier: what this function gave for smaller counts; the errors of no matrix are larger,
            before they are rounded.
        rounds: whether the network that is returned is rounded; not where it is trained further.

    Returns:
        The network, of the given one's type and on its device, and what the conversion lost.

    Raises:
        ConversionError: the target's parametrization has no conversion, a number is not finite, or
            the network is not of the target's architecture. SpecError: see `ModelSpec.check`.
    """
    refuse_unconvertible(*target.parametrization.families)
    target.check()
    dense = _dense_form(network, target)
    moments: dict[str, Tensor] = {}
    answer = None
    if calibration is not None:
        moments, answer = moments_of(dense, calibration)
    converted = target.unrounded.build(seed=0)
    _move_like(converted, network)
    rows: list[LayerConversion] = []
    fitted: set[str] = set()
    before = structured_parts(network)
    for name, linear in structured_parts(converted).items():
        weight = stored_weight(structured_parts(dense)[name])
        solution = convert_weight(
            weight,
            target.parametrization.for_slot(linear.slot),
            slot=linear.slot,
            moments=moments.get(name),
            earlier=None if earlier is None else structured_parts(earlier).get(name),
            name=name,
        )
        linear.load_state_dict(solution.state_dict())
        fitted |= {f"{name}.{key}" for key in linear.state_dict()}
        had = before.get(name)
        costs = plain_costs(weight, linear.slot) if had is None else costs_of(had)
        with rounded_weights(linear, target.rounded_to):
            rows += layers_of(name, weight, linear, before=costs, moments=moments.get(name))
    neutralise_middles_(converted)
    _copy_others_(dense, converted, known=fitted)
    converted.train(network.training)
    with rounded_weights(converted, target.rounded_to):
        output_error = _output_error(converted, calibration, answer)
    if rounds and target.rounded_to is not None:
        round_(converted, target.rounded_to)
    return converted, ConversionReport(
        spec=target,
        layers=tuple(rows),
        parameters_before=numbers_of(network),
        parameters_after=numbers_of(converted),
        multiply_adds_before=sum(row.multiply_adds_before for row in rows),
        multiply_adds_after=sum(row.multiply_adds_after for row in rows),
        output_error=output_error,
    )


def fold(network: Network, spec: ModelSpec) -> tuple[Network, ModelSpec]:
    """The same function with plain matrices, exact to rounding, and its spec.

    What the batch-normalised highway stack does between thin factors is folded into the matrices
    and the normalisation behind them, as it is in evaluation mode.

    Raises:
        ConversionError: a number is not finite, or the network is not of this spec.
    """
    baseline = spec.dense_twin()
    return _dense_form(network, baseline), baseline


def _dense_form(network: Network, spec: ModelSpec) -> Network:
    """The network with plain matrices in all slots of the spec."""
    for name, tensor in network.state_dict().items():
        refuse_not_finite(f"tensor {name!r}", tensor)
    dense = spec.dense_twin().build(seed=0)
    _move_like(dense, network)
    known: set[str] = set()
    folded = fold_middles(network)
    for name, linear in structured_parts(dense).items():
        weight = folded if name == "hidden" and folded is not None else _plain(network, name)
        shape = [linear.num_matrices, linear.out_features, linear.in_features]
        # A plain input matrix has its gates one below the other.
        if weight.shape[-1] != shape[-1] or weight.numel() != math.prod(shape):
            raise ConversionError(
                f"{name} has shape {list(weight.shape)}; the target's architecture makes it {shape}"
            )
        fit_dense_(linear, Target(slot=linear.slot, weight=weight.reshape(shape)))
        known |= {f"{name}.{key}" for key in linear.state_dict()}
    _copy_others_(network, dense, known=known)
    shift_norms_(network, dense)
    return dense.train(network.training)


def _plain(network: Network, name: str) -> Tensor:
    """W `[G, out, in]` in double precision, structured in the network or not."""
    parts = modules_of(network)
    part = parts.get(name)
    if isinstance(part, StructuredLinear):
        return stored_weight(part)
    outer = parts.get(name.removesuffix(".linear"))
    if isinstance(outer, Affine):
        return outer.plain_weight().detach().to("cpu", torch.float64).unsqueeze(0)
    raise ConversionError(
        f"the network has no matrix {name!r}, which the target's architecture has"
    )


def _copy_others_(source: nn.Module, target: nn.Module, *, known: set[str]) -> None:
    """Copy all that is not in the target's slots, in place.

    Raises:
        ConversionError: the networks are not of one architecture; names the tensor.
    """
    parts = modules_of(source)
    known = set(known)
    with torch.no_grad():
        for name, part in modules_of(target).items():
            if isinstance(part, Affine):
                known.add(f"{name}.weight")
                known |= {f"{name}.weight.{key}" for key in ("direction", "gain")}
                _write_affine_(name, part, parts.get(name))
        numbers = source.state_dict()
        for name, tensor in target.state_dict().items():
            if name in known or ".middle." in name:
                continue
            found = numbers.get(name)
            if found is None or found.shape != tensor.shape:
                shape = "missing" if found is None else f"of shape {list(found.shape)}"
                raise ConversionError(
                    f"tensor {name!r} is {shape}; the target's architecture makes it "
                    f"{list(tensor.shape)}"
                )
            tensor.copy_(found)


def _write_affine_(name: str, part: Affine, source: nn.Module | None) -> None:
    if isinstance(source, StructuredAffine):
        weight = stored_weight(source.linear).flatten(0, 1)
    elif isinstance(source, Affine):
        weight = source.plain_weight()
    else:
        raise ConversionError(f"the network has no matrix {name!r}, which the target has")
    shape = list(part.plain_weight().shape)
    if list(weight.shape) != shape:
        raise ConversionError(
            f"{name} has shape {list(weight.shape)}; the target's architecture makes it {shape}"
        )
    if isinstance(part.weight, NormalisedRows):
        part.weight.start_from_(weight.to(part.weight.direction))
    else:
        part.weight.copy_(weight)


def _move_like(network: Network, other: Network) -> None:
    like = next(other.parameters())
    network.to(like.device, like.dtype)


@torch.no_grad()
def _output_error(
    network: Network, calibration: Tensor | None, answer: Tensor | None
) -> float | None:
    if calibration is None or answer is None:
        return None
    with in_evaluation(network):
        return relative_distance(answer, network(calibration))
