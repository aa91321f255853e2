"""Compression of any trained module, layer by layer; nothing else of this project is needed."""

import copy
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, TypeAlias, cast, get_args

import torch
from pydantic import TypeAdapter
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from models.architectures.inputs import StructuredInputs
from models.compression.fit.convert import convert_weight, refuse_unconvertible
from models.compression.moments import arguments, moments_of
from models.compression.parts import in_evaluation, modules_of, structured_parts
from models.compression.report import (
    ConversionReport,
    LayerConversion,
    layers_of,
    numbers_of,
    plain_costs,
    relative_distance,
    stored_weight,
)
from models.compression.torch_layers.drop_ins import drop_in, is_replaceable
from models.errors import ConversionError, SlotError
from models.linear import StructuredLinear
from models.math.initialisation import generator_of
from models.parametrizations import AnyParametrization, Parametrization
from models.spec import kind_of

Chosen: TypeAlias = Parametrization | Mapping[str, Any]
"""A parametrization, or the document of one: `{"kind": "low_rank", "d": 8}`.

`{"kind": "per_layer", "layers": [...]}` has one for each layer of a recurrent module, and where
that is bidirectional one for each layer and direction, forwards first.
"""

Choice: TypeAlias = Chosen | Mapping[str, Chosen]
"""One for all layers, or by patterns of their names, of which the first that fits counts."""


def compress(
    module: nn.Module,
    parametrization: Choice,
    *,
    calibration: Any = None,
    include: Sequence[str] = ("*",),
    exclude: Sequence[str] = (),
    inputs: StructuredInputs = "none",
) -> tuple[nn.Module, ConversionReport]:
    """A copy of a trained module whose matrices are stored by a parametrization.

    Layers that are an `nn.RNN`, `nn.LSTM`, `nn.GRU` or `nn.Linear` become drop-ins of ours, with
    the same arguments and results; all else stays. The matrices are the nearest that the
    parametrization has, as far as its algorithm finds them. The result trains on like any module;
    call `models.model.after_step` after each optimizer step.

    Args:
        module: what was trained; it is left as it is. It may be such a layer itself.
        parametrization: one for all layers, or by patterns of their names.
        calibration: what the module is called with, a tensor or a tuple of arguments. Output errors
            are those on it, and low ranks then keep outputs rather than weights. Answers may be
            tensors in lists, mappings and dataclasses; of others there is no error.
        include: patterns (`*`, `?`, `[ab]`) of the layers' names, as `named_modules` has them.
        exclude: patterns of layers that stay as they are.
        inputs: which input matrices of recurrent layers are structured, too: `none`, those that are
            `square`, or `all`, with counts and ranks clamped to what they hold.

    Raises:
        ConversionError: nothing is chosen, a layer cannot be replaced or has hooks, or numbers are
            not finite.
        SlotError: a parametrization cannot hold a layer's matrices; names the layer.
    """
    dense, chosen = _with_drop_ins(module, parametrization, include, exclude, inputs)
    compressed = copy.deepcopy(dense)
    moments = {} if calibration is None else moments_of(dense, calibration)[0]
    rows: list[LayerConversion] = []
    for name, linear in structured_parts(dense).items():
        weight = stored_weight(linear)
        fitted = convert_weight(
            weight,
            chosen[name].for_slot(linear.slot),
            slot=linear.slot,
            moments=moments.get(name),
            name=name,
        )
        _put(compressed, name, _like(fitted, linear))
        costs = plain_costs(weight, linear.slot)
        rows += layers_of(name, weight, fitted, before=costs, moments=moments.get(name))
    error = None
    if calibration is not None:
        # Copies, for a call may change what a module holds.
        before = _answer(_copy(module), calibration)
        error = _distance(before, _answer(copy.deepcopy(compressed), calibration))
    return compressed, ConversionReport(
        spec=None,
        layers=tuple(rows),
        parameters_before=numbers_of(module),
        parameters_after=numbers_of(compressed),
        multiply_adds_before=sum(row.multiply_adds_before for row in rows),
        multiply_adds_after=sum(row.multiply_adds_after for row in rows),
        output_error=error,
    )


def replace_layers(
    module: nn.Module,
    parametrization: Choice,
    *,
    include: Sequence[str] = ("*",),
    exclude: Sequence[str] = (),
    inputs: StructuredInputs = "none",
    seed: int | None = None,
) -> nn.Module:
    """A copy of a module with the drop-ins of `compress`, their matrices freshly initialised.

    It takes the state dict of what `compress` gave with the same arguments, in a moment.

    Raises:
        ConversionError: see `compress`. SlotError: see `compress`.
    """
    replaced, chosen = _with_drop_ins(module, parametrization, include, exclude, inputs)
    generator = generator_of(seed)
    for name, linear in structured_parts(replaced).items():
        fresh = _built(name, chosen[name], linear, generator=generator)
        _put(replaced, name, _like(fresh, linear))
    return replaced


def _with_drop_ins(
    module: nn.Module,
    parametrization: Choice,
    include: Sequence[str],
    exclude: Sequence[str],
    inputs: StructuredInputs,
) -> tuple[nn.Module, dict[str, Parametrization]]:
    """A copy with plain matrices in drop-ins, and the parametrization of each of these matrices."""
    if inputs not in get_args(StructuredInputs):
        allowed = ", ".join(get_args(StructuredInputs))
        raise ConversionError(f"inputs = {inputs!r}; allowed are {allowed}")
    by_pattern = _parametrizations(parametrization)
    names = {
        name: layer
        for name, layer in modules_of(module).items()
        if is_replaceable(layer)
        and any(fnmatchcase(name, pattern) for pattern in include)
        and not any(fnmatchcase(name, pattern) for pattern in exclude)
        and any(fnmatchcase(name, pattern) for pattern in by_pattern)
    }
    if not names:
        there = ", ".join(
            name or "(itself)" for name, m in modules_of(module).items() if is_replaceable(m)
        )
        raise ConversionError(
            f"no layer to compress is chosen by include = {list(include)} and exclude = "
            f"{list(exclude)}; there are {there or 'none: no nn.RNN, nn.LSTM, nn.GRU or nn.Linear'}"
        )
    _refuse_hooks(names)
    _refuse_shared(module, names)
    copied = _copy(module)
    new: dict[int, nn.Module] = {}
    chosen: dict[str, Parametrization] = {}
    for name in names:
        layer = copied.get_submodule(name)
        new[id(layer)] = drop_in(name, layer, inputs)
        pattern = next(pattern for pattern in by_pattern if fnmatchcase(name, pattern))
        for part, linear in structured_parts(new[id(layer)]).items():
            path = f"{name}.{part}" if name else part
            chosen[path] = by_pattern[pattern]
            # What cannot be held is refused before anything long is begun.
            _built(path, chosen[path], linear, generator=generator_of(0), meta=True)
    everywhere = cast(Iterator[tuple[str, nn.Module]], copied.named_modules(remove_duplicate=False))
    for path, part in list(everywhere):
        if path and id(part) in new:
            _put(copied, path, new[id(part)])
    return new.get(id(copied), copied), chosen


def _copy(module: nn.Module) -> nn.Module:
    """A deep copy, also of a module with tensors that its hooks compute anew in each call."""
    computed = {
        id(one): one.detach().clone()
        for part in modules_of(module).values()
        for one in vars(part).values()
        if isinstance(one, Tensor) and not one.is_leaf
    }
    return copy.deepcopy(module, cast(dict[int, Any], computed))


def _parametrizations(choice: Choice) -> dict[str, Parametrization]:
    """By pattern; a single one for all names."""
    if not isinstance(cast(object, choice), Parametrization | Mapping):
        raise ConversionError(
            f"{choice!r} is no parametrization; allowed are one, such as "
            "{'kind': 'low_rank', 'd': 8}, and several by patterns of layers' names"
        )
    if isinstance(choice, Parametrization) or "kind" in choice:
        choice = {"*": cast(Chosen, choice)}
    adapter: TypeAdapter[Parametrization] = TypeAdapter(AnyParametrization)
    found = {
        pattern: one if isinstance(one, Parametrization) else adapter.validate_python(one)
        for pattern, one in choice.items()
    }
    for one in found.values():
        refuse_unconvertible(*one.families)
    return found


def _refuse_hooks(names: Mapping[str, nn.Module]) -> None:
    """Refuse layers that do more than torch's own do: a drop-in would not."""
    for name, layer in names.items():
        if any(vars(layer)[kind] for kind in ("_forward_hooks", "_forward_pre_hooks")):
            raise ConversionError(
                f"{name or 'the module'} has hooks, which its drop-in would not run; make what "
                "they do permanent (prune.remove, remove_weight_norm) or remove them, or leave "
                f"the layer out with exclude = [{name!r}]"
            )


def _refuse_shared(module: nn.Module, names: Mapping[str, nn.Module]) -> None:
    """Refuse layers whose numbers are another module's too: what becomes of these is not ours."""
    owners: dict[int, str] = {}
    for path, parameter in module.named_parameters(remove_duplicate=False):
        owner = path.rpartition(".")[0]
        other = owners.setdefault(id(parameter), owner)
        shared = module.get_submodule(other) is not module.get_submodule(owner)
        if shared and (other in names or owner in names):
            raise ConversionError(
                f"{path} is shared with {other}; allowed are layers with numbers of their own, "
                f"so leave it out with exclude = [{owner!r}, {other!r}]"
            )


def _built(
    name: str,
    parametrization: Parametrization,
    linear: StructuredLinear,
    *,
    generator: torch.Generator,
    meta: bool = False,
) -> StructuredLinear:
    try:
        with torch.device("meta" if meta else "cpu"):
            return parametrization.for_slot(linear.slot).build(linear.slot, generator=generator)
    except SlotError as error:
        raise SlotError(
            f"{name}: {kind_of(type(parametrization))}: {error} (leave the layer out with exclude)"
        ) from error


def _put(module: nn.Module, path: str, part: nn.Module) -> None:
    owner, _, key = path.rpartition(".")
    setattr(module.get_submodule(owner), key, part)


def _like(linear: StructuredLinear, other: StructuredLinear) -> StructuredLinear:
    """The matrix where the other one is, as trainable and in the same mode."""
    like = next(other.parameters())
    linear = linear.to(like.device, like.dtype).requires_grad_(like.requires_grad)
    return linear.train(other.training)


@torch.no_grad()
def _answer(module: nn.Module, calibration: Any) -> list[Tensor]:
    """The numbers of each tensor that a module answers with."""
    with in_evaluation(module):
        return _tensors(module(*arguments(calibration)))


def _distance(before: list[Tensor], after: list[Tensor]) -> float | None:
    """`|y' - y| / |y|`; None of answers in which no tensor is found."""
    return relative_distance(torch.cat(before), torch.cat(after)) if before else None


def _tensors(answer: Any) -> list[Tensor]:
    """The numbers of each tensor in an answer, in a row."""
    if isinstance(answer, Tensor):
        return [answer.flatten().double()]
    if isinstance(answer, PackedSequence):
        return [answer.data.flatten().double()]
    if isinstance(answer, Mapping):
        answer = list(cast(Mapping[str, Any], answer).values())
    elif dataclasses.is_dataclass(answer) and not isinstance(answer, type):
        answer = [getattr(answer, field.name) for field in dataclasses.fields(answer)]
    if isinstance(answer, list | tuple):
        return [tensor for part in cast(list[Any], answer) for tensor in _tensors(part)]
    return []
