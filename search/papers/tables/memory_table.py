"""The memory tasks of the low-rank paper, section 3.0.1."""

from models.architectures import Gru, Urnn
from models.parametrizations import Dense, LowRank, LowRankDiagonal, UnitaryFft
from search.documents.papers import Claim, Fails, Reaches, Source
from search.papers.cited import PASSTHROUGH, URNN
from search.papers.paper_table import Table
from search.papers.row import Row, System, by_updates
from search.tasks import AnyTask, Copy, CopyVariableLag, CopyVariableLength
from search.training.trial_spec import TrainingSpec

_TRAINING = TrainingSpec(
    optimizer="rmsprop",
    rmsprop_start=1e-3,
    learning_rate=1e-3,
    batch_size=20,
    clip_norm=1.0,
    nan_recovery=0.1,
)
_NORMALISED = _TRAINING.model_copy(update={"nan_recovery": None})
_UNITARY = TrainingSpec(
    optimizer="rmsprop",
    rmsprop_start=1e-3,
    rmsprop_eps=0.0,
    learning_rate=1e-3,
    batch_size=20,
    clip_norm=None,
)
_NOTE = (
    "The memory task's sizes and training: update gates started at 4, RMSprop at 1e-3 with 20 "
    "samples a step, gradients' norm at most 1."
)
_DEVIATION = "The source's RMSprop has 1e-8 inside the root, here it stands beside it."
_SOLVED = 1e-3
_FIXED = Copy(lag=500, train_samples=100_000, test_samples=10_000)
_LENGTHS = CopyVariableLength(lag=100, train_samples=100_000, test_samples=10_000)
_LAGS = CopyVariableLag(lag=100, train_samples=100_000, test_samples=10_000)

_GRU = System(
    name="gru-128-memory",
    title="GRU of the memory task, 128 units",
    paper=PASSTHROUGH,
    description=f"The baseline, with full matrices. {_NOTE}",
    architecture=Gru(hidden_size=128, carry_bias=4.0),
    parametrization=Dense(),
)
_LOW_RANK = System(
    name="lr-gru-128-50",
    title="LR-GRU, 128 units, rank 50",
    paper=PASSTHROUGH,
    description=f"Low-rank matrices. {_NOTE}",
    architecture=Gru(hidden_size=128, carry_bias=4.0),
    parametrization=LowRank(d=50),
)
_DIAGONAL = System(
    name="lrd-gru-128-50",
    title="LRD-GRU, 128 units, rank 50",
    paper=PASSTHROUGH,
    description=f"Low-rank matrices with a diagonal. {_NOTE} After a NaN the "
    "gradient is 0.1 times the parameters.",
    architecture=Gru(hidden_size=128, carry_bias=4.0),
    parametrization=LowRankDiagonal(d=50),
)
_WEIGHT_NORM = System(
    name="lrd-gru-wn-128-50",
    title="LRD-GRU with weight normalisation and max-norm, 128 units, rank 50",
    paper=PASSTHROUGH,
    description="As lrd-gru-128-50, with rows of input matrices and of L kept as a length "
    "times a direction, and rows of R as a direction alone (A.2, of which no code was "
    f"released), which needs no recovery from NaN. {_NOTE}",
    architecture=Gru(hidden_size=128, carry_bias=4.0, input_weight_norm=True),
    parametrization=LowRankDiagonal(d=50, weight_norm=True),
)
_URNN_721 = System(
    name="urnn-721",
    title="uRNN of the memory task, 721 complex units",
    paper=URNN,
    description="A unitary matrix of phases, reflections and Fourier transforms; RMSprop at 1e-3 "
    "with 20 samples a step, nothing clipped.",
    architecture=Urnn(hidden_size=721),
    parametrization=UnitaryFft(),
)


def _reaches(updates: int) -> Reaches:
    return Reaches(metric="cross_entropy", direction="minimize", value=_SOLVED, updates=updates)


def _fails(updates: int) -> Fails:
    return Fails(metric="cross_entropy", direction="minimize", value=_SOLVED, updates=updates)


def _row(
    group: str,
    system: System,
    task: AnyTask,
    training: TrainingSpec,
    *,
    updates: int,
    claim: Claim | None,
    parameters: int,
    printed: int | str | None = None,
    preset: bool = False,
    erratum: str | None = None,
    unreachable: str | None = None,
) -> Row:
    return Row(
        key=f"{group}/{system.name}",
        system=system,
        task=task,
        recipe=by_updates(training, updates=updates, each=500),
        source=Source(
            paper=PASSTHROUGH,
            table="section 3.0.1",
            row=f"{system.title.partition(',')[0]}, {task.title}",
        ),
        claim=claim,
        test_samples=10_000,
        printed_parameters=printed,
        parameters=parameters,
        preset=preset,
        erratum=erratum,
        deviation=_DEVIATION,
        unreachable=unreachable,
    )


MEMORY = Table(
    name="memory",
    title="Memory tasks of low-rank GRUs",
    about="Copying after 500 steps, of different lengths, and after different lags, test "
    f"cross-entropy. A task counts as solved below {_SOLVED}, within the updates that are printed.",
    rows=(
        _row(
            "N=500",
            _GRU,
            _FIXED,
            _TRAINING,
            updates=35_000,
            claim=None,
            parameters=54_794,
            printed=54_794,
            preset=True,
            unreachable='The paper says that it solves the task "slowly", and no number.',
        ),
        _row(
            "N=500",
            _LOW_RANK,
            _FIXED,
            _TRAINING,
            updates=35_000,
            claim=_fails(35_000),
            parameters=44_042,
            preset=True,
        ),
        _row(
            "N=500",
            _DIAGONAL,
            _FIXED,
            _TRAINING,
            updates=35_000,
            claim=_reaches(35_000),
            parameters=44_426,
            printed=41_738,
            preset=True,
        ),
        _row(
            "N=500",
            _WEIGHT_NORM,
            _FIXED,
            _NORMALISED,
            updates=35_000,
            claim=_reaches(35_000),
            parameters=45_194,
            preset=True,
        ),
        _row(
            "N=500",
            _URNN_721,
            _FIXED,
            _UNITARY,
            updates=2_000,
            claim=None,
            parameters=36_060,
            printed=36_060,
            preset=True,
            unreachable="The claim, solved in 2,000 updates, is of training samples; it overfits.",
        ),
        _row(
            "lengths",
            _DIAGONAL,
            _LENGTHS,
            _TRAINING,
            updates=30_000,
            claim=_reaches(30_000),
            parameters=44_426,
            printed=41_738,
        ),
        _row(
            "lengths",
            _WEIGHT_NORM,
            _LENGTHS,
            _NORMALISED,
            updates=30_000,
            claim=_reaches(30_000),
            parameters=45_194,
        ),
        _row(
            "lags",
            _DIAGONAL,
            _LAGS,
            _TRAINING,
            updates=38_000,
            claim=_reaches(38_000),
            parameters=44_426,
            printed=41_738,
        ),
        _row(
            "lags",
            _WEIGHT_NORM,
            _LAGS,
            _NORMALISED,
            updates=38_000,
            claim=_reaches(38_000),
            parameters=45_194,
        ),
        _row(
            "lags",
            _URNN_721,
            _LAGS,
            _UNITARY,
            updates=38_000,
            claim=_fails(38_000),
            parameters=36_060,
            printed=36_060,
        ),
    ),
)
