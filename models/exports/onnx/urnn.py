"""The unitary recurrent network, on states kept as `(re | im)`."""

import torch

from models.architectures.urnn import Urnn, UrnnCell
from models.exports.onnx.graph import Graph
from models.exports.onnx.products import cut, whole
from models.exports.onnx.recurrent import CellGraph, State
from models.forms import Form


def urnn(_architecture: Urnn) -> CellGraph:
    """`z_t = rescale(W z_{t-1} + V x_t)`, `rescale(z) = z max(|z| + b, 0) / (|z| + 1e-5)`."""
    return CellGraph(_step)


def _step(body: Graph, form: Form, cell: UrnnCell, before: State, addend: str) -> State:
    (state,) = before
    parts = cut(body, body.apply("Add", _product(body, form, state), addend), 2)
    real, imaginary = (body.apply("Mul", part, part) for part in parts)
    modulus = body.apply("Sqrt", body.apply("Add", real, imaginary))
    grown = body.apply("Relu", body.apply("Add", modulus, body.constant(cell.bias)))
    floor = body.constant(torch.tensor([1e-5]))
    scale = body.apply("Div", grown, body.apply("Add", modulus, floor))
    return [body.apply("Concat", *(body.apply("Mul", part, scale) for part in parts), axis=-1)]


def _product(body: Graph, form: Form, state: str) -> str:
    """`z W^T`: the real form `[[A, -B], [B, A]]` is put together once, of A and B alone."""
    weight, root = whole(form)[0], body.root
    size = weight.shape[0] // 2
    real = root.constant(weight[:size, :size].t())
    imaginary = root.constant(weight[size:, :size].t())
    above = root.apply("Concat", real, imaginary, axis=-1)
    below = root.apply("Concat", root.apply("Neg", imaginary), real, axis=-1)
    return body.apply("MatMul", state, root.apply("Concat", above, below, axis=0))
