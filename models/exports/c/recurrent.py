"""Recurrent networks in C: a function for each layer, and steps that go through all of them."""

from typing import Any, cast

from models.architectures.recurrent import Recurrent
from models.architectures.recurrent_network import RecurrentNetwork
from models.errors import ExportError
from models.exports.c.cells import Layer, Write
from models.exports.c.matrices.product import at, looked_up, one_hot
from models.exports.c.matrices.products import affine, column_of
from models.exports.c.parameters import parameter
from models.exports.c.program import Program, State
from models.linear import Affine


def write_recurrent(program: Program, cell: Write, network: RecurrentNetwork) -> State:
    """Define everything, and say what the state takes."""
    architecture = program.spec.architecture
    assert isinstance(architecture, Recurrent)
    source, every = program.source, network.every_step
    size, parts = network.recurrent.in_features, network.state_parts
    program.check_length()
    lookup = _define_lookup(program, network)
    program.define_prepare()
    given = program.features if lookup or program.prepares else 0
    works: list[int] = []
    calls: list[str] = []
    x, below = "const float *restrict x", "s->work" if given else "x"
    if program.tokens is not None and not lookup:
        x, below = "int32_t x", "*x"
    for index, (module, inputs) in enumerate(zip(network.cells, network.inputs, strict=True)):
        layer = Layer(architecture, module, network.recurrent, index, size)
        write = column_of if below == "*x" else affine
        enter = write(source, cast(Any, inputs), f"input_{index}")
        step = cell(source, layer)
        addends = layer.gates * size
        place = f"a + {addends}"
        source.define(
            f"void layer_{index}(float *restrict h, {x}, float *restrict a)",
            f"float *const w = {place};\n{enter.write('a', 'x', 'w')}\n{step.body.strip()}",
            f"Layer {index}: its state h goes on by a step with x; a is of no meaning before it.",
        )
        works.append(addends + max(enter.scratch, step.scratch))
        state = at("s->h", index * parts * size)
        calls.append(f"layer_{index}({state}, {below}, {at('s->work', given)});")
        x, below = "const float *restrict x", state
    readout = affine(source, network.readout, "readout")
    counts = program.stride == 0
    _define_step(program, calls, lookup=lookup, counts=counts)
    start = network.initial_state
    numbers = len(network.cells) * parts * size
    program.define_reset(start, numbers, ["s->at = 0;"] if counts else [])
    program.define_answer(
        readout.write("y", at("s->h", (len(network.cells) - 1) * parts * size), "")
    )
    answers = ", float *y" if every else ""
    answer = f"\n    $_answer(s, y + t * {program.spec.signature.output_size});"
    program.public(
        f"void $_run($_state *s, const {program.reads} *x, int steps{answers})",
        f"""
for (int t = 0; t < steps; t++) {{
    $_step(s, {f"x + t * {program.stride}" if program.stride else "x"});{answer if every else ""}
}}""",
    )
    return State(numbers, given + max(works), counts=counts)


def declarations(program: Program, network: RecurrentNetwork) -> list[str]:
    """The functions, for the header."""
    kind = program.reads
    if program.tokens is not None:
        step = f"a token from 0 to {program.tokens - 1}; others are read as zeros"
    elif program.stride:
        step = f"{program.stride} raw numbers"
    else:
        step = "x is the whole raw sample each time; steps behind its end do nothing"
    if network.every_step:
        answers, what = ", float *y", "an answer after each of them, one after the other in y"
    else:
        answers, what = "", "the answer is asked for afterwards"
    return [
        "/* Before the first step of a sequence. */\nvoid $_reset($_state *s);",
        f"/* One step: {step}. */\nvoid $_step($_state *s, const {kind} *x);",
        f"/* As many steps, of a sequence or of a part of it: {what}. */\n"
        f"void $_run($_state *s, const {kind} *x, int steps{answers});",
        f"/* After any step: {program.answering.about}. */\n"
        "void $_answer(const $_state *s, float *y);",
    ]


def _define_step(program: Program, calls: list[str], *, lookup: bool, counts: bool) -> None:
    lines = list(calls)
    if lookup:
        lines.insert(0, "lookup(s->work, *x);")
    elif program.prepares:
        lines.insert(0, program.prepare("s->work", "x", "s->at", "1"))
    if counts:
        order = program.reading.order or ()
        guard = f"if (s->at >= {len(order) // program.features}) {{\n    return;\n}}"
        lines = [guard, *lines, "s->at++;"]
    program.public(f"void $_step($_state *s, const {program.reads} *x)", "\n".join(lines))


def _define_lookup(program: Program, network: RecurrentNetwork) -> bool:
    """`lookup(y, token)`: the numbers of a token; whether there is such a function.

    One-hot numbers need none where the input matrix is plain: there a token stands for a column.
    """
    source, embedding = program.source, network.embedding
    if embedding is not None:
        if program.prepares or program.reading.symbols is not None:
            raise ExportError("the network reads tokens; input steps for numbers do not fit")
        weight = parameter(embedding, "weight", source.tables.bits)
        table = source.tables.vectors("embedding", weight, "a row for each token")
        body = looked_up(source, table, "y", "token")
    elif program.reading.symbols is not None and not isinstance(network.inputs[0], Affine):
        body = one_hot(source, "y", "token", program.reading.symbols)
    else:
        return False
    source.define(
        "void lookup(float *restrict y, int32_t token)",
        body,
        "The numbers of a token; of no token zeros.",
    )
    return True
