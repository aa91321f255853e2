"""What stands around a network, in C: raw numbers become its input, its output an answer."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import torch

from models.errors import ExportError
from models.exports.c.source import Source
from models.exports.c.text import number, string
from models.interface import (
    Answer,
    Classes,
    Divide,
    FillMissing,
    InputStep,
    Interface,
    Labels,
    Layout,
    Numbers,
    OneHot,
    Reorder,
    Standardise,
)
from models.spec import Signature


@dataclass(frozen=True)
class Reading:
    """What is done to a raw number v of feature j."""

    lines: tuple[str, ...] = ()
    order: tuple[int, ...] | None = None
    """Where in a raw sample each number stands; None: in their order"""
    symbols: int | None = None
    """How many tokens there are, where raw steps are tokens that become one-hot numbers"""

    def then(self, line: str) -> "Reading":
        """One more line."""
        return replace(self, lines=(*self.lines, line))


Read: TypeAlias = Callable[[Source, Any, Reading, int], Reading]


def reading(source: Source, interface: Interface | None, signature: Signature) -> Reading:
    """All input steps, one after the other.

    Raises:
        ExportError: nothing writes one of them, or what they give does not fit the network.
    """
    found = Reading()
    for step in () if interface is None else interface.inputs:
        write = INPUTS.get(type(step))
        if write is None:
            raise ExportError(f"there is no C writer for the input step {step.kind}")
        if found.symbols is not None:
            raise ExportError(f"{step.kind} stands behind one_hot; C files read tokens alone there")
        found = write(source, step, found, signature.input_size)
    return found


def _check(what: str, count: int, allowed: int) -> None:
    if count != allowed:
        raise ExportError(f"{what} has {count} numbers; the network has {allowed} in a step")


def _divide(_source: Source, step: Divide, before: Reading, _features: int) -> Reading:
    return before.then(f"v = v / {number(torch.tensor(step.by).item())};")


def _reorder(_source: Source, step: Reorder, before: Reading, _features: int) -> Reading:
    order = step.order
    if before.order is not None:
        order = tuple(before.order[place] for place in order)
    return replace(before, order=order)


def _layout(_source: Source, step: Layout, before: Reading, features: int) -> Reading:
    # The numbers of a sample stand step after step anyway.
    _check("layout", step.features, features)
    return before


def _one_hot(_source: Source, step: OneHot, before: Reading, features: int) -> Reading:
    if before != Reading():
        raise ExportError("one_hot reads tokens; no step for numbers fits before it")
    _check("one_hot", step.symbols, features)
    return Reading(symbols=step.symbols)


def _fill(source: Source, step: FillMissing, before: Reading, features: int) -> Reading:
    _check("fill_missing", len(step.values), features)
    table = source.tables.numbers("fill", torch.tensor(step.values), "for missing numbers")
    return before.then(f"v = v != v ? {table}[j] : v; /* NaN stands for a missing number */")


def _standardise(source: Source, step: Standardise, before: Reading, features: int) -> Reading:
    _check("standardise", len(step.means), features)
    _check("standardise", len(step.deviations), features)
    high, low, deviations = step.parts()
    names = (
        source.tables.numbers("mean_high", high, "means in two parts: nothing is lost far from 0"),
        source.tables.numbers("mean_low", low),
        source.tables.numbers("deviation", deviations),
    )
    return before.then("v = ((v - {}[j]) - {}[j]) / {}[j];".format(*names))


INPUTS: Mapping[type[InputStep], Read] = {
    Divide: _divide,
    Reorder: _reorder,
    Layout: _layout,
    OneHot: _one_hot,
    FillMissing: _fill,
    Standardise: _standardise,
}
"""The registry: how each input step is written."""


@dataclass(frozen=True)
class Answering:
    """What is done to outputs y, and what is said of them."""

    about: str
    finish: str = ""
    """Statements over y"""
    declarations: tuple[str, ...] = ()
    """Of the header"""
    define: Callable[[Source], None] = field(default=lambda _source: None)
    """Adds the functions and tables that are declared"""


Respond: TypeAlias = Callable[[Source, Any, str, int], Answering]


def answering(source: Source, interface: Interface | None, name: str, outputs: int) -> Answering:
    """How outputs are answered with; without an interface by the numbers and the largest one.

    Raises:
        ExportError: nothing writes such an answer, or it has other names than there are outputs.
    """
    if interface is None:
        return Answering("what the network gives", *_largest(name))
    answer = interface.answer
    write = RESPONSES.get(type(answer))
    if write is None:
        raise ExportError(f"there is no C writer for the answer {answer.kind}")
    if answer.decides and len(answer.names) != outputs:
        raise ExportError(
            f"the answer has {len(answer.names)} names; the network has {outputs} outputs"
        )
    return write(source, answer, name, outputs)


def _largest(name: str) -> tuple[str, tuple[str, ...], Callable[[Source], None]]:
    signature = f"int {name}_class(const float *y)"

    def define(source: Source) -> None:
        body = f"""
int best = 0;
for (int o = 1; o < {name.upper()}_OUTPUTS; o++) {{
    if (y[o] > y[best]) {{
        best = o;
    }}
}}
return best;"""
        source.define(signature, body, static=False)

    return (
        "",
        (f"/* The place of the largest of an answer; the first of equal ones. */\n{signature};",),
        define,
    )


def _classes(_source: Source, answer: Classes, name: str, outputs: int) -> Answering:
    finish, declarations, define = _largest(name)
    names, define_names = _names(answer, name, outputs)

    def define_all(source: Source) -> None:
        define_names(source)
        define(source)

    about = "a number for each class; the largest one is the answer"
    return Answering(about, finish, (names, *declarations), define_all)


def _labels(source: Source, answer: Labels, name: str, outputs: int) -> Answering:
    names, define_names = _names(answer, name, outputs)
    signature = f"int {name}_label(const float *y, int label)"

    def define(source: Source) -> None:
        define_names(source)
        source.define(signature, "return y[label] > 0.5f;", static=False)

    finish = f"""
for (int o = 0; o < {outputs}; o++) {{
    y[o] = {source.use("gate")}(y[o]);
}}"""
    about = "Whether a label is among the answer's: its probability is above one half."
    declared = f"/* {about} */\n{signature};"
    return Answering("the probability of each label", finish, (names, declared), define)


def _numbers(source: Source, answer: Numbers, _name: str, outputs: int) -> Answering:
    if not answer.means:
        return Answering("numbers")
    for name, values in (("means", answer.means), ("deviations", answer.deviations)):
        if len(values) != outputs:
            raise ExportError(
                f"numbers.{name} has {len(values)} numbers; the network has {outputs} outputs"
            )
    means = source.tables.numbers("answer_mean", torch.tensor(answer.means))
    deviations = source.tables.numbers("answer_deviation", torch.tensor(answer.deviations))
    finish = f"""
for (int o = 0; o < {outputs}; o++) {{
    y[o] = y[o] * {deviations}[o] + {means}[o];
}}"""
    return Answering("numbers in their own unit", finish)


def _names(answer: Answer, name: str, outputs: int) -> tuple[str, Callable[[Source], None]]:
    declared = f"const char *const {name}_names[{outputs}]"
    literals = ",\n    ".join(map(string, answer.names))
    text = f"{declared} = {{\n    {literals}\n}};\n"
    return (
        f"/* The names of the outputs, in UTF-8. */\nextern {declared};",
        lambda source: source.declare(text),
    )


RESPONSES: Mapping[type[Answer], Respond] = {
    Classes: _classes,
    Labels: _labels,
    Numbers: _numbers,
}
"""The registry: how each answer is written."""
