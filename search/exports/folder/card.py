"""`MODEL_CARD.md`: what a model is, for somebody who never saw this project."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from models.architectures.recurrent import Recurrent
from models.interface import (
    Answer,
    Classes,
    Divide,
    FillMissing,
    InputStep,
    Labels,
    Layout,
    Numbers,
    OneHot,
    Reorder,
    Standardise,
)
from models.parametrizations import Dense
from search.documents.export_kinds import ON_DEVICE
from search.documents.readable import NONE, enumerated, interval, metric, number, seconds
from search.exports.folder import intervals
from search.exports.folder.document import Example
from search.exports.folder.facts import FolderFacts
from search.exports.folder.markdown import document, estimate, one_line, table
from search.exports.outcomes import ExportOutcome
from search.exports.verification import Verification

_FEW = 12
"""So many names or numbers are listed; of more the first are, and where the others stand."""
_NUMBER_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class Card:
    """A card: what rows say, and what the folder holds."""

    facts: FolderFacts
    example: Example | None
    sizes: Mapping[str, int]
    """File of the folder -> its bytes."""
    missing: Mapping[str, str]
    """File of the folder -> why it is not in it."""
    outcomes: Mapping[str, ExportOutcome]
    """File -> what came of making it."""

    def text(self) -> str:
        """Markdown; equal cards give equal texts."""
        sections = [
            (f"{one_line(self.facts.study)}, trial {self.facts.trial}", _about),
            ("What goes in", _input),
            ("What comes out", _output),
            ("How good it is", _quality),
            ("How large it is", _size),
            ("How fast it is", _speed),
            ("What was checked", _checked),
            ("How to run it", _running),
            ("Limits", _limits),
            ("What is missing, and why", _missing),
        ]
        return document(self, sections)


def _about(card: Card) -> Iterator[str]:
    facts = card.facts
    architecture, parametrization = facts.model.architecture, facts.model.parametrization
    yield (
        f"A trained network for the task: {facts.task}. Found by Reflectory, which searches for "
        "networks that are small and fast for their quality."
    )
    yield ""
    better = "larger" if facts.metric.direction == "maximize" else "smaller"
    form = parametrization.model_dump_json()
    rows = [
        ("architecture", f"{architecture.title}: `{architecture.model_dump_json()}`"),
        ("form of its matrices", f"{parametrization.title}: `{form}`"),
        ("bits of a stored number", str(facts.model.bits)),
        ("metric", f"{facts.metric.name} ({facts.metric.unit}), {better} is better"),
    ]
    yield from table(("", ""), iter(rows), words=2)


def _input(card: Card) -> Iterator[str]:
    signature = card.facts.model.signature
    if card.example is None:
        yield (
            f"`input`: what the network reads, `[batch, {signature.sequence_length} steps, "
            f"{signature.input_size}]`. How raw data become that is not known of this model, for "
            "the reason at the end of this card."
        )
        return
    interface = card.example.interface
    kind = "int64, numbers of tokens" if card.example.reads_tokens else "float32"
    shape = ", ".join(["batch", *map(str, interface.sample)])
    steps = [_INPUT[type(step)](step) for step in interface.inputs]
    yield f"`input` `[{shape}]`, {kind}: raw samples, as your data have them."
    if steps:
        yield "The file itself does the rest, in this order:"
        yield ""
        yield from (f"{place}. {text}" for place, text in enumerate(steps, start=1))
    if interface.padded:
        yield ""
        yield (
            "Samples have lengths of their own. Put 0 behind the last step of the shorter ones of "
            "a batch, and give `lengths` `[batch]`, int64: the steps of each, 1 or more."
        )


def _listed(values: Sequence[float], *, file: str = "preprocessing.json") -> str:
    shown = ", ".join(number(value, 6, separator="") for value in values[:_FEW])
    return shown if len(values) <= _FEW else f"{shown}, ... (all in `{file}`)"


_INPUT: Mapping[type[InputStep], Callable[[Any], str]] = {
    Divide: lambda step: f"all numbers are divided by {number(step.by, 6)}",
    Reorder: lambda step: f"the {len(step.order):,} numbers of a sample are put in another order",
    Layout: lambda step: (
        f"a sample is cut into {step.steps:,} steps of {step.features:,} numbers; numbers behind "
        "the last step are left out"
    ),
    OneHot: lambda step: (
        f"each token becomes {step.symbols:,} numbers: 1 in its place, 0 elsewhere"
    ),
    FillMissing: lambda step: (
        f"a missing number, NaN, is replaced by its feature's value here: {_listed(step.values)}"
    ),
    Standardise: lambda step: (
        f"each feature, less its mean ({_listed(step.means)}), is divided by its standard "
        f"deviation ({_listed(step.deviations)})"
    ),
}
"""How each input step is described."""


def _output(card: Card) -> Iterator[str]:
    signature = card.facts.model.signature
    every = signature.output_steps == "every"
    shape = f"`[batch, {'steps, ' if every else ''}{signature.output_size}]`"
    if card.example is None:
        yield f"`output` {shape}: what the network gives."
        return
    answer = card.example.interface.answer
    yield f"`output` {shape}, float32: {_ANSWER[type(answer)](answer)}"
    if every:
        yield ""
        yield "There is an answer at every step."


def _names(answer: Answer) -> str:
    # Of a name that nobody would see, the JSON string.
    seen = (one_line(name) or json.dumps(name) for name in answer.names[:_FEW])
    shown = ", ".join(f"`{name}`" for name in seen)
    if not answer.names:
        return "numbered: their names are too many for the file"
    more = ", ..." if len(answer.names) > _FEW else ""
    return f"{shown}{more}; all are in `labels.json`"


_ANSWER: Mapping[type[Answer], Callable[[Any], str]] = {
    Classes: lambda answer: (
        "a number for each class, of which the largest is the answer. `label`, int64: which one "
        f"that is, from 0. The classes are {_names(answer)}."
    ),
    Labels: lambda answer: (
        "a probability for each label. `label`, int64: 1 where it is above one half, else 0. The "
        f"labels are {_names(answer)}."
    ),
    Numbers: lambda answer: (
        "numbers in the unit of the data"
        + (
            f" (the network's own times {_listed(answer.deviations)} plus {_listed(answer.means)},"
            " which the file does)."
            if answer.means
            else "."
        )
    ),
}


def _quality(card: Card) -> Iterator[str]:
    facts, mean_error = card.facts, card.example and card.example.mean_error
    name = facts.metric.name

    def rows() -> Iterator[Sequence[str]]:
        for split, value in (("validation", facts.quality), ("test", facts.test_quality)):
            count = facts.samples.get(split)
            found = intervals.interval(name, value, count, mean_error)
            yield split, number(count), metric(name, value), interval(name, found)

    title = name.replace("_", " ")
    yield from table(("data", "samples", title, "95 % interval"), rows(), words=1)
    yield ""
    yield (
        f"The baseline, an answer without any model, reaches {metric(name, facts.metric.baseline)}."
        " The search chose by the validation data, so the test data are the fairer ones."
    )
    if name == "accuracy":
        yield "Intervals are Wilson's, for independent samples."
    elif mean_error is not None:
        yield (
            f"Intervals follow from the spread between {mean_error.samples} validation samples, "
            "taken as independent."
        )
    else:
        yield "There is no interval: this metric is no plain mean over independent samples."


def _size(card: Card) -> Iterator[str]:
    facts = card.facts
    yield (
        f"{facts.parameters:,} parameters; the same architecture with dense matrices has "
        f"{facts.dense_parameters:,}."
    )
    yield ""
    rows = [(f"`{name}`", f"{size:,}") for name, size in card.sizes.items()]
    for made in facts.outcomes.values():
        rows += [(ON_DEVICE[name], f"{size:,}") for name, size in made.on_device.items()]
    yield from table(("file", "bytes"), iter(rows), words=1)


def _speed(card: Card) -> Iterator[str]:
    if not card.facts.speeds:
        yield "Not measured."
        return
    titles = ("runtime", "device", "samples/s", "/ dense", "one call, p50", "one call, p99")

    def rows() -> Iterator[Sequence[str]]:
        for record in card.facts.speeds:
            yield (
                f"{record.get('runtime', 'reflectory')} {record.get('runtime_version') or ''}",
                one_line(str(record.get("device", NONE))),
                estimate(record.get("samples_per_second")),
                estimate(record.get("ratio")),
                seconds(record.get("latency_p50")),
                seconds(record.get("latency_p99")),
            )

    yield from table(titles, rows(), words=2)
    yield ""
    first = card.facts.speeds[0]
    parts = (f"{name.replace('_', ' ')} {first[name]}" for name in _CONDITIONS if first.get(name))
    yield (
        f'Conditions: {", ".join(parts)}. Medians with 95 % intervals. "/ dense" is the speed '
        "divided by that of the dense model of the same size, timed in turn in the same runtime. "
        "Speeds differ between machines: measure on yours."
    )


_CONDITIONS = ("mode", "batch_size", "sequence_length", "threads")


def _checked(card: Card) -> Iterator[str]:
    known = {name: one.verification for name, one in card.outcomes.items() if not one.reason}
    compared = {name: found for name, found in known.items() if found is not None}
    if compared:
        name = card.facts.metric.name
        yield "Each file was run and compared with the trained model before it was stored:"
        yield ""
        title = name.replace("_", " ")
        titles = ("file", "run in", "inputs", "same answers", f"{title}: file", f"{title}: model")
        rows = (_comparison(file, found, name) for file, found in compared.items())
        yield from table((*titles, "largest difference"), rows, words=3)
        yield ""
        if any(found.ties for found in compared.values()):
            yield "Ties are decided by rounding in single precision; all other answers are equal."
        if any(found.chunks for found in compared.values()):
            yield (
                "A file that reads a sequence in pieces gives what it gives for the whole: pieces "
                "of the steps named above were tried."
            )
        if any(found.inputs == "random" for found in compared.values()):
            yield "On random inputs numbers are compared within the same bound, and no answers."
        yield ""
    if card.example is not None:
        yield (
            f"`samples.json` has {len(card.example.samples)} raw validation samples with the "
            "trained model's own answers. Both examples compare with them."
        )
    yield "`VERIFIED.json` has the SHA-256 of all files, and these comparisons in full."


def _comparison(file: str, found: Verification, name: str) -> Sequence[str]:
    inputs = f"{found.samples:,} {found.inputs} samples" if found.samples else "random numbers"
    if found.chunks:
        inputs += f", in pieces of {enumerated(found.chunks)} steps"
    same = f"{found.same:,} of {found.answers:,}" if found.answers else NONE
    largest = number(found.largest_difference, 2)
    if found.share_of_bound is not None:
        largest += f" ({number(100 * found.share_of_bound, 2)} % of the bound)"
    return (
        f"`{file}`",
        f"{found.runtime} {found.runtime_version}",
        inputs,
        f"{same}, {found.ties:,} by ties" if found.ties else same,
        metric(name, found.value),
        metric(name, found.value_of_model),
        largest,
    )


def _running(card: Card) -> Iterator[str]:
    sizes = card.sizes
    if "example.py" in sizes:
        yield "```sh\npip install numpy onnxruntime\npython example.py\n```\n"
    if "example.c" in sizes:
        yield "```sh\ncc -std=c99 -O2 example.c model.c -o example && ./example\n```\n"
    if "dense.safetensors" in sizes:
        yield (
            "`dense.safetensors` is a state dict of plain `torch.nn` layers, which torch alone "
            "loads: `rnn`, `readout` and so on are named as in Reflectory's documentation.\n"
        )
    yield (
        "`model.safetensors` is the checkpoint: `models.checkpoint.load` of the Python package "
        "`reflectory` gives the module."
    )
    if "model.stream.onnx" in sizes:
        yield (
            "\n`model.stream.onnx` reads a sequence in pieces: give `input` `[batch, steps, "
            "features]` and the states, and pass each `next_state_i` on as `state_i`. The first "
            "states are in `initial_state.json`."
        )


def _limits(card: Card) -> Iterator[str]:
    facts = card.facts
    architecture, length = facts.model.architecture, facts.model.signature.sequence_length
    yield "- A batch has 1 sample or more. onnxruntime ends the process on an empty batch."
    yield (
        "- A sample with a NaN gives NaN, and the label -1, except where missing numbers are "
        "replaced first."
    )
    if isinstance(architecture, Recurrent):
        yield (
            f"- Sequences may have any length. It was trained and tested on {length:,} steps"
            + (" at most" if card.example and card.example.interface.padded else "")
            + "; others are not tested."
        )
        state = _NUMBER_BYTES * architecture.state_numbers()
        yield f"- From a step to the next it keeps {state:,} bytes of state for each sample."
    else:
        yield f"- Every sample has {length:,} steps, as the network reads it."
    if "model.onnx" in card.sizes and not isinstance(facts.model.parametrization, Dense):
        dense = _NUMBER_BYTES * facts.dense_parameters
        yield (
            "- Memory: `reflectory.form` in the metadata of an ONNX file is `node` or `loop`. A "
            "`node` file is as small as the numbers that it stores, but makes its matrices whole "
            f"when it is loaded: it then takes what the dense network takes, {dense:,} bytes and "
            "the runtime's own."
        )
    yield "- It is tested on data like those of its task, and on no others."


def _missing(card: Card) -> Iterator[str]:
    yield from (f"- `{name}`: {reason}" for name, reason in card.missing.items())
