"""One step of each recurrent cell in C: how a state follows from its predecessor and an input."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from models.architectures import Gru, Lstm, Rnn, Urnn
from models.architectures.gru import GruCell, Reset
from models.architectures.lstm import LstmCell
from models.architectures.recurrent import Recurrent
from models.architectures.urnn import UrnnCell
from models.exports.c.activations import activate
from models.exports.c.matrices.product import Product, Span
from models.exports.c.matrices.products import affine, product
from models.exports.c.source import Source
from models.linear import StructuredLinear


@dataclass(frozen=True)
class Layer:
    """A layer of cells, for those who write its step."""

    architecture: Any
    cell: Any
    linear: StructuredLinear
    index: int
    size: int
    """Numbers of h"""

    @property
    def gates(self) -> int:
        """Recurrent matrices."""
        return self.linear.slot.gates

    def recurrent(self, source: Source, first: int = 0, last: int | None = None) -> Product:
        """The product with the matrices of some gates, or of all."""
        stop = self.gates if last is None else last
        part = f"_{first}" if stop - first < self.gates else ""
        start = self.index * self.gates
        span = Span(f"recurrent_{self.index}{part}", start + first, start + stop)
        return product(source, self.linear, span)


@dataclass(frozen=True)
class Step:
    """What follows the input's addends a `[gates*n]`: C that changes the state h in place."""

    scratch: int
    """Numbers of w, from which on they may write"""
    body: str


Write: TypeAlias = Callable[[Source, Layer], Step]


def _rnn(source: Source, layer: Layer) -> Step:
    """`h = phi(W h + a)`."""
    architecture: Rnn = layer.architecture
    size, recurrent = layer.size, layer.recurrent(source)
    value = activate(source, architecture.activation, "v", leak=architecture.leak)
    body = f"""
{recurrent.write("w", "h", f"w + {size}")}
for (int j = 0; j < {size}; j++) {{
    const float v = a[j] + w[j];
    h[j] = {value};
}}"""
    return Step(size + recurrent.scratch, body)


def _gru(source: Source, layer: Layer) -> Step:
    architecture: Gru = layer.architecture
    return _GRU[architecture.reset](source, layer)


def _gru_before(source: Source, layer: Layer) -> Step:
    """`q = tanh(W_q (r h) + a_q)`; h becomes `q + u (h - q)`."""
    size = layer.size
    gates, candidate = layer.recurrent(source, 0, 2), layer.recurrent(source, 2, 3)
    sigmoid, tanh = source.use("gate"), source.use("squash")
    scratch = f"w + {3 * size}"
    body = f"""
{gates.write("w", "h", scratch)}
for (int j = 0; j < {size}; j++) {{
    w[j] = {sigmoid}(a[j] + w[j]);
    w[{size} + j] = {sigmoid}(a[{size} + j] + w[{size} + j]) * h[j];
}}
{candidate.write(f"w + {2 * size}", f"w + {size}", scratch)}
for (int j = 0; j < {size}; j++) {{
    const float q = {tanh}(a[{2 * size} + j] + w[{2 * size} + j]);
    h[j] = q + w[j] * (h[j] - q);
}}"""
    return Step(3 * size + max(gates.scratch, candidate.scratch), body)


def _gru_after(source: Source, layer: Layer) -> Step:
    """`q = tanh(r (W_q h + b) + a_q)`; h becomes `q + u (h - q)`."""
    cell: GruCell = layer.cell
    size, recurrent = layer.size, layer.recurrent(source)
    sigmoid, tanh = source.use("gate"), source.use("squash")
    inner = f"w[{2 * size} + j]"
    if cell.candidate_bias is not None:
        bias = source.tables.numbers(f"candidate_{layer.index}_bias", cell.candidate_bias)
        inner = f"({inner} + {bias}[j])"
    body = f"""
{recurrent.write("w", "h", f"w + {3 * size}")}
for (int j = 0; j < {size}; j++) {{
    const float u = {sigmoid}(a[j] + w[j]);
    const float r = {sigmoid}(a[{size} + j] + w[{size} + j]);
    const float q = {tanh}(a[{2 * size} + j] + r * {inner});
    h[j] = q + u * (h[j] - q);
}}"""
    return Step(3 * size + recurrent.scratch, body)


def _lstm(source: Source, layer: Layer) -> Step:
    """`c = f c + i z`, `h = o tanh(c)`; c lies behind h. A peephole adds `V_o c` to o's inside."""
    cell: LstmCell = layer.cell
    size, recurrent = layer.size, layer.recurrent(source)
    sigmoid, tanh = source.use("gate"), source.use("squash")
    scratch = recurrent.scratch
    peephole, seen = "", ""
    if cell.peephole is not None:
        look = affine(source, cell.peephole, f"peephole_{layer.index}")
        # The input gates' numbers are of no use any more.
        peephole, seen = look.write("w", f"h + {size}", f"w + {4 * size}") + "\n", " + w[j]"
        scratch = max(scratch, look.scratch)
    body = f"""
{recurrent.write("w", "h", f"w + {4 * size}")}
for (int j = 0; j < {size}; j++) {{
    const float i = {sigmoid}(a[j] + w[j]);
    const float f = {sigmoid}(a[{size} + j] + w[{size} + j]);
    const float z = {tanh}(a[{2 * size} + j] + w[{2 * size} + j]);
    h[{size} + j] = f * h[{size} + j] + i * z;
}}
{peephole}for (int j = 0; j < {size}; j++) {{
    const float o = {sigmoid}(a[{3 * size} + j] + w[{3 * size} + j]{seen});
    h[j] = o * {tanh}(h[{size} + j]);
}}"""
    return Step(4 * size + scratch, body)


def _urnn(source: Source, layer: Layer) -> Step:
    """`z = W z + a`, then `z max(|z| + b, 0) / (|z| + 1e-5)`, on states `(re | im)`."""
    cell: UrnnCell = layer.cell
    units, recurrent = layer.size // 2, layer.recurrent(source)
    bias = source.tables.numbers(f"rescaling_{layer.index}", cell.bias, "b of the rescaling")
    root = source.use("root")
    body = f"""
{recurrent.write("w", "h", f"w + {2 * units}")}
for (int j = 0; j < {units}; j++) {{
    const float re = a[j] + w[j], im = a[{units} + j] + w[{units} + j];
    const float modulus = {root}(re * re + im * im);
    const float grown = modulus + {bias}[j];
    const float scale = (grown < 0.0f ? 0.0f : grown) / (modulus + 1e-5f);
    h[j] = re * scale;
    h[{units} + j] = im * scale;
}}"""
    return Step(2 * units + recurrent.scratch, body)


_GRU: Mapping[Reset, Write] = {"before": _gru_before, "after": _gru_after}

CELLS: Mapping[type[Recurrent], Write] = {
    Rnn: _rnn,
    Lstm: _lstm,
    Gru: _gru,
    Urnn: _urnn,
}
"""The registry: how a step of each recurrent architecture is written."""
