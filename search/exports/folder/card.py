"""`MODEL_CARD.md`: what a model is, for somebody who never saw this project."""

from collections.abc import Callable, Iterator, Mapping
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
    Reorder,
    Standardise,
)
from models.model import ModelSpec
from search.documents.catalog import Metric
from search.exports.folder.document import Example
from search.exports.folder.intervals import interval
from search.exports.outcomes import ExportOutcome

_FEW = 12
"""So many names or numbers are listed; of more the first are, and where the others stand."""


@dataclass(frozen=True, kw_only=True)
class CardFacts:
    """All that a card says, of one transaction."""

    study: str
    """Its name."""
    trial: int
    task: str
    """Its title."""
    model: ModelSpec
    metric: Metric
    quality: float | None
    test_quality: float | None
    samples: Mapping[str, int]
    """Of each split, by name; empty where the data were never looked at."""
    parameters: int
    dense_parameters: int
    speed: Mapping[str, Any] | None
    """The record of the throughput measurement."""
    example: Example | None
    sizes: Mapping[str, int]
    """File of the folder -> its bytes."""
    missing: Mapping[str, str]
    """File of the folder -> why it is not in it."""
    outcomes: Mapping[str, ExportOutcome]
    """File -> what came of making it."""


def model_card(facts: CardFacts) -> str:
    """The card; equal facts give equal texts."""
    sections = [
        (f"{_line(facts.study)}, trial {facts.trial}", _about),
        ("What goes in", _input),
        ("What comes out", _output),
        ("How good it is", _quality),
        ("How large it is", _size),
        ("How fast it is", _speed),
        ("What was checked", _checked),
        ("How to run it", _running),
        ("Limits", _limits),
        ("What is not here, and why", _missing),
    ]
    parts: list[str] = []
    for level, (title, write) in enumerate(sections):
        lines = list(write(facts))
        if lines:
            parts.append("\n".join([f"{'##' if level else '#'} {title}", "", *lines]))
    return "\n\n".join(parts) + "\n"


def _about(facts: CardFacts) -> Iterator[str]:
    architecture, parametrization = facts.model.architecture, facts.model.parametrization
    yield (
        f"A trained network for the task: {facts.task}. Found by Reflectory, which searches for "
        "networks that are small and fast for their quality."
    )
    yield ""
    yield "| | |\n|---|---|"
    yield f"| architecture | {architecture.title}: `{architecture.model_dump_json()}` |"
    form = parametrization.model_dump_json()
    yield f"| form of its matrices | {parametrization.title}: `{form}` |"
    yield f"| bits of a stored number | {getattr(facts.model, 'bits', 32)} |"
    yield f"| answers are judged by | {facts.metric.name} ({facts.metric.unit}), {_better(facts)} |"


def _better(facts: CardFacts) -> str:
    return "larger is better" if facts.metric.direction == "maximize" else "smaller is better"


def _input(facts: CardFacts) -> Iterator[str]:
    if facts.example is None:
        signature = facts.model.signature
        yield (
            f"`input`: what the network reads, `[batch, {signature.sequence_length} steps, "
            f"{signature.input_size}]`. How raw data become that is not known of this model: the "
            "reason stands at the end."
        )
        return
    interface = facts.example.interface
    kind = "int64, numbers of tokens" if facts.example.reads_tokens else "float32"
    shape = ", ".join(["batch", *map(str, interface.sample)])
    yield f"`input` `[{shape}]`, {kind}: raw samples, as your data have them. The file itself does"
    yield "the rest, in this order:"
    yield ""
    steps = [_INPUT.get(type(step), _other)(step) for step in interface.inputs]
    yield from (f"{place}. {text}" for place, text in enumerate(steps or ["nothing"], start=1))
    if interface.padded:
        yield ""
        yield (
            "Samples have lengths of their own. Put 0 behind the last step of the shorter ones of "
            "a batch, and give `lengths` `[batch]`, int64: the steps of each, 1 or more."
        )


def _listed(values: tuple[float, ...], *, file: str = "preprocessing.json") -> str:
    shown = ", ".join(f"{value:.6g}" for value in values[:_FEW])
    return shown if len(values) <= _FEW else f"{shown}, ... (all in `{file}`)"


def _other(step: Any) -> str:
    return f"{step.kind.replace('_', ' ')}, as `preprocessing.json` says"


_INPUT: Mapping[type[InputStep], Callable[[Any], str]] = {
    Divide: lambda step: f"all numbers are divided by {step.by:g}",
    Reorder: lambda step: f"the {len(step.order)} numbers of a sample are put in another order",
    Layout: lambda step: (
        f"a sample is cut into {step.steps} steps of {step.features} numbers; what stands behind "
        "the last step is left out"
    ),
    FillMissing: lambda step: (
        f"a missing number, NaN, becomes its feature's usual one: {_listed(step.values)}"
    ),
    Standardise: lambda step: (
        f"each feature less its mean ({_listed(step.means)}), by its deviation "
        f"({_listed(step.deviations)})"
    ),
}


def _output(facts: CardFacts) -> Iterator[str]:
    outputs = facts.model.signature.output_size
    every = facts.model.signature.output_steps == "every"
    shape = f"`[batch, {'steps, ' if every else ''}{outputs}]`"
    if facts.example is None:
        yield f"`output` {shape}: what the network gives."
        return
    interface = facts.example.interface
    yield f"`output` {shape}, float32: {_ANSWER[type(interface.answer)](interface.answer)}"
    if every:
        yield ""
        yield "There is an answer at every step."


def _names(answer: Answer) -> str:
    shown = ", ".join(f"`{_line(name)}`" for name in answer.names[:_FEW])
    if not answer.names:
        return "numbered: their names are too many for the file"
    more = ", ..." if len(answer.names) > _FEW else ""
    return f"{shown}{more}; all stand in `labels.json`"


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


def _quality(facts: CardFacts) -> Iterator[str]:
    metric, mean_error = facts.metric, facts.example and facts.example.mean_error
    yield f"| data | samples | {metric.name} | 95 % interval |\n|---|---|---|---|"
    for split, value in (("validation", facts.quality), ("test", facts.test_quality)):
        count = facts.samples.get(split)
        found = interval(metric.name, value, count, mean_error)
        cells = (
            split,
            "–" if count is None else f"{count:,}",
            "–" if value is None else f"{value:.6g}",
            "–" if found is None else f"{found[0]:.6g} to {found[1]:.6g}",
        )
        yield f"| {' | '.join(cells)} |"
    yield ""
    yield (
        f"{metric.baseline:.6g} is what the trivial answer reaches. The search chose by the "
        "validation data, so that the test data are the fairer ones."
    )
    if metric.name == "accuracy":
        yield "Intervals are Wilson's, for samples that are independent of each other."
    elif mean_error is not None:
        yield (
            f"Intervals follow from the spread between {mean_error.samples} validation samples, "
            "taken as independent."
        )
    else:
        yield "There is no interval: this metric is no plain mean over independent samples."


def _size(facts: CardFacts) -> Iterator[str]:
    yield (
        f"{facts.parameters:,} parameters; the same architecture with plain matrices has "
        f"{facts.dense_parameters:,}."
    )
    yield ""
    yield "| file | bytes |\n|---|---|"
    yield from (f"| `{name}` | {size:,} |" for name, size in facts.sizes.items())


def _speed(facts: CardFacts) -> Iterator[str]:
    record = facts.speed
    if record is None:
        yield "Not measured."
        return
    known = record.get("samples_per_second"), record.get("ratio")
    runtime = record.get("runtime", "reflectory")
    yield "| runtime | samples per second | of the dense model's speed | circumstances |"
    yield "|---|---|---|---|"
    circumstances = ", ".join(
        f"{name.replace('_', ' ')} {record[name]}" for name in _CIRCUMSTANCES if record.get(name)
    )
    yield f"| {runtime} | {_estimate(known[0])} | {_estimate(known[1])} | {circumstances} |"
    yield ""
    yield (
        "Medians with 95 % intervals, measured in turn with the dense model of the same size. "
        "Elsewhere it is another speed: measure where you will run it."
    )


_CIRCUMSTANCES = ("device", "mode", "batch_size", "sequence_length", "threads", "torch_version")


def _estimate(found: Any) -> str:
    if not isinstance(found, Mapping):
        return "–"
    low, median, high = (found.get(name) for name in ("low", "median", "high"))  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType] -- JSON
    return f"{median:.4g} ({low:.4g} to {high:.4g})"


def _checked(facts: CardFacts) -> Iterator[str]:
    for name, outcome in facts.outcomes.items():
        if outcome.reason is None:
            how = _VERIFIED.get(name, "made of the checkpoint")
            yield f"- `{name}`: {how}, by Reflectory {outcome.program}."
    if facts.example is not None:
        yield (
            f"- `samples.json`: {len(facts.example.samples)} raw validation samples with the "
            "trained model's own answers. Both examples compare with them."
        )
    yield "- `VERIFIED.json` has digests of all files, and what came of making each."


_VERIFIED: Mapping[str, str] = {
    "model.onnx": "run in onnxruntime and compared with the trained model",
    "model.stream.onnx": "run in onnxruntime in pieces and compared with the trained model",
    "model.c": "compiled, run and compared with the trained model",
}


def _running(facts: CardFacts) -> Iterator[str]:
    sizes = facts.sizes
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
            "features]` and the states, and hand each `next_state_i` on as `state_i`. The first "
            "states stand in `initial_state.json`."
        )


def _limits(facts: CardFacts) -> Iterator[str]:
    yield "- A batch has 1 sample or more; an empty one is not for every runtime."
    yield "- NaN in is NaN out, except where missing numbers are filled in."
    if isinstance(facts.model.architecture, Recurrent):
        yield "- Sequences may have any length; it was trained and judged at its task's own."
    else:
        length = facts.model.signature.sequence_length
        yield f"- Every sample has {length} steps, as the network reads it."
    if "model.onnx" in facts.sizes:
        yield (
            "- An ONNX file that makes its matrices when it is loaded is as small as the form of "
            "its matrices; in memory they are as large as the dense model's."
        )
    yield "- It answers for data like those of its task, and knows nothing of others."


def _missing(facts: CardFacts) -> Iterator[str]:
    yield from (f"- `{name}`: {reason}" for name, reason in facts.missing.items())


def _line(text: str) -> str:
    """A user's words on one line, which end no table and no code."""
    return " ".join(text.split()).replace("`", "'").replace("|", "\\|")
