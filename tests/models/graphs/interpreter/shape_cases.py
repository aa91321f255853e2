"""Nodes that arrange numbers and find them by place."""

import numpy as np
from onnx import TensorProto, numpy_helper

from tests.models.graphs.interpreter.small_graphs import Array, Case, normal, real, whole

X = normal(2, 3, 5)
PLANE = normal(2, 4, 7, 6)
BOOLS = normal(3, 4) > 0


def scalar(value: int) -> Array:
    return np.array(value, np.int64)


def shapes() -> list[Case]:
    cases = [
        Case("Reshape", [X, whole(0, -1)], held=[1], note="zero"),
        Case("Reshape", [X, whole(5, 2, 3)], note="fed"),
        Case("Reshape", [normal(0, 3), whole(3, 0)], {"allowzero": 1}, opset=14, note="allowzero"),
        Case("Flatten", [PLANE]),
        Case("Flatten", [PLANE], {"axis": 0}, note="all"),
        Case("Flatten", [PLANE], {"axis": -1}, note="last"),
        Case("Transpose", [X]),
        Case("Transpose", [X], {"perm": [1, 2, 0]}, note="order"),
        Case("Concat", [X, normal(2, 1, 5)], {"axis": 1}),
        Case("Concat", [X, X], {"axis": -1}, note="last"),
        Case("Split", [X], {"axis": -1, "split": [2, 3]}, opset=11, outputs=2, note="sizes"),
        Case("Split", [PLANE], {"axis": 1}, opset=11, outputs=2, note="equal"),
        Case("Split", [X, whole(2, 3)], {"axis": 2}, opset=13, outputs=2, held=[1], note="sizes"),
        Case("Split", [PLANE], {"axis": 3}, opset=13, outputs=3, note="equal"),
        Case("Split", [X], {"axis": 2, "num_outputs": 3}, opset=18, outputs=3, note="uneven"),
        Case("Squeeze", [normal(1, 3, 1)], {"axes": [0, -1]}, opset=11, note="axes"),
        Case("Squeeze", [normal(1, 3, 1)], opset=11, note="all"),
        Case("Squeeze", [normal(1, 3, 1), whole(-1)], opset=13, held=[1], note="axes"),
        Case("Squeeze", [normal(1, 3, 1)], opset=13, note="all"),
        Case("Unsqueeze", [X], {"axes": [0, -1]}, opset=11),
        Case("Unsqueeze", [X, whole(-1, 0)], opset=13, held=[1]),
        Case("Expand", [normal(3, 1), whole(2, 1, 4)]),
        Case("Tile", [X, whole(2, 1, 3)]),
        Case("Trilu", [PLANE], {"upper": 0}),
        Case("Trilu", [PLANE, scalar(1)], note="above"),
        Case("EyeLike", [normal(3, 4)], {"k": 1}),
        Case("EyeLike", [np.ones((3, 4), np.int64)], {"dtype": TensorProto.FLOAT}, note="type"),
        Case("Range", [scalar(2), scalar(9), scalar(3)]),
        Case(
            "Range",
            [np.array(0.5, np.float32), np.array(-2, np.float32), np.array(-0.75, np.float32)],
            note="down",
        ),
        Case("Cast", [X * 3], {"to": TensorProto.INT32}),
        Case("Cast", [X], {"to": TensorProto.DOUBLE}, note="wide"),
        Case("Cast", [X], {"to": TensorProto.BOOL}, note="truth"),
        Case("Cast", [BOOLS], {"to": TensorProto.FLOAT}, note="from-truth"),
        Case("Cast", [X], {"to": TensorProto.FLOAT16}, note="half"),
        Case("CastLike", [X * 3, scalar(1)], opset=15),
        Case("ConstantOfShape", [whole(2, 3)]),
        Case(
            "ConstantOfShape",
            [whole(2, 3)],
            {"value": numpy_helper.from_array(whole(7))},
            note="value",
        ),
        Case("Constant", [], {"value": numpy_helper.from_array(X)}),
        Case("Constant", [], {"value_float": 0.5}, note="float"),
        Case("Constant", [], {"value_int": 5}, note="int"),
        Case("Constant", [], {"value_floats": [0.5, 1.5]}, note="floats"),
        Case("Constant", [], {"value_ints": [5, 6]}, note="ints"),
    ]
    for mode in ("DCR", "CRD"):
        given = {"blocksize": 2, "mode": mode}
        cases.append(Case("DepthToSpace", [normal(1, 8, 2, 3)], given, note=mode))
    cases.append(Case("SpaceToDepth", [normal(1, 2, 4, 6)], {"blocksize": 2}))
    return cases


def indexing() -> list[Case]:
    lengths = whole(3, 1, 4)
    cases = [
        Case("Slice", [PLANE, whole(1, 0), whole(100, -2), whole(2, 3)], held=[1, 2, 3]),
        Case("Slice", [X, whole(-1), whole(-100), whole(2), whole(-2)], note="back"),
        Case("Slice", [X, whole(4), whole(0), whole(-1), whole(-3)], note="back-to"),
        Case("Slice", [X, whole(0, 1), whole(2, 3)], note="first-axes"),
        Case("Slice", [X, whole(3), whole(1), whole(2)], note="empty"),
        Case("Slice", [X, whole(1), whole(2**63 - 1), whole(1), whole(1)], opset=11, note="end"),
        Case("Gather", [X, whole(1, -1, 0)], {"axis": 2}),
        Case("Gather", [normal(7, 4), np.array([[1, 2], [-7, 6]], np.int32)], note="matrix"),
        Case("Gather", [X, scalar(1)], {"axis": 1}, note="scalar"),
        Case("GatherElements", [X, np.array([[[1, -1]]], np.int64)], {"axis": 2}),
        Case("GatherND", [X, np.array([[0, 1], [1, -1]], np.int64)]),
        Case(
            "GatherND", [X, np.array([[1, 4], [2, 0]], np.int64)], {"batch_dims": 1}, note="batch"
        ),
        Case("ScatterElements", [X, np.array([[[1, -1]]], np.int64), normal(1, 1, 2)], {"axis": 2}),
        Case(
            "ScatterElements",
            [X, np.array([[[1, 1]]], np.int64), normal(1, 1, 2)],
            {"axis": 2, "reduction": "add"},
            opset=16,
            note="add",
        ),
        Case("ScatterND", [X, np.array([[0, 1], [1, -1]], np.int64), normal(2, 5)]),
        Case(
            "ScatterND",
            [X, np.array([[0, 1], [0, 1]], np.int64), normal(2, 5)],
            {"reduction": "add"},
            opset=16,
            note="add",
        ),
        Case("Pad", [PLANE, whole(0, 0, 1, 2, 0, 0, 3, 0)], held=[1]),
        Case(
            "Pad", [PLANE, whole(0, 1, -1, 2, 0, 0, -2, 0), np.array(1.5, np.float32)], note="value"
        ),
        Case("Pad", [PLANE, whole(1, 2), None, whole(-1)], opset=18, note="axes"),
        Case("TopK", [X, whole(3)], outputs=2),
        Case("TopK", [real(1, 3, 3, 0, 3, 2), whole(2)], outputs=2, note="ties"),
        Case("TopK", [X, whole(2)], {"axis": 1, "largest": 0}, outputs=2, note="smallest"),
        Case("NonZero", [np.round(X)]),
        Case("OneHot", [whole(1, -1, 9), scalar(4), real(0.5, 2.0)]),
        Case(
            "OneHot",
            [np.array([[1, 0]], np.int64), scalar(3), whole(0, 1)],
            {"axis": 1},
            note="axis",
        ),
        Case("Compress", [X, np.array([True, False, True])], {"axis": 1}),
        Case("Compress", [X, np.array([False, True, True])], note="flat"),
        Case("ReverseSequence", [normal(5, 3, 2), lengths]),
        Case(
            "ReverseSequence",
            [normal(3, 5, 2), lengths],
            {"batch_axis": 0, "time_axis": 1},
            note="batch-first",
        ),
    ]
    for mode in ("reflect", "edge"):
        given = {"mode": mode}
        cases.append(Case("Pad", [PLANE, whole(0, 0, 2, 1, 0, 0, 3, 2)], given, note=mode))
    cases.append(
        Case("Pad", [PLANE, whole(0, 0, 2, 1, 0, 0, 3, 2)], {"mode": "wrap"}, opset=19, note="wrap")
    )
    return cases
