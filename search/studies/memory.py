"""How much memory a trial will take, in closed form: nothing is built and nothing is allocated.

A training step holds, of P parameters in single precision: the weights, their gradients, the
best epoch's copy and what the optimizer keeps; beside them what a batch leaves for its gradient and
what is made of the parameters before they are applied. A file to resume from is made in memory, of
all but the gradients. The peak is the larger of the two. Constants were measured on a CPU with our
kernels (`python -m tests.benchmarks.memory`); deploy/docs/explanation/memory.md has how far off
they are.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pydantic import ByteSize

from models.model import ModelSpec
from models.spec import Signature
from search.agents.executors import Slot
from search.documents.spaces import MemoryCandidate, SpaceMemory
from search.errors import Fault, SpecRefused
from search.graphs.model_outputs import ModelOutputs
from search.graphs.network_trial import NetworkTrial
from search.spaces import AnyDrawn, AnySpace
from search.studies.spec import StudySpec, Throughput
from search.tasks import AnyTask
from search.training.optimizers import STATES
from search.training.trial_spec import AnyTrialSpec, TrialSpec
from storage.endings import TrialCause
from storage.fleet.coordinators import SlotRecord
from storage.records import TrialOutcome

_NUMBER_BYTES = 4
PROCESS_BYTES = 96 << 20
"""What an attempt's process takes beside its model and its data."""
RUNTIME_BYTES = 400 << 20
"""What onnxruntime, fits that are kept and what layers read take beside a network."""
_NETWORK_COPIES = 8.0
"""Of a network's weights: files, sessions, matrices and decompositions."""
_TRAINED_COPIES = 10.0
"""The same of what is trained: numbers, gradients, Adam's two, the best, and what is made of them
where numbers are rounded."""
_DATA_COPIES = 3.0
_FILE_COPIES = 2.6
"""How often the bytes of a file are in memory at once while it is made."""
_TRAINED_ANSWERS = 6
"""How often a batch's answers are held with their losses and gradients."""
_EVALUATED_ANSWERS = 3
_INPUTS = 3
"""How often a batch's inputs are held while they are made and read."""
_EVALUATED_SHARE = 0.25
"""What an evaluation holds of what a training step keeps for a gradient."""
_RIVALS = 2
"""Builds of the dense baseline that a model is measured with, see `search.measuring.throughput`."""
_MEASURED_STATES = 2
"""What the optimizer keeps that training is measured with."""


MemoryPlace: TypeAlias = Slot | SlotRecord
"""A slot, as far as memory goes."""


@dataclass(frozen=True)
class Need:
    """Bytes that an attempt is predicted to take."""

    computing: int
    """Where it computes, at the peak of that."""
    storing: int
    """The same while a file of its state is made: on the machine, whatever computes."""
    kept: int
    """Of the machine's memory while a GPU computes."""
    shared: int = 0
    """Of each of these what further trials in the same process do not take again."""

    @property
    def total(self) -> int:
        """On a CPU: the peak of the process."""
        return max(self.computing, self.storing)

    def excess(self, place: MemoryPlace) -> tuple[int, int] | None:
        """Bytes that it takes and that there are, where these are known and too few; else null."""
        wanted = (
            ((self.total, place.memory),)
            if place.device == "cpu"
            else ((self.computing, place.device_memory), (self.kept, place.memory))
        )
        over = [(need, there) for need, there in wanted if there is not None and need > there]
        return max(over, key=lambda pair: pair[0] / pair[1], default=None)

    def fits(self, place: MemoryPlace) -> bool:
        """Whether a place has memory enough, or nobody knows."""
        return self.excess(place) is None

    def refusal(self, places: Sequence[MemoryPlace]) -> TrialOutcome | None:
        """Why no place has memory enough, and the relative excess; null where one has.

        Where there are no places at all nothing is refused: some may come.
        """
        excesses = [self.excess(place) for place in places]
        over = [excess for excess in excesses if excess is not None]
        if not over or len(over) < len(excesses):
            return None
        need, there = min(over, key=lambda pair: pair[0] / pair[1])
        sentence = f"{in_words(need)} predicted, the largest slot has {in_words(there)}"
        return TrialOutcome(cause=TrialCause.MEMORY, detail=sentence, violation=need / there - 1)


def of_stack(needs: Sequence[Need]) -> Need:
    """What trials take that are trained together in one process."""
    shared = max(need.shared for need in needs)
    return Need(
        computing=shared + sum(need.computing - need.shared for need in needs),
        storing=shared + sum(need.storing - need.shared for need in needs),
        kept=shared + sum(need.kept - need.shared for need in needs),
        shared=shared,
    )


def in_words(size: int) -> str:
    """A number of bytes as a person says it: `51.5 GB`."""
    return ByteSize(size).human_readable(decimal=True, separator=" ")


def need_of(spec: StudySpec, trial: AnyTrialSpec) -> Need:
    """What a trial of a study takes, at the most of its measurement and its training."""
    if isinstance(spec.task, ModelOutputs):
        is_trained = isinstance(trial, NetworkTrial) and trial.fine_tune is not None
        return network_need(spec.task, is_trained=is_trained)
    assert isinstance(trial, TrialSpec)
    training = training_need(spec.task, trial)
    if not spec.needs_throughput:
        return training
    return _larger(training, measuring_need(trial.model, spec.throughput))


def network_need(task: ModelOutputs, *, is_trained: bool) -> Need:
    """What an attempt takes that evaluates a trial of a network: the same for all of them.

    One that is trained takes more, beside what each layer's answers take.
    """
    known = task.known
    copies = _NETWORK_COPIES + (_TRAINED_COPIES if is_trained else 0)
    taken = (
        PROCESS_BYTES
        + RUNTIME_BYTES
        + int(copies * known.weight_bytes + _DATA_COPIES * known.data_bytes)
    )
    return Need(computing=taken, storing=0, kept=taken)


def training_need(task: AnyTask, trial: TrialSpec) -> Need:
    """What an attempt takes that trains a trial on a task."""
    model, batch = trial.model, trial.training.batch_size
    count, states = model.parameter_count(), STATES[trial.training.optimizer]
    plateau = trial.training.plateau
    if plateau is not None and plateau.restore:
        # That of the best epoch is kept beside the one that is trained with, and the best epoch's
        # weights as they were before they were rounded.
        states = 2 * states + (model.rounded_to is not None)
    saved = model.architecture.saved_numbers(model.signature, batch_size=batch)
    inputs, answers = _ends(model.signature)
    kept = saved + _kept(model, model.signature)
    step = batch * (kept + _INPUTS * inputs + _TRAINED_ANSWERS * answers)
    evaluation = task.evaluation_rows * (
        int(_EVALUATED_SHARE * saved) + _INPUTS * inputs + _EVALUATED_ANSWERS * answers
    )
    original = 0
    if trial.compression is not None:
        # It is read and decomposed before training, and stays where it teaches.
        original = 3 * model.dense_twin().parameter_count()
    # Rounded weights stand in for the others, which are kept meanwhile.
    beside = 0 if model.rounded_to is None else count
    held = count * (3 + states) + beside + original
    data = task.data_bytes()
    file = int(_FILE_COPIES * count * (2 + states))
    outside = PROCESS_BYTES + data
    return Need(
        computing=outside + _NUMBER_BYTES * (held + _working(model) + max(step, evaluation)),
        storing=outside + _NUMBER_BYTES * (held + file),
        kept=outside + _NUMBER_BYTES * (count + original + file),
        shared=outside,
    )


def measuring_need(model: ModelSpec, throughput: Throughput) -> Need:
    """What an attempt takes that measures a model, beside its dense baseline."""
    steps = throughput.sequence_length or model.signature.sequence_length
    signature = model.signature.model_copy(update={"sequence_length": steps})
    baseline = model.dense_twin()
    trains = throughput.mode == "training"
    batch = throughput.batch_size
    sizes = [
        (one.architecture.saved_numbers(signature, batch_size=batch), _kept(one, signature))
        for one in (model, baseline)
    ]
    inputs, answers = _ends(signature)
    rivals = 0 if baseline == model.unrounded else _RIVALS
    if trains:
        most = max(saved + kept for saved, kept in sizes)
        copies, each = 2 + _MEASURED_STATES, most + _TRAINED_ANSWERS * answers
    else:
        # The held form of the weights is a copy of them.
        most = max(int(_EVALUATED_SHARE * saved) for saved, _ in sizes)
        copies, each = 2, most + _EVALUATED_ANSWERS * answers
    counts = model.parameter_count() + rivals * baseline.parameter_count()
    activations = batch * (each + (1 + rivals) * _INPUTS * inputs)
    computing = PROCESS_BYTES + _NUMBER_BYTES * (copies * counts + _working(model) + activations)
    return Need(computing=computing, storing=0, kept=PROCESS_BYTES + _NUMBER_BYTES * counts)


def _kept(model: ModelSpec, signature: Signature) -> int:
    """Numbers that products with structured matrices leave of a sample, beside its states."""
    each_step = sum(
        model.parametrization.for_slot(slot).kept_numbers(slot)
        for slot in model.architecture.slots(signature).values()
    )
    return signature.sequence_length * each_step


def _working(model: ModelSpec) -> int:
    """Numbers that it takes to make what is applied of all structured matrices."""
    return sum(
        model.parametrization.for_slot(slot).working_numbers(slot)
        for slot in model.architecture.slots(model.signature).values()
    )


def _ends(signature: Signature) -> tuple[int, int]:
    """Numbers of a sample's inputs, its embedded tokens included, and of its answers."""
    steps = signature.sequence_length
    answered = steps if signature.output_steps == "every" else 1
    return steps * signature.input_size, answered * signature.output_size


def _larger(one: Need, other: Need) -> Need:
    """The larger of each; what trials share is that of the first."""
    return Need(
        computing=max(one.computing, other.computing),
        storing=max(one.storing, other.storing),
        kept=max(one.kept, other.kept),
        shared=one.shared,
    )


def space_memory(spec: StudySpec, space: AnySpace, places: Sequence[MemoryPlace]) -> SpaceMemory:
    """Predict both ends of a study's space, beside the memory of the places that serve it."""
    known = [place.memory for place in places if place.memory is not None]
    return SpaceMemory(
        largest_candidate=_memory_candidate(
            *max(_needs(spec, space, highest=True), key=lambda found: found[1].total)
        ),
        smallest_candidate=_memory_candidate(*_smallest(spec, space)),
        slot_bytes=max(known) if known and len(known) == len(places) else None,
    )


def refuse_too_large(spec: StudySpec, space: AnySpace, places: Sequence[MemoryPlace]) -> None:
    """Refuse a study of which not even the smallest configuration has a place.

    Raises:
        SpecRefused: names the bytes that are predicted and those that there are.
    """
    if not places:
        return
    drawn, need = _smallest(spec, space)
    refusal = need.refusal(places)
    if refusal is not None:
        message = (
            f"the smallest configuration, {drawn.candidate}, needs more memory than any slot has: "
            f"{refusal.detail}"
        )
        raise SpecRefused([Fault("space", message)])


def _smallest(spec: StudySpec, space: AnySpace) -> tuple[AnyDrawn, Need]:
    return min(_needs(spec, space, highest=False), key=lambda found: found[1].total)


def _needs(spec: StudySpec, space: AnySpace, *, highest: bool) -> Iterator[tuple[AnyDrawn, Need]]:
    """What the configurations at one end of the space take, and those that are named by name."""
    for drawn in (*space.ends(highest=highest), *space.named()):
        yield drawn, need_of(spec, drawn.spec)


def _memory_candidate(drawn: AnyDrawn, need: Need) -> MemoryCandidate:
    return MemoryCandidate(
        architecture=drawn.candidate.architecture,
        parametrization=drawn.candidate.parametrization,
        hyperparameters=dict(drawn.hyperparameters),
        bytes=need.total,
    )
