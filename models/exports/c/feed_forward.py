"""Feed-forward networks in C: the sample, the input matrix, the layers and the readout."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor, nn

from models.architectures import Architecture, Highway, Mlp, Resnet
from models.architectures.batch_norm import EPSILON, BatchNorm
from models.architectures.feed_forward import FeedForwardNetwork, Perceptron
from models.architectures.highway import (
    GATES,
    NormalisedHighwayStack,
    NormalisedProduct,
    StackName,
)
from models.exports.c.activations import activate
from models.exports.c.matrices.product import (
    Product,
    Span,
    added_column,
    column_scales,
    thin_product,
)
from models.exports.c.matrices.products import affine, narrow_middle, product, with_bias
from models.exports.c.parameters import parameter
from models.exports.c.program import Program, State
from models.exports.c.source import Source
from models.exports.c.tables import GROUP, Matrix
from models.linear import Affine

_BLOCK = 64
"""Numbers of a sample that are prepared at a time, or a step's if that is more."""

Entry: TypeAlias = Callable[[Source, Any, FeedForwardNetwork], str]
"""Statements that make the first layer's input of h in place."""


@dataclass(frozen=True)
class Layers:
    """Statements that bring h through all layers, and the numbers of w that they write."""

    body: list[str]
    scratch: int


@dataclass(frozen=True)
class Stack:
    """How what stands between input matrix and readout is written."""

    entry: Entry
    layers: Callable[[Source, Any, FeedForwardNetwork], Layers]


def write_feed_forward(program: Program, stack: Stack, network: FeedForwardNetwork) -> State:
    """Define everything, and say what the state takes."""
    source, architecture = program.source, program.spec.architecture
    size = network.hidden.in_features
    program.check_length()
    program.define_prepare()
    read, work = _entrance(program, network)
    entry = stack.entry(source, architecture, network)
    layers = stack.layers(source, architecture, network)
    readout = affine(source, network.readout, "readout")
    for index, body in enumerate(layers.body):
        source.define(
            f"void layer_{index}(float *restrict h, float *restrict w)",
            body,
            f"Layer {index}: h goes through it; w is of no meaning before it.",
        )
    calls = [f"layer_{index}(s->h, s->work);" for index in range(len(layers.body))]
    program.define_reset(None, size)
    program.public(
        f"void $_run($_state *s, const {program.reads} *x, int steps)",
        "\n".join(["float *const h = s->h;", read, entry.strip(), *calls]),
    )
    program.define_answer(readout.write("y", "s->h", ""))
    return State(size, max(work, layers.scratch))


def declarations(program: Program) -> list[str]:
    """The functions, for the header."""
    steps = program.spec.signature.sequence_length
    tokens = program.tokens
    whole = "" if tokens is None else f", tokens from 0 to {tokens - 1}; others count as 0"
    return [
        "/* Makes a state that an answer can be asked of before the first sample. */\n"
        "void $_reset($_state *s);",
        f"/* A whole raw sample of {steps} steps{whole}.\n"
        "   What a shorter one lacks counts as 0 behind it; what a longer one has more is not\n"
        "   read. */\n"
        f"void $_run($_state *s, const {program.reads} *x, int steps);",
        f"/* After a sample: {program.answering.about}. */\n"
        "void $_answer(const $_state *s, float *y);",
    ]


def _entrance(program: Program, network: FeedForwardNetwork) -> tuple[str, int]:
    """`h = W_in x + b` of a sample, and the numbers of work that it writes."""
    source, projection = program.source, network.input
    steps, features = program.spec.signature.sequence_length, program.features
    guard = f"if (steps > {steps}) {{\n    steps = {steps};\n}}"
    if isinstance(projection, Affine):
        weight = parameter(projection, "weight", source.tables.bits)
        rows, columns = weight.numbers.shape
        if program.tokens is None:
            table = source.tables.matrix("input", weight, f"{rows} x {columns}")
            read, work = _by_blocks(program, table)
        else:
            about = "a column for each token of each step"
            table = source.tables.vectors("input", weight.transposed(), about)
            read, work = _by_tokens(source, table, program.tokens), 0
        lines = [guard, source.call("clear", "h", rows), read]
        if table.by_row is not None:
            scale = table.by_row
            lines.append(source.call(f"stretch{scale.suffix}", "h", scale.name, rows))
        if projection.bias is not None:
            bias = source.tables.numbers("input_bias", projection.bias)
            lines.append(source.call("add", "h", bias, rows))
        return "\n".join(lines), work
    enter = affine(source, cast(Any, projection), "input")
    numbers = steps * features
    if program.tokens is not None:
        fill = _each_token(program.tokens, f"seen[t * {program.tokens} + x[t]] = 1.0f;")
    elif program.prepares:
        fill = program.prepare("seen", "x", "0", "steps")
    else:
        fill = source.call("copy", "seen", "x", f"steps * {features}")
    clear = source.call("clear", "seen", numbers)
    text = enter.write("h", "seen", f"seen + {numbers}")
    body = "\n".join([guard, "float *const seen = s->work;", clear, fill, text])
    return body, numbers + enter.scratch


def _by_tokens(source: Source, table: Matrix, tokens: int) -> str:
    """Columns of the input matrix that the tokens of a sample stand for."""
    column = added_column(source, table, "h", f"(t * {tokens} + x[t])")
    return _each_token(tokens, column.replace("\n", "\n        "))


def _each_token(tokens: int, body: str) -> str:
    """Do this for each step t whose `x[t]` is a token."""
    return f"""\
for (int t = 0; t < steps; t++) {{
    if (x[t] >= 0 && x[t] < {tokens}) {{
        {body}
    }}
}}"""


def _by_blocks(program: Program, table: Matrix) -> tuple[str, int]:
    """Columns of the input matrix, a block of prepared numbers at a time."""
    features = program.features
    _define_columns(program.source, table)
    if not program.prepares:
        return f"input_columns(h, x, 0, steps * {features});", 0
    # A block begins where a group of columns does.
    whole = GROUP // math.gcd(GROUP, features)
    block = math.ceil(max(_BLOCK // features, 1) / whole) * whole
    x = f"x + t * {program.stride}" if program.stride else "x"
    body = f"""\
for (int t = 0; t < steps; t += {block}) {{
    const int count = steps - t < {block} ? steps - t : {block};
    {program.prepare("s->work", x, "t", "count")}
    input_columns(h, s->work, t * {features}, count * {features});
}}"""
    return body, block * features


def _define_columns(source: Source, table: Matrix) -> None:
    """`input_columns(y, x, first, count)`: the product with some columns alone."""
    accumulate, groups = f"accumulate{table.encoding.suffix}", table.columns // GROUP * GROUP
    part = [f"{table.name} + first * {table.places}", *column_scales(table, "first"), table.rows]
    numbers = "float *restrict y, const float *restrict x"
    whole = source.call(accumulate, "y", "x", *part, "count")
    last = source.call(accumulate, "y", "last", *part, GROUP)
    signature = f"void input_columns({numbers}, int first, int count)"
    if not groups:
        source.define(signature, whole, "y += the input matrix's columns from `first` on times x.")
        return
    source.define(
        signature,
        f"""
const int left = first + count < {groups} ? count % {GROUP} : 0;
count -= left;
{whole}
if (left > 0) {{
    float last[{GROUP}] = {{0.0f}};
    for (int j = 0; j < left; j++) {{
        last[j] = x[count + j];
    }}
    first += count;
    {last}
}}""",
        "y += the input matrix's columns from `first` on times x; a group that is cut gets zeros.",
    )


def _products(source: Source, network: FeedForwardNetwork, *, gates: int) -> Iterator[Product]:
    """Each layer's `W_g x + b_g`."""
    for index, bias in enumerate(network.bias):
        span = Span(f"hidden_{index}", index * gates, (index + 1) * gates)
        plain = product(source, network.hidden, span)
        yield with_bias(source, plain, span.name, bias)


def _loop(size: int, *lines: str) -> str:
    body = "\n    ".join(lines)
    return f"for (int j = 0; j < {size}; j++) {{\n    {body}\n}}"


def _activate(source: Source, architecture: Perceptron, place: str, value: str, size: int) -> str:
    active = activate(source, architecture.activation, "v", leak=architecture.leak)
    return _loop(size, f"const float v = {value};", f"{place} = {active};")


def _perceptron_entry(source: Source, architecture: Perceptron, network: FeedForwardNetwork) -> str:
    return _activate(source, architecture, "h[j]", "h[j]", network.hidden.in_features)


def _mlp_layers(source: Source, architecture: Mlp, network: FeedForwardNetwork) -> Layers:
    """`h = f(W h + b)`."""
    size, bodies, scratch = network.hidden.in_features, list[str](), 0
    for layer in _products(source, network, gates=1):
        active = _activate(source, architecture, "h[j]", "w[j]", size)
        bodies.append(f"{layer.write('w', 'h', f'w + {size}')}\n{active}")
        scratch = max(scratch, size + layer.scratch)
    return Layers(bodies, scratch)


def _resnet_layers(source: Source, architecture: Resnet, network: FeedForwardNetwork) -> Layers:
    """`h = f(h + W_b f(W_a h + b_a) + b_b)`."""
    size, bodies, scratch = network.hidden.in_features, list[str](), 0
    products = list(_products(source, network, gates=1))
    for first, second in zip(products[::2], products[1::2], strict=True):
        inner, free = f"w + {size}", f"w + {2 * size}"
        bodies.append(
            "\n".join(
                [
                    first.write("w", "h", free),
                    _activate(source, architecture, "w[j]", "w[j]", size),
                    second.write(inner, "w", free),
                    _activate(source, architecture, "h[j]", f"h[j] + w[{size} + j]", size),
                ]
            )
        )
        scratch = max(scratch, 2 * size + first.scratch, 2 * size + second.scratch)
    return Layers(bodies, scratch)


def _relu_entry(_source: Source, _architecture: Any, network: FeedForwardNetwork) -> str:
    return _loop(network.hidden.in_features, "h[j] = h[j] < 0.0f ? 0.0f : h[j];")


def _highway_layers(source: Source, _architecture: Any, network: FeedForwardNetwork) -> Layers:
    """`h = h + tau (relu(W_h h + b_h) - h)`."""
    layers = [(one.write, one.scratch) for one in _products(source, network, gates=GATES)]
    return _mixed(source, network, layers)


def _mixed(
    source: Source,
    network: FeedForwardNetwork,
    layers: list[tuple[Callable[[str, str, str], str], int]],
) -> Layers:
    size = network.hidden.in_features
    sigmoid = source.use("gate")
    mix = _loop(
        size,
        "const float v = w[j] < 0.0f ? 0.0f : w[j];",
        f"h[j] = h[j] + {sigmoid}(w[{size} + j]) * (v - h[j]);",
    )
    free = f"w + {GATES * size}"
    bodies = [f"{write('w', 'h', free)}\n{mix}" for write, _ in layers]
    return Layers(bodies, GATES * size + max(scratch for _, scratch in layers))


def _normalised_entry(source: Source, _architecture: Any, network: FeedForwardNetwork) -> str:
    norm = cast(nn.Sequential, network.entry)[0]
    assert isinstance(norm, BatchNorm)
    scaled = _normalise(source, "entry", norm, share=1.0, scale=norm.scale, shift=norm.bias)
    return scaled("h") + "\n" + _relu_entry(source, _architecture, network)


def _normalise(
    source: Source,
    name: str,
    norm: BatchNorm,
    *,
    share: float,
    scale: Tensor | None,
    shift: Tensor | None,
) -> Callable[[str], str]:
    """Batch normalisation of `share` times what stands there, times `scale` plus `shift`."""
    factor = 1 / (norm.std + EPSILON)
    if scale is not None:
        factor = factor * scale
    addend = -norm.mean * factor
    if shift is not None:
        addend = addend + shift
    factors = source.tables.numbers(f"{name}_factor", factor * share, "batch normalisation")
    addends = source.tables.numbers(f"{name}_addend", addend)
    count = factor.numel()
    return lambda place: "\n".join(
        [source.call("stretch", place, factors, count), source.call("add", place, addends, count)]
    )


def _normalised_layers(source: Source, _architecture: Any, network: FeedForwardNetwork) -> Layers:
    """As `_highway_layers` with normalised products.

    Dropout that is not made up for in training leaves its mean: `1 - rate` times the value.
    """
    stack = network.stack
    assert isinstance(stack, NormalisedHighwayStack)
    layers: list[tuple[Callable[[str, str, str], str], int]] = []
    parts = zip(stack.products, stack.scale, network.bias, strict=True)
    for index, (module, scale, shift) in enumerate(parts):
        assert isinstance(module, NormalisedProduct)
        span = Span(f"hidden_{index}", GATES * index, GATES * (index + 1))
        share = 1 - module.dropout
        plain = _normalised_product(source, network, module, span, share)
        outer = _normalise(source, span.name, module.norm, share=share, scale=scale, shift=shift)
        layers.append((_then(plain, outer), plain.scratch))
    return _mixed(source, network, layers)


def _normalised_product(
    source: Source, network: FeedForwardNetwork, module: NormalisedProduct, span: Span, share: float
) -> Product:
    """Both gates' `W x`; between R and L stands a normalisation where they have a narrow middle.

    What comes after it is `share` of the outer factor away from its due, and is divided by that.
    """
    if module.middle is None:
        return product(source, network.hidden, span)
    middle, norm = module.middle, module.middle.norm
    left = torch.full_like(norm.mean, (1 - middle.dropout) / share)
    inner = _normalise(source, f"{span.name}_middle", norm, share=share, scale=left, shift=None)
    return thin_product(source, narrow_middle(source, network.hidden, span), inner)


def _then(plain: Product, after: Callable[[str], str]) -> Callable[[str, str, str], str]:
    return lambda y, x, t: plain.write(y, x, t) + "\n" + after(y)


_HIGHWAYS: Mapping[StackName, Stack] = {
    "plain": Stack(_relu_entry, _highway_layers),
    "batch_normalised": Stack(_normalised_entry, _normalised_layers),
}

STACKS: Mapping[type[Architecture], Callable[[Any], Stack]] = {
    Mlp: lambda _architecture: Stack(_perceptron_entry, _mlp_layers),
    Resnet: lambda _architecture: Stack(_perceptron_entry, _resnet_layers),
    Highway: lambda architecture: _HIGHWAYS[architecture.stack],
}
"""The registry: how the layers of each feed-forward architecture are written."""
