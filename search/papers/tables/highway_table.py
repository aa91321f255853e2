"""Low-rank highway networks on MNIST as one vector: A.1 of the low-rank paper."""

from models.architectures import Highway
from models.parametrizations import AnyFamily, LowRank, LowRankDiagonal
from search.documents.papers import PrintedValue, Source
from search.papers.cited import PASSTHROUGH
from search.papers.paper_table import Table
from search.papers.row import Row, System, by_passes
from search.papers.tables.pixel_mnist import MNIST_TEST, MNIST_TRAIN
from search.tasks import Mnist
from search.training.trial_spec import Plateau, TrainingSpec

_TRAINING = TrainingSpec(
    learning_rate=3e-3,
    batch_size=100,
    clip_norm=None,
    loss="squared_hinge",
    readout_penalty=1e-3,
    plateau=Plateau(factor=0.5, stale=3, restore=True, most=14),
)
_NOTE = (
    "1024 units, inner dimension 256, five layers, the batch-normalised stack with its dropout, "
    "Adam at 3e-3 with 100 samples a step, halved after three epochs without gain and from the "
    "best parameters on, at most 14 times; a squared hinge loss with a penalty of 1e-3 on the "
    "readout's norm."
)


def _row(
    name: str, title: str, about: str, family: AnyFamily, *, accuracy: float, parameters: int
) -> Row:
    return Row(
        key=name,
        system=System(
            name=name,
            title=title,
            paper=PASSTHROUGH,
            description=f"{about}. {_NOTE}",
            architecture=Highway(hidden_size=1024, layers=5, stack="batch_normalised"),
            parametrization=family,
        ),
        task=Mnist(layout="rows"),
        recipe=by_passes(_TRAINING, samples=MNIST_TRAIN, epochs=100),
        source=Source(paper=PASSTHROUGH, table="A.1", row=title),
        claim=PrintedValue(metric="accuracy", direction="maximize", value=accuracy),
        test_samples=MNIST_TEST,
        printed_parameters=parameters,
        parameters=parameters,
        preset=True,
        deviation="Paper, script and logs differ in the weight of the penalty; here it is "
        "the paper's. At most 100 epochs are ours.",
    )


HIGHWAY = Table(
    name="highway",
    title="Low-rank highway networks on MNIST",
    about="Five layers of 1024 units with inner dimension 256, test accuracy.",
    rows=(
        _row(
            "lr-highway",
            "LR-Highway",
            "Low-rank matrices",
            LowRank(d=256),
            accuracy=0.9883,
            parameters=6_078_474,
        ),
        _row(
            "lrd-highway",
            "LRD-Highway",
            "Low-rank matrices with a diagonal",
            LowRankDiagonal(d=256),
            accuracy=0.9864,
            parameters=6_088_714,
        ),
    ),
)
