"""The user's own data: an upload, divided, scaled and trained for by what was found in it."""

import hashlib
import json
from dataclasses import replace
from typing import Any, BinaryIO, ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, model_validator
from torch import Tensor

from models.interface import FillMissing, Interface, Standardise
from models.spec import Signature, Spec
from search.errors import DataError, TaskUnresolved
from search.tasks.array_cache import Arrays, cached_arrays
from search.tasks.dataset.problems import PROBLEMS, Cut, Part, ProblemTraits
from search.tasks.dataset.scaling import Scaling, measured, scaled
from search.tasks.raw_samples import RawSamples, most_rows
from search.tasks.samples import EVALUATION_ROWS, Split, Splits
from search.tasks.sources import DatasetShelf, DataSources, DownloadProgress
from search.tasks.task import Meter, Metric
from search.uploads import container
from search.uploads.dataset_metadata import SPLIT_NAMES, DatasetFacts, Problem

_FORM = "dataset-3"
"""Names the form of the cached arrays; another form gets another name."""

_PARTS = tuple(f"{split}_{array}" for split in SPLIT_NAMES for array in ("x", "y", "lengths"))
_FACTS, _FOUND = "facts", "found"
_RAW = ("raw_x", "raw_y", "raw_lengths")
_CHUNK_BYTES = 1 << 20


class DatasetTaskFacts(Spec):
    """What follows from an upload and from how this task divides it."""

    sha256: str = Field(pattern="^[0-9a-f]{64}$", description="of the upload as it is stored")
    problem: Problem
    samples: dict[str, int] = Field(description="by split; windows, for forecasting")
    steps: int = Field(ge=1, description="of the longest sample")
    shortest: int = Field(ge=1, description="steps of the shortest sample")
    features: int = Field(ge=1, description="numbers per step")
    outputs: int = Field(ge=1, description="classes, labels, or numbers to be predicted")
    baseline: float = Field(
        description="the trivial predictor's quality on the training samples: the largest class, "
        "the targets' mean, the labels' frequencies, or the step before"
    )
    inputs: Scaling | None = Field(
        default=None, description="of the features, from the training samples"
    )
    targets: Scaling | None = Field(
        default=None,
        description="of numbers that are predicted: a model's output times the deviations plus the "
        "means is in their own unit",
    )


class Dataset(Spec):
    """An upload: classification, regression, multilabel or forecasting, as was found in it.

    Parts that an upload names stay as they are; others are drawn from the rest, classes in equal
    shares. Metrics are accuracy (baseline: the share of the largest class), mean squared error in
    the target's own unit beside `mae` and `r2` (baseline: the variance), binary cross-entropy
    beside `micro_f1` and precision (baseline: the labels' frequencies), and, for forecasting, the
    mean squared error over each next step (baseline: the step before it). Baselines are those of
    the training samples.
    """

    title: ClassVar[str] = "Your own data"
    evaluation_rows: ClassVar[int] = EVALUATION_ROWS
    paper: ClassVar[str] = "An upload, see /v1/datasets"

    kind: Literal["dataset"] = "dataset"
    id: str = Field(
        pattern="^[A-Za-z0-9_-]{1,64}$", description="what /v1/datasets answered to the upload"
    )
    validation_share: float = Field(
        default=0.2,
        gt=0,
        lt=1,
        description="of the samples to draw from, where the upload names no validation part",
    )
    test_share: float = Field(
        default=0.2,
        gt=0,
        lt=1,
        description="of the samples to draw from, where the upload names no test part",
    )
    split_seed: int = Field(default=0, ge=0, lt=2**32, description="decides what is drawn")
    normalise: bool = Field(
        default=True,
        description="bring each feature, and each number to be predicted, to mean 0 and deviation "
        "1 over the training samples; metrics stay in the data's own unit",
    )
    window: int = Field(
        default=64, ge=1, le=100_000, description="forecasting: steps that a sample reads"
    )
    facts: DatasetTaskFacts | None = Field(
        default=None,
        description="what follows from the data; filled in when a study is submitted",
    )

    @model_validator(mode="after")
    def _something_to_train_on(self) -> Self:
        if self.validation_share + self.test_share >= 1:
            raise ValueError(
                f"validation_share {self.validation_share:g} and test_share {self.test_share:g} "
                f"leave nothing to train on; together they must be less than 1"
            )
        return self

    @classmethod
    def example(cls) -> Self:
        """Forty gestures in three classes, six sensors for a hundred steps."""
        facts = DatasetTaskFacts(
            sha256=hashlib.sha256(b"").hexdigest(),
            problem="classification",
            samples={"train": 24, "validation": 8, "test": 8},
            steps=100,
            shortest=100,
            features=6,
            outputs=3,
            baseline=1 / 3,
        )
        return cls(id="example", facts=facts)

    @property
    def metric(self) -> Metric:
        """The problem's own, see the class."""
        traits = self._traits
        return Metric(
            name=traits.metric,
            direction=traits.direction,
            unit=traits.unit,
            baseline=self._known.baseline,
        )

    def resolved(self, sources: DataSources) -> Self:
        """Read, divide and scale the upload, which later loads find done."""
        sha256 = self._shelf(sources).digest(self.id)
        document = self._arrays(sources, sha256)[_FACTS].tobytes()
        return self.model_copy(update={"facts": DatasetTaskFacts.model_validate_json(document)})

    def signature(self) -> Signature:
        """The longest sample's steps; one answer per class, label, number or feature."""
        facts = self._known
        return Signature(
            input_size=facts.features,
            sequence_length=facts.steps,
            output_size=facts.outputs,
            output_steps=self._traits.output_steps,
        )

    def data_bytes(self) -> int:
        """Samples and what is to be answered, as single numbers."""
        facts = self._known
        return sum(facts.samples.values()) * 4 * (facts.steps * facts.features + facts.outputs)

    def load(
        self,
        sources: DataSources,
        *,
        progress: DownloadProgress | None = None,  # noqa: ARG002 -- nothing is downloaded by us
    ) -> Splits[Split]:
        """Read the samples: from the upload the first time, from the cache afterwards."""
        arrays = self._stored(sources)

        def split(name: str) -> Split:
            x, y, lengths = (
                torch.as_tensor(arrays[f"{name}_{array}"]) for array in ("x", "y", "lengths")
            )
            return Split(x, y, lengths if self._is_padded else None)

        return Splits(split("train"), split("validation"), split("test"))

    def interface(self, sources: DataSources) -> Interface:
        """Features as they were uploaded; the answer's names and unit are the upload's, too."""
        facts = self._known
        found = DatasetFacts.model_validate_json(self._stored(sources)[_FOUND].tobytes())
        fill, scaling = found.replacements, facts.inputs
        return Interface(
            sample=("steps", facts.features),
            inputs=(
                *(() if fill is None else (FillMissing(values=fill),)),
                *(() if scaling is None else (_standardised(scaling),)),
            ),
            answer=self._traits.answer(found.classes or (), facts.targets),
            padded=self._is_padded,
            metric=self._traits.metric,
        )

    def raw_samples(self, sources: DataSources) -> RawSamples:
        """Samples before they were scaled, with NaN for what was missing; numbers in their unit."""
        x, y, lengths = (torch.as_tensor(self._stored(sources)[name]) for name in _RAW)
        return RawSamples(x, y, lengths if self._is_padded else None).fitting()

    @property
    def asks_for_classes(self) -> bool:
        """See `search.tasks.task.Task`."""
        return self._known.problem == "classification"

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Cross-entropy, mean squared error of scaled numbers, or binary cross-entropy."""
        return self._traits.loss(output, target)

    def soft_loss(
        self, output: Tensor, teacher: Tensor, target: Tensor, temperature: float
    ) -> Tensor:
        """The problem's own: divergence of classes or labels, or mean squared difference."""
        return self._traits.soft_loss(output, teacher, target, temperature)

    def meter(self) -> Meter:
        """The problem's own metrics."""
        targets = self._known.targets
        return self._traits.meter(None if targets is None else targets.deviations)

    @property
    def _is_padded(self) -> bool:
        return self._known.shortest < self._known.steps

    @property
    def _known(self) -> DatasetTaskFacts:
        if self.facts is None:
            raise TaskUnresolved(f"the data set {self.id} was not looked at")
        return self.facts

    @property
    def _traits(self) -> ProblemTraits:
        return PROBLEMS[self._known.problem]

    def _shelf(self, sources: DataSources) -> DatasetShelf:
        if sources.datasets is None:
            raise DataError(f"there is no data set {self.id}: no uploads are kept here")
        return sources.datasets

    def _stored(self, sources: DataSources) -> Arrays:
        """The samples, which give the facts that the study was stored with."""
        arrays = self._arrays(sources, self._known.sha256)
        if DatasetTaskFacts.model_validate_json(arrays[_FACTS].tobytes()) != self._known:
            raise DataError(
                f"the data set {self.id} does not give the facts that this study was stored with"
            )
        return arrays

    def _arrays(self, sources: DataSources, sha256: str) -> Arrays:
        """The samples of an upload with this digest, divided as the fields say."""
        asked = self.model_dump(mode="json", exclude={"id", "facts"})
        key = hashlib.sha256(json.dumps([sha256, asked], sort_keys=True).encode()).hexdigest()
        folder = sources.cache / f"{_FORM}-{key}"
        return cached_arrays(
            folder, (*_PARTS, *_RAW, _FACTS, _FOUND), lambda: self._made(sources, sha256)
        )

    def _made(self, sources: DataSources, sha256: str) -> Arrays:
        with self._shelf(sources).open(self.id) as stream:
            found = _sha256_of(stream)
            if found != sha256:
                raise DataError(
                    f"the data set {self.id} has the sha256 {found}, but this study was stored "
                    f"with {sha256}"
                )
            stream.seek(0)
            return self._divided(stream, sha256)

    def _divided(self, stream: BinaryIO, sha256: str) -> Arrays:
        decoded = container.read(stream)
        traits = PROBLEMS[decoded.facts.problem]
        cut = Cut(
            validation_share=self.validation_share,
            test_share=self.test_share,
            seed=self.split_seed,
            window=self.window,
        )
        parts = traits.parts(decoded, cut)
        train = parts["train"]
        inputs = measured(train.x, train.lengths) if self.normalise else None
        targets = None if inputs is None else traits.target_scaling(train, inputs)
        lengths = np.concatenate([part.lengths for part in parts.values()])
        facts = DatasetTaskFacts(
            sha256=sha256,
            problem=decoded.facts.problem,
            samples={name: len(part.x) for name, part in parts.items()},
            steps=train.x.shape[1],
            shortest=int(lengths.min()),
            features=train.x.shape[2],
            outputs=decoded.facts.outputs,
            baseline=traits.baseline(train),
            inputs=inputs,
            targets=targets,
        )
        arrays: dict[str, NDArray[Any]] = {
            _FACTS: _as_bytes(facts),
            _FOUND: _as_bytes(decoded.facts),
            **_raw(parts["validation"]),
        }
        if decoded.missing is not None:
            as_sent = traits.parts(replace(decoded, x=decoded.as_sent()), cut)["validation"]
            arrays["raw_x"] = as_sent.x[: len(arrays["raw_x"])]
        for name, part in parts.items():
            arrays[f"{name}_x"] = _by(inputs, part.x, part.lengths)
            arrays[f"{name}_y"] = _by(targets, part.y)
            arrays[f"{name}_lengths"] = part.lengths
        return arrays


def _sha256_of(stream: BinaryIO) -> str:
    digest = hashlib.sha256()
    while chunk := stream.read(_CHUNK_BYTES):
        digest.update(chunk)
    return digest.hexdigest()


def _by(
    scaling: Scaling | None, values: NDArray[Any], lengths: NDArray[np.int64] | None = None
) -> NDArray[Any]:
    return values if scaling is None else scaled(values, scaling, lengths)


def _raw(part: Part) -> dict[str, NDArray[Any]]:
    """Samples as they are, no more than may be kept."""
    rows = most_rows(part.x[0].size)
    values = (part.x[:rows], part.y[:rows], part.lengths[:rows])
    return dict(zip(_RAW, values, strict=True))


def _standardised(scaling: Scaling) -> Standardise:
    return Standardise(means=scaling.means, deviations=scaling.deviations)


def _as_bytes(facts: Spec) -> NDArray[np.uint8]:
    return np.frombuffer(facts.model_dump_json().encode(), dtype=np.uint8)
