"""Where a model's numbers are: every tensor and module counted, beside its dense baseline."""

import csv
import io
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Literal, Protocol, cast, runtime_checkable

import torch
from pydantic import Field, model_validator
from torch import nn

from models.linear import StructuredLinear
from models.model import ModelSpec
from models.quantization import Layout, layouts
from models.spec import Spec


def _of_older_report(document: Any) -> Any:
    """Reports of the time before numbers were rounded say of bytes what they are in memory."""
    if not isinstance(document, dict):
        return document
    fields = cast("dict[str, Any]", document)
    return {"stored_bytes": fields.get("size_bytes"), **fields}


class _Sized(Spec):
    """What has bytes in memory and in a file."""

    _older = model_validator(mode="before")(_of_older_report)


class ReportRow(_Sized):
    """One tensor, or one module with all that is below it.

    What belongs to a matrix as a whole stands with its module and is null for the tensors that make
    it up: multiply-adds always, degrees of freedom where they are fewer than the numbers.
    """

    level: Literal["module", "tensor"]
    name: str = Field(description="path within the model; empty for the whole model")
    shape: tuple[int, ...] = Field(
        description="of a tensor; [copies, out, in] of a module that is a stack of matrices"
    )
    parameters: int = Field(description="trainable numbers")
    degrees_of_freedom: int | None = Field(description="dimension of what the numbers can reach")
    size_bytes: int = Field(description="bytes in memory, buffers of the checkpoint included")
    stored_bytes: int = Field(
        description="bytes in a file, at the model's bits: those of integers and scales, and of "
        "what is not rounded"
    )
    multiply_adds: int | None = Field(description="of its matrix products, per sample and step")


class ReportTotals(_Sized):
    """A whole model in numbers."""

    parameters: int
    paper_parameters: int = Field(description="counted as the source of the architecture counts")
    main_parameters: int = Field(
        description="of the recurrent or hidden matrices alone, as papers count that leave out "
        "embeddings, input matrices, biases and readout"
    )
    degrees_of_freedom: int
    size_bytes: int
    stored_bytes: int
    multiply_adds: int


class ReportRatios(_Sized):
    """This model's totals divided by its dense baseline's."""

    parameters: float
    paper_parameters: float
    main_parameters: float
    degrees_of_freedom: float
    size_bytes: float
    stored_bytes: float
    multiply_adds: float


class ParameterReport(Spec):
    """The parameter-count report of a model."""

    spec: ModelSpec
    rows: tuple[ReportRow, ...] = Field(description="each module followed by its own tensors")
    totals: ReportTotals
    dense_twin: ReportTotals
    ratios: ReportRatios

    def to_csv(self, further: Sequence[Mapping[str, object]] = ()) -> str:
        """The rows as CSV, then one each for the totals, the dense baseline's and the ratios.

        `further` rows come last; what they have beyond the others becomes columns.
        """
        text = io.StringIO()
        columns = [*ReportRow.model_fields, "paper_parameters", "main_parameters"]
        columns += [name for name in dict.fromkeys(chain(*further)) if name not in columns]
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        writer.writeheader()
        for row in self.rows:
            shape = "x".join(str(size) for size in row.shape)
            writer.writerow({**row.model_dump(), "shape": shape})
        for level in ("totals", "dense_twin", "ratios"):
            summary: ReportTotals | ReportRatios = getattr(self, level)
            writer.writerow({"level": level, **summary.model_dump()})
        writer.writerows(further)
        return text.getvalue()


def parameter_report(spec: ModelSpec) -> ParameterReport:
    """Count a model. The model is laid out without memory, so this is cheap at any size.

    Raises:
        SlotError: the spec cannot be built.
    """
    rows = _rows_of(spec)
    totals = _totals(spec, rows)
    baseline = spec.dense_twin()
    baseline_totals = _totals(baseline, _rows_of(baseline))
    ratios = {
        name: value / getattr(baseline_totals, name) for name, value in totals.model_dump().items()
    }
    return ParameterReport(
        spec=spec,
        rows=tuple(rows),
        totals=totals,
        dense_twin=baseline_totals,
        ratios=ReportRatios.model_validate(ratios),
    )


def model_totals(spec: ModelSpec) -> ReportTotals:
    """The totals alone, without the dense baseline's.

    Raises:
        SpecError: see `ModelSpec.check`.
    """
    return _totals(spec, _rows_of(spec))


@runtime_checkable
class _Matrix(Protocol):
    """A module that is a linear map and knows what it costs."""

    def multiply_adds(self) -> int: ...
    def degrees_of_freedom(self) -> int: ...


def _rows_of(spec: ModelSpec) -> list[ReportRow]:
    module = spec.build_on_meta()
    return _rows(module, layouts(module, spec.rounded_to))


def _rows(module: nn.Module, rounded: Mapping[str, Layout], prefix: str = "") -> list[ReportRow]:
    """The module's own row, its own tensors, and then everything below it.

    A module's freedom and cost are its own where it stores a matrix, else the sums over what it
    owns.
    """
    own = [
        _tensor_row(f"{prefix}{name}", tensor, rounded, trainable=trainable)
        for name, tensor, trainable in _own_tensors(module)
    ]
    below: list[ReportRow] = []
    children: list[ReportRow] = []
    for name, child in module.named_children():
        rows = _rows(child, rounded, f"{prefix}{name}.")
        children.append(rows[0])
        below += rows
    if isinstance(module, _Matrix) and not _is_put_together(module):
        freedom, cost = module.degrees_of_freedom(), module.multiply_adds()
        numbers = sum(row.parameters for row in (*own, *children))
        shared = {"multiply_adds": None} | (
            {} if freedom == numbers else {"degrees_of_freedom": None}
        )
        own = [row.model_copy(update=shared) for row in own]
        below = [row.model_copy(update=shared) for row in below]
    else:
        parts = [*own, *children]
        freedom = sum(part.degrees_of_freedom or 0 for part in parts)
        cost = sum(part.multiply_adds or 0 for part in parts)
    shape = (
        (module.num_matrices, module.out_features, module.in_features)
        if isinstance(module, StructuredLinear)
        else ()
    )
    row = ReportRow(
        level="module",
        name=prefix.removesuffix("."),
        shape=shape,
        parameters=sum(part.parameters for part in (*own, *children)),
        degrees_of_freedom=freedom,
        size_bytes=sum(part.size_bytes for part in (*own, *children)),
        stored_bytes=sum(part.stored_bytes for part in (*own, *children)),
        multiply_adds=cost,
    )
    return [row, *own, *below]


def _is_put_together(module: nn.Module) -> bool:
    return isinstance(module, StructuredLinear) and bool(module.members)


def _own_tensors(module: nn.Module) -> list[tuple[str, torch.Tensor, bool]]:
    """Name, tensor and whether it is trainable, for what the module itself adds to a checkpoint."""
    below = tuple(f"{name}." for name, _ in module.named_children())
    trainable = {name for name, p in module.named_parameters(recurse=False) if p.requires_grad}
    return [
        (name, tensor, name in trainable)
        for name, tensor in module.state_dict().items()
        if not name.startswith(below)
    ]


def _tensor_row(
    name: str, tensor: torch.Tensor, rounded: Mapping[str, Layout], *, trainable: bool
) -> ReportRow:
    numbers = tensor.numel() if trainable else 0
    size_bytes = tensor.numel() * tensor.element_size()
    return ReportRow(
        level="tensor",
        name=name,
        shape=tuple(tensor.shape),
        parameters=numbers,
        degrees_of_freedom=numbers,
        size_bytes=size_bytes,
        stored_bytes=rounded[name].size_bytes if name in rounded else size_bytes,
        multiply_adds=0,
    )


def _totals(spec: ModelSpec, rows: list[ReportRow]) -> ReportTotals:
    whole = rows[0]
    assert whole.degrees_of_freedom is not None
    assert whole.multiply_adds is not None
    return ReportTotals(
        parameters=whole.parameters,
        paper_parameters=spec.paper_count(),
        main_parameters=spec.main_count(),
        degrees_of_freedom=whole.degrees_of_freedom,
        size_bytes=whole.size_bytes,
        stored_bytes=whole.stored_bytes,
        multiply_adds=whole.multiply_adds,
    )
