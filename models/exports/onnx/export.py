"""A trained model as one ONNX file."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import onnx
import torch
from onnx import helper
from torch import nn

from models.errors import ExportError
from models.exports.comparison import in_double_precision
from models.exports.files import Quantization, quantization_fault
from models.exports.onnx.architectures import WRITERS, Ends, Write
from models.exports.onnx.graph import Dimension, Graph, Port
from models.exports.onnx.interface import LABEL, clipped_lengths, missing_numbers, read_samples, say
from models.exports.onnx.matrices.arithmetic import FLOAT, INTEGER
from models.interface import Interface
from models.model import ModelSpec
from models.network import Network
from models.spec import kind_of

FORMAT = "reflectory.onnx.2"
INPUT, OUTPUT, LENGTHS = "input", "output", "lengths"
STATE, NEXT_STATE = "state_{}", "next_state_{}"

GraphForm: TypeAlias = Literal["node", "loop"]
"""node: matrices are made whole when the file is loaded, for standard operators; loop: products go
through their factors, step by step."""


@dataclass(frozen=True, kw_only=True)
class FileOptions:
    """What a file is to be like."""

    form: GraphForm = "node"
    interface: Interface | None = None
    """None: the file reads what the network reads, and gives its output as it is."""
    stream: bool = False
    """Whether states go in and come out, so that a sequence can be given in pieces."""
    guard: bool = False
    """Whether a batch may be empty, which costs 2 to 9 % of the speed."""
    quantization: Quantization = "none"
    """Of a model in fewer than 32 bits. With qdq its integers go through `DequantizeLinear`, which
    onnxruntime computes in every call. Angles and reflectors, which have no scales, do not."""


PLAIN = FileOptions()


def export(
    network: nn.Module,
    spec: ModelSpec,
    options: FileOptions = PLAIN,
    *,
    extra: Mapping[str, str] | None = None,
) -> bytes:
    """The model in evaluation, as an ONNX file in single precision.

    Its opset is 17, and 21 for `DequantizeLinear` of 4 bits.

    It maps `input` `[batch, steps, input_size]`, or tokens `[batch, steps]`, to `output`, in the
    shape that the model gives. With an interface, `input` is a batch of raw samples, `output` the
    answer in its own unit, and `label` what it decides; padded samples have their `lengths`
    `[batch]`. A stream takes `state_0`, ... `[layers, batch, n]` and gives `next_state_0`, ...; its
    `input` is always single steps `[batch, steps, features]`.

    Batches have 1 sample or more (any number with a guard), and sequences any length where the
    architecture takes any. Matrices are stored by their own numbers, and made of them when the
    file is loaded. The metadata hold the format, the spec as JSON, the interface, and `extra`.

    Run `models.exports.onnx.verify` on the file before it is given to others.

    Raises:
        ExportError: nothing writes such an architecture or such matrices, the weights are more
            than one file holds, a stream is asked of a model without a state, or
            `DequantizeLinear` of one without integers.
    """
    fault = quantization_fault(spec, options.quantization)
    if fault is not None:
        raise ExportError(fault)
    graph = Graph(
        factored=options.form == "loop",
        bits=spec.rounded_to,
        dequantizes=options.quantization == "qdq",
    )
    architecture = spec.architecture
    write = WRITERS.get(type(architecture))
    if write is None:
        written = ", ".join(sorted(kind_of(variant) for variant in WRITERS))
        raise ExportError(f"there is no ONNX writer for {architecture.kind}; written are {written}")
    exact = in_double_precision(network, spec)
    with torch.no_grad():
        described = _Writing(graph, spec, options, exact, write).described()
    model = helper.make_model(
        described,
        producer_name="reflectory",
        opset_imports=[helper.make_opsetid("", graph.opset)],
        ir_version=graph.ir_version,
        doc_string=f"{architecture.title}, {spec.parametrization.title}",
    )
    helper.set_model_props(model, {**_metadata(spec, options, exact), **(extra or {})})
    return model.SerializeToString(deterministic=True)


@dataclass(frozen=True)
class _Writing:
    """One file being written."""

    graph: Graph
    spec: ModelSpec
    options: FileOptions
    network: Network
    write: Write

    def described(self) -> onnx.GraphProto:
        """The whole graph."""
        graph, options, interface = self.graph, self.options, self.options.interface
        x = INPUT
        lengths = LENGTHS if self._padded else None
        states = [STATE.format(part) for part in range(self._num_states)]
        inputs = [*self._inputs(), *self._states(STATE)]
        if options.guard:
            x = self._padded_by_one(x, axis=0, dimensions=len(inputs[0].shape or ()))
            states = [self._padded_by_one(state, axis=1, dimensions=3) for state in states]
            lengths = lengths and self._padded_by_one(lengths, axis=0, dimensions=1)
        if interface is not None:
            lengths = lengths and clipped_lengths(graph, x, lengths)
            x = read_samples(graph, interface, x, lengths, stream=options.stream)
        ends = Ends(lengths=lengths, states=states)
        output, last = self.write(graph, self.spec.architecture, self.network, x, ends)
        label = None
        if interface is not None:
            if self.spec.signature.vocabulary is None:
                missing = missing_numbers(graph, x, states, each_step=self._every)
                output = graph.apply("Add", output, missing.answers)
                last = [graph.apply("Add", part, missing.ends) for part in last]
            output, label = say(graph, interface.answer, output)
        named = [(output, OUTPUT, 0)]
        if label is not None:
            named.append((label, LABEL, 0))
        if options.stream:
            named += [(part, NEXT_STATE.format(i), 1) for i, part in enumerate(last)]
        for value, name, axis in named:
            graph.rename(self._cut_to_batch(value, axis) if options.guard else value, name)
        outputs = [*self._outputs(), *self._states(NEXT_STATE)]
        return graph.described(self.spec.architecture.kind, inputs=inputs, outputs=outputs)

    @property
    def _padded(self) -> bool:
        interface = self.options.interface
        return interface is not None and interface.padded and not self.options.stream

    @property
    def _num_states(self) -> int:
        if not self.options.stream:
            return 0
        states = self.network.first_states()
        if not states:
            raise ExportError(
                f"{self.spec.architecture.kind} reads a sample as a whole and has no state to "
                "stream with; recurrent architectures have one"
            )
        return len(states)

    @property
    def _every(self) -> bool:
        return self.spec.signature.output_steps == "every"

    @property
    def _steps(self) -> Dimension:
        any_length = self.spec.architecture.any_length
        return "steps" if any_length else self.spec.signature.sequence_length

    def _inputs(self) -> list[Port]:
        signature, interface = self.spec.signature, self.options.interface
        reads_tokens = signature.vocabulary is not None if interface is None else interface.tokens
        shape: list[Dimension] = [self._steps, *([] if reads_tokens else [signature.input_size])]
        if interface is not None and not self.options.stream:
            shape = [self._steps if size == "steps" else size for size in interface.sample]
        batch = "any number of samples" if self.options.guard else "1 sample or more"
        ports = [Port(INPUT, ["batch", *shape], INTEGER if reads_tokens else FLOAT, batch)]
        if self._padded:
            ports.append(Port(LENGTHS, ["batch"], INTEGER, "steps of each sample, from 1"))
        return ports

    def _outputs(self) -> list[Port]:
        signature, interface = self.spec.signature, self.options.interface
        steps: list[Dimension] = [self._steps] if self._every else []
        ports = [Port(OUTPUT, ["batch", *steps, signature.output_size])]
        if interface is not None and interface.answer.decides:
            each: list[Dimension] = [signature.output_size] if interface.answer.each else []
            ports.append(Port(LABEL, ["batch", *steps, *each], INTEGER))
        return ports

    def _states(self, name: str) -> list[Port]:
        if not self.options.stream:
            return []
        return [
            Port(name.format(part), [len(first), "batch", first.shape[1]])
            for part, first in enumerate(self.network.first_states())
        ]

    def _padded_by_one(self, value: str, *, axis: int, dimensions: int) -> str:
        """One more sample behind those of the batch: runtimes have no recurrence of none."""
        pads = [0] * (2 * dimensions)
        pads[dimensions + axis] = 1
        return self.graph.apply("Pad", value, self.graph.integers(*pads))

    def _cut_to_batch(self, value: str, axis: int) -> str:
        graph = self.graph
        batch = graph.apply("Shape", INPUT, start=0, end=1)
        return graph.apply("Slice", value, graph.integers(0), batch, graph.integers(axis))


def _metadata(spec: ModelSpec, options: FileOptions, network: Network) -> dict[str, str]:
    metadata = {"format": FORMAT, "spec": spec.model_dump_json(), "reflectory.form": options.form}
    metadata["reflectory.bits"] = str(spec.bits)
    if options.quantization != "none":
        metadata["reflectory.quantization"] = options.quantization
    interface = options.interface
    if interface is not None:
        metadata["reflectory.preprocessing"] = interface.model_dump_json(exclude={"answer"})
        metadata["reflectory.labels"] = json.dumps(interface.answer.names, ensure_ascii=False)
        metadata["reflectory.answer"] = interface.answer.model_dump_json(exclude=_NAMES)
        metadata["reflectory.metric"] = interface.metric or ""
    if options.stream and "initial_state" in dict(network.named_parameters()):
        metadata["reflectory.initial_state"] = _first_states(network)
    return metadata


def _first_states(network: Network) -> str:
    """JSON with numbers of one width: a file's size does not depend on them."""
    parts: list[str] = []
    for part, first in enumerate(network.first_states()):
        rows = ("[" + ",".join(f"{value: .8e}" for value in layer) + "]" for layer in first)
        parts.append(f'"{STATE.format(part)}": [{",".join(rows)}]')
    return "{" + ", ".join(parts) + "}"


_NAMES = {"classes", "labels"}
"""Stand in metadata of their own."""
