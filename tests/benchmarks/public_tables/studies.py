"""A public table as a study has it, so that the project's own samplers search it.

A model is asked for no more than its counts, which are the table's; latency is known of what was
begun, as in a study that measures before it trains.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import optuna
from pydantic import PrivateAttr

from models.architectures import Rnn
from models.model import ModelSpec
from models.parametrizations import Dense
from models.spec import Signature
from search.documents.objectives import OBJECTIVE_KINDS
from search.documents.region import Region
from search.samplers import AnySampler, Past, SamplerContext
from search.sampling.optuna_study import sampler_seed
from search.spaces import Candidate, DrawnTrial, Limits, Source, TrialSource
from search.training.trial_spec import TrainingSpec, TrialSpec
from storage.records import TrialOrigin, TrialRecord, TrialState
from tests.benchmarks.public_tables.search import Evaluation
from tests.benchmarks.public_tables.tables import VALIDATION_SAMPLES, PublicTable

_BEGINNING = datetime(2000, 1, 1, tzinfo=UTC)
_CANDIDATE = Candidate(architecture="rnn", parametrization="dense")


class TableModel(ModelSpec):
    """A row: its size names it, its count is the table's, and it is its own dense twin."""

    _parameters: int = PrivateAttr(default=0)

    @classmethod
    def of(cls, row: int, parameters: int) -> "TableModel":
        """The model of a row, with so many parameters."""
        model = cls(
            architecture=Rnn(hidden_size=row + 1),
            parametrization=Dense(),
            signature=Signature(input_size=1, sequence_length=1, output_size=1),
        )
        model._parameters = parameters
        return model

    def parameter_count(self) -> int:
        """The table's."""
        return self._parameters

    def dense_twin(self) -> ModelSpec:
        """Itself."""
        return self


@dataclass(frozen=True, kw_only=True)
class RowDraw(DrawnTrial):
    """One configuration, as samplers know it and as the table does."""

    row: int


class RowSpace:
    """A public table as a space; draws are made once per row."""

    def __init__(self, table: PublicTable) -> None:
        self._table = table
        self.dimensions = table.dimensions
        self._draws: dict[int, RowDraw] = {}

    def draw(self, source: Source) -> RowDraw:
        """One configuration by the source's answers."""
        answers = tuple(source.answer(dimension) for dimension in self.dimensions.values())
        return self.at(self._table.row_of[answers])

    def at(self, row: int) -> RowDraw:
        """A row of the table."""
        if row not in self._draws:
            values = dict(self._table.values[row])
            self._draws[row] = RowDraw(
                candidate=_CANDIDATE,
                row=row,
                spec=TrialSpec(
                    model=TableModel.of(row, int(self._table.parameters[row])),
                    training=TrainingSpec(),
                    seed=0,
                ),
                hyperparameters={**values},
                drawn=values,
            )
        return self._draws[row]


class StudySearch:
    """One of the project's samplers, asked and told as a coordinator does it."""

    def __init__(
        self, table: PublicTable, sampler: AnySampler, *, seed: int, region: Region | None = None
    ) -> None:
        self._table, self._sampler, self._seed = table, sampler, seed
        self._space = RowSpace(table)
        self._kinds = [OBJECTIVE_KINDS[name] for name in table.objectives]
        self._study = optuna.create_study(
            directions=[kind.direction or table.metric.direction for kind in self._kinds]
        )
        self._records: list[TrialRecord] = []
        self._asked: tuple[int, optuna.Trial] | None = None
        """The newest proposal, and the number of its evaluation if it is not refused."""
        self._context = SamplerContext(
            space=self._space,
            objectives=table.objectives,
            metric=table.metric,
            seed=seed,
            epochs=1,
            trials=200,
            limits=Limits(),
            file_bytes=lambda _: None,
            is_refused=lambda _: False,
            past=self.past,
            region=region or Region(),
        )

    def propose(self, evaluations: Sequence[Evaluation]) -> int:
        """Tell what came of the last proposal, and ask for the next."""
        for number in range(len(self._records), len(evaluations)):
            self._records.append(self._record(number, evaluations[number]))
        if self._asked is not None and self._asked[0] < len(evaluations):
            number, asked = self._asked
            values = [kind.value(self._records[number]) for kind in self._kinds]
            self._study.tell(asked, [float(value) for value in values if value is not None])
        number = len(self._study.get_trials(deepcopy=False))
        self._study.sampler = self._sampler.build_for(
            self._context, seed=sampler_seed(self._seed, number)
        )
        trial = self._study.ask()
        self._asked = len(evaluations), trial
        return self._space.draw(TrialSource(trial)).row

    def refuse(self) -> None:
        """Tell that the newest proposal failed."""
        assert self._asked is not None
        self._study.tell(self._asked[1], state=optuna.trial.TrialState.FAIL)
        self._asked = None

    def past(self) -> Past:
        """What the study did so far."""
        return Past(
            trials=self._records,
            validations={
                record.number: {1: record.quality}
                for record in self._records
                if record.quality is not None
            },
            validation_samples=VALIDATION_SAMPLES,
        )

    def _record(self, number: int, evaluation: Evaluation) -> TrialRecord:
        """The row that a study's tables would have."""
        drawn, row = self._space.at(evaluation.row), evaluation.row
        parameters, latency = int(self._table.parameters[row]), float(self._table.latency[row])
        return TrialRecord(
            study_id="table",
            number=number,
            state=TrialState.COMPLETE,
            architecture=_CANDIDATE.architecture,
            parametrization=_CANDIDATE.parametrization,
            hyperparameters=dict(drawn.hyperparameters),
            drawn=dict(drawn.drawn),
            spec=drawn.spec.model_dump(mode="json"),
            parameters=parameters,
            dense_parameters=parameters,
            shape_key=str(row),
            quality=evaluation.quality,
            origin=TrialOrigin.SAMPLER,
            epochs_trained=1,
            throughput=1 / latency,
            latency_p50=latency,
            measurement_id=str(row),
            dispatched=True,
            created_at=_BEGINNING,
            started_at=_BEGINNING,
            finished_at=_BEGINNING,
            told_at=_BEGINNING,
        )
