"""Deep networks on multi-label data: arXiv figure 7."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from models.spec import Signature
from search.documents.papers import Source
from search.papers.cited import SPECTRAL
from search.papers.paper_table import Table
from search.papers.row import Row, System, by_updates
from search.papers.tables.depth_table import DEEP
from search.tasks import Multilabel
from search.training.trial_spec import TrainingSpec

_RECIPE = by_updates(
    TrainingSpec(learning_rate=1e-3, batch_size=64, clip_norm=None), updates=6_000, each=61
)
_SIZE, _DEPTHS, _DROPOUT = 128, (10, 30, 60), 0.1
_NO_NUMBER = "The figure prints no number, and does not say what it measures."
_COUNTS = {
    "bibtex": {
        "mlp-128-10-dropout": 420_767,
        "svd-mlp-128-10-dropout": 296_767,
        "resnet-128-10-dropout": 420_767,
        "svd-resnet-128-10-dropout": 296_767,
        "mlp-128-30-dropout": 751_007,
        "svd-mlp-128-30-dropout": 379_007,
        "resnet-128-30-dropout": 751_007,
        "svd-resnet-128-30-dropout": 379_007,
        "mlp-128-60-dropout": 1_246_367,
        "svd-mlp-128-60-dropout": 502_367,
        "resnet-128-60-dropout": 1_246_367,
        "svd-resnet-128-60-dropout": 502_367,
    },
    "mediamill": {
        "mlp-128-10-dropout": 193_637,
        "svd-mlp-128-10-dropout": 69_637,
        "resnet-128-10-dropout": 193_637,
        "svd-resnet-128-10-dropout": 69_637,
        "mlp-128-30-dropout": 523_877,
        "svd-mlp-128-30-dropout": 151_877,
        "resnet-128-30-dropout": 523_877,
        "svd-resnet-128-30-dropout": 151_877,
        "mlp-128-60-dropout": 1_019_237,
        "svd-mlp-128-60-dropout": 275_237,
        "resnet-128-60-dropout": 1_019_237,
        "svd-resnet-128-60-dropout": 275_237,
    },
}


class _Set(NamedTuple):
    printed: str
    signature: Signature
    test: int
    unreachable: str


_SETS: Mapping[str, _Set] = {
    "bibtex": _Set(
        "Bibtex",
        Signature(input_size=1836, sequence_length=1, output_size=159),
        2_515,
        _NO_NUMBER,
    ),
    "mediamill": _Set(
        "Mediamill",
        Signature(input_size=120, sequence_length=1, output_size=101),
        12_914,
        "The whole data set is nowhere to be had freely; its files belong in "
        f"multilabel/mediamill/ of the data folder. {_NO_NUMBER}",
    ),
}


def _rows() -> Iterator[Row]:
    for name, one in _SETS.items():
        for depth in _DEPTHS:
            for kind, deep in DEEP.items():
                architecture = deep.architecture(_SIZE, depth)
                system = System(
                    name=f"{kind}-{_SIZE}-{depth}-dropout",
                    title=f"{deep.title} with dropout, {depth} layers of {_SIZE}",
                    paper=SPECTRAL,
                    description="The networks of the depth table with a share of "
                    f"{_DROPOUT} dropped, on vectors with several labels. The depths are ours.",
                    architecture=architecture.model_copy(update={"dropout": _DROPOUT}),
                    parametrization=deep.family,
                )
                yield Row(
                    key=f"{name}-L={depth}/{system.name}",
                    system=system,
                    task=Multilabel(name=name),
                    recipe=_RECIPE,
                    source=Source(
                        paper=SPECTRAL,
                        table="figure 7",
                        row=f"{deep.title}, {one.printed}, L = {depth}",
                    ),
                    test_samples=one.test,
                    parameters=_COUNTS[name][system.name],
                    signature=one.signature,
                    direction="minimize",
                    preset=name == "bibtex" and depth == _DEPTHS[0],
                    deviation="Neither depths nor training are stated; both are ours.",
                    unreachable=one.unreachable,
                )


MULTILABEL = Table(
    name="multilabel",
    title="Deep networks on multi-label data",
    about="Plain and residual networks of 128 units by depth. The figure claims that the svdResNet "
    "is the best where networks are deep, and prints no number.",
    rows=tuple(_rows()),
)
