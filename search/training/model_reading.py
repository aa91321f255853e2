"""From a file that a user sends to a checkpoint of our own form, with plain matrices.

Whatever reads models later reads one form alone. A file is either a checkpoint of ours, whose
structured matrices are folded, or a state dict of plain torch layers, see
`models.compression.torch_layers.from_torch`. It is read in the service's own process: nothing in it
can be run, and how much memory it takes follows from the count of its numbers, which is held
against a limit before one of them is read.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from pydantic import Field, ValidationError

from models import checkpoint
from models.compression.networks import fold
from models.compression.torch_layers.from_torch import from_torch
from models.errors import CheckpointError, ModelError
from models.math.activations import Activation
from models.model import ModelSpec
from models.network import Network
from models.parametrizations import Dense
from models.spec import Spec
from search.training.tensor_files import DTYPES, MOST_TENSORS, TensorFile, look_through

Source = Literal["reflectory", "torch"]

_PLAIN_BYTES = 40
"""Most bytes that a number of plain matrices takes on its way, all copies together."""
_FOLDED_BYTES = 96
"""The same for a number of matrices that are folded, which is done in double precision."""
_LONGEST_MESSAGE = 2000
_LAYER = re.compile(r".*_l(?P<layer>\d+)(_reverse)?")


class ModelOptions(Spec):
    """What a state dict cannot say of its model; a checkpoint of ours says it itself."""

    nonlinearity: Activation | None = Field(
        default=None,
        description="of an nn.RNN (null: tanh, as torch has it), or between linear layers (null: "
        "relu)",
    )
    output_steps: Literal["last", "every"] = Field(
        default="last", description="whether the readout answers after the last step or every step"
    )
    sequence_length: int = Field(
        default=1,
        ge=1,
        le=1_000_000,
        description="steps of a sample, all of which linear layers read at once; recurrent layers "
        "run at any number",
    )


@dataclass(frozen=True)
class ModelFacts:
    """What was found in a file."""

    source: Source
    spec: ModelSpec
    notes: tuple[str, ...]
    """Sentences on what was changed on the way."""


def read_model(path: Path, options: ModelOptions, *, out: Path, memory_bytes: int) -> ModelFacts:
    """Read a user's file, and write the checkpoint of its model.

    Args:
        path: the file.
        options: what it does not say itself.
        out: the checkpoint; it is there when this returns, and only then.
        memory_bytes: what reading may take.

    Raises:
        ModelError: the file cannot be read as a model; the message says why, in the user's words.
    """
    try:
        return _read(path, options, out=out, memory_bytes=memory_bytes)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in fault["loc"])
        raise CheckpointError(
            f"the model cannot be one of ours: {place} = {fault['input']!r}: {fault['msg']}"
        ) from error
    except ModelError as error:
        message = str(error)
        if len(message) <= _LONGEST_MESSAGE:
            raise
        raise type(error)(f"{message[:_LONGEST_MESSAGE]}... (and more)") from error


def _read(path: Path, options: ModelOptions, *, out: Path, memory_bytes: int) -> ModelFacts:
    file = look_through(path)
    _refuse_large(file.numbers, memory_bytes // _PLAIN_BYTES, "the file has")
    if file.metadata.get("format") in checkpoint.FORMATS:
        network, spec, notes = _of_ours(file, options, memory_bytes)
        source: Source = "reflectory"
    else:
        network, spec, notes = _of_torch(file, options)
        source = "torch"
    checkpoint.save(out, network, spec)
    return ModelFacts(source, spec, tuple(notes))


def _of_ours(
    file: TensorFile, options: ModelOptions, memory_bytes: int
) -> tuple[Network, ModelSpec, list[str]]:
    if options != ModelOptions():
        given = ", ".join(sorted(options.model_dump(exclude_defaults=True)))
        raise CheckpointError(
            f"the file is a checkpoint of ours and says itself what {given} would; allowed with it "
            "is none of them"
        )
    spec = checkpoint.spec_in(file.metadata, name="the file")
    # Before anything is laid out by a spec that anybody may have written. Two numbers of 4 bits are
    # one byte of a tensor.
    most = file.numbers * (2 if spec.bits == 4 else 1)
    if spec.parameter_count() > most:
        raise CheckpointError(
            f"the spec of the file has {spec.parameter_count()} parameters, and its tensors "
            f"have {most}; allowed is a file whose tensors are those of its spec"
        )
    _refuse_large(spec.parameter_count(), memory_bytes // _PLAIN_BYTES, "the model has")
    folds = not isinstance(spec.parametrization, Dense)
    if folds:
        count = spec.dense_twin().parameter_count()
        _refuse_large(count, memory_bytes // _FOLDED_BYTES, "with plain matrices the model has")
    # Its numbers are looked at, which also names the tensor that has a bad one.
    file.read()
    # As bytes: messages then name no path of the server.
    loaded = checkpoint.load(file.path.read_bytes())
    network = cast(Network, loaded.module).float()
    rounded = [f"numbers of {spec.bits} bits became float32"]
    notes = _notes_on_types(file) if spec.rounded_to is None else rounded
    if not folds:
        return network, spec.unrounded, notes
    became = f"matrices stored as {spec.parametrization.family} became plain ones"
    return *fold(network, spec), [*notes, became]


def _of_torch(file: TensorFile, options: ModelOptions) -> tuple[Network, ModelSpec, list[str]]:
    for name in file.tensors:
        # A layer takes a tensor at least.
        match = _LAYER.fullmatch(name)
        if match and int(match["layer"]) >= MOST_TENSORS:
            raise CheckpointError(
                f"tensor {name!r} is of layer {match['layer']}; allowed are layers below "
                f"{MOST_TENSORS}"
            )
    network, spec = from_torch(
        file.read(),
        nonlinearity=options.nonlinearity,
        output_steps=options.output_steps,
        sequence_length=options.sequence_length,
    )
    return network, spec, _notes_on_types(file)


def _notes_on_types(file: TensorFile) -> list[str]:
    types = {DTYPES[tensor.dtype][0] for tensor in file.tensors.values()} - {"float32"}
    return [f"numbers of type {name} became float32" for name in sorted(types)]


def _refuse_large(numbers: int, most: int, what: str) -> None:
    if numbers > most:
        raise CheckpointError(
            f"{what} {numbers} numbers; allowed are at most {most}, by the memory that this "
            "server gives to reading an upload (REFLECTORY_UPLOAD_MEMORY)"
        )
