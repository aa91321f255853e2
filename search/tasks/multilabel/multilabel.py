"""Data sets whose samples have any of several labels each, from files in the data folder."""

from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from models.interface import Interface, Labels, Layout
from models.spec import Signature, Spec
from search.errors import DataError, TaskUnresolved
from search.formats.extreme import LabelledRows
from search.formats.files import ArchiveName
from search.tasks.array_cache import Arrays, cached_arrays
from search.tasks.multilabel.labels import LabelMeter, binary_cross_entropy
from search.tasks.multilabel.multilabel_files import LabelledFiles, find_files
from search.tasks.raw_samples import RawSamples, first_batch
from search.tasks.samples import EVALUATION_ROWS, Samples, Split, Splits
from search.tasks.soft_targets import soft_labels
from search.tasks.sources import DataSources, DownloadProgress
from search.tasks.sparse_split import SparseSplit
from search.tasks.task import Metric, differences
from search.uploads.dataset_metadata import MOST_CLASSES

MOST_DENSE_BYTES = 200_000_000
"""Sets that are larger with their zeros written out are kept without them."""

MOST_FEATURES = 1_000_000
"""Numbers that a sample may have: a model has weights for each."""

_SPLITS = ("train", "validation", "test")


class MultilabelFacts(Spec):
    """What a multi-label data set's files hold."""

    samples: dict[str, int] = Field(description="by split")
    features: int = Field(ge=1, description="of a sample, in all steps together")
    labels: int = Field(ge=1, le=MOST_CLASSES, description="that a sample may have")
    label_counts: tuple[int, ...] = Field(
        description="samples that have each label, among those for training and validation"
    )
    sha256: tuple[str, ...] = Field(description="of the files")


class Multilabel(Spec):
    """A data set of flat vectors, of which each has any of several labels.

    Its files are in the data folder under `multilabel/<name>/` or `<name>/`, in Mulan's layout
    (`<name>-train.arff`, `<name>-test.arff`, `<name>.xml`) or the Extreme Classification
    Repository's (`<name>_train.txt`, `<name>_test.txt`; or `<name>_data.txt`, `<name>_trSplit.txt`,
    `<name>_tstSplit.txt`, of which the first split is taken), any of them gzipped. A share of the
    training samples, drawn uniformly, is for validation. The metric is binary cross-entropy, the
    mean over labels in nats; its baseline is that of answering each label's frequency among the
    training and validation samples, on those samples: the mean of the frequencies' entropies.
    """

    title: ClassVar[str] = "Multi-label classification"
    evaluation_rows: ClassVar[int] = EVALUATION_ROWS
    paper: ClassVar[str] = (
        "Katakis, Tsoumakas, Vlahavas: Multilabel Text Classification for Automated Tag Suggestion "
        "(Bibtex), 2008; Bhatia et al.: The Extreme Classification Repository, 2016"
    )

    kind: Literal["multilabel"] = "multilabel"
    name: ArchiveName = Field(
        description="the data set's name, such as bibtex, mediamill or yeast; its files bear it"
    )
    steps: int = Field(
        default=1,
        ge=1,
        le=1_000_000,
        description="steps into which a vector is cut, a divisor of the features; 1: the whole "
        "vector at once",
    )
    validation_share: float = Field(
        default=0.2, gt=0, lt=1, description="share of the training samples that is set aside"
    )
    split_seed: int = Field(
        default=0, ge=0, lt=2**32, description="of the order in which that share is drawn"
    )
    facts: MultilabelFacts | None = Field(
        default=None, description="what follows from the data; filled in when a study is submitted"
    )

    @classmethod
    def example(cls) -> Self:
        """Yeast, in Mulan's files."""
        return cls(
            name="yeast",
            facts=MultilabelFacts(
                samples={"train": 1200, "validation": 300, "test": 917},
                features=103,
                labels=14,
                label_counts=(
                    (476, 645, 598, 532, 441, 378, 261, 289, 98, 161, 198, 1128, 1116, 21)
                ),
                sha256=(
                    "e759dc991ff54694a4ff9c4314f3be0d6fd2b1994a4b563f57e416394c6aebbd",
                    "4aaac102bff9669a765bf0b378602e5cc8c3b181048282e2f003117b496d552a",
                    "c3056cc26444b5158b1588d1b73bec9c45429e10f0957ad085903423cb81f247",
                ),
            ),
        )

    @property
    def metric(self) -> Metric:
        """Binary cross-entropy."""
        facts = self._known()
        samples = facts.samples["train"] + facts.samples["validation"]
        frequencies = np.array(facts.label_counts) / samples
        return Metric(
            name="bce",
            direction="minimize",
            unit="nats per label",
            baseline=float(_entropies(frequencies).mean()),
        )

    def resolved(self, sources: DataSources) -> Self:
        """The same with the sizes of its files.

        Raises:
            DataError: A file is missing or damaged, or does not go with the other fields.
        """
        files = find_files(self.name, folder=sources.folder, task=self.kind)
        return self.model_copy(update={"facts": self._facts(files, sources)})

    def signature(self) -> Signature:
        """The vector in its steps, and an output per label after the last."""
        facts = self._known()
        return Signature(
            input_size=facts.features // self.steps,
            sequence_length=self.steps,
            output_size=facts.labels,
        )

    def data_bytes(self) -> int:
        """Samples with their zeros, or without where that is too much."""
        facts = self._known()
        dense = sum(facts.samples.values()) * 4 * (facts.features + facts.labels)
        return min(dense, MOST_DENSE_BYTES)

    def load(
        self,
        sources: DataSources,
        *,
        progress: DownloadProgress | None = None,  # noqa: ARG002 -- nothing is downloaded
    ) -> Splits:
        """Read the samples from `sources.folder`.

        A set that is larger than `MOST_DENSE_BYTES` with its zeros is written out batch by batch.

        Raises:
            DataError: A file is missing, damaged, or another one than when the task was resolved.
        """
        known = self._known()
        files = find_files(self.name, folder=sources.folder, task=self.kind)
        facts = self._facts(files, sources)
        if facts != known:
            raise DataError(
                f"{', '.join(map(str, files.paths))} are not what they were when the study was "
                f"submitted; what changed: {differences(facts, known)}"
            )
        numbers = sum(facts.samples.values()) * (facts.features + facts.labels)
        if numbers * np.dtype(np.float32).itemsize > MOST_DENSE_BYTES:
            splits = {
                name: SparseSplit.of(part.features, part.labels, steps=self.steps)
                for name, part in self._parts(files, sources).items()
            }
        else:
            splits = self._dense(files, sources)
        return Splits[Samples](splits["train"], splits["validation"], splits["test"])

    def interface(self, sources: DataSources) -> Interface:
        """The vector as it stands in the file, and the labels' own names."""
        facts = self._known()
        files = find_files(self.name, folder=sources.folder, task=self.kind)
        return Interface(
            sample=(facts.features,),
            inputs=(Layout(steps=self.steps, features=facts.features // self.steps),),
            answer=Labels(labels=files.label_names(sources.cache)),
            metric=self.metric.name,
        )

    def raw_samples(self, sources: DataSources) -> RawSamples:
        """Vectors with their zeros."""
        batch = first_batch(self.load(sources).validation, numbers=self._known().features)
        return RawSamples(batch.x.flatten(1), batch.y).fitting()

    loss = staticmethod(binary_cross_entropy)
    soft_loss = staticmethod(soft_labels)

    @property
    def asks_for_classes(self) -> bool:
        """Whether targets are classes: they are not."""
        return False

    def meter(self) -> LabelMeter:
        """Binary cross-entropy, precision among the most likely labels, and micro-averaged F1."""
        return LabelMeter()

    def _known(self) -> MultilabelFacts:
        if self.facts is None:
            raise TaskUnresolved(
                f"the files of multilabel data set {self.name} were not looked at yet"
            )
        return self.facts

    def _facts(self, files: LabelledFiles, sources: DataSources) -> MultilabelFacts:
        train, test = files.cached(sources.cache)
        features, labels = train.features.width, train.labels.width
        if labels > MOST_CLASSES or features > MOST_FEATURES:
            raise DataError(
                f"{files.paths[0]} has {features} features and {labels} labels; at most "
                f"{MOST_FEATURES} and {MOST_CLASSES} are allowed"
            )
        if features % self.steps:
            raise DataError(
                f"steps {self.steps} does not divide {features}, the number of features of "
                f"{files.paths[0]}"
            )
        held_out = _held_out(len(train.labels), self.validation_share)
        if held_out == len(train.labels):
            raise DataError(
                f"{files.paths[0]} holds {held_out} samples, all of which validation_share "
                f"{self.validation_share} sets aside; one has to be left for training"
            )
        return MultilabelFacts(
            samples={
                "train": len(train.labels) - held_out,
                "validation": held_out,
                "test": len(test.labels),
            },
            features=features,
            labels=labels,
            label_counts=tuple(np.bincount(train.labels.columns, minlength=labels).tolist()),
            sha256=files.checksums,
        )

    def _parts(self, files: LabelledFiles, sources: DataSources) -> dict[str, LabelledRows]:
        """The samples of the three splits."""
        train, test = files.cached(sources.cache)
        # RandomState's streams are frozen; a Generator's may change with numpy's version.
        order = np.random.RandomState(self.split_seed).permutation(len(train.labels))
        held_out = _held_out(len(order), self.validation_share)
        learned, checked = (
            LabelledRows(train.features.rows(rows), train.labels.rows(rows))
            for rows in (order[held_out:], order[:held_out])
        )
        return {"train": learned, "validation": checked, "test": test}

    def _dense(self, files: LabelledFiles, sources: DataSources) -> dict[str, Split]:
        """The splits with all zeros, in arrays that trials share."""

        def written_out() -> Arrays:
            arrays: dict[str, NDArray[Any]] = {}
            for name, part in self._parts(files, sources).items():
                arrays[f"{name}_x"] = part.features.dense()
                arrays[f"{name}_y"] = part.labels.dense()
            return arrays

        division = f"{self.validation_share!r} {self.split_seed}"
        arrays = cached_arrays(
            sources.cache / f"multilabel-dense-{files.digest(division)}",
            tuple(f"{name}_{array}" for name in _SPLITS for array in ("x", "y")),
            written_out,
        )
        splits: dict[str, Split] = {}
        for name in _SPLITS:
            x, y = (torch.as_tensor(arrays[f"{name}_{array}"]) for array in ("x", "y"))
            splits[name] = Split(x.view(len(x), self.steps, -1), y)
        return splits


def _held_out(samples: int, share: float) -> int:
    return max(1, round(share * samples))


def _entropies(frequencies: NDArray[Any]) -> NDArray[Any]:
    """Entropy in nats of labels that a sample has with some frequencies; 0 for never and always."""
    both = np.stack([frequencies, 1 - frequencies])
    return -(both * np.log(np.where(both > 0, both, 1))).sum(axis=0)
