"""Nodes of convolutions, pooling, normalisation and resizing."""

import numpy as np

from tests.models.graphs.interpreter.small_graphs import Case, normal, positive, real, whole

PLANE = normal(2, 4, 7, 6)


def convolutions() -> list[Case]:
    kernel, bias = normal(6, 4, 3, 2), normal(6)
    cases = [
        Case("Conv", [PLANE, kernel, bias]),
        Case("Conv", [PLANE, kernel], {"strides": [2, 1], "pads": [1, 0, 1, 0]}, note="strides"),
        Case("Conv", [PLANE, kernel], {"pads": [2, 0, 0, 1]}, note="unequal"),
        Case("Conv", [PLANE, kernel], {"dilations": [2, 3]}, note="dilations"),
        Case("Conv", [PLANE, normal(6, 2, 3, 3)], {"group": 2}, note="groups"),
        Case("Conv", [PLANE, normal(8, 1, 3, 3)], {"group": 4, "pads": [1] * 4}, note="depthwise"),
        Case("Conv", [normal(2, 4, 9), normal(5, 4, 3)], opset=11, note="1d"),
        Case("Conv", [normal(1, 2, 4, 5, 6), normal(3, 2, 2, 2, 2)], note="3d"),
        Case("ConvTranspose", [PLANE, normal(4, 5, 3, 2), normal(5)]),
        Case(
            "ConvTranspose",
            [PLANE, normal(4, 5, 3, 2), normal(5)],
            {"strides": [3, 2], "pads": [1, 0, 0, 1], "output_padding": [1, 1]},
            note="unequal",
        ),
        Case(
            "ConvTranspose",
            [PLANE, normal(4, 3, 3, 3)],
            {"group": 2, "dilations": [2, 1]},
            note="groups",
        ),
        Case(
            "ConvTranspose",
            [PLANE, normal(4, 5, 3, 3)],
            {"strides": [2, 2], "output_shape": [15, 12]},
            note="shape",
        ),
        Case(
            "ConvTranspose",
            [PLANE, normal(4, 5, 3, 3)],
            {"strides": [2, 2], "output_shape": [16, 14]},
            note="larger",
        ),
        Case("ConvTranspose", [normal(2, 4, 9), normal(4, 3, 4)], {"strides": [2]}, note="1d"),
    ]
    for way in ("SAME_UPPER", "SAME_LOWER", "VALID"):
        for strides in ([1, 1], [2, 3]):
            given = {"auto_pad": way, "strides": strides}
            note = f"{way}{strides[0]}"
            cases.append(Case("Conv", [PLANE, normal(3, 4, 2, 4)], given, note=note))
            cases.append(Case("ConvTranspose", [PLANE, normal(4, 3, 2, 4)], given, note=note))
            for name in ("MaxPool", "AveragePool"):
                shaped = {**given, "kernel_shape": [2, 4]}
                cases.append(Case(name, [PLANE], shaped, note=note))
    return cases


def pooling() -> list[Case]:
    cases: list[Case] = []
    for name in ("MaxPool", "AveragePool"):
        for ceil in (0, 1):
            given = {"kernel_shape": [3, 2], "strides": [2, 3], "ceil_mode": ceil}
            cases += [
                Case(name, [PLANE], given, note=f"ceil{ceil}"),
                Case(name, [PLANE], {**given, "pads": [1, 1, 1, 0]}, note=f"pads{ceil}"),
                Case(
                    name,
                    [normal(1, 2, 8)],
                    {"kernel_shape": [3], "strides": [3], "ceil_mode": ceil},
                    note=f"1d{ceil}",
                ),
            ]
        cases.append(Case(name, [normal(1, 2, 4, 5, 6)], {"kernel_shape": [2, 2, 2]}, note="3d"))
    for ceil in (0, 1):
        cases.append(
            Case(
                "AveragePool",
                [PLANE],
                {
                    "kernel_shape": [3, 3],
                    "strides": [2, 2],
                    "pads": [1, 1, 1, 1],
                    "count_include_pad": 1,
                    "ceil_mode": ceil,
                },
                opset=19,
                note=f"counted{ceil}",
            )
        )
    cases += [
        Case("MaxPool", [PLANE], {"kernel_shape": [3, 2], "dilations": [2, 2]}, note="dilations"),
        Case(
            "AveragePool",
            [PLANE],
            {"kernel_shape": [3, 2], "dilations": [2, 2]},
            opset=19,
            note="dilations",
        ),
        Case("LpPool", [PLANE], {"kernel_shape": [3, 2], "strides": [2, 2]}, opset=18),
    ]
    return cases


def normalisation() -> list[Case]:
    channels = [normal(4), normal(4, seed=1)]
    return [
        Case(
            "BatchNormalization",
            [PLANE, *channels, normal(4, seed=2), positive(4)],
            {"epsilon": 1e-3},
            opset=11,
        ),
        Case("BatchNormalization", [PLANE, *channels, normal(4, seed=2), positive(4)], opset=15),
        Case("InstanceNormalization", [PLANE, *channels]),
        Case("LayerNormalization", [PLANE, normal(6), normal(6, seed=1)]),
        Case("LayerNormalization", [PLANE, normal(6), normal(1, seed=1)], note="one-shift"),
        Case(
            "LayerNormalization", [PLANE, normal(7, 6)], {"axis": 2, "epsilon": 1e-3}, note="axes"
        ),
        Case("LayerNormalization", [PLANE, normal(6), normal(6)], outputs=3, note="statistics"),
        Case(
            "GroupNormalization", [PLANE, normal(2), normal(2, seed=1)], {"num_groups": 2}, opset=18
        ),
        Case("GroupNormalization", [PLANE, *channels], {"num_groups": 2}, opset=21),
        Case("RMSNormalization", [PLANE, normal(6)], opset=23),
        Case("LpNormalization", [PLANE], {"axis": 1}),
        Case("LpNormalization", [PLANE], {"axis": 1, "p": 1}, note="first"),
        Case("MeanVarianceNormalization", [PLANE]),
        Case("LRN", [PLANE], {"size": 3, "alpha": 0.5, "beta": 0.6, "bias": 2.0}),
    ]


def sampling() -> list[Case]:
    image, grid = normal(1, 2, 5, 4), np.tanh(normal(1, 3, 6, 2)) * np.float32(1.3)
    cases = [
        Case(
            "GridSample",
            [image, grid],
            {"mode": mode, "padding_mode": edge},
            opset=16,
            note=f"{mode}-{edge}",
        )
        for mode in ("bilinear", "nearest", "bicubic")
        for edge in ("zeros", "border", "reflection")
    ]
    for mode in ("linear", "nearest", "cubic"):
        given = {"mode": mode, "align_corners": 1}
        cases.append(Case("GridSample", [image, grid], given, opset=20, note=mode))
    return cases


def resizing() -> list[Case]:
    image, none = normal(1, 2, 5, 4), np.zeros(0, np.float32)
    cases: list[Case] = []
    for way in ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"):
        for mode in ("nearest", "linear", "cubic"):
            given = {"coordinate_transformation_mode": way, "mode": mode}
            by_size = [image, None, None, whole(1, 2, 8, 3)]
            cases += [
                Case(
                    "Resize",
                    [image, none, real(1, 1, 1.7, 2.0)],
                    given,
                    opset=11,
                    held=[1, 2],
                    note=f"{mode}-{way}",
                ),
                Case("Resize", by_size, given, opset=13, held=[3], note=f"{mode}-{way}-sizes"),
            ]
    for way in ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil"):
        given = {"nearest_mode": way, "coordinate_transformation_mode": "asymmetric"}
        cases.append(Case("Resize", [image, None, real(1, 1, 2, 0.5)], given, held=[2], note=way))
    # The second place is at 3, or just below it where the factor is not rounded.
    given = {"nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
    wide = [normal(1, 1, 1, 7), None, real(1, 1, 1, 1 / 3)]
    cases.append(Case("Resize", wide, given, held=[2], note="thirds"))
    cases += [
        Case(
            "Resize",
            [image, None, real(2, 2)],
            {"axes": [2, 3], "mode": "linear"},
            opset=18,
            held=[2],
            note="axes",
        ),
        Case(
            "Resize",
            [image, None, real(1, 1, 1.3, 1.9)],
            {"mode": "linear", "coordinate_transformation_mode": "half_pixel_symmetric"},
            opset=19,
            held=[2],
            note="symmetric",
        ),
    ]
    return cases
