"""`example.c`: a program that answers three samples with model.c, and compares the answers."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from models.interface import Answer, Classes, Labels, Numbers
from search.exports.folder.document import AnsweredSample, Example

NAME: Final = "model"
"""What the functions of the folder's C files begin with."""

_NUMBERS_A_LINE = 8

_HEAD = """\
/*
 * Answers the three samples of samples.json with model.c, and compares the answers.
 *
 *     cc -std=c99 -O2 example.c model.c -o example
 *     ./example
 *
 * It reads no file. It ends with 1 if an answer is not the one that samples.json has.
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>

#include "model.h"
"""

_MAIN = """\
static float distance(float a, float b)
{{
    return a < b ? b - a : a - b;
}}

int main(void)
{{
    static model_state state;
    static float y[MODEL_OUTPUTS];
    int wrong = 0;
    int n;
    for (n = 0; n < {count}; n++) {{
        int same = 1;
        int o;
{run}
        model_answer(&state, y);
        for (o = 0; o < MODEL_OUTPUTS; o++) {{
            /* Not the other way round: what is no number is wrong. */
            if (!(distance(y[o], samples[n].answer[o]) <= samples[n].tolerance)) {{
                same = 0;
            }}
        }}
        printf("sample %d:", n);
{say}
        printf(same ? ", as in samples.json\\n" : ", NOT as in samples.json\\n");
        wrong += !same;
    }}
    return wrong != 0;
}}
"""

_WHOLE = """\
        model_reset(&state);
        model_run(&state, samples[n].x, samples[n].steps);"""

_STEP_BY_STEP = """\
        int t;
        model_reset(&state);
        for (t = 0; t < samples[n].steps; t++) {
            model_step(&state, samples[n].x + t * MODEL_STRIDE);
        }"""

_SAY_CLASS = """\
        o = model_class(y);
        printf(NAMED);
        if (o != samples[n].labels[0]) {
            same = 0;
        }"""

_SAY_LABELS = """\
        for (o = 0; o < MODEL_OUTPUTS; o++) {
            if (model_label(y, o)) {
                printf(NAMED);
            }
            if (model_label(y, o) != samples[n].labels[o]) {
                same = 0;
            }
        }"""

_SAY_NUMBERS = """\
        for (o = 0; o < MODEL_OUTPUTS; o++) {
            printf(" %g", (double)y[o]);
        }"""

_SAY: Mapping[type[Answer], str] = {
    Classes: _SAY_CLASS,
    Labels: _SAY_LABELS,
    Numbers: _SAY_NUMBERS,
}
"""How each answer is printed and compared, beside its numbers."""


def c_example(example: Example) -> str:
    """The text of `example.c`; equal examples give equal texts."""
    kind = "int32_t" if example.reads_tokens else "float"
    literal: Callable[[Any], str] = str if example.reads_tokens else _float
    tables = [
        line
        for number, one in enumerate(example.samples)
        for line in _tables(number, one, kind, literal)
    ]
    rows = ",\n    ".join(
        f"{{x_{number}, {one.steps}, answer_{number}, labels_{number}, {_float(one.tolerance)}}}"
        for number, one in enumerate(example.samples)
    )
    sample = (
        "static const struct {\n"
        f"    const {kind} *x;\n    int steps;\n    const float *answer;\n"
        f"    const int *labels;\n    float tolerance;\n}} samples[] = {{\n    {rows}\n}};\n"
    )
    # Labels that are too many to be named go by their numbers.
    named = '" %s", model_names[o]' if example.interface.answer.names else '" %d", o'
    main = _MAIN.format(
        count=len(example.samples),
        run=_STEP_BY_STEP if example.recurrent and example.every_step else _WHOLE,
        say=_SAY[type(example.interface.answer)].replace("NAMED", named),
    )
    return "\n".join([_HEAD, *tables, sample, main])


def _tables(
    number: int, one: AnsweredSample, kind: str, literal: Callable[[Any], str]
) -> Iterator[str]:
    label = one.label
    labels = label if isinstance(label, tuple) else (0 if label is None else label,)
    yield _table(f"static const {kind} x_{number}[]", list(_flat(one.sample)), literal)
    yield _table(f"static const float answer_{number}[]", one.answer, _float)
    yield _table(f"static const int labels_{number}[]", labels, str)


def _table(declared: str, values: Sequence[Any], literal: Callable[[Any], str]) -> str:
    words = [literal(value) for value in values]
    lines = [
        ", ".join(words[start : start + _NUMBERS_A_LINE])
        for start in range(0, len(words), _NUMBERS_A_LINE)
    ]
    return f"{declared} = {{\n    " + ",\n    ".join(lines) + "\n};\n"


def _flat(values: Any) -> Iterator[Any]:
    if isinstance(values, list | tuple):
        for one in values:  # pyright: ignore[reportUnknownVariableType] -- lists in lists
            yield from _flat(one)
    else:
        yield values


def _float(value: float | None) -> str:
    """A number of single precision as C has it."""
    if value is None:
        return "NAN"
    text = json.dumps(float(value))
    return f"{text}f"
