"""Nodes that have graphs within them."""

from collections.abc import Mapping

import torch
from torch import Tensor

from models.graphs.interpreter.node import Body, Node
from models.graphs.interpreter.operators.operator_table import OperatorTable

CONTROL_FLOW = OperatorTable()

Scope = Mapping[str, Tensor]


@CONTROL_FLOW.operator("If", scoped=True)
def choose(node: Node, scope: Scope, condition: Tensor) -> tuple[Tensor, ...]:
    """What the one branch gives, or the other."""
    branch = "then_branch" if bool(condition.reshape(()).item()) else "else_branch"
    return tuple(node.bodies[branch].run(scope))


@CONTROL_FLOW.operator("Loop", scoped=True)
def loop(
    node: Node,
    scope: Scope,
    most: Tensor | None = None,
    condition: Tensor | None = None,
    *carried: Tensor,
) -> tuple[Tensor, ...]:
    """A body again and again: what it carries on, and what each turn gives, stacked."""
    body, turn = node.bodies["body"], 0
    goes_on = condition is None or bool(condition.reshape(()).item())
    limit = None if most is None else int(most.reshape(()).item())
    state, given = list(carried), list[list[Tensor]]()
    while goes_on and (limit is None or turn < limit):
        first = [torch.tensor(turn, dtype=torch.int64), torch.tensor(goes_on)]
        again, *found = _run(body, scope, [*first, *state])
        goes_on = bool(again.reshape(()).item())
        state = found[: len(state)]
        given.append(found[len(state) :])
        turn += 1
    if not given and len(node.outputs) > len(state):
        raise node.refuse("a loop without a turn has no outputs to stack")
    return *state, *(torch.stack(part) for part in zip(*given, strict=True))


@CONTROL_FLOW.operator("Scan", scoped=True, since=9)
def scan(node: Node, scope: Scope, *inputs: Tensor) -> tuple[Tensor, ...]:
    """A body for each slice of some inputs, which carries states on."""
    body, count = node.bodies["body"], node.integer("num_scan_inputs", 1)
    state, read = list(inputs[: len(inputs) - count]), inputs[len(inputs) - count :]
    outputs = len(node.outputs) - len(state)
    axes = node.integers("scan_input_axes") or [0] * count
    backwards = node.integers("scan_input_directions") or [0] * count
    slices = [
        (x.flip(axis) if back else x).unbind(axis)
        for x, axis, back in zip(read, axes, backwards, strict=True)
    ]
    given: list[list[Tensor]] = []
    for parts in zip(*slices, strict=True):
        found = _run(body, scope, [*state, *parts])
        state = found[: len(state)]
        given.append(found[len(state) :])
    if not given and outputs:
        raise node.refuse("a scan over nothing has no outputs to stack")
    ends = node.integers("scan_output_axes") or [0] * outputs
    back = node.integers("scan_output_directions") or [0] * outputs
    stacked = [
        torch.stack(part[::-1] if turned else part, dim=axis)
        for part, axis, turned in zip(zip(*given, strict=True), ends, back, strict=True)
    ]
    return *state, *stacked


def _run(body: Body, scope: Scope, inputs: list[Tensor]) -> list[Tensor]:
    return body.run({**scope, **dict(zip(body.inputs, inputs, strict=True))})
