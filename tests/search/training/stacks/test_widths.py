"""How many members are computed in one call."""

import pytest
from pydantic import TypeAdapter

from models.model import ModelSpec
from search.tasks import AnyTask
from search.training.jobs import TrainJob
from search.training.stacks.widths import KnownWidths, Widths
from search.training.trial_spec import TrainingSpec, TrialSpec

_BATCHES = 40


def _job(hidden_size: int, *, batch_size: int = 64) -> TrainJob:
    task: AnyTask = TypeAdapter[AnyTask](AnyTask).validate_python({"kind": "digits"})
    model = ModelSpec.model_validate(
        {
            "architecture": {"kind": "rnn", "hidden_size": hidden_size},
            "parametrization": {"kind": "dense"},
            "signature": task.signature(),
        }
    )
    training = TrainingSpec(batch_size=batch_size)
    return TrainJob(
        task=task, trial=TrialSpec(model=model, training=training, seed=0), number=0, epochs=1
    )


def _used(widths: Widths, members: int, fastest: int) -> list[int]:
    """The widths of some batches, where a member takes longer the further its call is from one."""
    found: list[int] = []
    for _ in range(_BATCHES):
        found.append(widths.width(members))
        widths.took(members * (1.0 + abs(found[-1] - fastest)), members=members)
    return found


@pytest.mark.parametrize("fastest", [8, 4, 1])
def test_the_fastest_of_all_half_and_one_is_used_in_the_end(fastest: int) -> None:
    used = _used(Widths("auto"), 8, fastest)
    assert used[-1] == fastest
    assert {8, 4} <= {*used} <= {8, 4, 1}


def test_a_number_is_obeyed() -> None:
    assert {*_used(Widths(3), 8, fastest=8)} == {3}


@pytest.mark.parametrize(("fastest", "later"), [(8, 6), (4, 4), (1, 1)])
def test_trials_of_about_the_same_size_try_nothing_again(fastest: int, later: int) -> None:
    known = KnownWidths()
    first = Widths("auto")
    first.begin_with(known.of(_job(32), device="cpu"))
    _used(first, 8, fastest)
    second = Widths("auto")
    second.begin_with(known.of(_job(34), device="cpu"))
    assert {*_used(second, 6, fastest)} == {later}
    assert second.width(16) == (16 if fastest == 8 else fastest)
    assert second.width(17) == 17


@pytest.mark.parametrize(
    ("job", "device"),
    [(_job(128), "cpu"), (_job(32, batch_size=32), "cpu"), (_job(32), "cuda")],
)
def test_of_other_trials_nothing_is_known(job: TrainJob, device: str) -> None:
    known = KnownWidths()
    first = Widths("auto")
    first.begin_with(known.of(_job(32), device="cpu"))
    _used(first, 8, fastest=1)
    other = Widths("auto")
    other.begin_with(known.of(job, device=device))
    assert other.width(8) == 8


def test_what_failed_is_used_no_more() -> None:
    widths = Widths("auto")
    _used(widths, 8, fastest=8)
    widths.limit(4)
    assert widths.width(8) == 4
    widths.limit(None)
    assert widths.width(8) == 8
