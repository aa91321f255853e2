"""Networks of packed rotations on the copy task: DizzyRNN, figures 1 to 6."""

from collections.abc import Iterator

from models.architectures import Lstm, Rnn
from models.parametrizations import AnyFamily, Dense, PackedRotations, RotationSvd
from search.documents.papers import Claim, Fails, Reaches, Source
from search.papers.cited import DIZZY, IRNN
from search.papers.paper_table import Table
from search.papers.row import Recipe, Row, System, by_passes
from search.tasks import CopyTail
from search.training.trial_spec import TrainingSpec

_TAIL = CopyTail(train_samples=1_000, validation_samples=100, test_samples=100, fresh=True)
_TRAINING = TrainingSpec(optimizer="adagrad", learning_rate=1e-2, batch_size=100, clip_norm=None)
_NOTE = (
    "Adagrad with 100 samples a step; the source takes the learning rate from the command line, "
    "1e-2 is chosen here. Its copy task judges the last ten steps alone."
)
_KEEPS_NORMS = "Rotations and absolute values, which keep every norm. "
_DEVIATION = "The learning rate is not stated; 1e-2 is ours."
_NO_CLAIM = "The figure is a curve, of which no number is printed."
_FAST = by_passes(_TRAINING, samples=1_000, epochs=100)
_LONG = by_passes(_TRAINING, samples=1_000, epochs=200)


def _dizzy(size: int) -> Rnn:
    return Rnn(
        hidden_size=size,
        activation="abs",
        structured_inputs="square",
        input_initialisation="gaussian",
        learned_initial_state=False,
    )


def _system(
    name: str, title: str, about: str, architecture: Rnn | Lstm, family: AnyFamily
) -> System:
    return System(
        name=name,
        title=title,
        paper=DIZZY,
        description=f"{about}{_NOTE}",
        architecture=architecture,
        parametrization=family,
    )


def _row(
    figure: int,
    system: System,
    *,
    recipe: Recipe,
    claim: Claim | None,
    parameters: int,
    preset: bool = True,
) -> Row:
    return Row(
        key=f"figure-{figure}/{system.name}",
        system=system,
        task=_TAIL,
        recipe=recipe,
        source=Source(paper=DIZZY, table=f"figure {figure}", row=system.title),
        claim=claim,
        parameters=parameters,
        preset=preset,
        deviation=_DEVIATION,
        unreachable=None if claim is not None else _NO_CLAIM,
    )


_LEARNS = Reaches(metric="accuracy", direction="maximize", value=0.99, updates=_FAST.updates)
_FAILS = Fails(metric="accuracy", direction="maximize", value=0.2, updates=_LONG.updates)


def _rows() -> Iterator[Row]:
    yield _row(
        1,
        _system(
            "dizzy-128-10",
            "DizzyRNN, 128 units, 10 packed rotations",
            _KEEPS_NORMS,
            _dizzy(128),
            PackedRotations(count=10),
        ),
        recipe=_FAST,
        claim=_LEARNS,
        parameters=3_852,
    )
    rivals = (
        (
            _system(
                "rnn-128-tail",
                "RNN of the copy task, 128 units",
                "A plain network with tanh. ",
                Rnn(hidden_size=128, activation="tanh", learned_initial_state=False),
                Dense(),
            ),
            19_596,
        ),
        (
            _system(
                "irnn-128-tail",
                "IRNN of the copy task, 128 units",
                "A plain network with relu, started at the identity. ",
                Rnn(hidden_size=128, activation="relu", learned_initial_state=False),
                Dense(initialisation="identity"),
            ).model_copy(update={"paper": IRNN}),
            19_596,
        ),
        (
            _system(
                "lstm-128-tail",
                "LSTM of the copy task, 128 units",
                "The gated rival. ",
                Lstm(hidden_size=128, learned_initial_state=False),
                Dense(),
            ),
            73_740,
        ),
    )
    for system, parameters in rivals:
        yield _row(1, system, recipe=_LONG, claim=_FAILS, parameters=parameters)
    for count, parameters in ((1, 3_276), (5, 3_532), (20, 4_492)):
        yield _row(
            2,
            _system(
                f"dizzy-128-{count}",
                f"DizzyRNN, 128 units, {count} packed rotation{'s' if count > 1 else ''}",
                _KEEPS_NORMS,
                _dizzy(128),
                PackedRotations(count=count),
            ),
            recipe=_LONG,
            claim=None,
            parameters=parameters,
            preset=False,
        )
    for size, parameters in ((16, 452), (32, 892), (64, 1_772)):
        yield _row(
            4,
            _system(
                f"dizzy-{size}-5",
                f"DizzyRNN, {size} units, 5 packed rotations",
                _KEEPS_NORMS,
                _dizzy(size),
                PackedRotations(count=5),
            ),
            recipe=_LONG,
            claim=None,
            parameters=parameters,
            preset=False,
        )
    yield _row(
        6,
        _system(
            "dizzy-svd-128",
            "DizzyRNN-SVD, 128 units, 10 + 10 packed rotations",
            "Singular values drawn towards 1 by a penalty, whose weight 1e-3 is ours. ",
            _dizzy(128),
            RotationSvd(count_u=10, count_v=10, penalty=1e-3),
        ),
        recipe=_LONG,
        claim=None,
        parameters=4_620,
    )


DIZZY_COPY = Table(
    name="dizzy",
    title="Networks of packed rotations on the copy task",
    about="Accuracy over the ten symbols to be recalled. The paper claims that DizzyRNN is near 1 "
    "within 100 epochs of ten batches, and that the RNN, the IRNN and the LSTM stay near chance, "
    "0.1; here above 0.99, and below 0.2.",
    rows=tuple(_rows()),
)
