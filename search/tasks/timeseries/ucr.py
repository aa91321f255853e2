"""Data sets of the UCR time series archive, from files in the user's data folder."""

from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, field_validator

from models import interface
from models.interface import Interface, Layout
from models.spec import Signature, Spec
from search.errors import DataError, TaskUnresolved
from search.formats.files import ArchiveName
from search.tasks.classification import Classes
from search.tasks.raw_samples import RawSamples, first_batch
from search.tasks.samples import EVALUATION_ROWS, Split, Splits
from search.tasks.sources import DataSources, DownloadProgress
from search.tasks.task import Metric, differences
from search.tasks.timeseries.ucr_archive import NAMES_OF_2015, Part, papers_depth, read_parts
from search.uploads.dataset_metadata import MOST_CLASSES

# The one row of the papers' table that follows neither of its rules: 27 steps of 10 values, and
# labels 1..50 counted as 50.
_FIFTY_WORDS = "FiftyWords"
_FIFTY_WORDS_LENGTH, _FIFTY_WORDS_STEPS, _FIFTY_WORDS_OUTPUTS = 270, 27, 50


class UcrFacts(Spec):
    """What a data set's two files hold."""

    samples: dict[str, int] = Field(description="by split")
    steps: int = Field(ge=1, description="of the longest series")
    shortest: int = Field(ge=1, description="steps of the shortest series")
    features: int = Field(ge=1, description="values per step")
    outputs: int = Field(ge=1, description="of a model: the classes, or as the papers count them")
    classes: tuple[int, ...] = Field(description="labels, as they stand in the files")
    class_counts: tuple[int, ...] = Field(description="series of each class in TRAIN")
    train_sha256: str = Field(description="of the file that is trained on")
    test_sha256: str = Field(description="of the file that is tested on")


class Ucr(Classes):
    """A data set of the UCR archive; the archive's licence lets nobody else offer it for download.

    The files `<name>_TRAIN.tsv` and `<name>_TEST.tsv` (`.txt` or without ending too, any of them
    gzipped) are in the data folder under `ucr/<name>/` or `<name>/`. Series are normalised there
    already. A share of TRAIN, drawn uniformly as in the papers, is for validation; only the last
    series of a class that is left in TRAIN is passed over. The metric is accuracy; its baseline is
    the share of TRAIN that the largest class has, which the trivial predictor answers always.
    """

    title: ClassVar[str] = "UCR time series"
    evaluation_rows: ClassVar[int] = EVALUATION_ROWS
    paper: ClassVar[str] = (
        "Dau, Bagnall, Kamgar, Yeh, Zhu, Gharghabi, Ratanamahatana, Keogh: The UCR Time Series "
        "Archive, 2019; Zhang, Lei, Dhillon: Stabilizing Gradients for Deep Neural Networks via "
        "Efficient SVD Parameterization, 2018"
    )

    kind: Literal["ucr"] = "ucr"
    name: ArchiveName = Field(
        description="the data set's name in the archive of 2018, such as GunPoint; "
        "50words, Cricket_X, Gun_Point and Lighting2 are known too"
    )
    split: Literal["2015", "2018"] = Field(
        default="2015",
        description="whose TRAIN and TEST: the archive of 2018 exchanged them for DistalPhalanxTW, "
        "MiddlePhalanxTW, DistalPhalanxOutlineCorrect and MiddlePhalanxOutlineCorrect",
    )
    depth: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="steps into which a series is cut, a divisor of its length; null: the length "
        "over its largest divisor up to its square root, as in the papers (50words: 27)",
    )
    unequal_lengths: Literal["refuse", "pad"] = Field(
        default="refuse",
        description="series of different lengths: an error, or padded behind and masked; a step is "
        "one value then",
    )
    legacy_labels: bool = Field(
        default=False,
        description="as many outputs as the largest label plus one (50words: 50), as the papers "
        "counted; false: one per class",
    )
    validation_share: float = Field(
        default=0.2, gt=0, lt=1, description="share of TRAIN that is set aside"
    )
    split_seed: int = Field(
        default=0, ge=0, lt=2**32, description="of the order in which that share is drawn"
    )
    facts: UcrFacts | None = Field(
        default=None, description="what follows from the data; filled in when a study is submitted"
    )

    @field_validator("name")
    @classmethod
    def _name_of_2018(cls, name: str) -> str:
        return NAMES_OF_2015.get(name, name)

    @classmethod
    def example(cls) -> Self:
        """GunPoint, as the archive of 2018 has it."""
        return cls(
            name="GunPoint",
            facts=UcrFacts(
                samples={"train": 40, "validation": 10, "test": 150},
                steps=15,
                shortest=15,
                features=10,
                outputs=2,
                classes=(1, 2),
                class_counts=(24, 26),
                train_sha256="4d14e4f44a6230087cb4b4ed7844c8b0feb76f07a76108cc367d689e0de8f609",
                test_sha256="5537eb2f3050e1514f3221b5f4c9799b350fb229ea15eed9e78bbae855505ccf",
            ),
        )

    @property
    def metric(self) -> Metric:
        """Accuracy."""
        counts = self._known().class_counts
        return Metric(
            name="accuracy",
            direction="maximize",
            unit="fraction of series",
            baseline=max(counts) / sum(counts),
        )

    def resolved(self, sources: DataSources) -> Self:
        """The same with the sizes of its files.

        Raises:
            DataError: A file is missing or damaged, or does not go with the other fields.
        """
        return self.model_copy(update={"facts": self._facts(*self._parts(sources))})

    def signature(self) -> Signature:
        """The steps into which a series is cut, and an output per class after the last."""
        facts = self._known()
        return Signature(
            input_size=facts.features, sequence_length=facts.steps, output_size=facts.outputs
        )

    def data_bytes(self) -> int:
        """All series, padded to the longest."""
        facts = self._known()
        return sum(facts.samples.values()) * 4 * (facts.steps * facts.features + 2)

    def load(
        self,
        sources: DataSources,
        *,
        progress: DownloadProgress | None = None,  # noqa: ARG002 -- nothing is downloaded
    ) -> Splits[Split]:
        """Read the series from `sources.folder`.

        Raises:
            DataError: A file is missing, damaged, or another one than when the task was resolved.
        """
        known = self._known()
        train, test = self._parts(sources)
        facts = self._facts(train, test)
        if facts != known:
            raise DataError(
                f"{train.file} and {test.file} are not what they were when the study was "
                f"submitted; what changed: {differences(facts, known)}"
            )
        learned, held_out = self._drawn(train)
        return Splits(
            _split(train, learned, facts),
            _split(train, held_out, facts),
            _split(test, np.arange(len(test)), facts),
        )

    def interface(self, sources: DataSources) -> Interface:  # noqa: ARG002 -- the facts tell all
        """A row of the file without its label; the label, as it stands there, is the answer."""
        facts = self._known()
        unused = range(len(facts.classes), facts.outputs)
        return Interface(
            sample=(facts.steps * facts.features,),
            inputs=(Layout(steps=facts.steps, features=facts.features),),
            answer=interface.Classes(
                classes=(*map(str, facts.classes), *(f"(no class, {n})" for n in unused))
            ),
            padded=facts.shortest < facts.steps,
            metric=self.metric.name,
        )

    def raw_samples(self, sources: DataSources) -> RawSamples:
        """Rows of the file without their labels, 0 behind the end of shorter ones."""
        facts = self._known()
        batch = first_batch(self.load(sources).validation, numbers=facts.steps * facts.features)
        return RawSamples(batch.x.flatten(1), batch.y, batch.lengths).fitting()

    def _known(self) -> UcrFacts:
        if self.facts is None:
            raise TaskUnresolved(f"the files of ucr data set {self.name} were not looked at yet")
        return self.facts

    def _parts(self, sources: DataSources) -> tuple[Part, Part]:
        return read_parts(
            self.name,
            folder=sources.folder,
            cache=sources.cache,
            split=self.split,
            task=self.kind,
        )

    def _drawn(self, train: Part) -> tuple[NDArray[Any], NDArray[Any]]:
        """Rows for training and for validation; each class keeps a row for training."""
        # RandomState's streams are frozen; a Generator's may change with numpy's version.
        order = np.random.RandomState(self.split_seed).permutation(len(train))
        _, last_from_behind = np.unique(train.labels[order][::-1], return_index=True)
        may_go = np.ones(len(train), dtype=bool)
        may_go[len(train) - 1 - last_from_behind] = False
        held_out = np.flatnonzero(may_go)[: max(1, round(self.validation_share * len(train)))]
        if len(held_out) == 0:
            raise DataError(
                f"{train.file} holds {len(train)} series, each alone in its class; none can be "
                "set aside for validation"
            )
        return np.delete(order, held_out), order[held_out]

    def _facts(self, train: Part, test: Part) -> UcrFacts:
        classes = np.unique(np.concatenate([train.labels, test.labels]))
        learned, held_out = self._drawn(train)
        length = max(part.values.shape[1] for part in (train, test))
        shortest = min(int(part.lengths.min()) for part in (train, test))
        steps = self._steps(length, shortest, train)
        return UcrFacts(
            samples={"train": len(learned), "validation": len(held_out), "test": len(test)},
            steps=steps,
            shortest=shortest if shortest < length else steps,
            features=length // steps,
            outputs=self._outputs(classes, train),
            classes=tuple(classes.tolist()),
            class_counts=tuple(int((train.labels == label).sum()) for label in classes),
            train_sha256=train.sha256,
            test_sha256=test.sha256,
        )

    def _outputs(self, classes: NDArray[Any], train: Part) -> int:
        """Outputs of a model; those beyond the classes are never the answer."""
        counted = _FIFTY_WORDS_OUTPUTS if self.name == _FIFTY_WORDS else int(classes.max()) + 1
        # Labels below 0 leave fewer numbers up to the largest than there are classes.
        outputs = max(len(classes), counted if self.legacy_labels else 0)
        if outputs > MOST_CLASSES:
            raise DataError(
                f"{train.file} and its counterpart ask for {outputs} outputs; at most "
                f"{MOST_CLASSES} are allowed"
            )
        return outputs

    def _steps(self, length: int, shortest: int, train: Part) -> int:
        if shortest < length:
            return self._steps_of_unequal(length, shortest, train)
        if self.depth is None:
            is_fifty_words = self.name == _FIFTY_WORDS and length == _FIFTY_WORDS_LENGTH
            return _FIFTY_WORDS_STEPS if is_fifty_words else papers_depth(length)
        if length % self.depth:
            divisors = [steps for steps in range(1, length + 1) if length % steps == 0]
            raise DataError(
                f"depth {self.depth} does not divide {length}, the length of the series of "
                f"{train.file}; allowed are {', '.join(map(str, divisors))}"
            )
        return self.depth

    def _steps_of_unequal(self, length: int, shortest: int, train: Part) -> int:
        if self.unequal_lengths == "refuse":
            raise DataError(
                f"{train.file} and its counterpart hold series of {shortest} to {length} values; "
                "unequal_lengths 'pad' allows that"
            )
        # With longer steps, a series would end within one.
        if self.depth is not None and self.depth != length:
            raise DataError(
                f"depth is {self.depth}, but the series of {train.file} are of unequal lengths, "
                "whose steps are one value each; allowed is null"
            )
        return length


def _split(part: Part, rows: NDArray[Any], facts: UcrFacts) -> Split:
    """Cut some series into steps; a class's number is its place among the sorted labels."""
    x = np.zeros((len(rows), facts.steps * facts.features), dtype=np.float32)
    x[:, : part.values.shape[1]] = part.values[rows]
    y = np.searchsorted(np.array(facts.classes), part.labels[rows])
    return Split(
        torch.as_tensor(x).view(len(rows), facts.steps, facts.features),
        torch.as_tensor(y.astype(np.int64)),
        torch.as_tensor(part.lengths[rows]) if facts.shortest < facts.steps else None,
    )
