"""Folders of small models with every kind of input and answer, as rows and bytes give them."""

import dataclasses
import hashlib
import io
import zipfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from models.architectures import Gru, Lstm, Mlp, Rnn
from models.checkpoint import save_bytes
from models.exports.c.export import export as export_c
from models.exports.onnx.export import FileOptions, export
from models.interface import (
    Classes,
    Divide,
    FillMissing,
    Interface,
    Labels,
    Layout,
    Numbers,
    OneHot,
    Reorder,
    Standardise,
)
from models.model import ModelSpec
from models.parametrizations import Dense, HouseholderSvd, LowRank
from models.spec import Signature
from search.documents.catalog import Metric
from search.exports import EXPORTS
from search.exports.folder import Folder, FolderFacts, example_of, folder_of
from search.exports.outcomes import ExportOutcome
from search.exports.verification import Verification
from search.tasks import RawSamples
from storage.records import ArtifactRecord

ACCURACY = Metric(name="accuracy", direction="maximize", unit="share correct", baseline=0.1)
ERROR = Metric(name="mse", direction="minimize", unit="squared error", baseline=4.0)
QUOTED = ('a "quoted" class', "größer, über", "back\\slash `code` | bar", "?\u2028%s\n\tend")
SYMBOLS = ("e", " ", '"', "ü", "\n", "<unk>")

SPEED = {
    "runtime": "onnxruntime",
    "runtime_version": "1.32.0",
    "device": "a CPU",
    "threads": 1,
    "batch_size": 64,
    "samples_per_second": {"median": 392146.2, "low": 390000.0, "high": 395000.0},
    "ratio": {"median": 1.25, "low": 1.2, "high": 1.3},
    "latency_p50": 1.2139e-05,
    "latency_p99": 2.84e-05,
}
VERIFIED = Verification(
    runtime="onnxruntime",
    runtime_version="1.32.0",
    inputs="validation",
    samples=1400,
    answers=1400,
    same=1399,
    ties=1,
    metric="accuracy",
    value=0.9,
    value_of_model=0.9,
    largest_difference=3.6695e-06,
    share_of_bound=0.0043971,
    chunks=(1, 7),
)


@dataclasses.dataclass(frozen=True)
class Case:
    """A model with what stands around it, and raw samples."""

    spec: ModelSpec
    interface: Interface
    samples: RawSamples
    metric: Metric = ACCURACY
    level: str | None = None


def _noise(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3))


def _whole(high: int, *shape: int) -> Tensor:
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(4))


def _model(architecture: Any, parametrization: Any, **signature: Any) -> ModelSpec:
    return ModelSpec(
        architecture=architecture,
        parametrization=parametrization,
        signature=Signature(**signature),
    )


def _padded() -> Case:
    """An upload of unequal lengths, far from 0, with gaps, whose classes are quoted."""
    lengths = torch.tensor([5, 9, 2, 7, 9, 1])
    x = 1e6 + _noise(6, 9, 2)
    x[0, 1, 0] = torch.nan
    x = x.where((torch.arange(9) < lengths.unsqueeze(1)).unsqueeze(2), torch.zeros(()))
    return Case(
        spec=_model(
            Gru(hidden_size=6, reset="after"),
            LowRank(d=2),
            input_size=2,
            sequence_length=9,
            output_size=4,
        ),
        interface=Interface(
            sample=("steps", 2),
            inputs=(
                FillMissing(values=(1e6, 1e6)),
                Standardise(means=(1e6, 1e6), deviations=(1.0, 1.5)),
            ),
            answer=Classes(classes=QUOTED),
            padded=True,
            metric="accuracy",
        ),
        samples=RawSamples(x, _whole(4, 6), lengths),
    )


def _pixels() -> Case:
    order = tuple(reversed(range(16)))
    return Case(
        spec=_model(
            Rnn(hidden_size=5),
            HouseholderSvd(m1=2, m2=2),
            input_size=4,
            sequence_length=4,
            output_size=3,
        ),
        interface=Interface(
            sample=(16,),
            inputs=(Divide(by=16), Reorder(order=order), Layout(steps=4, features=4)),
            answer=Classes(classes=("0", "1", "2")),
            metric="accuracy",
        ),
        samples=RawSamples(_whole(17, 8, 16).float(), _whole(3, 8)),
    )


def _regression() -> Case:
    x = _noise(40, 6, 3)
    return Case(
        spec=_model(
            Mlp(hidden_size=8, layers=2), Dense(), input_size=3, sequence_length=6, output_size=2
        ),
        interface=Interface(
            sample=("steps", 3),
            inputs=(Standardise(means=(0.1, 0.2, 0.3), deviations=(1.0, 2.0, 3.0)),),
            answer=Numbers(means=(1e3, -5.0), deviations=(10.0, 0.1)),
            metric="mse",
        ),
        samples=RawSamples(x, 1e3 + _noise(40, 2)),
        metric=ERROR,
    )


def _forecasting() -> Case:
    series = 20 + 3 * _noise(30, 8, 2)
    return Case(
        spec=_model(
            Gru(hidden_size=4, reset="after"),
            Dense(),
            input_size=2,
            sequence_length=7,
            output_size=2,
            output_steps="every",
        ),
        interface=Interface(
            sample=("steps", 2),
            inputs=(Standardise(means=(20.0, 20.0), deviations=(3.0, 3.0)),),
            answer=Numbers(means=(20.0, 20.0), deviations=(3.0, 3.0)),
            metric="mse",
        ),
        samples=RawSamples(series[:, :-1], series[:, 1:]),
        metric=ERROR,
    )


def _labels() -> Case:
    return Case(
        spec=_model(Lstm(hidden_size=4), Dense(), input_size=2, sequence_length=5, output_size=3),
        interface=Interface(
            sample=("steps", 2), answer=Labels(labels=('"one"', "zwölf", "x")), metric="bce"
        ),
        samples=RawSamples(_noise(5, 5, 2), _whole(2, 5, 3).float()),
        metric=ERROR.model_copy(update={"name": "bce"}),
    )


def _language(*, embedded: bool) -> Case:
    symbols = len(SYMBOLS)
    return Case(
        spec=_model(
            Gru(hidden_size=5),
            Dense(),
            input_size=3 if embedded else symbols,
            sequence_length=7,
            output_size=symbols,
            output_steps="every",
            vocabulary=symbols if embedded else None,
        ),
        interface=Interface(
            sample=("steps",),
            inputs=() if embedded else (OneHot(symbols=symbols),),
            answer=Classes(classes=SYMBOLS),
            metric="bits_per_character",
        ),
        samples=RawSamples(_whole(symbols, 5, 7), _whole(symbols, 5, 7)),
        metric=ERROR.model_copy(update={"name": "bits_per_character"}),
        level="character",
    )


CASES: Mapping[str, Case] = {
    "padded": _padded(),
    "pixels": _pixels(),
    "regression": _regression(),
    "forecasting": _forecasting(),
    "labels": _labels(),
    "tokens": _language(embedded=True),
    "one hot": _language(embedded=False),
}


def c_files(case: Case) -> bytes:
    """Header and source as they are stored."""
    network = case.spec.build(seed=1)
    file = export_c(network, case.spec, name="model", interface=case.interface)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(zipfile.ZipInfo("model.h"), file.header)
        archive.writestr(zipfile.ZipInfo("model.c"), file.source)
    return packed.getvalue()


def folder(case: Case, *, without: tuple[str, ...] = ()) -> Folder:
    """The folder of a case's model, of which some roles are missing."""
    network = case.spec.build(seed=1)
    example = example_of(network, case.spec, case.interface, case.samples, level=case.level)
    contents = {
        "checkpoint": save_bytes(network, case.spec),
        "onnx": export(network, case.spec, FileOptions(interface=case.interface)),
        "c": c_files(case),
        "example": example.model_dump_json().encode(),
    }
    stored = {hashlib.sha256(content).hexdigest(): content for content in contents.values()}
    artifacts = {
        role: ArtifactRecord(
            sha256=hashlib.sha256(content).hexdigest(),
            size=len(content),
            created_at=datetime(2026, 1, 1, tzinfo=UTC),
        )
        for role, content in contents.items()
        if role not in without
    }
    facts = FolderFacts(
        study="a study | of `mine`\nand yours",
        trial=7,
        task="Digits",
        model=case.spec,
        metric=case.metric,
        quality=0.9,
        test_quality=0.85,
        samples={"train": 997, "validation": 400, "test": 400},
        parameters=case.spec.parameter_count(),
        dense_parameters=case.spec.dense_twin().parameter_count(),
        speeds=(SPEED, SPEED | {"runtime": "c", "runtime_version": "gcc 14"}),
        artifacts=artifacts,
        missing=dict.fromkeys(without, "it is not wanted here"),
        outcomes={
            "onnx": ExportOutcome(checkpoint="0" * 64, program="0.1.0", verification=VERIFIED),
            "onnx_stream": ExportOutcome(checkpoint="0" * 64, program="0.1.0", reason="no state"),
            "example": ExportOutcome(checkpoint="0" * 64, program="0.1.0"),
        },
    )
    made = folder_of(facts, EXPORTS, stored.__getitem__, reports={"report.json": b"{}"})
    for file in list(made.files.values()):
        if file.content is None:
            made.files[file.name] = dataclasses.replace(file, content=stored[file.sha256])
    return made


def written(folder: Folder, place: Path) -> Path:
    """All files of a folder in an empty directory."""
    place.mkdir()
    for file in folder.files.values():
        assert file.content is not None
        (place / file.name).write_bytes(file.content)
    return place
