"""The recurrences themselves, forward and backward: one program per model and tile of samples.

A program goes through all steps of a launch with its state in registers. The weights are read once
and stay in shared memory; with `STREAMED` the second thin factor is read at every step instead.
What inputs and biases add, and in the backward pass what the gates were given, is there for all
steps: large products outside make both, and the gradients of all weights. A step
in here holds nothing but the products that have to wait for the step before.

Tiles are `[ROWS, N]` with N the power of two that holds n, and K the one that holds the rank. What
lies outside is read as 0, which no product sees, and is never written. Matrices lie in memory as a
product reads them, row by row: who calls transposes.

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

# B and T differ from call to call: a kernel is not to be compiled anew for each.
_VARYING = ("start", "steps", "total", "batch")


@triton.jit
def _tile(
    base, row_count, column_count, ROWS: tl.constexpr, COLUMNS: tl.constexpr, ROUNDED: tl.constexpr
):
    """A matrix with zeros behind it, in bfloat16 where it is to be `ROUNDED`."""
    rows = tl.arange(0, ROWS)[:, None]
    columns = tl.arange(0, COLUMNS)[None, :]
    inside = (rows < row_count) & (columns < column_count)
    found = tl.load(base + rows * column_count + columns, mask=inside, other=0.0)
    return found.to(tl.bfloat16 if ROUNDED else tl.float32)


@triton.jit
def _first(
    base,
    gate,
    n,
    d,
    N: tl.constexpr,
    K: tl.constexpr,
    THIN: tl.constexpr,
    ROUNDED: tl.constexpr,
):
    """What rows of n numbers are multiplied by first."""
    if THIN:
        found = _tile(base + gate * n * d, n, d, N, K, ROUNDED)
    else:
        found = _tile(base + gate * n * n, n, n, N, N, ROUNDED)
    return found


@triton.jit
def _second(base, gate, n, d, N: tl.constexpr, K: tl.constexpr, ROUNDED: tl.constexpr):
    """What comes after it where matrices are thin."""
    return _tile(base + gate * n * d, d, n, K, N, ROUNDED)


@triton.jit
def _vector(base, gate, n, N: tl.constexpr):
    """A gate's n numbers as a row."""
    units = tl.arange(0, N)
    return tl.load(base + gate * n + units, mask=units < n, other=0.0).to(tl.float32)[None, :]


@triton.jit
def _dot(x, matrix, PRECISION: tl.constexpr):
    return tl.dot(x.to(matrix.dtype), matrix, input_precision=PRECISION)


@triton.jit
def _read(base, places, inside):
    return tl.load(base + places, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def _sigmoid(z):
    return 1.0 / (1.0 + tl.exp(-z))


@triton.jit
def _tanh(z):
    return 2.0 / (1.0 + tl.exp(-2.0 * z)) - 1.0


@triton.jit
def _activated(z, slope, ACTIVATION: tl.constexpr):
    # Comparisons as they are here leave NaN what it is.
    if ACTIVATION == "tanh":
        z = _tanh(z)
    elif ACTIVATION == "relu":
        z = tl.where(z < 0, 0.0, z)
    elif ACTIVATION == "leaky_relu":
        z = tl.where(z < 0, slope * z, z)
    elif ACTIVATION == "abs":
        z = tl.where(z < 0, -z, z)
    return z


@triton.jit
def _through(gradient, stored, slope, ACTIVATION: tl.constexpr):
    """What passes an activation that gave what is stored, or of `abs` was given it."""
    if ACTIVATION == "tanh":
        gradient = gradient * (1.0 - stored * stored)
    elif ACTIVATION == "relu":
        gradient = tl.where(stored > 0, gradient, 0.0)
    elif ACTIVATION == "leaky_relu":
        gradient = tl.where(stored > 0, gradient, slope * gradient)
    elif ACTIVATION == "abs":
        gradient = tl.where(stored < 0, -gradient, gradient)
    return gradient


@triton.jit(do_not_specialize=_VARYING)
def forward_steps(
    addends,  # [M, steps, B, G n] with steps of `addends_member` between models
    first,  # R^T [M, RIGHTS, n, d], or W^T [M, G, n, n]
    second,  # L^T [M, G, d, n]
    diagonal,  # [M, G, n]
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
    d,
    slope,
    one0,  # 1, see Note [Four times one]
    one1,
    one2,
    one3,
    CELL: tl.constexpr,
    ACTIVATION: tl.constexpr,
    GATES: tl.constexpr,
    RIGHTS: tl.constexpr,  # 0 of whole matrices; one for each gate where it resets before
    DIAGONAL: tl.constexpr,
    BIASED: tl.constexpr,
    RAGGED: tl.constexpr,
    KEPT: tl.constexpr,
    STREAMED: tl.constexpr,
    ROUNDED: tl.constexpr,
    PRECISION: tl.constexpr,
    ROWS: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
):
    """Go on by some steps from the carried states, and leave the last ones there."""
    THIN: tl.constexpr = RIGHTS > 0
    TIED: tl.constexpr = THIN and RIGHTS < GATES
    member = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    units = tl.arange(0, N)
    inside = (rows < batch)[:, None] & (units < n)[None, :]
    own = rows[:, None].to(tl.int64) * n + units[None, :]
    carried = member * batch * n + own

    if THIN:
        first += member * RIGHTS * d * n
        second += member * GATES * n * d
    else:
        first += member * GATES * n * n
    diagonal += member * GATES * n
    inner_bias += member * n

    # All weights before the first step: from here on they stay.
    first0 = _first(first, 0, n, d, N, K, THIN, ROUNDED)
    if GATES > 1 and not TIED:
        first1 = _first(first, 1, n, d, N, K, THIN, ROUNDED)
        first2 = _first(first, 2, n, d, N, K, THIN, ROUNDED)
    if GATES > 3 and not TIED:
        first3 = _first(first, 3, n, d, N, K, THIN, ROUNDED)
    if THIN and not STREAMED:
        second0 = _second(second, 0, n, d, N, K, ROUNDED)
        if GATES > 1:
            second1 = _second(second, 1, n, d, N, K, ROUNDED)
            second2 = _second(second, 2, n, d, N, K, ROUNDED)
        if GATES > 3:
            second3 = _second(second, 3, n, d, N, K, ROUNDED)
    if DIAGONAL:
        diagonal0 = _vector(diagonal, 0, n, N)
        if GATES > 1:
            diagonal1 = _vector(diagonal, 1, n, N)
            diagonal2 = _vector(diagonal, 2, n, N)
        if GATES > 3:
            diagonal3 = _vector(diagonal, 3, n, N)
    if BIASED:
        candidate_bias = _vector(inner_bias, 0, n, N)
    if RAGGED:
        length = tl.load(lengths + member * batch + rows, mask=rows < batch, other=0)[:, None]

    h = _read(h_carried, carried, inside)
    if CELL == "lstm":
        c = _read(c_carried, carried, inside)
    z = h
    addend = addends + member * addends_member + rows[:, None].to(tl.int64) * GATES * n
    addend += units[None, :]
    place = (member * total + start) * batch * n + own
    for step in range(steps):
        # Each gate's product is `x R^T L^T + x D`, or `x W^T`.
        z0 = _read(addend, 0, inside)
        inner = _dot(h * one0, first0, PRECISION)
        if THIN:
            if STREAMED:
                second0 = _second(second, 0, n, d, N, K, ROUNDED)
            z0 += _dot(inner * one0, second0, PRECISION)
        else:
            z0 += inner
        if DIAGONAL:
            z0 += h * diagonal0
        if GATES > 1:
            z1 = _read(addend + n, 0, inside)
            if not TIED:
                inner = _dot(h * one1, first1, PRECISION)
            if THIN:
                if STREAMED:
                    second1 = _second(second, 1, n, d, N, K, ROUNDED)
                z1 += _dot(inner * one1, second1, PRECISION)
            else:
                z1 += inner
            if DIAGONAL:
                z1 += h * diagonal1
            # What the third matrix multiplies.
            x = h
            if CELL == "gru_reset_before":
                x = _sigmoid(z1) * h
            if not TIED:
                inner = _dot(x * one2, first2, PRECISION)
            if THIN:
                if STREAMED:
                    second2 = _second(second, 2, n, d, N, K, ROUNDED)
                product2 = _dot(inner * one2, second2, PRECISION)
            else:
                product2 = inner
            if DIAGONAL:
                product2 += x * diagonal2
            addend2 = _read(addend + 2 * n, 0, inside)
        if CELL == "rnn":
            next_z = z0
            next_h = _activated(z0, slope, ACTIVATION)
        elif CELL == "lstm":
            z3 = _read(addend + 3 * n, 0, inside)
            if not TIED:
                inner = _dot(h * one3, first3, PRECISION)
            if THIN:
                if STREAMED:
                    second3 = _second(second, 3, n, d, N, K, ROUNDED)
                z3 += _dot(inner * one3, second3, PRECISION)
            else:
                z3 += inner
            if DIAGONAL:
                z3 += h * diagonal3
            next_c = _sigmoid(z1) * c + _sigmoid(z0) * _tanh(addend2 + product2)
            next_h = _sigmoid(z3) * _tanh(next_c)
        else:
            if CELL == "gru_reset_after":
                if BIASED:
                    product2 += candidate_bias
                product2 = _sigmoid(z1) * product2
            candidate = _tanh(addend2 + product2)
            next_h = candidate + _sigmoid(z0) * (h - candidate)
        if RAGGED:
            alive = start + step < length
            next_h = tl.where(alive, next_h, h)
            if CELL == "lstm":
                next_c = tl.where(alive, next_c, c)
            if CELL == "rnn":
                next_z = tl.where(alive, next_z, z)
        h = next_h
        if CELL == "lstm":
            c = next_c
        if CELL == "rnn":
            z = next_z
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
    gates,  # [M, steps, B, G n]: what each gate was given; what reaches that takes its place
    inner,  # [M, steps, B, n]: a candidate's product before its reset; what reaches its addend
    first,  # L [M, G, n, d], or W [M, G, n, n]
    second,  # R [M, RIGHTS, d, n]
    diagonal,  # [M, G, n]
    states,  # [M, total, B, n], RNN alone
    before,  # [M, steps, B, n], h before each step; GRU alone
    cells,  # [M, steps, B, n], c after each step; LSTM alone
    cells_before,  # the same before it
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
    d,
    slope,
    CELL: tl.constexpr,
    ACTIVATION: tl.constexpr,
    GATES: tl.constexpr,
    RIGHTS: tl.constexpr,  # 0 of whole matrices; one for each gate where it resets before
    DIAGONAL: tl.constexpr,
    RAGGED: tl.constexpr,
    OF_STATES: tl.constexpr,
    OF_CELLS: tl.constexpr,
    STREAMED: tl.constexpr,
    ROUNDED: tl.constexpr,
    PRECISION: tl.constexpr,
    ROWS: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
):
    """Go back by some steps from what reaches the last states to what reaches the first ones."""
    THIN: tl.constexpr = RIGHTS > 0
    TIED: tl.constexpr = THIN and RIGHTS < GATES
    member = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    units = tl.arange(0, N)
    inside = (rows < batch)[:, None] & (units < n)[None, :]
    own = rows[:, None].to(tl.int64) * n + units[None, :]
    carried = member * batch * n + own

    if THIN:
        first += member * GATES * n * d
        second += member * RIGHTS * d * n
    else:
        first += member * GATES * n * n
    diagonal += member * GATES * n

    first0 = _first(first, 0, n, d, N, K, THIN, ROUNDED)
    if GATES > 1:
        first1 = _first(first, 1, n, d, N, K, THIN, ROUNDED)
        first2 = _first(first, 2, n, d, N, K, THIN, ROUNDED)
    if GATES > 3:
        first3 = _first(first, 3, n, d, N, K, THIN, ROUNDED)
    if THIN and not STREAMED:
        second0 = _second(second, 0, n, d, N, K, ROUNDED)
        if GATES > 1 and not TIED:
            second1 = _second(second, 1, n, d, N, K, ROUNDED)
            second2 = _second(second, 2, n, d, N, K, ROUNDED)
        if GATES > 3 and not TIED:
            second3 = _second(second, 3, n, d, N, K, ROUNDED)
    if DIAGONAL:
        diagonal0 = _vector(diagonal, 0, n, N)
        if GATES > 1:
            diagonal1 = _vector(diagonal, 1, n, N)
            diagonal2 = _vector(diagonal, 2, n, N)
        if GATES > 3:
            diagonal3 = _vector(diagonal, 3, n, N)
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
                arriving = _through(arriving, stored, slope, ACTIVATION)
            g += arriving
        if CELL == "lstm" and OF_CELLS:
            grad_c += _read(grad_cells, place, inside)
        if RAGGED:
            alive = start + steps - 1 - back < length
        # What reaches the gates' addends and products.
        if CELL == "rnn":
            dz0 = _through(g, stored, slope, ACTIVATION)
        elif CELL == "lstm":
            enter = _sigmoid(_read(gate, 0, inside))
            forget = _sigmoid(_read(gate + n, 0, inside))
            candidate = _tanh(_read(gate + 2 * n, 0, inside))
            leave = _sigmoid(_read(gate + 3 * n, 0, inside))
            bounded = _tanh(_read(cells, here, inside))
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
            update = _sigmoid(_read(gate, 0, inside))
            reset = _sigmoid(_read(gate + n, 0, inside))
            given = _read(gate + 2 * n, 0, inside)
            if CELL == "gru_reset_after":
                product = _read(inner, here, inside)
                candidate = _tanh(given + reset * product)
            else:
                candidate = _tanh(given)
            dz0 = g * (h - candidate) * update * (1.0 - update)
            dz2 = g * (1.0 - update) * (1.0 - candidate * candidate)
            if CELL == "gru_reset_after":
                if RAGGED:
                    dz2 = tl.where(alive, dz2, 0.0)
                tl.store(inner + here, dz2, mask=inside)
                dz1 = dz2 * product * reset * (1.0 - reset)
                dz2 = dz2 * reset
        if RAGGED:
            dz0 = tl.where(alive, dz0, 0.0)
        tl.store(gate, dz0, mask=inside)
        if GATES > 1:
            if RAGGED:
                dz2 = tl.where(alive, dz2, 0.0)
            tl.store(gate + 2 * n, dz2, mask=inside)
        # What they make of it: `dz L R + dz D`, or `dz W`.
        if CELL == "gru_reset_before":
            through = _dot(dz2, first2, PRECISION)
            if THIN:
                if STREAMED:
                    second2 = _second(second, 2, n, d, N, K, ROUNDED)
                through = _dot(through, second2, PRECISION)
            if DIAGONAL:
                through += dz2 * diagonal2
            dz1 = through * h * reset * (1.0 - reset)
            next_g = through * reset + g * update
        elif CELL == "gru_reset_after":
            next_g = g * update
        else:
            next_g = tl.zeros_like(g)
        if GATES > 1:
            if RAGGED:
                dz1 = tl.where(alive, dz1, 0.0)
            tl.store(gate + n, dz1, mask=inside)
        middle = _dot(dz0, first0, PRECISION)
        if TIED:
            middle += _dot(dz1, first1, PRECISION)
            middle += _dot(dz2, first2, PRECISION)
            if CELL == "lstm":
                middle += _dot(dz3, first3, PRECISION)
        if THIN:
            if STREAMED:
                second0 = _second(second, 0, n, d, N, K, ROUNDED)
            next_g += _dot(middle, second0, PRECISION)
        else:
            next_g += middle
        if GATES > 1 and not TIED:
            middle = _dot(dz1, first1, PRECISION)
            if THIN:
                if STREAMED:
                    second1 = _second(second, 1, n, d, N, K, ROUNDED)
                next_g += _dot(middle, second1, PRECISION)
            else:
                next_g += middle
            if CELL != "gru_reset_before":
                middle = _dot(dz2, first2, PRECISION)
                if THIN:
                    if STREAMED:
                        second2 = _second(second, 2, n, d, N, K, ROUNDED)
                    next_g += _dot(middle, second2, PRECISION)
                else:
                    next_g += middle
        if CELL == "lstm" and not TIED:
            middle = _dot(dz3, first3, PRECISION)
            if THIN:
                if STREAMED:
                    second3 = _second(second, 3, n, d, N, K, ROUNDED)
                next_g += _dot(middle, second3, PRECISION)
            else:
                next_g += middle
        if DIAGONAL:
            next_g += dz0 * diagonal0
            if GATES > 1:
                next_g += dz1 * diagonal1
            if GATES > 1 and CELL != "gru_reset_before":
                next_g += dz2 * diagonal2
            if CELL == "lstm":
                next_g += dz3 * diagonal3
        if RAGGED:
            next_g = tl.where(alive, next_g, g)
        g = next_g
        gate -= batch * GATES * n
        here -= batch * n
        place -= batch * n
    tl.store(h_carried + carried, g, mask=inside)
    if CELL == "lstm":
        tl.store(c_carried + carried, grad_c, mask=inside)
