"""Weights of `MatMul` and `Gemm`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import onnx
from onnx import helper

from models.graphs.layers.arrangement import Arrangement
from models.graphs.layers.node_writer import NodeWriter
from models.graphs.layers.role import AnyArray, Operand, Reading, Role, Use, whole_number


@dataclass(frozen=True)
class ProductRole(Role):
    """A matrix by which vectors are multiplied from the right: `x W^T`."""

    kind: ClassVar[str] = "product"
    structured: ClassVar[bool] = True
    runnable: ClassVar[bool] = True

    vectors_in_columns: bool
    """`Gemm` with `transA`: the vectors are the columns of what is read."""

    @classmethod
    def of(cls, use: Use) -> Self | None:
        """The second input of `MatMul` or `Gemm`, of two dimensions."""
        operator = use.node.op_type
        if operator not in ("MatMul", "Gemm") or use.place != 1 or len(use.native) != 2:
            return None
        gemm = operator == "Gemm"
        stands = gemm and whole_number(use, "transB", 0) == 1
        columns = use.native[1] if stands else use.native[0]
        permutation = () if stands else (1, 0)
        return cls(
            Arrangement.of_rows(use.native, columns=columns, permutation=permutation),
            vectors_in_columns=gemm and whole_number(use, "transA", 0) == 1,
        )

    def operands(self) -> tuple[Operand, ...]:
        """What is multiplied."""
        return (Operand("input", 0),)

    def read(
        self, values: Sequence[AnyArray | None], generator: np.random.Generator, most: int
    ) -> Reading:
        """All vectors."""
        del generator, most
        (value,) = values
        if value is None:
            return Reading(positions=0)
        turned = value.T if self.vectors_in_columns else value
        vectors = turned.reshape(-1, self.arrangement.matrices[2]).astype(np.float32)
        return Reading(positions=len(vectors), vectors=(vectors,))

    def run_factors(
        self, writer: NodeWriter, node: onnx.NodeProto, left: str, right: str, rank: int
    ) -> None:
        """Two products: scale, transposition of what is read, and bias are kept."""
        del rank
        (output,) = node.output
        if node.op_type == "MatMul":
            turned = writer.node("Transpose", right, perm=[1, 0])
            inner = writer.node("MatMul", node.input[0], turned)
            writer.node("MatMul", inner, left, output=output)
            return
        attributes = {entry.name: helper.get_attribute_value(entry) for entry in node.attribute}
        turned_input = int(attributes.pop("transA", 0))
        attributes.pop("transB", None)
        inner = writer.node("Gemm", node.input[0], right, transA=turned_input, transB=1)
        writer.node("Gemm", inner, left, *node.input[2:], output=output, **attributes)


@dataclass(frozen=True)
class BatchedProductRole(Role):
    """Several matrices in one tensor, or one that stands at the left; only their bits change."""

    kind: ClassVar[str] = "batched_product"

    @classmethod
    def of(cls, use: Use) -> Self | None:
        """The second input of `MatMul`, of three dimensions or more."""
        if use.node.op_type != "MatMul" or use.place != 1 or len(use.native) < 3:
            return None
        axes = tuple(range(len(use.native)))
        permutation = (*axes[:-2], axes[-1], axes[-2])
        return cls(Arrangement.of_rows(use.native, columns=use.native[-2], permutation=permutation))
