"""Numbers by their places: slices, gathers, scatters, padding, order."""

import torch
from torch import Tensor

from models.graphs.interpreter.node import Node
from models.graphs.interpreter.operators.operator_table import OperatorTable
from models.graphs.interpreter.tensor_values import aligned, whole_numbers

INDEXING = OperatorTable()


@INDEXING.operator("Slice")
def slices(
    _node: Node,
    x: Tensor,
    starts: Tensor,
    ends: Tensor,
    axes: Tensor | None = None,
    steps: Tensor | None = None,
) -> Tensor:
    """A range along each of some axes; steps may go backwards."""
    first, last = whole_numbers(starts), whole_numbers(ends)
    along = list(range(len(first))) if axes is None else whole_numbers(axes)
    stride = [1] * len(first) if steps is None else whole_numbers(steps)
    for start, end, axis, step in zip(first, last, along, stride, strict=True):
        x = _taken(x, axis, _range(start, end, step, x.shape[axis]))
    return x


def _range(start: int, end: int, step: int, size: int) -> range:
    """The places of a slice. Unlike Python's, one that goes backwards always has a first place."""
    start = start + size if start < 0 else start
    end = end + size if end < 0 else end
    if step > 0:
        return range(min(max(start, 0), size), min(max(end, 0), size), step)
    return range(min(max(start, 0), size - 1), min(max(end, -1), size - 1), step)


def _taken(x: Tensor, axis: int, places: range) -> Tensor:
    if places.step > 0:
        chosen = [slice(None)] * x.dim()
        chosen[axis] = slice(places.start, max(places.start, places.stop), places.step)
        return x[tuple(chosen)]
    return x.index_select(axis, torch.tensor(list(places), dtype=torch.int64, device=x.device))


def _places(indices: Tensor, size: int, like: Tensor) -> Tensor:
    """Places counted from the start, where the tensor is that they are places of."""
    indices = indices.to(like.device, torch.int64)
    return torch.where(indices < 0, indices + size, indices)


@INDEXING.operator("Gather")
def gather(node: Node, x: Tensor, indices: Tensor) -> Tensor:
    """What lies at given places along an axis, in the shape of these places."""
    axis = node.integer("axis", 0) % x.dim()
    places = _places(indices, x.shape[axis], x)
    found = x.index_select(axis, places.reshape(-1))
    return found.reshape([*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]])


@INDEXING.operator("GatherElements")
def gather_elements(node: Node, x: Tensor, indices: Tensor) -> Tensor:
    """A number for each place, from that place along an axis."""
    axis = node.integer("axis", 0)
    return torch.gather(x, axis, _places(indices, x.shape[axis], x))


@INDEXING.operator("GatherND")
def gather_points(node: Node, x: Tensor, indices: Tensor) -> Tensor:
    """What lies at points, whose coordinates are the last axis."""
    shared = node.integer("batch_dims", 0)
    batch, rest = x.shape[:shared], x.shape[shared:]
    flat = x.reshape(-1, *rest) if shared else x.unsqueeze(0)
    points = indices.reshape(len(flat), -1, indices.shape[-1])
    depth = points.shape[-1]
    places = [_places(points[..., one], rest[one], x) for one in range(depth)]
    rows = torch.arange(len(flat), device=x.device).unsqueeze(1).expand_as(places[0])
    found = flat[(rows, *places)]
    return found.reshape([*batch, *indices.shape[shared:-1], *rest[depth:]])


def _unless_plain(node: Node) -> str | None:
    way = node.text("reduction", "none")
    return None if way in ("none", "add") else f"with reduction {way}"


@INDEXING.operator("ScatterElements", fault=_unless_plain)
def scatter_elements(node: Node, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    """Numbers put at their places along an axis, or added there."""
    axis = node.integer("axis", 0)
    places = _places(indices, x.shape[axis], x)
    x, updates = aligned(x, updates)
    if node.text("reduction", "none") == "add":
        return x.scatter_add(axis, places, updates)
    return x.scatter(axis, places, updates)


@INDEXING.operator("ScatterND", fault=_unless_plain)
def scatter_points(node: Node, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    """What is put at points, whose coordinates are the last axis, or added there."""
    x, updates = aligned(x, updates)
    depth = indices.shape[-1]
    places = tuple(_places(indices[..., one], x.shape[one], x) for one in range(depth))
    return x.index_put(places, updates, accumulate=node.text("reduction", "none") == "add")


@INDEXING.operator("Pad", on_cpu=(2,))
def pad(
    node: Node,
    x: Tensor,
    pads: Tensor,
    value: Tensor | None = None,
    axes: Tensor | None = None,
) -> Tensor:
    """Places before and behind, or fewer of them: of one number, or repeated from within."""
    along = list(range(x.dim())) if axes is None else whole_numbers(axes)
    amounts = whole_numbers(pads)
    before, behind = amounts[: len(along)], amounts[len(along) :]
    mode = node.text("mode", "constant")
    number = 0.0 if value is None else value.reshape(()).item()
    for axis, first, last in zip(along, before, behind, strict=True):
        size = x.shape[axis]
        low, high = max(0, -first), size + min(0, last)
        x = x.narrow(axis, low, max(0, high - low))
        if first <= 0 and last <= 0:
            continue
        x = _padded(node, x, axis, (max(0, first), max(0, last)), mode, number)
    return x


def _padded(
    node: Node, x: Tensor, axis: int, amounts: tuple[int, int], mode: str, number: float
) -> Tensor:
    size = x.shape[axis]
    if mode == "constant":
        shape = list(x.shape)
        edges: list[Tensor] = []
        for shape[axis] in amounts:
            edges.append(x.new_full(shape, number))
        return torch.cat([edges[0], x, edges[1]], axis)
    places = torch.arange(-amounts[0], size + amounts[1], device=x.device)
    if mode == "reflect":
        period = max(1, 2 * (size - 1))
        places = (places % period + period) % period
        places = torch.where(places >= size, period - places, places)
    elif mode == "edge":
        places = places.clamp(0, size - 1)
    elif mode == "wrap":
        places = places % size
    else:
        raise node.refuse(f"mode {mode}; computed are constant, edge, reflect, wrap")
    return x.index_select(axis, places)


@INDEXING.operator("TopK")
def top(node: Node, x: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    """The largest numbers along an axis, or the smallest, and their places; equal ones in order."""
    axis = node.integer("axis", -1)
    # Those of `torch.topk` have no order among equal ones.
    values, places = torch.sort(x, dim=axis, descending=node.flag("largest", True), stable=True)
    length = whole_numbers(count)[0]
    return values.narrow(axis, 0, length), places.narrow(axis, 0, length)


@INDEXING.operator("NonZero")
def non_zero(_node: Node, x: Tensor) -> Tensor:
    """The coordinates of all numbers but 0, `[dimensions, count]`."""
    return torch.nonzero(x).T.contiguous()


@INDEXING.operator("OneHot")
def one_hot(node: Node, indices: Tensor, depth: Tensor, values: Tensor) -> Tensor:
    """A number at one place of a new axis, another elsewhere; places beyond it mark none."""
    size, axis = whole_numbers(depth)[0], node.integer("axis", -1)
    axis = axis + indices.dim() + 1 if axis < 0 else axis
    at = indices.to(torch.int64)
    at = torch.where(at < 0, at + size, at).unsqueeze(axis)
    along = torch.arange(size, device=at.device)
    along = along.reshape(*(-1 if place == axis else 1 for place in range(at.dim())))
    off, on = values.to(at.device)
    return torch.where(at == along, on, off)


@INDEXING.operator("Compress")
def compress(node: Node, x: Tensor, condition: Tensor) -> Tensor:
    """The places along an axis, or of all numbers, where a condition holds."""
    places = torch.nonzero(condition).reshape(-1).to(x.device)
    if not node.has("axis"):
        return x.reshape(-1).index_select(0, places)
    return x.index_select(node.integer("axis", 0), places)


@INDEXING.operator("ReverseSequence")
def reverse_sequence(node: Node, x: Tensor, lengths: Tensor) -> Tensor:
    """The first steps of each sample in reverse, as many as it has."""
    time, batch = node.integer("time_axis", 0), node.integer("batch_axis", 1)
    steps = torch.arange(x.shape[time], device=x.device).unsqueeze(0)
    own = lengths.to(x.device).unsqueeze(1)
    places = torch.where(steps < own, own - 1 - steps, steps)
    places = places if batch < time else places.T
    shape = [x.shape[one] if one in (time, batch) else 1 for one in range(x.dim())]
    return torch.gather(x, time, places.reshape(shape).expand(x.shape))
