"""The recurrences with whole matrices, forward and backward: a program for a tile of samples.

A program goes through all steps of a launch with its state in registers. The weights are read once
and stay in shared memory. What inputs and biases add, and in the backward pass what the gates were
given, is there for all steps: large products outside make both, and the gradients of all weights. A
step in here holds nothing but the products that have to wait for the step before.

Tiles are `[ROWS, N]` with N the power of two that holds n. What lies outside is read as 0, which no
product sees, and is never written. Matrices lie in memory as a product reads them, row by row: who
calls transposes.

Note [Four times one]
Several products of one state are, to the compiler, products of one operand, of which each thread
would keep whole rows in registers from the first to the last: 256 numbers at n = 256, which spill.
Each operand is therefore multiplied by a 1 of its own, which the compiler does not know to be one.
Measured with ptxas, a GRU of n = 256 goes from 255 registers and 1,632 bytes of spills to 128 and
none.
"""
# pyright: basic
# Triton ships no types, and what it compiles is not quite Python.

import triton
import triton.language as tl

from models.backends.triton.equations import activated, sigmoid, tanh, through

# B and T differ from call to call: a kernel is not to be compiled anew for each.
_VARYING = ("start", "steps", "total", "batch")


@triton.jit
def _matrix(base, gate, n, N: tl.constexpr, ROUNDED: tl.constexpr):
    """A gate's matrix with zeros behind it, in bfloat16 where it is to be `ROUNDED`."""
    rows = tl.arange(0, N)[:, None]
    columns = tl.arange(0, N)[None, :]
    inside = (rows < n) & (columns < n)
    found = tl.load(base + (gate * n + rows) * n + columns, mask=inside, other=0.0)
    return found.to(tl.bfloat16 if ROUNDED else tl.float32)


@triton.jit
def _dot(x, matrix, PRECISION: tl.constexpr):
    return tl.dot(x.to(matrix.dtype), matrix, input_precision=PRECISION)


@triton.jit
def _read(base, places, inside):
    return tl.load(base + places, mask=inside, other=0.0).to(tl.float32)


@triton.jit(do_not_specialize=_VARYING)
def forward_steps(
    addends,  # [M, steps, B, G n] with steps of `addends_member` between models
    weight,  # W^T [M, G, n, n]
    inner_bias,  # [M, n], what is added to the candidate's product of a GRU that resets after it
    h_carried,  # [M, B, n] float32, read and written
    c_carried,  # the same of an LSTM
    lengths,  # int64 [M, B]
    states,  # [M, total, B, n]
    cells,  # [M, total, B, n]
    addends_member,
    start,  # the launch's first step among all
    steps,
    total,
    batch,
    n,
    slope,
    one0,  # 1, see Note [Four times one]
    one1,
    one2,
    one3,
    CELL: tl.constexpr,
    ACTIVATION: tl.constexpr,
    GATES: tl.constexpr,
    BIASED: tl.constexpr,
    RAGGED: tl.constexpr,
    KEPT: tl.constexpr,
    ROUNDED: tl.constexpr,
    PRECISION: tl.constexpr,
    ROWS: tl.constexpr,
    N: tl.constexpr,
):
    """Go on by some steps from the carried states, and leave the last ones there."""
    member = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    units = tl.arange(0, N)
    inside = (rows < batch)[:, None] & (units < n)[None, :]
    own = rows[:, None].to(tl.int64) * n + units[None, :]
    carried = member * batch * n + own

    # All weights before the first step: from here on they stay.
    weight += member * GATES * n * n
    w0 = _matrix(weight, 0, n, N, ROUNDED)
    if GATES > 1:
        w1 = _matrix(weight, 1, n, N, ROUNDED)
        w2 = _matrix(weight, 2, n, N, ROUNDED)
    if GATES > 3:
        w3 = _matrix(weight, 3, n, N, ROUNDED)
    if BIASED:
        bias = tl.load(inner_bias + member * n + units, mask=units < n, other=0.0)
        bias = bias.to(tl.float32)[None, :]
    if RAGGED:
        length = tl.load(lengths + member * batch + rows, mask=rows < batch, other=0)[:, None]

    h = _read(h_carried, carried, inside)
    if CELL == "lstm":
        c = _read(c_carried, carried, inside)
    addend = addends + member * addends_member + rows[:, None].to(tl.int64) * GATES * n
    addend += units[None, :]
    place = (member * total + start) * batch * n + own
    for step in range(steps):
        z0 = _read(addend, 0, inside) + _dot(h * one0, w0, PRECISION)
        z = z0
        if GATES > 1:
            z1 = _read(addend + n, 0, inside) + _dot(h * one1, w1, PRECISION)
            x = h
            if CELL == "gru_reset_before":
                x = sigmoid(z1) * h
            product = _dot(x * one2, w2, PRECISION)
            addend2 = _read(addend + 2 * n, 0, inside)
        if CELL == "rnn":
            next_h = activated(z0, slope, ACTIVATION)
        elif CELL == "lstm":
            z3 = _read(addend + 3 * n, 0, inside) + _dot(h * one3, w3, PRECISION)
            next_c = sigmoid(z1) * c + sigmoid(z0) * tanh(addend2 + product)
            next_h = sigmoid(z3) * tanh(next_c)
        else:
            if BIASED:
                product += bias
            if CELL == "gru_reset_after":
                product = sigmoid(z1) * product
            candidate = tanh(addend2 + product)
            next_h = candidate + sigmoid(z0) * (h - candidate)
        if RAGGED:
            alive = start + step < length
            next_h = tl.where(alive, next_h, h)
            if CELL == "lstm":
                next_c = tl.where(alive, next_c, c)
            # A modulus is its own.
            z = tl.where(alive, z, h)
        h = next_h
        if CELL == "lstm":
            c = next_c
        if KEPT:
            if ACTIVATION == "abs":
                tl.store(states + place, z, mask=inside)
            else:
                tl.store(states + place, h, mask=inside)
            if CELL == "lstm":
                tl.store(cells + place, c, mask=inside)
        addend += batch * GATES * n
        place += batch * n
    tl.store(h_carried + carried, h, mask=inside)
    if CELL == "lstm":
        tl.store(c_carried + carried, c, mask=inside)


@triton.jit(do_not_specialize=_VARYING)
def backward_steps(
    gates,  # [M, steps, B, G n]: what each gate was given; what reaches its addend takes its place
    products,  # [M, steps, B, n], of a GRU that resets after: a third product; what reaches it
    weight,  # W [M, G, n, n]
    states,  # [M, total, B, n], RNN alone
    before,  # [M, steps, B, n], h before each step; GRU alone
    cells,  # [M, total, B, n], c after each step; LSTM alone
    cells_before,  # [M, steps, B, n]
    h_carried,  # [M, B, n] float32, what reaches the last h; then what reaches the first
    c_carried,
    grad_states,  # [M, total, B, n]
    grad_cells,  # [M, total, B, n]
    lengths,  # int64 [M, B]
    start,  # the launch's first step among all
    steps,
    total,
    batch,
    n,
    slope,
    CELL: tl.constexpr,
    ACTIVATION: tl.constexpr,
    GATES: tl.constexpr,
    RAGGED: tl.constexpr,
    OF_STATES: tl.constexpr,
    OF_CELLS: tl.constexpr,
    ROUNDED: tl.constexpr,
    PRECISION: tl.constexpr,
    ROWS: tl.constexpr,
    N: tl.constexpr,
):
    """Go back by some steps from what reaches the last states to what reaches the first ones."""
    member = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    units = tl.arange(0, N)
    inside = (rows < batch)[:, None] & (units < n)[None, :]
    own = rows[:, None].to(tl.int64) * n + units[None, :]
    carried = member * batch * n + own

    weight += member * GATES * n * n
    w0 = _matrix(weight, 0, n, N, ROUNDED)
    if GATES > 1:
        w1 = _matrix(weight, 1, n, N, ROUNDED)
        w2 = _matrix(weight, 2, n, N, ROUNDED)
    if GATES > 3:
        w3 = _matrix(weight, 3, n, N, ROUNDED)
    if RAGGED:
        length = tl.load(lengths + member * batch + rows, mask=rows < batch, other=0)[:, None]

    g = _read(h_carried, carried, inside)
    if CELL == "lstm":
        grad_c = _read(c_carried, carried, inside)
    last = member * steps + steps - 1
    gate = gates + (last * batch + rows[:, None]) * GATES * n + units[None, :]
    here = last * batch * n + own
    place = (member * total + start + steps - 1) * batch * n + own
    for back in range(steps):
        if CELL == "rnn":
            stored = _read(states, place, inside)
        if OF_STATES:
            arriving = _read(grad_states, place, inside)
            if ACTIVATION == "abs":
                arriving = through(arriving, stored, slope, ACTIVATION)
            g += arriving
        if CELL == "lstm" and OF_CELLS:
            grad_c += _read(grad_cells, place, inside)
        if RAGGED:
            alive = start + steps - 1 - back < length
        # What reaches the gates' addends and products.
        if CELL == "rnn":
            dz0 = through(g, stored, slope, ACTIVATION)
        elif CELL == "lstm":
            enter = sigmoid(_read(gate, 0, inside))
            forget = sigmoid(_read(gate + n, 0, inside))
            candidate = tanh(_read(gate + 2 * n, 0, inside))
            leave = sigmoid(_read(gate + 3 * n, 0, inside))
            bounded = tanh(_read(cells, place, inside))
            reaching = grad_c + g * leave * (1.0 - bounded * bounded)
            dz0 = reaching * candidate * enter * (1.0 - enter)
            dz1 = reaching * _read(cells_before, here, inside) * forget * (1.0 - forget)
            dz2 = reaching * enter * (1.0 - candidate * candidate)
            dz3 = g * bounded * leave * (1.0 - leave)
            next_c = reaching * forget
            if RAGGED:
                dz3 = tl.where(alive, dz3, 0.0)
                next_c = tl.where(alive, next_c, grad_c)
            grad_c = next_c
            tl.store(gate + 3 * n, dz3, mask=inside)
        else:
            h = _read(before, here, inside)
            update = sigmoid(_read(gate, 0, inside))
            reset = sigmoid(_read(gate + n, 0, inside))
            given = _read(gate + 2 * n, 0, inside)
            if CELL == "gru_reset_after":
                product = _read(products, here, inside)
                candidate = tanh(given + reset * product)
            else:
                candidate = tanh(given)
            dz0 = g * (h - candidate) * update * (1.0 - update)
            dz2 = g * (1.0 - update) * (1.0 - candidate * candidate)
        if RAGGED:
            dz0 = tl.where(alive, dz0, 0.0)
        tl.store(gate, dz0, mask=inside)
        if GATES > 1:
            if RAGGED:
                dz2 = tl.where(alive, dz2, 0.0)
            tl.store(gate + 2 * n, dz2, mask=inside)
            if CELL == "gru_reset_after":
                dz1 = dz2 * product * reset * (1.0 - reset)
                dz2 = dz2 * reset
                tl.store(products + here, dz2, mask=inside)
        # What they make of it, `dz W`.
        next_g = _dot(dz0, w0, PRECISION)
        if CELL == "gru_reset_before":
            passed = _dot(dz2, w2, PRECISION)
            dz1 = passed * h * reset * (1.0 - reset)
            next_g += passed * reset + g * update
        elif CELL == "gru_reset_after":
            next_g += _dot(dz2, w2, PRECISION) + g * update
        elif CELL == "lstm":
            next_g += _dot(dz2, w2, PRECISION)
            next_g += _dot(dz3, w3, PRECISION)
        if GATES > 1:
            if RAGGED:
                dz1 = tl.where(alive, dz1, 0.0)
            tl.store(gate + n, dz1, mask=inside)
            next_g += _dot(dz1, w1, PRECISION)
        if RAGGED:
            next_g = tl.where(alive, next_g, g)
        g = next_g
        gate -= batch * GATES * n
        here -= batch * n
        place -= batch * n
    tl.store(h_carried + carried, g, mask=inside)
    if CELL == "lstm":
        tl.store(c_carried + carried, grad_c, mask=inside)
