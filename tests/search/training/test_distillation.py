"""Learning from another model's answers: the losses, by hand, and in training."""

import hashlib
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from models.architectures import Lstm
from models.checkpoint import save_bytes
from models.compression import from_torch
from models.errors import CheckpointError
from models.model import ModelSpec
from models.parametrizations import Dense, LowRank
from search.tasks import Addition, DataSources, Digits, Language, Multilabel, Splits
from search.tasks.samples import IGNORED, Split
from search.tasks.soft_targets import soft_classes, soft_labels, soft_numbers
from search.training.compression import Compression, Distillation
from search.training.conversion import calibration_of, converted, original_of
from search.training.distillation import Teacher
from search.training.jobs import TrainJob
from search.training.resume import from_bytes
from search.training.run import train
from search.training.trial_spec import TrainingSpec, TrialSpec
from tests.search.training_cases import MODELS, TASK, RecordingHooks, load_splits


def softened(logits: list[float], temperature: float) -> list[float]:
    """Softmax with the exponentials written out."""
    weights = [math.exp(logit / temperature) for logit in logits]
    return [weight / sum(weights) for weight in weights]


def divergence(wanted: list[float], given: list[float]) -> float:
    return sum(p * math.log(p / q) for p, q in zip(wanted, given, strict=True))


def test_classes_diverge_as_their_softened_distributions() -> None:
    torch.manual_seed(1)
    output, teacher = torch.randn(5, 3).double(), torch.randn(5, 3).double()
    target = torch.tensor([0, 2, 1, 1, 0])
    temperature = 2.5
    by_hand = [
        temperature**2 * divergence(softened(t, temperature), softened(s, temperature))
        for s, t in zip(output.tolist(), teacher.tolist(), strict=True)
    ]
    found = soft_classes(output, teacher, target, temperature)
    assert float(found) == pytest.approx(sum(by_hand) / 5, rel=1e-12)


def test_steps_that_a_task_ignores_teach_nothing() -> None:
    torch.manual_seed(2)
    output, teacher = torch.randn(2, 4, 3), torch.randn(2, 4, 3)
    target = torch.tensor([[IGNORED, 1, 2, IGNORED], [IGNORED, IGNORED, 0, 1]])
    found = soft_classes(output, teacher, target, 3.0)
    teacher[target == IGNORED] = 1e3
    assert soft_classes(output, teacher, target, 3.0) == found
    kept = target != IGNORED
    assert float(found) == pytest.approx(
        float(soft_classes(output[kept], teacher[kept], target[kept], 3.0))
    )


def test_labels_diverge_each_by_itself() -> None:
    torch.manual_seed(3)
    output, teacher = torch.randn(4, 2).double(), torch.randn(4, 2).double()
    temperature = 4.0
    by_hand: list[float] = []
    for s, t in zip(output.flatten().tolist(), teacher.flatten().tolist(), strict=True):
        p, q = (1 / (1 + math.exp(-logit / temperature)) for logit in (t, s))
        by_hand.append(temperature**2 * divergence([p, 1 - p], [q, 1 - q]))
    found = soft_labels(output, teacher, torch.zeros(4, 2), temperature)
    assert float(found) == pytest.approx(sum(by_hand) / 8, rel=1e-12)


def test_numbers_differ_by_squares_at_any_temperature() -> None:
    output, teacher = torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0, 4.0]])
    for temperature in (1.0, 9.0):
        assert float(soft_numbers(output, teacher, torch.zeros(1, 2), temperature)) == 2.5


@pytest.mark.parametrize(
    ("task", "loss"),
    [
        (Digits.example(), soft_classes),
        (Addition.example(), soft_numbers),
        (Multilabel.example(), soft_labels),
    ],
)
def test_a_task_compares_answers_as_its_loss_does(task: Any, loss: Any) -> None:
    outputs = task.signature().output_size
    output, teacher = torch.randn(3, outputs), torch.randn(3, outputs)
    target = torch.zeros(3, dtype=torch.long) if loss is soft_classes else torch.zeros(3, outputs)
    assert task.soft_loss(output, teacher, target, 2.0) == loss(output, teacher, target, 2.0)
    assert float(task.soft_loss(teacher, teacher, target, 2.0)) == pytest.approx(0, abs=1e-6)


def job(
    compression: Compression, *, epochs: int = 2, batch_size: int = 64, rate: float = 0.02
) -> TrainJob:
    model = ModelSpec(
        architecture=MODELS["rnn-dense"].architecture,
        parametrization=LowRank(d=3) if not compression.is_original else Dense(),
        signature=TASK.signature(),
    )
    training = TrainingSpec(learning_rate=rate, batch_size=batch_size, optimizer="sgd")
    trial = TrialSpec(model=model, training=training, seed=5, compression=compression)
    return TrainJob(task=TASK, trial=trial, number=1, epochs=epochs, checkpoint_seconds=1e9)


@pytest.fixture(scope="module")
def original() -> bytes:
    return save_bytes(MODELS["rnn-dense"].build(seed=11), MODELS["rnn-dense"])


def named(original: bytes, **given: Any) -> Compression:
    digest = hashlib.sha256(original).hexdigest()
    return Compression(sha256=digest, calibration_samples=40, **given)


def test_a_step_follows_the_gradient_of_both_losses(original: bytes, tmp_path: Path) -> None:
    """One step of plain descent, with everything computed again by torch alone."""
    splits = load_splits(tmp_path)
    weight, temperature, rate = 0.7, 3.0, 0.05
    distillation = Distillation(temperature=temperature, distillation_weight=weight)
    asked = job(named(original, distillation=distillation), epochs=1, batch_size=4096, rate=rate)
    asked = asked.model_copy(
        update={
            "trial": asked.trial.model_copy(
                update={"training": asked.trial.training.model_copy(update={"clip_norm": None})}
            ),
            "checkpoint_seconds": 0.0,
        }
    )
    teacher = original_of(original, asked.trial)
    start = converted(teacher, asked.trial, splits.train).network
    expected = {name: tensor.clone() for name, tensor in start.state_dict().items()}

    start.train()
    output = start(splits.train.x)
    own = nn.functional.cross_entropy(output, splits.train.y)
    with torch.no_grad():
        wanted = (teacher.eval()(splits.train.x) / temperature).softmax(-1)
    soft = (wanted * (wanted.log() - (output / temperature).log_softmax(-1))).sum(-1).mean()
    total = (1 - weight) * own + weight * temperature**2 * soft
    gradients = torch.autograd.grad(total, list(start.parameters()))
    for (name, _), gradient in zip(start.named_parameters(), gradients, strict=True):
        expected[name] = expected[name] - rate * gradient

    hooks = RecordingHooks()
    train(
        asked,
        splits,
        task=TASK,
        hooks=hooks,
        start=converted(teacher, asked.trial, splits.train).network.state_dict(),
        original=original_of(original, asked.trial),
    )
    assert [report.epoch for report in hooks.reports] == [0, 1]
    assert hooks.reports[1].train_loss == pytest.approx(own.item(), rel=1e-5)
    state: dict[str, Tensor] = from_bytes(hooks.saved[-1], job=asked).model
    for name, tensor in expected.items():
        torch.testing.assert_close(state[name], tensor, rtol=1e-4, atol=1e-6)


def test_epoch_0_is_the_conversion_and_may_be_the_best(original: bytes, tmp_path: Path) -> None:
    splits = load_splits(tmp_path)
    asked = job(named(original), epochs=2, rate=1.0)
    network = converted(original_of(original, asked.trial), asked.trial, splits.train).network
    with torch.no_grad():
        hits = network.eval()(splits.validation.x).argmax(-1) == splits.validation.y
    hooks = RecordingHooks(stop_after=0)
    result = train(asked, splits, task=TASK, hooks=hooks, start=network.state_dict())
    (report,) = hooks.reports
    assert (report.epoch, report.train_loss) == (0, None)
    assert report.validation == pytest.approx(float(hits.float().mean()))
    assert (result.best_epoch, result.epochs_trained, result.outcome) == (0, 0, "stopped")
    assert result.quality == report.validation
    for name, tensor in network.state_dict().items():
        assert torch.equal(result.module.state_dict()[name], tensor)


def test_an_original_is_measured_and_not_trained(original: bytes, tmp_path: Path) -> None:
    splits = load_splits(tmp_path)
    asked = job(named(original, is_original=True), epochs=9)
    network = original_of(original, asked.trial)
    hooks = RecordingHooks()
    result = train(asked, splits, task=TASK, hooks=hooks, start=network.state_dict())
    assert [report.epoch for report in hooks.reports] == [0]
    assert (result.outcome, result.best_epoch, result.epochs_trained) == ("complete", 0, 0)
    for name, tensor in network.state_dict().items():
        assert torch.equal(result.module.state_dict()[name], tensor)


def test_resumed_anywhere_the_numbers_are_those_of_an_unbroken_run(
    original: bytes, tmp_path: Path
) -> None:
    splits = load_splits(tmp_path)
    asked = job(named(original, distillation=Distillation()), epochs=2)
    asked = asked.model_copy(update={"checkpoint_seconds": 0.0})

    def ran(resume: bytes | None) -> tuple[RecordingHooks, bytes]:
        teacher = original_of(original, asked.trial)
        start = None
        if resume is None:
            start = converted(teacher, asked.trial, splits.train).network.state_dict()
        hooks = RecordingHooks()
        result = train(
            asked, splits, task=TASK, hooks=hooks, resume=resume, start=start, original=teacher
        )
        return hooks, save_bytes(result.module, asked.trial.model)

    unbroken, checkpoint = ran(None)
    assert [report.epoch for report in unbroken.reports] == [0, 1, 2]
    for place in (0, 2, len(unbroken.saved) - 2):
        again, found = ran(unbroken.saved[place])
        assert found == checkpoint
        last = [report.validation for report in again.reports]
        assert last == [report.validation for report in unbroken.reports][-len(last) :]


@pytest.fixture
def verse(tmp_path: Path) -> tuple[Language, Splits[Any]]:
    """The characters of a small text, read in windows with the state carried on."""
    lines = ["the cat sat", "the dog sat on the mat", "a cat", "on the mat"] * 8
    (tmp_path / "verse.txt").write_text("".join(f"{line}\n" for line in lines))
    sources = DataSources(cache=tmp_path / "cache", folder=tmp_path)
    task = Language(corpus="file", file="verse.txt", window=5).resolved(sources)
    return task, task.load(sources)


def test_of_a_stream_the_original_reads_on_where_it_ended(
    verse: tuple[Language, Splits[Any]],
) -> None:
    """What it answers to three windows is what torch's own layer answers to the whole of them."""
    task, splits = verse
    torch.manual_seed(4)
    symbols = task.signature().output_size
    rnn, readout = nn.LSTM(symbols, 6, batch_first=True), nn.Linear(6, symbols)
    state = {f"rnn.{name}": tensor for name, tensor in rnn.state_dict().items()}
    state |= {f"readout.{name}": tensor for name, tensor in readout.state_dict().items()}
    network, _ = from_torch(state, output_steps="every")
    weight, temperature = 0.3, 2.0
    given = Distillation(temperature=temperature, distillation_weight=weight)
    teacher = Teacher(network, given, torch.device("cpu"))
    batches = [splits.train.take(named) for named in splits.train.batches(4, None)[:3]]
    with torch.no_grad():
        states, _ = rnn(torch.cat([batch.x for batch in batches], dim=1))
        answers = readout(states).split([batch.x.shape[1] for batch in batches], dim=1)
    for batch, answer in zip(batches, answers, strict=True):
        output, own = torch.randn_like(answer), torch.tensor(1.5)
        found = teacher.loss(output, batch, own, task=task, carries_state=True)
        kept = batch.y != IGNORED
        p = (answer[kept] / temperature).softmax(-1)
        q = (output[kept] / temperature).softmax(-1)
        soft = temperature**2 * (p * (p / q).log()).sum(-1).mean()
        torch.testing.assert_close(found, (1 - weight) * own + weight * soft)


def test_a_stream_is_resumed_with_the_states_of_both_models(
    verse: tuple[Language, Splits[Any]],
) -> None:
    task, splits = verse
    model = ModelSpec(
        architecture=Lstm(hidden_size=6), parametrization=Dense(), signature=task.signature()
    )
    content = save_bytes(model.build(seed=3), model)
    small = model.model_copy(update={"parametrization": LowRank(d=2)})
    trial = TrialSpec(
        model=small,
        training=TrainingSpec(batch_size=4),
        seed=5,
        compression=named(content, distillation=Distillation(distillation_weight=0.9)),
    )
    asked = TrainJob(task=task, trial=trial, number=1, epochs=2, checkpoint_seconds=0.0)

    def ran(resume: bytes | None) -> tuple[RecordingHooks, bytes]:
        teacher, start = original_of(content, trial), None
        if resume is None:
            start = converted(teacher, trial, splits.train).network.state_dict()
        hooks = RecordingHooks()
        result = train(
            asked, splits, task=task, hooks=hooks, resume=resume, start=start, original=teacher
        )
        return hooks, save_bytes(result.module, small)

    unbroken, checkpoint = ran(None)
    places = [0, 2, len(unbroken.saved) // 2, len(unbroken.saved) - 2]
    carried = [from_bytes(unbroken.saved[place], job=asked).carried for place in places]
    assert any(len(parts) == 4 for parts in carried), "h and c of both models"
    for place in places:
        _, found = ran(unbroken.saved[place])
        assert found == checkpoint


def test_input_matrices_are_converted_where_the_space_says_so(
    original: bytes, tmp_path: Path
) -> None:
    splits = load_splits(tmp_path)
    trial = job(named(original)).trial
    architecture = trial.model.architecture.model_copy(update={"structured_inputs": "all"})
    model = trial.model.model_copy(update={"architecture": architecture})
    trial = trial.model_copy(update={"model": model})
    found = converted(original_of(original, trial), trial, splits.train)
    assert {layer.slot for layer in found.report.layers} == {"recurrent", "inputs.0.linear"}
    assert found.report.parameters_after == model.parameter_count()
    other = named(original).model_copy(update={"sha256": "0" * 64})
    with pytest.raises(CheckpointError, match="0000"):
        original_of(original, trial.model_copy(update={"compression": other}))


def test_calibration_reads_no_padding() -> None:
    x = torch.arange(4 * 6.0).view(4, 6, 1)
    lengths = torch.tensor([2, 6, 4, 5])
    split = Split(x, torch.zeros(4, dtype=torch.long), lengths)
    assert torch.equal(calibration_of(split, 4), x[[1, 2, 3], :4])
    assert torch.equal(calibration_of(split, 2), x[:2, :2])
    assert torch.equal(calibration_of(split, 4, any_length=False), x)
    assert torch.equal(calibration_of(Split(x, split.y), 3), x[:3])
