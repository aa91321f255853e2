"""Nodes of recurrence and attention."""

import numpy as np

from tests.models.graphs.interpreter.small_graphs import Case, normal

HIDES_ALL = np.tile(np.arange(5)[:, None] != 1, 6)
"""A mask that leaves the second row nothing."""


def attention() -> list[Case]:
    flat = [normal(2, 5, 8), normal(2, 6, 8, seed=1), normal(2, 6, 8, seed=2)]
    heads = {"q_num_heads": 2, "kv_num_heads": 2}
    return [
        Case("Attention", flat, heads, opset=23),
        Case("Attention", [*flat, normal(5, 6)], heads, opset=23, note="mask"),
        Case("Attention", [*flat, normal(5, 6) > -1], heads, opset=23, note="bool-mask"),
        Case("Attention", [*flat, HIDES_ALL], heads, opset=23, note="hides-all"),
        Case(
            "Attention",
            [normal(2, 4, 5, 3), normal(2, 2, 5, 3), normal(2, 2, 5, 3)],
            {"is_causal": 1, "scale": 0.7},
            opset=23,
            note="causal-grouped",
        ),
    ]


def recurrent() -> list[Case]:
    cases: list[Case] = []
    steps, batch, given, n = 5, 3, 4, 3
    x, lengths = normal(steps, batch, given), np.array([5, 2, 4], np.int32)
    for name, gates, states in (("RNN", 1, 1), ("GRU", 3, 1), ("LSTM", 4, 2)):
        for direction, ways in (("forward", 1), ("reverse", 1), ("bidirectional", 2)):
            w, r = normal(ways, gates * n, given), normal(ways, gates * n, n, seed=1)
            bias = normal(ways, 2 * gates * n, seed=2)
            first = [normal(ways, batch, n, seed=3 + one) for one in range(states)]
            common = {"hidden_size": n, "direction": direction}
            held = [1, 2, 3]
            outputs = 1 + states
            cases += [
                Case(name, [x, w, r], common, outputs=outputs, held=held, note=direction),
                Case(
                    name,
                    [x, w, r, bias, None, *first],
                    common,
                    outputs=outputs,
                    held=held,
                    note=f"{direction}-states",
                ),
                Case(
                    name,
                    [x, w, r, bias, lengths, *first],
                    common,
                    outputs=outputs,
                    held=held,
                    note=f"{direction}-lengths",
                ),
            ]
            if name == "GRU":
                reset = {**common, "linear_before_reset": 1}
                cases += [
                    Case(
                        name,
                        [x, w, r, bias, None, *first],
                        reset,
                        outputs=2,
                        held=held,
                        note=f"{direction}-reset",
                    ),
                    Case(
                        name,
                        [x, w, r, bias, lengths, *first],
                        reset,
                        outputs=2,
                        held=held,
                        note=f"{direction}-reset-lengths",
                    ),
                ]
            other = {
                "RNN": ["Relu"],
                "GRU": ["Softsign", "Tanh"],
                "LSTM": ["Sigmoid", "Relu", "Softsign"],
            }[name]
            cases.append(
                Case(
                    name,
                    [x, w, r, bias],
                    {**common, "activations": other * ways},
                    outputs=outputs,
                    held=held,
                    opset=11,
                    note=f"{direction}-other",
                )
            )
    return cases
