"""Collections as the API answers with them."""

from datetime import datetime
from typing import Any, Literal, Self

from pydantic import Field

from models.spec import Spec
from search.documents.objectives import Direction
from search.documents.progress import StudyProgress
from search.documents.spaces import DryRun
from service.api.paths import collection_page_path, collection_path, study_path
from service.api.schema import ByName
from service.api.trials.schemas import TrialValues
from storage.records import StudyState, TrialState


class CollectionLinks(ByName):
    """Where the parts of a collection are; paths on this server."""

    collection: str
    results: str
    ranks: str
    pause: str
    resume: str
    cancel: str
    page: str = Field(description="for people")

    @classmethod
    def of(cls, collection_id: str) -> Self:
        """The links of one collection."""
        path = collection_path(collection_id)
        return cls(
            collection=path,
            results=f"{path}/results",
            ranks=f"{path}/ranks",
            pause=f"{path}/pause",
            resume=f"{path}/resume",
            cancel=f"{path}/cancel",
            page=collection_page_path(collection_id),
        )


class MemberLinks(ByName):
    """Where a study of a collection is; paths on this server."""

    study: str
    front: str
    page: str = Field(description="for people")

    @classmethod
    def of(cls, study_id: str) -> Self:
        """The links of one study."""
        path = study_path(study_id)
        return cls(study=path, front=f"{path}/front", page=f"/studies/{study_id}")


class CollectionEntry(Spec):
    """A collection in a list."""

    id: str
    name: str
    created_at: datetime
    state: StudyState = Field(
        description="`running` while a study runs or waits (`queued` while none has begun), "
        "`paused` where the others have ended; then `failed` or `cancelled` if any study is"
    )
    states: dict[StudyState, int] = Field(description="how many studies are in which state")
    collection_budget: dict[str, Any] | None = Field(
        description="what the studies may take together; null: no limit"
    )
    links: CollectionLinks

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen in it."""
        return self.state.has_ended


class CollectionTotals(Spec):
    """What the studies of a collection have taken together."""

    trials: int = Field(description="trials that ended and used up budget")
    complete: int = Field(description="those that are complete")
    epochs_trained: int
    device_hours: float
    trainings: int | None = Field(
        default=None,
        description="whole trainings that the epochs come to, which `collection_budget.trials` "
        "counts where the sampler pauses trials; null where it counts trials",
    )


class MemberDocument(Spec):
    """A study of a collection."""

    row: str = Field(description="its data set, by name, or the kind of its task")
    seed: int
    study: str = Field(description="its id")
    name: str
    state: StudyState
    state_reason: str | None
    progress: StudyProgress
    links: MemberLinks


class CollectionDocument(CollectionEntry):
    """A collection: what was asked for, and where each of its studies stands."""

    source: dict[str, Any] = Field(description="the document as it was sent")
    totals: CollectionTotals
    studies: tuple[MemberDocument, ...] = Field(
        description="in the order of the document, without those that were deleted"
    )


class CollectionPage(Spec):
    """Collections, newest first."""

    items: tuple[CollectionEntry, ...]
    next_cursor: str | None


class SetDryRun(Spec):
    """What the study of one data set would search."""

    row: str
    study: DryRun


class CollectionDryRun(Spec):
    """What the studies of a collection would search."""

    studies: tuple[SetDryRun, ...]


class BestDocument(Spec):
    """The trial of a study, or of one kind of model in it, that is best on validation data."""

    kind: str = Field(description="architecture and parametrization")
    architecture: str
    parametrization: str
    trial: int
    outcome: TrialState = Field(
        description="`complete`; `stopped` where none of its kind is complete, and `failed` where "
        "none was stopped either"
    )
    quality: float | None = Field(description="on validation data, which chose it")
    test_quality: float | None
    parameters: int


class FrontSummary(Spec):
    """A point of a study's front, in short."""

    trial: int
    architecture: str
    parametrization: str
    values: TrialValues
    test_quality: float | None


class SetDocument(Spec):
    """What was found on one data set, so far or in the end."""

    row: str
    study: str = Field(description="its id")
    state: StudyState
    metric: str
    direction: Direction
    best: BestDocument | None = Field(description="null while no trial has a result")
    front: tuple[FrontSummary, ...]


class ResultsDocument(Spec):
    """What was found on each data set of a collection."""

    id: str
    name: str
    state: StudyState
    sets: tuple[SetDocument, ...]


class LeftOut(Spec):
    """A data set that is in no rank, for all kinds alike."""

    row: str
    study: str = Field(description="its id")
    lacks: tuple[str, ...] = Field(description="the kinds of which it has no result")


class CellDocument(BestDocument):
    """A kind of model on one data set."""

    row: str
    study: str = Field(description="its id")
    metric: str


class RankedKind(Spec):
    """A kind of model over the data sets that have all kinds."""

    kind: str = Field(description="architecture and parametrization")
    mean_rank: float = Field(description="1 is the best; ties share")
    parameters: float = Field(description="the geometric mean over the data sets")
    on_front: bool = Field(
        description="whether no other kind has as good a mean rank with as few parameters"
    )
    cells: tuple[CellDocument, ...] = Field(description="its best trial on each data set")


class PairDocument(Spec):
    """Two kinds of models on the same data sets."""

    first: str
    second: str
    wins: int = Field(description="of the first")
    ties: int
    losses: int
    p: float = Field(
        description="two-sided and exact by `pair_test`, adjusted by Holm for all pairs"
    )


class RanksDocument(Spec):
    """Kinds of models over the data sets of a collection, by their best validation quality."""

    id: str
    name: str
    state: StudyState
    kinds: tuple[str, ...] = Field(description="those that are compared")
    sets: tuple[str, ...] = Field(description="the data sets that have all of them")
    left_out: tuple[LeftOut, ...] = Field(
        description="the data sets that lack one, which are left out for all"
    )
    ranked: tuple[RankedKind, ...] = Field(
        description="the best mean rank first; empty below two data sets or two kinds"
    )
    friedman_p: float | None = Field(
        description="how often ranks differ as much where no kind is better; null without ranks"
    )
    critical_difference: float | None = Field(
        description="of mean ranks at 5 %, by Nemenyi; null without ranks, and beyond ten kinds"
    )
    pairs: tuple[PairDocument, ...]
    pair_test: Literal["wilcoxon", "signs"] = Field(
        default="wilcoxon",
        description="how pairs are tested: by Wilcoxon's signed ranks, or by signs alone where "
        "data sets have different metrics, whose differences do not compare",
    )

    @property
    def test_in_words(self) -> str:
        """The name of the test of pairs."""
        return "Wilcoxon" if self.pair_test == "wilcoxon" else "sign test"
