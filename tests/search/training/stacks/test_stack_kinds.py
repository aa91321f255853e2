"""Members of a stack are as they are alone: dropout, bits, an original, ragged samples, texts."""

import copy
import hashlib
from pathlib import Path
from typing import Any

import pytest
import torch

from models.architectures import Gru, Highway, Mlp, Rnn
from models.checkpoint import save_bytes
from models.model import ModelSpec
from models.parametrizations import (
    AnyParametrization,
    Dense,
    FactorizedSvd,
    HouseholderSvd,
    LowRank,
    LowRankDiagonal,
    PerLayer,
)
from models.stacked import StackedNetwork
from search.tasks import DataSources, Language, Split, Splits
from search.training.compression import Compression, Distillation
from search.training.conversion import converted, original_of
from search.training.jobs import TrainJob
from search.training.stacks import Entry, stack_key
from search.training.trial_spec import TrainingSpec, TrialSpec
from tests.search.training.stacks.stack_cases import Told, alone, assert_same, together, told
from tests.search.training_cases import MODELS, SIGNATURE, TASK, load_splits


@pytest.fixture(scope="module")
def splits(tmp_path_factory: pytest.TempPathFactory) -> Splits[Split]:
    return load_splits(tmp_path_factory.mktemp("cache"))


def jobs_of(
    *models: ModelSpec, task: Any = TASK, epochs: int = 2, **training: Any
) -> list[TrainJob]:
    specs = [
        TrainingSpec(learning_rate=0.01 / (1 + seed), batch_size=64, **training)
        for seed in range(len(models))
    ]
    return [
        TrainJob(
            task=task,
            trial=TrialSpec(model=model, training=one, seed=seed),
            number=seed,
            epochs=epochs,
            checkpoint_seconds=1e9,
        )
        for seed, (model, one) in enumerate(zip(models, specs, strict=True))
    ]


def check(entries: list[Entry], splits: Splits) -> list[Told]:
    assert len({stack_key(entry.job) for entry in entries}) == 1
    found = together(entries, splits)
    for entry, one in zip(entries, found, strict=True):
        assert_same(one, alone(entry, splits))
    return found


@pytest.mark.parametrize(
    "architecture",
    [
        Gru(hidden_size=8, input_dropout=0.2, recurrent_dropout=0.3, readout_dropout=0.1),
        Gru(hidden_size=8, layers=2, layer_dropout=0.3, symbol_dropout=0.2, start=0.1),
        Mlp(hidden_size=8, dropout=0.4),
    ],
)
def test_each_member_draws_its_own_masks(architecture: Any, splits: Splits[Split]) -> None:
    model = ModelSpec(architecture=architecture, parametrization=Dense(), signature=SIGNATURE)
    check(told(*jobs_of(model, model, model)), splits)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("kind", ["rnn-householder_svd", "gru-low_rank_diagonal"])
def test_members_are_rounded_in_epochs_of_their_own(
    kind: str, bits: int, splits: Splits[Split]
) -> None:
    model = MODELS[kind].model_copy(update={"bits": bits})
    jobs = jobs_of(model, model, epochs=3, quantised_epochs=1)
    jobs[1] = jobs[1].model_copy(update={"epochs": 2})
    # Rounding takes a difference in the last digit for one of a whole step of its grid.
    found = together(told(*jobs), splits)
    for job, one in zip(jobs, found, strict=True):
        (entry,) = told(job)
        other = alone(entry, splits)
        assert len(one.reports) == len(other.reports)
        for mine, theirs in zip(one.reports, other.reports, strict=True):
            assert mine.train_loss == pytest.approx(theirs.train_loss, rel=0.02)
            assert mine.validation == pytest.approx(theirs.validation, abs=0.02)


def test_members_of_other_ranks_radii_and_penalties(splits: Splits[Split]) -> None:
    models = [
        ModelSpec(
            architecture=Rnn(hidden_size=12),
            parametrization=HouseholderSvd(m1=m1, m2=4, r=r, penalty=penalty),
            signature=SIGNATURE,
        )
        for m1, r, penalty in ((2, 0.1, 0.0), (5, 0.3, 0.1))
    ]
    check(told(*jobs_of(*models)), splits)
    ranks = [
        ModelSpec(
            architecture=Gru(hidden_size=10),
            parametrization=LowRankDiagonal(d=d),
            signature=SIGNATURE,
        )
        for d in (1, 4)
    ]
    check(told(*jobs_of(*ranks)), splits)


def refused_together(*models: ModelSpec) -> None:
    """Models that have keys of their own, and are refused where they are laid out as one."""
    for ordered in (models, models[::-1]):
        assert len({stack_key(job) for job in jobs_of(*ordered)}) == len(models)
        states = [model.build(seed=0).state_dict() for model in ordered]
        nobody = [torch.Generator() for _ in ordered]
        with pytest.raises(ValueError, match="members of one stack may differ"):
            StackedNetwork(ordered, states, generators=nobody)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (LowRank(d=2), LowRank(d=5)),
        (LowRank(d=2, tied=True), LowRank(d=5, tied=True)),
        (
            PerLayer(layers=(LowRankDiagonal(d=2), Dense())),
            PerLayer(layers=(LowRankDiagonal(d=3), Dense())),
        ),
    ],
)
def test_ranks_that_shape_statistics_and_masks_are_equal_in_a_stack(
    one: AnyParametrization, other: AnyParametrization, splits: Splits[Split]
) -> None:
    highway = Highway(hidden_size=10, layers=2, stack="batch_normalised")
    models = [
        ModelSpec(architecture=highway, parametrization=each, signature=SIGNATURE)
        for each in (one, other)
    ]
    refused_together(*models)
    check(told(*jobs_of(models[0], models[0])), splits)


def test_members_have_the_same_parameters_whatever_their_reals(splits: Splits[Split]) -> None:
    plain, narrow, wide = (
        ModelSpec(
            architecture=Rnn(hidden_size=8),
            parametrization=FactorizedSvd(margin=margin),
            signature=SIGNATURE,
        )
        for margin in (0.0, 0.2, 0.5)
    )
    refused_together(plain, wide)
    check(told(*jobs_of(narrow, wide)), splits)
    check(told(*jobs_of(plain, plain)), splits)


def test_a_state_with_a_parameter_that_the_stack_lacks_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where a family does not say so, and the stack would have no place for it."""
    monkeypatch.setattr(FactorizedSvd, "optional", frozenset[str]())
    models = [
        ModelSpec(
            architecture=Rnn(hidden_size=8),
            parametrization=FactorizedSvd(margin=margin),
            signature=SIGNATURE,
        )
        for margin in (0.0, 0.5)
    ]
    states = [model.build(seed=0).state_dict() for model in models]
    nobody = [torch.Generator() for _ in models]
    with pytest.raises(ValueError, match=r"some have none of \['recurrent\.p'\]"):
        StackedNetwork(models, states, generators=nobody)


def test_ragged_samples_are_padded_to_the_longest_of_all(splits: Splits[Split]) -> None:
    generator = torch.Generator().manual_seed(3)

    def ragged(split: Split) -> Split:
        lengths = torch.randint(1, 9, (len(split),), generator=generator)
        return Split(split.x, split.y, lengths)

    data = Splits(ragged(splits.train), ragged(splits.validation), ragged(splits.test))
    model = MODELS["gru-low_rank_diagonal"]
    check(told(*jobs_of(model, model)), data)


def verse(folder: Path, batching: str, **fields: Any) -> tuple[Language, DataSources]:
    """A text of lines of other lengths."""
    lines = ["the cat sat", "the dog sat on the mat", "a cat", "on the mat"] * 20
    (folder / "verse.txt").write_text("".join(f"{line}\n" for line in lines))
    sources = DataSources(cache=folder / "cache", folder=folder)
    task = Language.model_validate(
        {
            "corpus": "file",
            "file": "verse.txt",
            "batching": batching,
            **({"window": 7} if batching == "stream" else {}),
            **fields,
        }
    )
    return task.resolved(sources), sources


@pytest.mark.parametrize(
    ("dropout", "is_of_steps"),
    [
        ({}, False),
        ({"recurrent_dropout": 0.3, "symbol_dropout": 0.3}, False),
        ({"input_dropout": 0.3}, True),
        ({"layer_dropout": 0.3}, True),
        ({"readout_dropout": 0.3}, True),
    ],
)
def test_masks_for_steps_of_lines_are_drawn_by_those_alone(
    dropout: dict[str, float], is_of_steps: bool, tmp_path: Path
) -> None:
    """How many numbers a member draws would else follow from the longest line of all."""
    for batching in ("stream", "sentences"):
        task, sources = verse(tmp_path, batching)
        model = ModelSpec(
            architecture=Gru.model_validate({"hidden_size": 8, **dropout}),
            parametrization=Dense(),
            signature=task.signature(),
        )
        jobs = jobs_of(model, model, task=task, epochs=1)
        is_alone = is_of_steps and batching == "sentences"
        assert len({stack_key(job) for job in jobs}) == (2 if is_alone else 1)
        if not is_alone:
            check(told(*jobs), task.load(sources))


@pytest.mark.parametrize("batching", ["stream", "sentences"])
@pytest.mark.parametrize("embedding", [None, 5])
def test_texts_are_read_by_each_member(
    batching: str, embedding: int | None, tmp_path: Path
) -> None:
    task, sources = verse(tmp_path, batching, embedding=embedding)
    model = ModelSpec(
        architecture=Gru(hidden_size=8), parametrization=Dense(), signature=task.signature()
    )
    # States that are carried on leave first states without a gradient.
    jobs = jobs_of(model, model, task=task, weight_decay=0.5)
    small = [
        job.model_copy(
            update={
                "trial": job.trial.model_copy(
                    update={"training": job.trial.training.model_copy(update={"batch_size": 8})}
                )
            }
        )
        for job in jobs
    ]
    check(told(*small), task.load(sources))
    # Both learn from one original, whose state is carried on as well.
    original = model.build(seed=77)
    compression = Compression(
        sha256="0" * 64, calibration_samples=4, distillation=Distillation(temperature=1.5)
    )
    taught = [
        Entry(
            job.model_copy(
                update={"trial": job.trial.model_copy(update={"compression": compression})}
            ),
            Told(),
            original=copy.deepcopy(original),
        )
        for job in small
    ]
    check(taught, task.load(sources))


def test_members_learn_from_one_original(splits: Splits[Split]) -> None:
    content = save_bytes(MODELS["rnn-dense"].build(seed=11), MODELS["rnn-dense"])
    entries: list[Entry] = []
    model = ModelSpec(
        architecture=MODELS["rnn-dense"].architecture,
        parametrization=LowRank(d=3),
        signature=SIGNATURE,
    )
    for place, job in enumerate(jobs_of(model, model)):
        compression = Compression(
            sha256=hashlib.sha256(content).hexdigest(),
            calibration_samples=40,
            distillation=Distillation(temperature=1.5 + place, distillation_weight=0.3),
        )
        trial = job.trial.model_copy(update={"compression": compression})
        asked = job.model_copy(update={"trial": trial})
        start = converted(original_of(content, trial), trial, splits.train).network
        entries.append(
            Entry(asked, Told(), start=start.state_dict(), original=original_of(content, trial))
        )
    found = check(entries, splits)
    assert [report.epoch for report in found[0].reports] == [0, 1, 2]
