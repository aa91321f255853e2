"""What a trial is predicted to take, and what becomes of it where that is too much."""

from typing import Any

import pytest
import torch

from models.model import ModelSpec
from search.agents.executors import Slot
from search.errors import SpecRefused
from search.spaces.space import SearchSpace
from search.studies.memory import (
    PROCESS_BYTES,
    Need,
    measuring_need,
    need_of,
    refuse_too_large,
    space_memory,
    training_need,
)
from search.studies.spec import StudySpec, Throughput
from search.training.optimizers import OPTIMIZERS, STATES, make_optimizer
from search.training.trial_spec import OptimizerName, TrainingSpec, TrialSpec
from storage.endings import TrialCause
from tests.benchmarks.memory import CASES, SMALL, Case, measured_bytes, predicted_bytes

GIGABYTE = 10**9


def study(**fields: Any) -> StudySpec:
    return StudySpec.model_validate({"task": {"kind": "digits"}, **fields})


def trial(architecture: dict[str, Any], *, training: dict[str, Any] | None = None) -> TrialSpec:
    model = ModelSpec.model_validate(
        {
            "architecture": architecture,
            "parametrization": {"kind": "dense"},
            "signature": study().trained_task.signature().model_dump(),
        }
    )
    return TrialSpec(model=model, training=TrainingSpec(**(training or {})), seed=0)


def slot(memory: int | None, *, device: str = "cpu", device_memory: int | None = None) -> Slot:
    return Slot("a", device, "some", 1.0, memory=memory, device_memory=device_memory)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_keeps_as_many_numbers_as_it_is_said_to(name: OptimizerName) -> None:
    module = torch.nn.Linear(7, 5)
    optimizer = make_optimizer(module, TrainingSpec.model_validate({"optimizer": name}))
    module(torch.ones(1, 7)).sum().backward()
    optimizer.step()
    kept = sum(
        quantity.numel()
        for quantities in optimizer.state.values()
        for quantity in quantities.values()
        if quantity.dim() > 0
    )
    assert kept == STATES[name] * (7 * 5 + 5)


def test_a_gru_of_65536_units_is_known_to_be_too_large_before_it_is_built() -> None:
    need = training_need(study().trained_task, trial({"kind": "gru", "hidden_size": 65536}))
    weights = 4 * trial({"kind": "gru", "hidden_size": 65536}).model.parameter_count()
    assert weights > 51 * GIGABYTE
    # The weights, their gradients, the best epoch's and two states, and a file of four of them.
    assert need.total > 9 * weights
    refusal = need.refusal([slot(2 * GIGABYTE), slot(GIGABYTE)])
    assert refusal is not None
    assert refusal.cause is TrialCause.MEMORY
    assert str(refusal.detail).endswith("the largest slot has 2.0 GB")
    assert refusal.violation == pytest.approx(need.total / (2 * GIGABYTE) - 1)


def test_a_prediction_grows_with_every_part_of_it() -> None:
    task = study().trained_task
    small = training_need(task, trial({"kind": "gru", "hidden_size": 64}))
    assert small.total > PROCESS_BYTES
    for larger in (
        trial({"kind": "gru", "hidden_size": 128}),
        trial({"kind": "gru", "hidden_size": 64, "layers": 2}),
        trial({"kind": "gru", "hidden_size": 64}, training={"batch_size": 4096}),
    ):
        assert training_need(task, larger).total > small.total
    plain = {"kind": "mlp", "hidden_size": 4096}
    sgd = training_need(task, trial(plain, training={"optimizer": "sgd"}))
    assert training_need(task, trial(plain)).total > sgd.total


def test_measuring_counts_where_throughput_is_wanted_and_alone_there() -> None:
    wide = trial({"kind": "rnn", "hidden_size": 512})
    large = {"batch_size": 65536, "sequence_length": 1000}
    measured = measuring_need(wide.model, Throughput.model_validate(large))
    trained = training_need(study().trained_task, wide)
    assert measured.total > 10 * trained.total
    assert need_of(study(throughput=large), wide).total == measured.total
    unmeasured = study(throughput=large, objectives=["quality", "parameters"])
    assert need_of(unmeasured, wide).total == trained.total


def test_what_nobody_knows_refuses_nothing() -> None:
    need = Need(computing=5 * GIGABYTE, storing=GIGABYTE, kept=2 * GIGABYTE)
    assert need.total == 5 * GIGABYTE
    assert need.refusal([]) is None
    assert need.refusal([slot(None)]) is None
    assert need.refusal([slot(GIGABYTE), slot(None)]) is None
    assert need.refusal([slot(GIGABYTE), slot(6 * GIGABYTE)]) is None
    assert need.refusal([slot(GIGABYTE)]) is not None


def test_a_gpu_has_memory_of_its_own_beside_the_machines() -> None:
    need = Need(computing=5 * GIGABYTE, storing=9 * GIGABYTE, kept=2 * GIGABYTE)
    card = "cuda:GPU-1"
    assert need.fits(slot(3 * GIGABYTE, device=card, device_memory=6 * GIGABYTE))
    assert need.fits(slot(None, device=card))
    assert need.excess(slot(3 * GIGABYTE, device=card, device_memory=4 * GIGABYTE)) == (
        5 * GIGABYTE,
        4 * GIGABYTE,
    )
    assert need.excess(slot(GIGABYTE, device=card)) == (2 * GIGABYTE, GIGABYTE)


def test_a_space_tells_its_ends_and_what_there_is() -> None:
    spec = study(space={"hidden_size": {"low": 16, "high": 8192}})
    found = space_memory(spec, SearchSpace(spec), [slot(GIGABYTE), slot(2 * GIGABYTE)])
    assert found.slot_bytes == 2 * GIGABYTE
    assert found.largest_candidate.bytes > GIGABYTE > found.smallest_candidate.bytes
    assert found.largest_candidate.hyperparameters["gru.hidden_size"] == 8192
    assert space_memory(spec, SearchSpace(spec), [slot(None)]).slot_bytes is None


def test_a_space_of_which_nothing_fits_is_refused_with_what_it_needs() -> None:
    fields = {"architectures": ["gru"], "parametrizations": ["dense"]}
    spec = study(**fields, space={"hidden_size": {"low": 16384, "high": 65536}})
    with pytest.raises(SpecRefused, match=r"smallest .* GB predicted, the largest slot has 2.0 GB"):
        refuse_too_large(spec, SearchSpace(spec), [slot(2 * GIGABYTE)])
    across = study(**fields, space={"hidden_size": {"low": 16, "high": 65536}})
    refuse_too_large(across, SearchSpace(across), [slot(2 * GIGABYTE)])
    refuse_too_large(spec, SearchSpace(spec), [slot(None)])
    refuse_too_large(spec, SearchSpace(spec), [])


def test_small_trials_stay_within_what_any_process_takes() -> None:
    for case in SMALL:
        assert measured_bytes(case) < predicted_bytes(case) + PROCESS_BYTES


LARGE = [case for case in CASES if predicted_bytes(case) > 4 * 10**8]


@pytest.mark.slow
@pytest.mark.parametrize("case", LARGE, ids=lambda case: case.name)
def test_large_trials_take_what_is_predicted_within_a_factor_of_two(case: Case) -> None:
    assert 0.5 < predicted_bytes(case) / measured_bytes(case) < 2
