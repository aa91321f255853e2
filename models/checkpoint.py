"""A model in one file: safetensors, with its spec as JSON in the metadata; never a pickle.

A model of 32 bits is written as `reflectory.checkpoint.1`, as it always was, so that what reads
that format reads every such file. Fewer bits make a `reflectory.checkpoint.2`: a rounded tensor is
there as its integers under its own name, two integers of 4 bits in one byte, and as `NAME.scale`
where it has scales. All else is as in the other format.
"""

import hashlib
import json
import os
import struct
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from models.errors import CheckpointError, RoundingError, SpecError
from models.interface import Interface
from models.model import ModelSpec
from models.quantization import decode, encoded, layouts

FORMAT = "reflectory.checkpoint.1"
ROUNDED_FORMAT = "reflectory.checkpoint.2"
FORMATS = (FORMAT, ROUNDED_FORMAT)

SCALE = ".scale"
"""What the name of a rounded tensor's scales ends with."""

_RESERVED = ("format", "spec", "sha256")


INTERFACE = "interface"
"""The extra under which a checkpoint holds what stands around its network, as JSON."""


@dataclass(frozen=True)
class Reply:
    """What a network's output says."""

    numbers: Tensor
    """`[B, ..., out]`: logits, probabilities, or numbers in their own unit."""
    label: Tensor | None
    """int64, places in `LoadedModel.labels`; None where nothing is decided."""


@dataclass(frozen=True)
class LoadedModel:
    """What a checkpoint holds: the rebuilt module, its spec, and what else was saved with it."""

    module: nn.Module
    spec: ModelSpec
    metadata: Mapping[str, str]
    interface: Interface | None = None
    """From a raw sample to an answer; None where the checkpoint does not tell."""

    @property
    def labels(self) -> tuple[str, ...] | None:
        """Names of what is decided; None where nothing is, or the checkpoint does not tell."""
        if self.interface is None or not self.interface.answer.decides:
            return None
        return self.interface.answer.names

    def preprocess(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Raw samples `[B, *interface.sample]` as the module reads them.

        Args:
            x: as a user's file has them.
            lengths: steps of each sample, `[B]`, where samples are padded.

        Raises:
            CheckpointError: the checkpoint does not tell how.
        """
        return self._known().preprocess(x, lengths)

    def postprocess(self, output: Tensor) -> Reply:
        """What the module's output `[B, ..., out]` says.

        Raises:
            CheckpointError: the checkpoint does not tell.
        """
        answer = self._known().answer
        return Reply(answer.numbers(output), answer.label(output))

    def _known(self) -> Interface:
        if self.interface is None:
            raise CheckpointError(
                "the checkpoint has no interface: it does not tell what stands around the network. "
                f"Those that this program trains do; this one has {sorted(self.metadata)}"
            )
        return self.interface


def save_bytes(
    module: nn.Module, spec: ModelSpec, *, extra: Mapping[str, str] | None = None
) -> bytes:
    """The checkpoint of a module; equal numbers, spec and extras give equal bytes.

    `extra` is kept as further metadata, say the epoch.

    Raises:
        ValueError: an extra has a name that the format itself uses.
        RoundingError: a number is not rounded to the spec's bits, or is NaN or infinite with bits
            below 32; names the tensor.
    """
    extra = dict(extra or {})
    clash = sorted(set(extra) & set(_RESERVED))
    if clash:
        raise ValueError(f"{clash[0]!r} is a name of the checkpoint format; extras cannot have it")
    tensors = _stored(module, spec)
    content = safetensors.torch.save(
        {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
    )
    header, data = _split(content)
    metadata = {"format": format_of(spec), "spec": spec.model_dump_json(), **extra}
    return _join(header, {**metadata, "sha256": _digest(header, metadata, data)}, data)


def plain_bytes(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    """A safetensors file of tensors and words; equal ones give equal bytes.

    It is no checkpoint of ours: its reader knows from elsewhere what its tensors make up.
    """
    content = safetensors.torch.save(
        {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
    )
    header, data = _split(content)
    return _join(header, metadata, data)


def save(
    path: Path | str, module: nn.Module, spec: ModelSpec, *, extra: Mapping[str, str] | None = None
) -> None:
    """Write a checkpoint whole or not at all: what was at `path` stays until the new one is.

    Raises:
        ValueError: see `save_bytes`.
    """
    path = Path(path)
    content = save_bytes(module, spec, extra=extra)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def load(source: Path | str | bytes) -> LoadedModel:
    """Rebuild a model from a checkpoint, its parameters bit for bit, on the CPU.

    Bytes are the content of a file; a path or text names one.

    Raises:
        CheckpointError: the content is not one of our checkpoints or is damaged; names file and
        fault. OSError: the file cannot be read.
    """
    name = f"{len(source)} bytes" if isinstance(source, bytes) else str(source)
    content = source if isinstance(source, bytes) else Path(source).read_bytes()
    try:
        tensors = safetensors.torch.load(content)
    except (safetensors.SafetensorError, KeyError) as error:
        raise CheckpointError(f"{name}: not a safetensors file, or cut off: {error}") from error
    header, data = _split(content)
    metadata = header.pop("__metadata__", {})
    _check_format(name, metadata)
    if metadata.pop("sha256", None) != _digest(header, metadata, data):
        raise CheckpointError(
            f"{name}: damaged: its content does not have the digest that it names"
        )
    spec = spec_in(metadata, name=name)
    extra = {key: value for key, value in metadata.items() if key not in _RESERVED}
    interface = interface_in(metadata, spec, name=name)
    return LoadedModel(_rebuild(name, spec, tensors), spec, extra, interface)


def spec_in(metadata: Mapping[str, str], *, name: str) -> ModelSpec:
    """The spec in the metadata of a checkpoint, which messages call `name`.

    Raises:
        CheckpointError: they are not those of one of our checkpoints, or the spec is not valid.
    """
    _check_format(name, metadata)
    try:
        spec = ModelSpec.model_validate_json(metadata["spec"])
        spec.check()
    except ValidationError as error:
        raise CheckpointError(f"{name}: its spec is not valid: {_fault(error)}") from error
    except SpecError as error:
        raise CheckpointError(f"{name}: its spec is not valid: {error}") from error
    if metadata["format"] != format_of(spec):
        raise CheckpointError(
            f"{name}: its format is {metadata['format']!r}, and its spec has {spec.bits} bits; "
            f"allowed with these is {format_of(spec)!r}"
        )
    return spec


def interface_in(metadata: Mapping[str, str], spec: ModelSpec, *, name: str) -> Interface | None:
    """What stands around the network, as the metadata of a checkpoint tell; None: they do not.

    Raises:
        CheckpointError: it is not valid, or not one for such a network.
    """
    if INTERFACE not in metadata:
        return None
    try:
        interface = Interface.model_validate_json(metadata[INTERFACE])
    except ValidationError as error:
        raise CheckpointError(f"{name}: its interface is not valid: {_fault(error)}") from error
    outputs, named = spec.signature.output_size, interface.answer.sizes
    if any(size != outputs for size in named):
        raise CheckpointError(
            f"{name}: its interface names {max(named)} answers; the model gives {outputs}"
        )
    return interface


def _fault(error: ValidationError) -> str:
    fault = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in fault["loc"]) or "document"
    return f"{place}: {fault['msg']}"


def format_of(spec: ModelSpec) -> str:
    """The format that a model is stored in."""
    return FORMAT if spec.rounded_to is None else ROUNDED_FORMAT


def layout_of(spec: ModelSpec) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
    """Type and shape of every tensor in the file of a model of single precision; nothing is built.

    Raises:
        SpecError: see `ModelSpec.check`.
    """
    module = spec.build_on_meta()
    state: dict[str, Tensor] = dict(module.state_dict())
    found = {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in state.items()}
    for name, layout in layouts(module, spec.rounded_to).items():
        found[name] = (layout.stored_type, layout.stored_shape)
        if layout.scale_shape is not None:
            found[name + SCALE] = (torch.bfloat16, layout.scale_shape)
    return found


def _check_format(name: str, metadata: Mapping[str, str]) -> None:
    if metadata.get("format") not in FORMATS or "spec" not in metadata:
        raise CheckpointError(
            f"{name}: a safetensors file of another kind; its format is "
            f"{metadata.get('format')!r}, allowed are {' and '.join(map(repr, FORMATS))}"
        )


def _stored(module: nn.Module, spec: ModelSpec) -> dict[str, Tensor]:
    """The tensors of the file."""
    state: dict[str, Tensor] = dict(module.state_dict())
    if spec.rounded_to is None:
        return state
    state = {name: tensor.float() for name, tensor in state.items()}
    for name, rounded in encoded(module, spec.rounded_to).items():
        state[name] = rounded.stored()
        if rounded.scale is not None:
            state[name + SCALE] = rounded.scale
    return state


def _rebuild(name: str, spec: ModelSpec, tensors: Mapping[str, Tensor]) -> nn.Module:
    """The module of a file's tensors."""
    if spec.rounded_to is None:
        return _of_state(name, spec, tensors)
    rounded, left = spec.layouts(), dict(tensors)
    _check_stored(name, spec, tensors)
    state = {
        tensor: decode(layout, left.pop(tensor), left.pop(tensor + SCALE, None))
        for tensor, layout in rounded.items()
    }
    module = _of_state(name, spec, {**left, **state})
    try:
        # What is read has to be what would be written: exports find integers in the parameters.
        again = _stored(module, spec)
    except RoundingError as error:
        raise CheckpointError(f"{name}: {error}") from error
    changed = next((t for t in rounded if not torch.equal(again[t], tensors[t])), None)
    if changed is not None:
        raise CheckpointError(
            f"{name}: the integers of {changed!r} are not those of rounded numbers; "
            f"allowed are those with the largest magnitude that {spec.bits} bits have in each slice"
        )
    return module


def _check_stored(name: str, spec: ModelSpec, tensors: Mapping[str, Tensor]) -> None:
    for tensor, (dtype, shape) in layout_of(spec).items():
        found = tensors.get(tensor)
        if found is None:
            raise CheckpointError(f"{name}: tensor {tensor!r} is missing")
        if (found.dtype, tuple(found.shape)) != (dtype, shape):
            raise CheckpointError(
                f"{name}: tensor {tensor!r} is {found.dtype} of shape {list(found.shape)}; its "
                f"spec makes it {dtype} of {list(shape)}"
            )


def _of_state(name: str, spec: ModelSpec, tensors: Mapping[str, Tensor]) -> nn.Module:
    """A module with these tensors; memory is taken only after all shapes were found right."""
    expected = spec.tensor_shapes()
    for tensor, shape in expected.items():
        if tensor not in tensors:
            raise CheckpointError(f"{name}: tensor {tensor!r} is missing")
        if tuple(tensors[tensor].shape) != shape:
            found = list(tensors[tensor].shape)
            raise CheckpointError(
                f"{name}: tensor {tensor!r} has shape {found}; its spec makes it {list(shape)}"
            )
    unknown = sorted(set(tensors) - set(expected))
    if unknown:
        raise CheckpointError(f"{name}: tensor {unknown[0]!r} is not part of the model of its spec")
    types = {tensor.dtype for tensor in tensors.values()}
    if len(types) != 1 or not next(iter(types)).is_floating_point:
        found = ", ".join(sorted(str(dtype) for dtype in types))
        raise CheckpointError(f"{name}: tensors of type {found}; allowed is one floating type")
    module = spec.unrounded.build(seed=0).to(types.pop())
    module.load_state_dict(dict(tensors), strict=True)
    return module


def _split(content: bytes) -> tuple[dict[str, Any], memoryview]:
    """Header and data of a safetensors file: a length of 8 bytes, the header as JSON, the data."""
    (length,) = struct.unpack_from("<Q", content)
    return json.loads(content[8 : 8 + length]), memoryview(content)[8 + length :]


def _join(header: Mapping[str, Any], metadata: Mapping[str, str], data: memoryview) -> bytes:
    """A safetensors file with a header in sorted order, since the library's own order is random."""
    document = json.dumps({"__metadata__": metadata, **header}, sort_keys=True).encode()
    document += b" " * (-len(document) % 8)
    return b"".join((struct.pack("<Q", len(document)), document, data))


def _digest(header: Mapping[str, Any], metadata: Mapping[str, str], data: memoryview) -> str:
    digest = hashlib.sha256(json.dumps([header, metadata], sort_keys=True).encode())
    digest.update(data)
    return digest.hexdigest()
