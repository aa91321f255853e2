"""Fronts, and what a bundle of one lacks, as the API answers with them."""

from typing import Any, Literal

from pydantic import Field

from models.spec import Spec
from search.documents.fronts import ObjectiveInfo
from search.documents.objectives import Objective
from search.documents.recommendations import Recommendation
from service.api.schema import ByName
from service.api.trials.schemas import TrialValues


class PointLinks(ByName):
    """What can be downloaded of a point on the front."""

    checkpoint: str | None = Field(description="null where `retention` did not keep it")
    report: str
    onnx: str | None = Field(description="null until the model was exported")
    onnx_stream: str | None = Field(
        default=None,
        description="an ONNX file whose states go in and come out; null until it was made, and for "
        "models without a state",
    )
    dense: str | None = Field(
        description="a state dict of plain torch.nn layers, made when it is first asked for; null "
        "where torch.nn has none that compute the same, or `retention` kept no checkpoint"
    )
    card: str | None = Field(
        default=None, description="what the model is, for people; older servers have none"
    )
    folder: str | None = Field(
        default=None,
        description="a ZIP file of all files, made when it is asked for; null where `retention` "
        "kept no checkpoint",
    )


class PointDocument(Spec):
    """One point on the front."""

    trial: int
    values: TrialValues
    quality_mean: float | None = Field(
        description="over all seeds that the configuration was trained with; the search's own is "
        "among them, which was chosen for its result, so that the mean of few seeds flatters"
    )
    quality_interval: tuple[float, float] | None = Field(
        description="where the mean over all seeds lies: 95 %, Student's t; null for one seed"
    )
    seeds: int = Field(description="how many seeds the configuration was trained with")
    on_front_by_mean: bool = Field(
        description="whether the point stays on the front when all are judged by their means"
    )
    test_quality: float | None
    test_agreement: float | None = Field(
        default=None,
        description="the share of the original's decisions that is kept on the test part; null "
        "for all but networks of others whose answers decide something",
    )
    throughput_ratio: float | None
    runtime: str | None = Field(
        description="what ran it and its dense baseline where throughput was measured; null where "
        "it was not"
    )
    latency_p50: float | None = Field(
        description="seconds of one call at `throughput.batch_size`, the median; null where the "
        "study does not ask for it"
    )
    latency_p99: float | None = Field(description="seconds that 99 of 100 calls took at most")
    architecture: str
    parametrization: str
    hyperparameters: dict[str, Any]
    form: Literal["structured", "dense"] = Field(
        description="as what its matrices are stored, and were measured"
    )
    file_form: str | None = Field(
        description="how its weights stood in the file that was measured: node, in an operator of "
        "the runtime; loop, as they are applied step by step; null where no file was"
    )
    bits: int | None = Field(
        default=32,
        description="of each stored number of its matrices; null for a network of others, whose "
        "layers have their own; 32 from older servers",
    )
    slower: bool = Field(
        description="whether the point has fewer parameters than its dense baseline and is yet the "
        "slower one, all of the ratio's interval below 1: `links.dense`, where there is one, is "
        "then the faster form"
    )
    outside: bool = Field(
        default=False,
        description="whether it lies outside the study's region of interest; false without one",
    )
    continues: int | None = Field(
        description="the trial whose checkpoint this one started from: it was trained for longer"
    )
    links: PointLinks
    bytes: dict[str, int] = Field(
        default_factory=dict[str, int],
        description="by kind of file, its size; of those that are there. Beside a C file "
        "stand `c_flash`, its code and tables at -Os, and `c_state`, what its caller keeps",
    )
    missing: dict[str, str] = Field(
        default_factory=dict[str, str],
        description="by kind of file, why there is none, or none before it is asked for",
    )


class OriginalDocument(Spec):
    """The model that a study compresses, as it was uploaded: its first trial."""

    model: str = Field(description="its id among /v1/models")
    trial: int
    values: TrialValues
    test_quality: float | None
    on_front: bool = Field(
        description="whether it is a point too: nothing beats it, and it is over no limit"
    )


class FrontDocument(Spec):
    """The Pareto front of a study."""

    objectives: tuple[ObjectiveInfo, ...]
    device: str | None
    hypervolume: float | None
    reference_point: dict[Objective, float] | None
    throughput: Literal["search", "latest"] = Field(
        description="search: the records that the search went by; latest: the newest of each shape "
        "on the same device"
    )
    unconfirmed: str | None = Field(
        description="why points have fewer seeds than the study's `confirm` asks for; null where "
        "all have theirs, or none are asked for"
    )
    original: OriginalDocument | None = Field(
        description="what the study compresses, once it was measured; null where it compresses none"
    )
    recommendation: Recommendation | None = Field(
        default=None,
        description="which points are worth a look, in words; null while there is none, for a "
        "front of quality or of costs alone, and from older servers",
    )
    points: tuple[PointDocument, ...]

    def ranked(self) -> list[PointDocument]:
        """The points, best first in the first objective (quality, where it was asked for)."""
        if not self.objectives:
            return list(self.points)
        first = self.objectives[0]
        sign = -1.0 if first.direction == "maximize" else 1.0
        return sorted(self.points, key=lambda point: sign * (point.values[first.name] or 0.0))

    def best(self) -> PointDocument | None:
        """The point that is best in the first objective; None while the front is empty."""
        return next(iter(self.ranked()), None)


MISSING = "missing.json"
"""The file of a bundle that tells what it lacks; a bundle that lacks nothing has none."""


class MissingFile(Spec):
    """A file that a bundle lacks."""

    file: str
    """Its path, as it would be in the bundle."""
    reason: str
    lost: bool
    """Whether its bytes were damaged or gone; else it was not to be kept."""


class MissingFiles(Spec):
    """The document in `missing.json`."""

    missing: tuple[MissingFile, ...]
