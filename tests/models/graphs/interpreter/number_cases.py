"""Nodes that compute number by number, or sum products."""

import math

import numpy as np

from models.graphs.interpreter.operators.reductions import REDUCED
from tests.models.graphs.interpreter.small_graphs import Case, normal, positive, real, whole

X = normal(2, 3, 5)
PLANE = normal(2, 4, 7, 6)
BOOLS = normal(3, 4) > 0


def unary() -> list[Case]:
    anywhere = (
        "Abs Atan Asinh Ceil Cos Erf Exp Floor Neg Sign Sin Sinh Cosh Tan Relu Sigmoid Tanh "
        "Softsign Softplus Identity HardSigmoid LeakyRelu ThresholdedRelu Elu Celu Selu Shrink "
        "IsNaN HardSwish Size Shape GlobalAveragePool GlobalMaxPool GlobalLpPool"
    )
    cases = [Case(name, [X]) for name in anywhere.split()]
    cases += [Case(name, [positive(3, 4)]) for name in ("Log", "Reciprocal", "Sqrt")]
    inside = np.tanh(normal(3, 4))
    cases += [Case(name, [inside]) for name in ("Acos", "Asin", "Atanh")]
    cases += [
        Case("Acosh", [positive(3, 4) + 1]),
        Case("Round", [real(-2.5, -1.5, -0.5, 0.5, 1.5, 2.4)]),
        Case("Not", [BOOLS]),
        Case("IsInf", [real(math.inf, -math.inf, 1.0, math.nan)]),
        Case("IsInf", [real(math.inf, -math.inf)], {"detect_negative": 0}, note="above"),
        Case("Mish", [X], opset=18),
        Case("Gelu", [X], opset=20),
        Case("Gelu", [X], {"approximate": "tanh"}, opset=20, note="tanh"),
        Case("HardSigmoid", [X], {"alpha": 0.3, "beta": 0.4}, note="given"),
        Case("LeakyRelu", [X], {"alpha": 0.3}, note="given"),
        Case("Elu", [X], {"alpha": 0.7}, note="given"),
        Case("Celu", [X], {"alpha": 0.7}, note="given"),
        Case("Selu", [X], {"alpha": 1.2, "gamma": 0.9}, note="given"),
        Case("Shrink", [X], {"lambd": 0.3, "bias": 0.1}, note="given"),
        Case("Swish", [X], {"alpha": 1.5}, opset=24),
        Case("Dropout", [X], {"ratio": 0.5}, opset=11),
        Case("Dropout", [X, np.array(0.5, np.float32)], opset=13, outputs=2),
        Case("BitwiseNot", [np.array([1, 2, -7], np.int32)], opset=18),
        Case("Shape", [X], {"start": 1}, opset=15, note="start"),
        Case("Shape", [X], {"start": -3, "end": -1}, opset=15, note="both"),
    ]
    return cases


def pairs() -> list[Case]:
    integers, others = np.array([7, -7, 7, -7], np.int64), np.array([3, 3, -3, -3], np.int64)
    cases = [Case(name, [X, normal(3, 1, seed=1)]) for name in ["Add", "Sub", "Mul", "Div"]]
    cases += [Case(name, [X, X[0] * 2]) for name in ["Greater", "Less", "Equal"]]
    cases += [Case(name, [X, X[0]]) for name in ["GreaterOrEqual", "LessOrEqual"]]
    cases += [Case(name, [BOOLS, BOOLS[:1]]) for name in ["And", "Or", "Xor"]]
    cases += [Case(name, [X, X[0], X[1]]) for name in ["Max", "Min", "Sum", "Mean"]]
    cases += [
        Case(name, [np.array([6, 5], np.int32), np.array([3, 12], np.int32)], opset=18)
        for name in ["BitwiseAnd", "BitwiseOr", "BitwiseXor"]
    ]
    cases += [
        Case("Div", [integers, others], note="whole"),
        Case("Mod", [integers, others]),
        Case("Mod", [integers, others], {"fmod": 1}, note="fmod"),
        Case("Mod", [normal(5), normal(5, seed=1)], {"fmod": 1}, note="real"),
        Case("Pow", [positive(3, 4), normal(3, 4)]),
        Case("Pow", [X, np.array(2.0, np.float32)], note="square", held=[1]),
        Case("Pow", [integers, np.array([2.0], np.float32)], note="whole"),
        Case(
            "BitShift",
            [np.array([1, 9], np.uint8), np.array([2, 1], np.uint8)],
            {"direction": "LEFT"},
        ),
        Case(
            "BitShift",
            [np.array([1, 9], np.uint8), np.array([2, 1], np.uint8)],
            {"direction": "RIGHT"},
            note="right",
        ),
        Case("PRelu", [X, positive(3, 1)]),
        Case("Where", [X[0] > 0, X, X[1]]),
        Case("Clip", [X], {"min": -0.3, "max": 0.4}, opset=10),
        Case("Clip", [X, np.array(-0.3, np.float32), np.array(0.4, np.float32)], opset=11),
        Case("Clip", [X, None, np.array(0.4, np.float32)], opset=13, note="above"),
        Case("Clip", [X, np.array(0.6, np.float32), np.array(0.4, np.float32)], note="crossed"),
    ]
    for opset in (11, 13):
        for axis in (1, -1, 2, 0):
            for name in ("Softmax", "LogSoftmax", "Hardmax"):
                cases.append(Case(name, [PLANE], {"axis": axis}, opset=opset, note=f"axis{axis}"))
        cases.append(Case("Softmax", [PLANE], opset=opset, note="default"))
        cases.append(Case("LogSoftmax", [PLANE], opset=opset, note="default"))
    return cases


def products() -> list[Case]:
    return [
        Case("MatMul", [normal(2, 3, 4), normal(4, 5)]),
        Case("MatMul", [normal(4), normal(2, 4, 5)], note="vector"),
        Case("MatMul", [normal(2, 3, 4), normal(4)], note="by-vector"),
        Case("Gemm", [normal(3, 4), normal(4, 5), normal(5)]),
        Case(
            "Gemm",
            [normal(4, 3), normal(5, 4), normal(3, 1)],
            {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0},
            note="turned",
        ),
        Case("Gemm", [normal(3, 4), normal(4, 5)], opset=11, note="alone"),
        Case("Einsum", [normal(2, 3, 4), normal(2, 5, 4)], {"equation": "bij, bkj -> bik"}),
        Case("Einsum", [normal(2, 3, 4), normal(4, 5)], {"equation": "...i,ij->...j"}, note="dots"),
        Case("Einsum", [normal(3, 3)], {"equation": "ii->i"}, note="diagonal"),
    ]


def reductions() -> list[Case]:
    cases: list[Case] = []
    for name in REDUCED:
        x = positive(2, 3, 4)
        old = 11 if name == "ReduceSum" else 13
        new = 13 if name == "ReduceSum" else 18
        cases += [
            Case(name, [x], {"axes": [1, -1]}, opset=old, note="axes"),
            Case(name, [x], {"keepdims": 0}, opset=old, note="all"),
            Case(name, [x, whole(0, -1)], {"keepdims": 0}, opset=new, held=[1], note="input"),
            Case(name, [x, whole(1)], opset=new, held=[1], note="kept"),
            Case(name, [x], opset=new, note="left-out"),
            Case(name, [x], {"noop_with_empty_axes": 1}, opset=new, note="none"),
        ]
    ties = real(1, 3, 3, 0, 0, 2).reshape(2, 3)
    for name in ("ArgMax", "ArgMin"):
        cases += [
            Case(name, [X], {"axis": 1}),
            Case(name, [ties], {"axis": -1, "keepdims": 0}, note="ties"),
            Case(name, [ties], {"axis": 1, "select_last_index": 1}, note="last"),
        ]
    for exclusive in (0, 1):
        for reverse in (0, 1):
            given = {"exclusive": exclusive, "reverse": reverse}
            cases.append(Case("CumSum", [X, np.array(1)], given, note=f"{exclusive}{reverse}"))
    cases.append(
        Case(
            "ReduceMean",
            [np.array([[1, 2], [4, -9]], np.int64)],
            {"axes": [1]},
            opset=13,
            note="whole",
        )
    )
    cases.append(Case("ReduceSum", [np.array([[1, 2], [4, -9]], np.int32)], note="whole"))
    return cases


def stored() -> list[Case]:
    bytes_ = np.array([[0, 3, 255], [7, 128, 9]], np.uint8)
    scales = real(0.5, 0.25, 2.0)
    zeros = np.array([1, 2, 3], np.uint8)
    return [
        Case("DequantizeLinear", [bytes_, np.array(0.5, np.float32)], opset=13),
        Case("DequantizeLinear", [bytes_, scales, zeros], {"axis": 1}, opset=13, note="axis"),
        Case(
            "DequantizeLinear",
            [bytes_.astype(np.int8), real(0.5, 2, 1, 3).reshape(2, 2)],
            {"axis": 1, "block_size": 2},
            opset=21,
            held=[0, 1],
            note="blocks",
        ),
    ]
