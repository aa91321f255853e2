"""A trained model as a C99 header and source."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from models.architectures import Architecture
from models.architectures.feed_forward import FeedForwardNetwork
from models.architectures.recurrent import Recurrent
from models.architectures.recurrent_network import RecurrentNetwork
from models.errors import ExportError
from models.exports.c import feed_forward, recurrent
from models.exports.c.cells import CELLS
from models.exports.c.feed_forward import STACKS
from models.exports.c.interface import answering, reading
from models.exports.c.program import Program, State, header
from models.exports.c.source import Source
from models.exports.c.tables import Tables
from models.exports.c.text import check_name
from models.exports.comparison import in_double_precision
from models.interface import Interface
from models.model import ModelSpec
from models.network import Network
from models.spec import kind_of


@dataclass(frozen=True)
class Sizes:
    """What a C file takes on a device, before its code."""

    tables_bytes: int
    """Of all constant tables of numbers"""
    state_bytes: int
    """`sizeof` the state, where a float has four bytes"""


@dataclass(frozen=True)
class CFile:
    """`NAME.h` and `NAME.c`."""

    name: str
    header: str
    source: str
    tables_bytes: int
    state_bytes: int
    reads: str = "float"
    """The type of raw numbers: float, or int32_t of tokens"""


def export(
    network: nn.Module,
    spec: ModelSpec,
    *,
    name: str = "model",
    interface: Interface | None = None,
) -> CFile:
    """The model in evaluation, as two files of C99 that need no library and allocate nothing.

    With an interface they read raw samples and give answers; without one what the network reads
    and gives. What is made of the parameters is made in double precision and rounded once.
    Of a model of few bits the integers of its parameters stand there, with their scales.

    Run `models.exports.c.verify` on the files before they are given to others.

    Raises:
        ExportError: the name is no name in C, nothing writes such an architecture or such
            matrices, numbers are not finite, or the interface does not fit the model.
        RoundingError: the spec says few bits, and the network is not rounded to them.
    """
    check_name(name)
    program, state, functions = _built(network, spec, name, interface)
    about = [
        f"{spec.architecture.title}, {spec.parametrization.title}, written by Reflectory.",
        "",
        "C99 without any library. Nothing is allocated, and nothing is kept but in the state.",
        f"Tables of {program.source.tables.bytes} bytes, a state of {state.bytes}.",
        "Compile with -std=c99, or with -ffp-contract=off, and never with -ffast-math: all",
        "compilers then give the same bits.",
    ]
    return CFile(
        name=name,
        header=header(program, state, functions, about),
        source=program.source.written(f"{name}.h"),
        tables_bytes=program.source.tables.bytes,
        state_bytes=state.bytes,
        reads=program.reads,
    )


def sizes(spec: ModelSpec, *, interface: Interface | None = None) -> Sizes:
    """What the file of any model of a spec takes: it follows from shapes alone.

    Raises:
        ExportError: see `export`.
    """
    network = spec.build(seed=0)
    program, state, _ = _built(network, spec, "model", interface)
    return Sizes(program.source.tables.bytes, state.bytes)


def fault(architecture: Architecture) -> str | None:
    """Why no model of an architecture can be written; None where it can."""
    if type(architecture) in WRITERS:
        return None
    written = ", ".join(sorted(kind_of(variant) for variant in WRITERS))
    return f"there is no C writer for {kind_of(type(architecture))}; written are {written}"


def _built(
    network: nn.Module,
    spec: ModelSpec,
    name: str,
    interface: Interface | None,
) -> tuple[Program, State, list[str]]:
    refused = fault(spec.architecture)
    if refused is not None:
        raise ExportError(refused)
    write = WRITERS[type(spec.architecture)]
    source = Source(Tables(spec.rounded_to))
    with torch.no_grad():
        exact = in_double_precision(network, spec)
        program = Program(
            source,
            name,
            spec,
            reading(source, interface, spec.signature),
            answering(source, interface, name, spec.signature.output_size),
        )
        return program, *write(program, exact)


Write = Callable[[Program, Any], tuple[State, list[str]]]
"""Defines the functions of a network; gives the state, and what the header declares."""


def _cells(variant: type[Recurrent]) -> Write:
    def write(program: Program, network: Network) -> tuple[State, list[str]]:
        assert isinstance(network, RecurrentNetwork)
        state = recurrent.write_recurrent(program, CELLS[variant], network)
        return state, recurrent.declarations(program, network)

    return write


def _layers(variant: type[Architecture]) -> Write:
    def write(program: Program, network: Network) -> tuple[State, list[str]]:
        assert isinstance(network, FeedForwardNetwork)
        stack = STACKS[variant](program.spec.architecture)
        state = feed_forward.write_feed_forward(program, stack, network)
        return state, feed_forward.declarations(program)

    return write


WRITERS: Mapping[type[Architecture], Write] = {
    **{variant: _cells(variant) for variant in CELLS},
    **{variant: _layers(variant) for variant in STACKS},
}
"""The registry: how a model of each architecture is written."""
