"""MNIST with permuted pixels: table 1 of the low-rank paper."""

from models.architectures import Gru
from models.parametrizations import AnyFamily, Dense, LowRank, LowRankDiagonal
from search.documents.papers import PrintedValue, Source
from search.papers.cited import PASSTHROUGH
from search.papers.paper_table import Table
from search.papers.row import Row, System, by_updates
from search.papers.tables.pixel_mnist import MNIST_TEST
from search.tasks import Mnist
from search.training.trial_spec import TrainingSpec

_NOTE = (
    "Permuted pixels, update gates started at 5, RMSprop at 5e-4 with 20 samples a step; the "
    "code clips the norm of some of the gradients to 1, here of all together, and permutes in "
    "another order."
)
_RECIPE = by_updates(
    TrainingSpec(
        optimizer="rmsprop",
        rmsprop_start=1e-3,
        rmsprop_eps=0.0,
        learning_rate=5e-4,
        batch_size=20,
        clip_norm=1.0,
    ),
    updates=1_000_000,
    each=2_500,
)


def _row(
    name: str,
    title: str,
    kind: str,
    size: int,
    family: AnyFamily,
    *,
    validation: float,
    test: float,
    printed: int,
    parameters: int,
) -> Row:
    system = System(
        name=name,
        title=title,
        paper=PASSTHROUGH,
        description=f"{kind}. {_NOTE}",
        architecture=Gru(hidden_size=size, carry_bias=5.0),
        parametrization=family,
    )
    return Row(
        key=name,
        system=system,
        task=Mnist(layout="permuted"),
        recipe=_RECIPE,
        source=Source(paper=PASSTHROUGH, table="table 1", row=title),
        claim=PrintedValue(
            metric="accuracy",
            direction="maximize",
            value=test,
            printed=f"{100 * validation:.1f} / {100 * test:.1f} (validation / test)",
        ),
        test_samples=MNIST_TEST,
        printed_parameters=printed,
        parameters=parameters,
        preset=True,
        deviation="Another permutation; the source's counts have one "
        " input matrix of three and no first state.",
    )


_LOW, _DIAGONAL = "Low-rank matrices", "Low-rank matrices with a diagonal"

PERMUTED_MNIST = Table(
    name="permuted-mnist",
    title="MNIST with permuted pixels",
    about="GRUs with full, low-rank and low-rank-plus-diagonal matrices, test accuracy. A uRNN is "
    "cited with 91.4.",
    rows=(
        _row(
            "gru-128",
            "GRU, 128 units, reset before the matrix",
            "The baseline, with full matrices",
            128,
            Dense(),
            validation=0.930,
            test=0.928,
            printed=50_954,
            parameters=51_338,
        ),
        _row(
            "lr-gru-128-24",
            "LR-GRU, 128 units, rank 24",
            _LOW,
            128,
            LowRank(d=24),
            validation=0.934,
            test=0.918,
            printed=20_234,
            parameters=20_618,
        ),
        _row(
            "lr-gru-512-4",
            "LR-GRU, 512 units, rank 4",
            _LOW,
            512,
            LowRank(d=4),
            validation=0.925,
            test=0.913,
            printed=19_466,
            parameters=21_002,
        ),
        _row(
            "lrd-gru-64-24",
            "LRD-GRU, 64 units, rank 24",
            _DIAGONAL,
            64,
            LowRankDiagonal(d=24),
            validation=0.931,
            test=0.919,
            printed=10_314,
            parameters=10_506,
        ),
        _row(
            "lrd-gru-128-24",
            "LRD-GRU, 128 units, rank 24",
            _DIAGONAL,
            128,
            LowRankDiagonal(d=24),
            validation=0.941,
            test=0.935,
            printed=20_618,
            parameters=21_002,
        ),
        _row(
            "lrd-gru-256-24",
            "LRD-GRU, 256 units, rank 24",
            _DIAGONAL,
            256,
            LowRankDiagonal(d=24),
            validation=0.951,
            test=0.947,
            printed=41_226,
            parameters=41_994,
        ),
    ),
)
