"""What all C files have in common: the header, the state, and what surrounds the network."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from models.errors import ExportError
from models.exports.c.interface import Answering, Reading
from models.exports.c.source import Source
from models.model import ModelSpec


@dataclass(frozen=True)
class Program:
    """A file under construction, for those who write a network."""

    source: Source
    name: str
    spec: ModelSpec
    reading: Reading
    answering: Answering

    @property
    def features(self) -> int:
        """Numbers that the network reads in a step."""
        return self.spec.signature.input_size

    @property
    def tokens(self) -> int | None:
        """How many tokens there are, where raw steps are tokens; else None."""
        return self.spec.signature.vocabulary or self.reading.symbols

    @property
    def reads(self) -> str:
        """The type of raw numbers."""
        return "float" if self.tokens is None else "int32_t"

    @property
    def stride(self) -> int:
        """Numbers of a raw step; 0 where a whole sample is read from all over."""
        if self.tokens is not None:
            return 1
        return self.features if self.reading.order is None else 0

    @property
    def prepares(self) -> bool:
        """Whether raw numbers are not what the network reads."""
        return bool(self.reading.lines) or self.reading.order is not None

    def public(self, signature: str, body: str) -> None:
        """Define a function of the header; `$` in it is the file's name."""
        self.source.define(self._named(signature), self._named(body), static=False)

    def define_prepare(self) -> None:
        """Define `prepare(to, x, first, count)`: numbers of raw ones, from step `first` on.

        x is where they begin, or in another order the sample.
        """
        if not self.prepares:
            return
        place = "x[j]"
        if self.reading.order is not None:
            order = self.source.tables.integers("order", self.reading.order, "places in a sample")
            place = f"x[{order}[first * {self.features} + j]]"
        lines = "\n        ".join(self.reading.lines)
        step = f"""
for (int t = 0; t < count; t++) {{
    for (int j = 0; j < {self.features}; j++) {{
        float v = {place};
        {lines}
        to[j] = v;
    }}
    to += {self.features};
    {"first++" if self.reading.order is not None else f"x += {self.features}"};
}}"""
        first = ", int first" if self.reading.order is not None else ""
        self.source.define(
            f"void prepare(float *restrict to, const float *restrict x{first}, int count)",
            step,
            "What the network reads, of raw numbers.",
        )

    def prepare(self, to: str, x: str, first: str, count: str) -> str:
        """A call of it."""
        place = f", {first}" if self.reading.order is not None else ""
        return f"prepare({to}, {x}{place}, {count});"

    def define_answer(self, readout: str) -> None:
        """Define `NAME_answer`, whose y the readout writes, and what is said of answers."""
        self.public(
            "void $_answer(const $_state *s, float *y)", f"{readout}\n{self.answering.finish}"
        )
        self.answering.define(self.source)

    def define_reset(self, start: Tensor | None, numbers: int, also: Sequence[str] = ()) -> None:
        """Define `NAME_reset`, with the first h or zeros."""
        if start is None:
            first = self.source.call("clear", "s->h", numbers)
        else:
            table = self.source.tables.numbers("start", start, "the state before the first step")
            first = self.source.call("copy", "s->h", table, numbers)
        self.public("void $_reset($_state *s)", "\n".join([first, *also]))

    def check_length(self) -> None:
        """Refuse an order that is shorter than a sample.

        Raises:
            ExportError: names both lengths.
        """
        order, needed = self.reading.order, self.features * self.spec.signature.sequence_length
        if order is not None and len(order) < needed:
            raise ExportError(f"reorder has {len(order)} places; the network reads {needed}")

    def _named(self, text: str) -> str:
        return text.replace("$", self.name)


@dataclass(frozen=True)
class State:
    """What a file keeps between calls."""

    numbers: int
    """Of h"""
    work: int
    """Numbers of no meaning between calls"""
    counts: bool = False
    """Whether the next step's place is kept"""

    @property
    def bytes(self) -> int:
        """Size of the struct, where a float has four bytes."""
        return 4 * (self.numbers + max(self.work, 1) + self.counts)


def header(program: Program, state: State, functions: Sequence[str], about: Sequence[str]) -> str:
    """The text of the header."""
    name, signature = program.name, program.spec.signature
    up = name.upper()
    inputs = signature.input_size if program.tokens is None else 1
    lines = "\n".join(f" * {line}" if line else " *" for line in about)
    counter = "    int32_t at;\n" if state.counts else ""
    declarations = "\n\n".join([*functions, *program.answering.declarations])
    text = f"""\
/*
{lines}
 */
#ifndef {up}_H
#define {up}_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

enum {{
    {up}_INPUTS = {inputs}, /* numbers of a raw step */
    {up}_OUTPUTS = {signature.output_size}, /* numbers of an answer */
    {up}_STEPS = {signature.sequence_length}, /* steps of the samples that it was made for */
    {up}_STRIDE = {program.stride} /* by how much x moves on with each step */
}};

/* All that is kept between calls. The caller has it, as many as there are sequences at a time. */
typedef struct {{
    float h[{state.numbers}];
    float work[{max(state.work, 1)}];
{counter}}} $_state;

{declarations}

#ifdef __cplusplus
}}
#endif

#endif
"""
    return text.replace("$", name)
