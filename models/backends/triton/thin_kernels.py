"""The recurrences with thin matrices: one program for a sample, weights in its registers.

Every matrix is `L R + diag(D)`. Both factors lie as `[units, K]` over the same threads, so that
`h R^T` is a sum over units and `(h R^T) L^T` one over the rank, and neither moves a weight. K is
the power of two that holds the rank d; factors come filled up with zeros to `[UNITS * PARTS, K]`.

Note [Parts]
Where the factors are more than one program holds, PARTS programs share a sample's units. What they
have to tell each other in a step is `h R^T`, d numbers for each matrix. Each writes its share of
the sums to `shares`; all meet at a counter; each adds up a part of what all wrote, into `sums`; and
all meet again. Programs that wait for each other have to run at the same time, which a cooperative
launch promises. Such a program goes through `each` samples in turn, so that two meetings serve them
all. Without `MEETS` a launch is one step, and who launches adds up.

Note [Sums at once]
Sums over units cross the program's warps, which have to wait for each other. Those of all matrices
are one `tl.reduce`, and wait once.
"""
# pyright: basic, reportAssignmentType=false, reportGeneralTypeIssues=false
# Triton ships no types, and what it compiles is not quite Python.

import triton
import triton.language as tl

from models.backends.triton.equations import activated, sigmoid, tanh, through

# B and T differ from call to call: a kernel is not to be compiled anew for each.
_VARYING = (
    *("chunk", "chunk_steps", "start", "steps", "total"),
    *("first_member", "batch", "each"),
)


@triton.jit
def _two(a0, a1, b0, b1):
    return a0 + b0, a1 + b1


@triton.jit
def _three(a0, a1, a2, b0, b1, b2):
    return a0 + b0, a1 + b1, a2 + b2


@triton.jit
def _four(a0, a1, a2, a3, b0, b1, b2, b3):
    return a0 + b0, a1 + b1, a2 + b2, a3 + b3


@triton.jit
def _factor(base, number, units, K: tl.constexpr, N: tl.constexpr):
    """One of several factors `[N, K]`: the rows of this program's units."""
    inner = tl.arange(0, K)
    found = tl.load(base + (number * N + units[:, None]) * K + inner[None, :])
    return found.to(tl.float32)


@triton.jit
def _factors(base, units, COUNT: tl.constexpr, K: tl.constexpr, N: tl.constexpr):
    """One to four of them; what is not there is the first again."""
    first = _factor(base, 0, units, K, N)
    second, third, fourth = first, first, first
    if COUNT > 1:
        second = _factor(base, 1, units, K, N)
        third = _factor(base, 2, units, K, N)
    if COUNT > 3:
        fourth = _factor(base, 3, units, K, N)
    return first, second, third, fourth


@triton.jit
def _numbers(base, distance, mask, COUNT: tl.constexpr):
    """One to four rows of numbers, `distance` apart."""
    first = tl.load(base, mask=mask, other=0.0).to(tl.float32)
    second, third, fourth = first, first, first
    if COUNT > 1:
        second = tl.load(base + distance, mask=mask, other=0.0).to(tl.float32)
        third = tl.load(base + 2 * distance, mask=mask, other=0.0).to(tl.float32)
    if COUNT > 3:
        fourth = tl.load(base + 3 * distance, mask=mask, other=0.0).to(tl.float32)
    return first, second, third, fourth


@triton.jit
def _store(base, distance, mask, first, second, third, fourth, COUNT: tl.constexpr):
    tl.store(base, first, mask=mask)
    if COUNT > 1:
        tl.store(base + distance, second, mask=mask)
        tl.store(base + 2 * distance, third, mask=mask)
    if COUNT > 3:
        tl.store(base + 3 * distance, fourth, mask=mask)


@triton.jit
def _over_units(x0, x1, x2, x3, m0, m1, m2, m3, COUNT: tl.constexpr):
    """Row vectors times the first COUNT factors, see Note [Sums at once]."""
    if COUNT == 1:
        y0 = tl.sum(x0[:, None] * m0, axis=0)
        y1, y2, y3 = y0, y0, y0
    elif COUNT == 2:
        y0, y1 = tl.reduce((x0[:, None] * m0, x1[:, None] * m1), 0, _two)
        y2, y3 = y0, y0
    elif COUNT == 3:
        y0, y1, y2 = tl.reduce((x0[:, None] * m0, x1[:, None] * m1, x2[:, None] * m2), 0, _three)
        y3 = y0
    else:
        y0, y1, y2, y3 = tl.reduce(
            (x0[:, None] * m0, x1[:, None] * m1, x2[:, None] * m2, x3[:, None] * m3), 0, _four
        )
    return y0, y1, y2, y3


@triton.jit
def _meet(counter, target):
    """Wait until as many programs have come here; what they wrote before is seen after."""
    tl.debug_barrier()
    come = tl.atomic_add(counter, 1, sem="acq_rel") + 1
    while come < target:
        come = tl.atomic_add(counter, 0, sem="acquire")
    tl.debug_barrier()


@triton.jit
def _add_up(
    shares, sums, part, count, WIDTH: tl.constexpr, PARTS: tl.constexpr, CHUNK: tl.constexpr
):
    """This program's part of the sums of all samples that its group has, see Note [Parts]."""
    parts, numbers = tl.arange(0, PARTS), tl.arange(0, CHUNK)
    for begin in range(part * CHUNK, count * WIDTH, PARTS * CHUNK):
        column = begin + numbers
        inside = column < count * WIDTH
        at = column // WIDTH * PARTS * WIDTH + column % WIDTH
        # Past the caches of one multiprocessor: others wrote it.
        found = tl.load(
            shares + at[None, :] + parts[:, None] * WIDTH,
            mask=inside[None, :],
            other=0.0,
            cache_modifier=".cg",
        )
        tl.store(sums + column, tl.sum(found, axis=0), mask=inside)


@triton.jit
def _added_up(base, COUNT: tl.constexpr, K: tl.constexpr):
    """The sums of one sample."""
    at = base + tl.arange(0, K)
    y0 = tl.load(at, cache_modifier=".cg")
    y1, y2, y3 = y0, y0, y0
    if COUNT > 1:
        y1 = tl.load(at + K, cache_modifier=".cg")
        y2 = tl.load(at + 2 * K, cache_modifier=".cg")
    if COUNT > 3:
        y3 = tl.load(at + 3 * K, cache_modifier=".cg")
    return y0, y1, y2, y3


@triton.jit
def _read(base, mask):
    return tl.load(base, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def _product(y, factor, h, d, DIAGONAL: tl.constexpr):
    """What one matrix makes of h, out of what its right factor made."""
    found = tl.sum(y[None, :] * factor, axis=1)
    if DIAGONAL:
        found += h * d
    return found


@triton.jit(do_not_specialize=_VARYING)
def forward_steps(
    addends,  # [M, steps, B, G n] with steps of `addends_member` between models
    right,  # R^T [M, RIGHTS, N, K]
    left,  # L [M, G, N, K]
    diagonal,  # [M, G, n]
    inner_bias,  # [M, n], what is added to the candidate's product of a GRU that resets after it
    h_carried,  # [M, B, n] float32, read and written
    c_carried,  # the same of an LSTM
    lengths,  # int64 [M, B]
    states,  # [M, total, B, n]
    cells,  # [M, total, B, n]
    inners,  # [M, total, B, RIGHTS d], what the right factors gave
    shares,  # float32 [M, B, PARTS, RIGHTS K]
    sums,  # float32 [M, B, RIGHTS K]
    counters,  # int32 [M, groups of samples], zeros
    addends_member,
    chunk,  # the first step of `addends` among all
    start,  # the launch's
    steps,
    total,
    first_member,
    batch,
    each,  # samples of a program
    n,
    d,
    slope,
    CELL: tl.constexpr,
    ACTIVATION: tl.constexpr,
    GATES: tl.constexpr,
    RIGHTS: tl.constexpr,
    DIAGONAL: tl.constexpr,
    BIASED: tl.constexpr,
    RAGGED: tl.constexpr,
    KEPT: tl.constexpr,
    MEETS: tl.constexpr,
    PARTS: tl.constexpr,
    UNITS: tl.constexpr,
    K: tl.constexpr,
):
    """Go on by some steps from the carried states, and leave the last ones there."""
    N: tl.constexpr = PARTS * UNITS
    # A GRU that resets before makes its third product of another vector than the first two.
    AT_ONCE: tl.constexpr = RIGHTS - (CELL == "gru_reset_before")
    group, part = tl.program_id(0), tl.program_id(2)
    member = tl.program_id(1).to(tl.int64) + first_member
    first = group * each
    here = tl.minimum(each, batch - first)
    units = part * UNITS + tl.arange(0, UNITS)
    inner = tl.arange(0, K)
    inside, known = units < n, inner < d

    r0, r1, r2, r3 = _factors(right + member * RIGHTS * N * K, units, RIGHTS, K, N)
    l0, l1, l2, l3 = _factors(left + member * GATES * N * K, units, GATES, K, N)
    d0, d1, d2, d3 = 0.0, 0.0, 0.0, 0.0
    if DIAGONAL:
        d0, d1, d2, d3 = _numbers(diagonal + member * GATES * n + units, n, inside, GATES)
    if BIASED:
        bias = tl.load(inner_bias + member * n + units, mask=inside, other=0.0).to(tl.float32)

    samples = member * batch + first
    h = tl.load(h_carried + samples * n + units, mask=inside, other=0.0)
    c = h
    if CELL == "lstm":
        c = tl.load(c_carried + samples * n + units, mask=inside, other=0.0)
    WIDTH: tl.constexpr = RIGHTS * K
    shares += samples * PARTS * WIDTH
    sums += samples * WIDTH
    counter = counters + member * tl.num_programs(0) + group
    zero = member * 0  # Of 64 bits, like all that is counted from it.
    addend = addends + member * addends_member + units
    addend += ((zero + start - chunk) * batch + first) * GATES * n
    line = (member * total + start) * batch + first  # among all samples of all steps
    a0, a1, a2, a3 = _numbers(addend, n, inside, GATES)
    step, turn = zero, zero
    for _ in range(steps * here):
        # What comes next is fetched while this is computed.
        is_last = turn + 1 == here
        next_step, next_turn = tl.where(is_last, step + 1, step), tl.where(is_last, 0, turn + 1)
        after = addend + (next_step * batch + next_turn) * GATES * n
        n0, n1, n2, n3 = _numbers(after, n, inside & (next_step < steps), GATES)
        mine = (samples + turn) * n + units
        if PARTS == 1:
            y0, y1, y2, y3 = _over_units(h, h, h, h, r0, r1, r2, r3, AT_ONCE)
        else:
            h = tl.load(h_carried + mine, mask=inside, other=0.0)
            if CELL == "lstm":
                c = tl.load(c_carried + mine, mask=inside, other=0.0)
            y0, y1, y2, y3 = _added_up(sums + turn * WIDTH, RIGHTS, K)
        z0 = a0 + _product(y0, l0, h, d0, DIAGONAL)
        z, next_c = z0, c
        if CELL == "rnn":
            next_h = activated(z0, slope, ACTIVATION)
        else:
            z1 = a1 + _product(y1, l1, h, d1, DIAGONAL)
            x = h
            if CELL == "gru_reset_before":
                x = sigmoid(z1) * h
                y2 = tl.sum(x[:, None] * r2, axis=0)
            product = _product(y2, l2, x, d2, DIAGONAL)
            if CELL == "lstm":
                z3 = a3 + _product(y3, l3, h, d3, DIAGONAL)
                next_c = sigmoid(z1) * c + sigmoid(z0) * tanh(a2 + product)
                next_h = sigmoid(z3) * tanh(next_c)
            else:
                if BIASED:
                    product += bias
                if CELL == "gru_reset_after":
                    product = sigmoid(z1) * product
                candidate = tanh(a2 + product)
                next_h = candidate + sigmoid(z0) * (h - candidate)
        if RAGGED:
            alive = start + step < tl.load(lengths + samples + turn)
            next_h = tl.where(alive, next_h, h)
            next_c = tl.where(alive, next_c, c)
            z = tl.where(alive, z, h)
        h, c = next_h, next_c
        if KEPT:
            place = line + step * batch + turn
            stored = h
            if ACTIVATION == "abs":
                stored = z
            tl.store(states + place * n + units, stored, mask=inside)
            if CELL == "lstm":
                tl.store(cells + place * n + units, c, mask=inside)
            kept = known & (part == 0)
            _store(inners + place * RIGHTS * d + inner, d, kept, y0, y1, y2, y3, RIGHTS)
        if PARTS > 1:
            tl.store(h_carried + mine, h, mask=inside)
            if CELL == "lstm":
                tl.store(c_carried + mine, c, mask=inside)
            y0, y1, y2, y3 = _over_units(h, h, h, h, r0, r1, r2, r3, RIGHTS)
            own = shares + (turn * PARTS + part) * WIDTH + inner
            _store(own, K, inner < K, y0, y1, y2, y3, RIGHTS)
            if MEETS:  # noqa: SIM102 -- one is known when it is compiled
                if is_last:
                    _meet(counter, (2 * step + 1) * PARTS)
                    _add_up(shares, sums, part, here, WIDTH, PARTS, 64)
                    _meet(counter, (2 * step + 2) * PARTS)
        step, turn = next_step, next_turn
        a0, a1, a2, a3 = n0, n1, n2, n3
    if PARTS == 1:
        tl.store(h_carried + samples * n + units, h, mask=inside)
        if CELL == "lstm":
            tl.store(c_carried + samples * n + units, c, mask=inside)


@triton.jit
def _add_to(base, n, inside, first, second, third, fourth, COUNT: tl.constexpr):
    """Add to what is there."""
    s0, s1, s2, s3 = _numbers(base, n, inside, COUNT)
    _store(base, n, inside, s0 + first, s1 + second, s2 + third, s3 + fourth, COUNT)


@triton.jit
def _fetched(
    gates, inners, states, before, cells, cells_before, grad_states, grad_cells, row, place, n, d,
    units, inside, known,
    CELL: tl.constexpr,
    GATES: tl.constexpr,
    RIGHTS: tl.constexpr,
    OF_STATES: tl.constexpr,
    OF_CELLS: tl.constexpr,
):  # fmt: skip
    """All that a step of the backward pass reads: none of it waits for the step behind it."""
    h = _read(before + row * n + units, inside)
    a0, a1, a2, a3 = h, h, h, h
    i0, i1, i2, i3 = 0.0, 0.0, 0.0, 0.0
    if CELL == "rnn":
        stored = _read(states + place * n + units, inside)
    else:
        stored = h
        a0, a1, a2, a3 = _numbers(gates + row * GATES * n + units, n, inside, GATES)
        i0, i1, i2, i3 = _numbers(inners + place * RIGHTS * d + tl.arange(0, known.shape[0]), d,
                                  known, RIGHTS)  # fmt: skip
        if RIGHTS < GATES:
            i1, i2, i3 = i0, i0, i0
    arriving, of_c, c, c_before = h, h, h, h
    if OF_STATES:
        arriving = _read(grad_states + place * n + units, inside)
    if CELL == "lstm":
        c = _read(cells + place * n + units, inside)
        c_before = _read(cells_before + row * n + units, inside)
        if OF_CELLS:
            of_c = _read(grad_cells + place * n + units, inside)
    return h, a0, a1, a2, a3, i0, i1, i2, i3, stored, arriving, of_c, c, c_before


@triton.jit(do_not_specialize=_VARYING)
def backward_steps(
    gates,  # [M, chunk_steps, B, G n]: addends; what reaches them takes their place
    products,  # [M, chunk_steps, B, n], of a GRU that resets after: what reaches its third product
    resets,  # [M, chunk_steps, B, n], of one that resets before: what its third matrix multiplied
    middles,  # [M, chunk_steps, B, RIGHTS d], what left factors made of it; with one part
    inners,  # [M, total, B, RIGHTS d], what the right factors gave
    right,  # R^T [M, RIGHTS, N, K]
    left,  # L [M, G, N, K]
    diagonal,  # [M, G, n]
    inner_bias,  # [M, n]
    states,  # [M, total, B, n]; RNN alone
    before,  # [M, chunk_steps, B, n], h before each step
    cells,  # [M, total, B, n], c after each step; LSTM alone
    cells_before,  # [M, chunk_steps, B, n]
    h_carried,  # [M, B, n] float32, what reaches the last h; then what reaches the first
    c_carried,
    grad_states,  # [M, total, B, n]
    grad_cells,  # [M, total, B, n]
    totals,  # float32 [M, groups, 2 G + 1, n]: gradients of diagonals, biases, the product's bias
    lengths,  # int64 [M, B]
    shares,  # float32 [M, B, PARTS, RIGHTS K]
    sums,  # float32 [M, B, RIGHTS K]
    counters,  # int32 [M, groups of samples], zeros
    chunk,  # the first step among all of what has not all of them
    chunk_steps,
    start,  # the launch's
    steps,
    total,
    first_member,
    batch,
    each,
    n,
    d,
    slope,
    CELL: tl.constexpr,
    ACTIVATION: tl.constexpr,
    GATES: tl.constexpr,
    RIGHTS: tl.constexpr,
    DIAGONAL: tl.constexpr,
    BIASED: tl.constexpr,
    RAGGED: tl.constexpr,
    OF_STATES: tl.constexpr,
    OF_CELLS: tl.constexpr,
    AHEAD: tl.constexpr,  # whether what comes next is fetched while a step is computed
    MEETS: tl.constexpr,
    PARTS: tl.constexpr,
    UNITS: tl.constexpr,
    K: tl.constexpr,
):
    """Go back by some steps from what reaches the last states to what reaches the first ones.

    With PARTS the carried gradient still lacks what `sums` has to say.
    """
    N: tl.constexpr = PARTS * UNITS
    TIED: tl.constexpr = RIGHTS < GATES
    group, part = tl.program_id(0), tl.program_id(2)
    member = tl.program_id(1).to(tl.int64) + first_member
    first = group * each
    here = tl.minimum(each, batch - first)
    units = part * UNITS + tl.arange(0, UNITS)
    inner = tl.arange(0, K)
    inside, known = units < n, inner < d

    r0, r1, r2, r3 = _factors(right + member * RIGHTS * N * K, units, RIGHTS, K, N)
    l0, l1, l2, l3 = _factors(left + member * GATES * N * K, units, GATES, K, N)
    d0, d1, d2, d3 = 0.0, 0.0, 0.0, 0.0
    if DIAGONAL:
        d0, d1, d2, d3 = _numbers(diagonal + member * GATES * n + units, n, inside, GATES)
    if BIASED:
        bias = tl.load(inner_bias + member * n + units, mask=inside, other=0.0).to(tl.float32)
    nothing = tl.zeros((UNITS,), tl.float32)
    # Sums over steps and samples: of diagonals, of biases.
    e0, e1, e2, e3 = nothing, nothing, nothing, nothing
    b0, b1, b2, b3 = nothing, nothing, nothing, nothing
    of_product = nothing

    samples = member * batch + first
    g = tl.load(h_carried + samples * n + units, mask=inside, other=0.0)
    grad_c = g
    if CELL == "lstm":
        grad_c = tl.load(c_carried + samples * n + units, mask=inside, other=0.0)
    WIDTH: tl.constexpr = RIGHTS * K
    shares += samples * PARTS * WIDTH
    sums += samples * WIDTH
    counter = counters + member * tl.num_programs(0) + group
    zero = member * 0  # Of 64 bits, like all that is counted from it.
    step, turn = zero + steps - 1, zero
    of_chunk = (member * chunk_steps + start - chunk) * batch + first
    of_all = (member * total + start) * batch + first
    h, a0, a1, a2, a3, i0, i1, i2, i3, stored, arriving, of_c, c, c_before = _fetched(
        gates, inners, states, before, cells, cells_before, grad_states, grad_cells,
        of_chunk + step * batch, of_all + step * batch, n, d, units, inside, known,
        CELL, GATES, RIGHTS, OF_STATES, OF_CELLS,
    )  # fmt: skip
    for _ in range(steps * here):
        is_last = turn + 1 == here
        next_step, next_turn = tl.where(is_last, step - 1, step), tl.where(is_last, 0, turn + 1)
        ahead, goes_on = next_step * batch + next_turn, next_step >= 0
        if not AHEAD:
            ahead, goes_on = step * batch + turn, True
        (
            h_, a0_, a1_, a2_, a3_, i0_, i1_, i2_, i3_, stored_, arriving_, of_c_, c_, c_before_
        ) = _fetched(
            gates, inners, states, before, cells, cells_before, grad_states, grad_cells,
            of_chunk + ahead, of_all + ahead, n, d, units, inside & goes_on, known & goes_on,
            CELL, GATES, RIGHTS, OF_STATES, OF_CELLS,
        )  # fmt: skip
        if not AHEAD:
            h, a0, a1, a2, a3, i0, i1, i2, i3 = h_, a0_, a1_, a2_, a3_, i0_, i1_, i2_, i3_
            stored, arriving, of_c, c, c_before = stored_, arriving_, of_c_, c_, c_before_
        row = of_chunk + step * batch + turn
        gate = gates + row * GATES * n + units
        mine = (samples + turn) * n + units
        if PARTS > 1:
            g = tl.load(h_carried + mine, mask=inside, other=0.0)
            if CELL == "lstm":
                grad_c = tl.load(c_carried + mine, mask=inside, other=0.0)
            m0, m1, m2, m3 = _added_up(sums + turn * WIDTH, RIGHTS, K)
            g += tl.sum(m0[None, :] * r0, axis=1)
            if RIGHTS > 1:
                g += tl.sum(m1[None, :] * r1, axis=1)
                g += tl.sum(m2[None, :] * r2, axis=1)
            if RIGHTS > 3:
                g += tl.sum(m3[None, :] * r3, axis=1)
        if OF_STATES:
            if ACTIVATION == "abs":
                arriving = through(arriving, stored, slope, ACTIVATION)
            g += arriving
        if CELL == "lstm" and OF_CELLS:
            grad_c += of_c
        if RAGGED:
            alive = start + step < tl.load(lengths + samples + turn)
        # What reaches the gates' addends and products.
        if CELL == "rnn":
            dz0 = through(g, stored, slope, ACTIVATION)
            next_g = nothing
        else:
            z0 = a0 + _product(i0, l0, h, d0, DIAGONAL)
            z1 = a1 + _product(i1, l1, h, d1, DIAGONAL)
            gate1 = sigmoid(z1)
            x = h
            if CELL == "gru_reset_before":
                x = gate1 * h
                tl.store(resets + row * n + units, x, mask=inside)
            product = _product(i2, l2, x, d2, DIAGONAL)
            if BIASED:
                product += bias
        if CELL == "lstm":
            enter, forget = sigmoid(z0), gate1
            candidate = tanh(a2 + product)
            leave = sigmoid(a3 + _product(i3, l3, h, d3, DIAGONAL))
            bounded = tanh(c)
            reaching = grad_c + g * leave * (1.0 - bounded * bounded)
            dz0 = reaching * candidate * enter * (1.0 - enter)
            dz1 = reaching * c_before * forget * (1.0 - forget)
            dz2 = reaching * enter * (1.0 - candidate * candidate)
            dz3 = g * bounded * leave * (1.0 - leave)
            next_c, next_g = reaching * forget, nothing
            if RAGGED:
                dz3 = tl.where(alive, dz3, 0.0)
                next_c = tl.where(alive, next_c, grad_c)
            grad_c = next_c
            tl.store(gate + 3 * n, dz3, mask=inside)
        elif CELL != "rnn":
            update = sigmoid(z0)
            if CELL == "gru_reset_after":
                candidate = tanh(a2 + gate1 * product)
            else:
                candidate = tanh(a2 + product)
            dz0 = g * (h - candidate) * update * (1.0 - update)
            dz2 = g * (1.0 - update) * (1.0 - candidate * candidate)
            next_g = g * update
        if RAGGED:
            dz0 = tl.where(alive, dz0, 0.0)
        b0 += dz0
        e0 += dz0 * h
        tl.store(gate, dz0, mask=inside)
        if GATES > 1:
            if RAGGED:
                dz2 = tl.where(alive, dz2, 0.0)
            b2 += dz2
            tl.store(gate + 2 * n, dz2, mask=inside)
            if CELL == "gru_reset_after":
                dz1 = dz2 * product * gate1 * (1.0 - gate1)
                dz2 = dz2 * gate1
                of_product += dz2
                tl.store(products + row * n + units, dz2, mask=inside)
            e2 += dz2 * x
        # What they make of it: `dz L R + dz D`.
        if CELL == "gru_reset_before":
            m2 = tl.sum(dz2[:, None] * l2, axis=0)
            passed = _product(m2, r2, dz2, d2, DIAGONAL)
            dz1 = passed * h * gate1 * (1.0 - gate1)
            next_g += passed * gate1
        if GATES > 1:
            if RAGGED:
                dz1 = tl.where(alive, dz1, 0.0)
            b1 += dz1
            e1 += dz1 * h
            tl.store(gate + n, dz1, mask=inside)
        if CELL == "gru_reset_before":
            m0, m1, m3, m3 = _over_units(dz0, dz1, dz0, dz0, l0, l1, l0, l0, 2)
        elif TIED:
            total_m = dz0[:, None] * l0 + dz1[:, None] * l1 + dz2[:, None] * l2
            if CELL == "lstm":
                total_m += dz3[:, None] * l3
            m0 = tl.sum(total_m, axis=0)
            m1, m2, m3 = m0, m0, m0
        elif CELL == "rnn":
            m0, m1, m2, m3 = _over_units(dz0, dz0, dz0, dz0, l0, l0, l0, l0, 1)
        elif CELL == "lstm":
            m0, m1, m2, m3 = _over_units(dz0, dz1, dz2, dz3, l0, l1, l2, l3, 4)
        else:
            m0, m1, m2, m3 = _over_units(dz0, dz1, dz2, dz2, l0, l1, l2, l2, 3)
        if DIAGONAL:
            next_g += dz0 * d0
            if GATES > 1:
                next_g += dz1 * d1
            if GATES > 1 and CELL != "gru_reset_before":
                next_g += dz2 * d2
        if CELL == "lstm":
            b3 += dz3
            e3 += dz3 * h
            if DIAGONAL:
                next_g += dz3 * d3
        if PARTS == 1:
            next_g += tl.sum(m0[None, :] * r0, axis=1)
            if RIGHTS > 1:
                next_g += tl.sum(m1[None, :] * r1, axis=1)
            if RIGHTS > 1 and CELL != "gru_reset_before":
                next_g += tl.sum(m2[None, :] * r2, axis=1)
            if RIGHTS > 3:
                next_g += tl.sum(m3[None, :] * r3, axis=1)
            _store(middles + row * RIGHTS * d + inner, d, known, m0, m1, m2, m3, RIGHTS)
        if RAGGED:
            next_g = tl.where(alive, next_g, g)
        g = next_g
        if PARTS > 1:
            tl.store(h_carried + mine, g, mask=inside)
            if CELL == "lstm":
                tl.store(c_carried + mine, grad_c, mask=inside)
            own = shares + (turn * PARTS + part) * WIDTH + inner
            _store(own, K, inner < K, m0, m1, m2, m3, RIGHTS)
            if MEETS:  # noqa: SIM102 -- one is known when it is compiled
                if is_last:
                    _meet(counter, (2 * (steps - step) - 1) * PARTS)
                    _add_up(shares, sums, part, here, WIDTH, PARTS, 64)
                    _meet(counter, 2 * (steps - step) * PARTS)
        step, turn = next_step, next_turn
        h, a0, a1, a2, a3, i0, i1, i2, i3 = h_, a0_, a1_, a2_, a3_, i0_, i1_, i2_, i3_
        stored, arriving, of_c, c, c_before = stored_, arriving_, of_c_, c_, c_before_
    if PARTS == 1:
        tl.store(h_carried + samples * n + units, g, mask=inside)
        if CELL == "lstm":
            tl.store(c_carried + samples * n + units, grad_c, mask=inside)
    of_group = totals + (member * tl.num_programs(0) + group) * (2 * GATES + 1) * n + units
    _add_to(of_group, n, inside, e0, e1, e2, e3, GATES)
    _add_to(of_group + GATES * n, n, inside, b0, b1, b2, b3, GATES)
    if CELL == "gru_reset_after":
        _add_to(of_group + 2 * GATES * n, n, inside, of_product, nothing, nothing, nothing, 1)
