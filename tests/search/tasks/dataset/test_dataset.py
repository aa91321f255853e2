from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from sklearn.metrics import (
    f1_score,
    log_loss,
    mean_absolute_error,
    mean_squared_error,
    r2_score,
)

from search.errors import DataError, TaskUnresolved
from search.tasks import Dataset, DataSources, Split, Splits
from search.tasks.dataset.drawing import drawn_rows
from search.tasks.dataset.regression import RegressionMeter
from search.tasks.dataset.scaling import measured, scaled
from search.tasks.multilabel.labels import LabelMeter
from search.uploads.container import Decoded
from tests.search.uploads.uploaded import FolderShelf, gestures, prices, tide, topics, upload

UPLOADS = {"gestures": gestures, "prices": prices, "topics": topics, "tide": tide}


@pytest.fixture
def shelf(tmp_path: Path) -> FolderShelf:
    return FolderShelf(tmp_path / "shelf")


@pytest.fixture
def sources(tmp_path: Path, shelf: FolderShelf) -> DataSources:
    return DataSources(cache=tmp_path / "cache", datasets=shelf)


def loaded(
    sources: DataSources, shelf: FolderShelf, decoded: Decoded, **fields: Any
) -> tuple[Dataset, Splits[Split]]:
    task = Dataset(id=shelf.add("up", decoded), **fields).resolved(sources)
    return task, task.load(sources)


def parts(splits: Splits[Split]) -> list[Split]:
    return [splits.train, splits.validation, splits.test]


@pytest.mark.parametrize("name", UPLOADS)
def test_a_resolved_task_loads_what_it_says(
    sources: DataSources, shelf: FolderShelf, name: str
) -> None:
    task, splits = loaded(sources, shelf, UPLOADS[name](), window=20)
    signature = task.signature()
    assert task.facts is not None
    assert task.facts.samples == splits.sizes
    assert splits.train.x.shape[1:] == (signature.sequence_length, signature.input_size)
    assert signature.output_steps == ("every" if name == "tide" else "last")
    assert splits.train.lengths is None


@pytest.mark.parametrize("name", UPLOADS)
def test_the_baseline_is_what_the_trivial_predictor_gets_on_the_training_samples(
    sources: DataSources, shelf: FolderShelf, name: str
) -> None:
    task, splits = loaded(sources, shelf, UPLOADS[name](), window=20)
    train = splits.train
    count, outputs = len(train), task.signature().output_size
    if name == "gestures":
        answers = torch.nn.functional.one_hot(train.y.mode().values, outputs).expand(count, -1)
    elif name == "topics":
        answers = torch.logit(train.y.mean(dim=0)).expand(count, -1)
    elif name == "prices":
        answers = train.y.mean(dim=0).expand(count, -1)
    else:
        answers = train.x
    meter = task.meter()
    meter.add(answers.float(), train.y)
    assert meter.values()[task.metric.name] == pytest.approx(task.metric.baseline, rel=1e-4)


def test_features_have_mean_0_and_deviation_1_over_the_training_samples_alone(
    sources: DataSources, shelf: FolderShelf
) -> None:
    _, splits = loaded(sources, shelf, gestures())
    rows = splits.train.x.reshape(-1, 2).double()
    torch.testing.assert_close(rows.mean(dim=0), torch.zeros(2).double(), atol=1e-5, rtol=0)
    torch.testing.assert_close(
        rows.std(dim=0, correction=0), torch.ones(2).double(), rtol=1e-5, atol=0
    )
    test = splits.test.x.reshape(-1, 2).mean(dim=0).abs()
    assert (test > 1e-4).all()


def test_what_was_subtracted_and_divided_by_is_in_the_facts(
    sources: DataSources, shelf: FolderShelf
) -> None:
    decoded = prices()
    task, splits = loaded(sources, shelf, decoded)
    assert task.facts is not None
    assert task.facts.targets is not None
    assert decoded.y is not None
    deviations, means = torch.tensor([task.facts.targets.deviations, task.facts.targets.means])
    restored = torch.cat([split.y for split in parts(splits)]) * deviations + means
    torch.testing.assert_close(
        restored.sort(dim=0).values,
        torch.as_tensor(np.sort(decoded.y, axis=0)),
        rtol=1e-4,
        atol=1e-3,
    )


def test_without_normalising_the_numbers_are_those_of_the_upload(
    sources: DataSources, shelf: FolderShelf
) -> None:
    decoded = prices()
    task, splits = loaded(sources, shelf, decoded, normalise=False)
    assert decoded.y is not None
    given = {row.tobytes() for row in decoded.x}
    assert {row.numpy().tobytes() for split in parts(splits) for row in split.x} == given
    assert {float(y) for split in parts(splits) for y in split.y[:, 0]} == set(
        decoded.y[:, 0].tolist()
    )
    # The metric is in the data's own unit either way.
    scaled_task, _ = loaded(sources, shelf, decoded)
    assert task.metric == scaled_task.metric


def test_padding_stays_0_and_lengths_come_with_their_samples(
    sources: DataSources, shelf: FolderShelf
) -> None:
    decoded = gestures(unequal=True)
    task, splits = loaded(sources, shelf, decoded)
    assert task.signature().sequence_length == 12
    seen = 0
    for split in parts(splits):
        assert split.lengths is not None
        padding = torch.arange(12)[None, :] >= split.lengths[:, None]
        assert (split.x[padding] == 0).all()
        assert (split.x[~padding] != 0).all()
        seen += int(split.lengths.sum())
    assert decoded.lengths is not None
    assert seen == decoded.lengths.sum()
    train = splits.train
    assert train.lengths is not None
    rows = torch.cat([x[:n] for x, n in zip(train.x, train.lengths, strict=True)])
    torch.testing.assert_close(rows.mean(dim=0), torch.zeros(2), atol=1e-5, rtol=0)


def test_a_feature_that_never_changes_becomes_0(sources: DataSources, shelf: FolderShelf) -> None:
    x = np.random.RandomState(0).randn(30, 4, 2)
    x[:, :, 1] = 1e6 / 3
    _, splits = loaded(sources, shelf, upload("classification", x, np.arange(30) % 2))
    assert splits.train.x[:, :, 1].abs().max() < 1e-4


def test_parts_that_the_upload_names_stay_as_they_are(
    sources: DataSources, shelf: FolderShelf
) -> None:
    split = (np.arange(90) // 30).astype(np.int8)
    decoded = gestures(split=split)
    _, splits = loaded(sources, shelf, decoded, normalise=False)
    for place, part in enumerate(parts(splits)):
        np.testing.assert_array_equal(part.x.numpy(), decoded.x[split == place])


def test_only_the_part_that_is_missing_is_drawn(sources: DataSources, shelf: FolderShelf) -> None:
    split = np.where(np.arange(90) < 60, 0, 2).astype(np.int8)
    decoded = gestures(split=split)
    task, splits = loaded(sources, shelf, decoded, normalise=False, validation_share=0.25)
    assert splits.sizes == {"train": 45, "validation": 15, "test": 30}
    np.testing.assert_array_equal(splits.test.x.numpy(), decoded.x[60:])
    assert task.facts is not None


def test_another_seed_draws_others_and_the_same_one_the_same(
    sources: DataSources, shelf: FolderShelf, tmp_path: Path
) -> None:
    _, one = loaded(sources, shelf, gestures())
    _, other = loaded(sources, shelf, gestures(), split_seed=1)
    elsewhere = DataSources(cache=tmp_path / "elsewhere", datasets=shelf)
    _, again = loaded(elsewhere, shelf, gestures())
    assert not torch.equal(one.test.x, other.test.x)
    for left, right in zip(parts(one), parts(again), strict=True):
        assert torch.equal(left.x, right.x)
        assert torch.equal(left.y, right.y)


@settings(deadline=None, max_examples=100)
@given(
    counts=st.lists(st.integers(1, 40), min_size=1, max_size=8),
    validation=st.floats(0.05, 0.4),
    test=st.floats(0.05, 0.4),
    seed=st.integers(0, 2**32 - 1),
)
def test_each_sample_is_drawn_once_and_classes_in_their_shares(
    counts: list[int], validation: float, test: float, seed: int
) -> None:
    classes = np.repeat(np.arange(len(counts)), counts)
    named = np.full(len(classes), -1, dtype=np.int8)
    shares = {"validation_share": validation, "test_share": test, "seed": seed}
    wanted = [max(1, round(share * len(classes))) for share in (validation, test)]
    if sum(wanted) >= len(classes):
        with pytest.raises(DataError, match="too few"):
            drawn_rows(named, classes=classes, **shares)
        return
    rows = drawn_rows(named, classes=classes, **shares)
    assert sorted(np.concatenate(list(rows.values())).tolist()) == list(range(len(classes)))
    assert [len(rows["validation"]), len(rows["test"])] == wanted
    for label, count in enumerate(counts):
        for name, size in zip(("validation", "test"), wanted, strict=True):
            fair = size / len(classes) * count
            # Places are half a step off, and every other class can be off at the same place.
            slack = 1 + len(counts) * count / len(classes)
            assert abs((classes[rows[name]] == label).sum() - fair) <= slack


@pytest.mark.parametrize(("validation", "test"), [(0.2, 0.2), (0.2, 0.4), (0.45, 0.45)])
def test_a_class_with_one_sample_is_trained_on(validation: float, test: float) -> None:
    classes = np.array([0] * 20 + [1])
    for seed in range(20):
        rows = drawn_rows(
            np.full(21, -1, dtype=np.int8),
            classes=classes,
            validation_share=validation,
            test_share=test,
            seed=seed,
        )
        assert 20 in rows["train"]


@settings(deadline=None, max_examples=100)
@given(
    counts=st.lists(st.integers(1, 5), min_size=1, max_size=12),
    validation=st.floats(0.05, 0.45),
    test=st.floats(0.05, 0.45),
    seed=st.integers(0, 2**32 - 1),
    named=st.sampled_from([-1, 1, 2]),
)
def test_every_class_is_trained_on_where_there_is_room(
    counts: list[int], validation: float, test: float, seed: int, named: int
) -> None:
    classes = np.repeat(np.arange(len(counts)), counts)
    split = np.full(len(classes), -1, dtype=np.int8)
    # A part that the upload names itself gives nothing to training.
    split[::3] = named
    shares = {"validation_share": validation, "test_share": test, "seed": seed}
    try:
        rows = drawn_rows(split, classes=classes, **shares)
    except DataError:
        return
    assert sorted(np.concatenate(list(rows.values())).tolist()) == list(range(len(classes)))
    if named > 0:
        part = ("validation", "test")[named - 1]
        np.testing.assert_array_equal(rows[part], np.flatnonzero(split == named))
    there = len(np.unique(classes[split == -1]))
    assert len(np.unique(classes[rows["train"]])) == min(there, len(rows["train"]))


def test_a_division_that_trains_on_every_class_is_the_one_it_was() -> None:
    rows = drawn_rows(
        np.full(12, -1, dtype=np.int8),
        classes=np.array([0] * 9 + [1, 2, 2]),
        validation_share=0.25,
        test_share=0.25,
        seed=3,
    )
    assert {name: found.tolist() for name, found in rows.items()} == {
        "train": [0, 3, 7, 8, 9, 10],
        "validation": [4, 5, 11],
        "test": [1, 2, 6],
    }


@settings(deadline=None, max_examples=30)
@given(
    steps=st.integers(10, 300),
    series=st.integers(1, 3),
    window=st.integers(1, 30),
    validation=st.floats(0.1, 0.4),
    test=st.floats(0.1, 0.4),
)
def test_no_step_of_a_series_is_in_two_splits_and_time_runs_on(
    tmp_path_factory: pytest.TempPathFactory,
    steps: int,
    series: int,
    window: int,
    validation: float,
    test: float,
) -> None:
    root = tmp_path_factory.mktemp("tide")
    shelf = FolderShelf(root / "shelf")
    clock = np.arange(steps)[None, :, None] + 1000.0 * np.arange(series)[:, None, None]
    sources = DataSources(cache=root / "cache", datasets=shelf)
    fields = {"validation_share": validation, "test_share": test, "normalise": False}
    ends = [0, round(steps * (1 - validation - test)), round(steps * (1 - test)), steps]
    if min(np.diff(ends)) <= window:
        with pytest.raises(DataError, match=f"window {window}: .* {min(np.diff(ends))} steps"):
            loaded(sources, shelf, upload("forecasting", clock), window=window, **fields)
        return
    task, splits = loaded(sources, shelf, upload("forecasting", clock), window=window, **fields)
    seen = [{*split.x.flatten().tolist(), *split.y.flatten().tolist()} for split in parts(splits)]
    assert len(seen[0] | seen[1] | seen[2]) == sum(map(len, seen))
    for row in range(series):
        own = [{t % 1000 for t in part if t // 1000 == row} for part in seen]
        assert max(own[0]) < min(own[1])
        assert max(own[1]) < min(own[2])
    for split in parts(splits):
        assert split.x.shape[1:] == (window, 1)
        assert torch.equal(split.y, split.x + 1)
        assert len(set(split.y.flatten().tolist())) == split.y.numel()
    assert task.facts is not None
    assert task.metric.baseline == 1


def test_series_that_are_named_for_a_part_are_in_it_whole(
    sources: DataSources, shelf: FolderShelf
) -> None:
    decoded = tide(series=3, steps=100)
    split = np.array([0, 1, 2], dtype=np.int8)
    samples = {"train": 1, "validation": 1, "test": 1}
    facts = decoded.facts.model_copy(update={"samples": samples})
    decoded = replace(decoded, split=split, facts=facts)
    _, splits = loaded(sources, shelf, decoded, window=9, normalise=False)
    for row, part in enumerate(parts(splits)):
        np.testing.assert_array_equal(part.x.reshape(-1, 2).numpy(), decoded.x[row, : 11 * 9])


def test_a_window_longer_than_a_part_is_refused_with_what_there_is(
    sources: DataSources, shelf: FolderShelf
) -> None:
    with pytest.raises(DataError, match="window 64: validation has 20 steps in a row"):
        loaded(sources, shelf, tide(steps=100))


def test_too_few_samples_are_refused(sources: DataSources, shelf: FolderShelf) -> None:
    decoded = upload("classification", np.zeros((2, 3, 1)), np.array([0, 1]))
    with pytest.raises(DataError, match="2 samples are too few"):
        loaded(sources, shelf, decoded)


@pytest.mark.parametrize("sizes", [[1], [7, 1, 32], [100]])
def test_regression_metrics_are_those_of_scikit_learn(sizes: list[int]) -> None:
    random = np.random.RandomState(0)
    count = sum(sizes)
    target = np.array([1e4, -3.0]) + random.randn(count, 2)
    output = target + 0.3 * random.randn(count, 2)
    units = np.array([20.0, 0.5])
    meter = RegressionMeter(units.tolist())
    start = 0
    for size in sizes:
        piece = slice(start, start + size)
        meter.add(torch.as_tensor(output[piece]), torch.as_tensor(target[piece]))
        start += size
    values = meter.values()
    assert values["mse"] == pytest.approx(mean_squared_error(target * units, output * units))
    assert values["mae"] == pytest.approx(mean_absolute_error(target * units, output * units))
    if count == 1:
        assert np.isnan(values["r2"])
    else:
        assert values["r2"] == pytest.approx(r2_score(target * units, output * units))


def test_label_metrics_are_those_of_scikit_learn() -> None:
    random = np.random.RandomState(0)
    target = (random.rand(50, 7) < 0.3).astype(np.float32)
    output = random.randn(50, 7).astype(np.float32)
    meter = LabelMeter()
    for piece in (slice(0, 13), slice(13, 50)):
        meter.add(torch.as_tensor(output[piece]), torch.as_tensor(target[piece]))
    values = meter.values()
    chance = 1 / (1 + np.exp(-output.astype(np.float64)))
    entropy = log_loss(target.flatten(), np.stack([1 - chance, chance], axis=-1).reshape(-1, 2))
    assert values["bce"] == pytest.approx(entropy, rel=1e-5)
    assert values["micro_f1"] == pytest.approx(f1_score(target, output >= 0, average="micro"))
    best = np.argsort(-output, axis=1)
    for k in (1, 3, 5):
        hits = np.take_along_axis(target, best[:, :k], axis=1).mean()
        assert values[f"p_at_{k}"] == pytest.approx(hits)


def test_precision_is_given_up_to_the_number_of_labels() -> None:
    meter = LabelMeter()
    meter.add(torch.zeros(4, 3), torch.ones(4, 3))
    assert set(meter.values()) == {"bce", "micro_f1", "p_at_1", "p_at_3"}


def test_numbers_far_from_0_keep_their_deviation() -> None:
    values = (1e6 + np.random.RandomState(0).randn(5000, 1)).astype(np.float32)
    scaling = measured(values)
    assert scaling.deviations[0] == pytest.approx(values.astype(np.float64).std(), rel=1e-9)
    assert scaled(values, scaling).std() == pytest.approx(1, rel=1e-4)


def test_facts_that_a_user_sends_are_made_anew(sources: DataSources, shelf: FolderShelf) -> None:
    honest, _ = loaded(sources, shelf, gestures())
    assert honest.facts is not None
    sent = honest.model_copy(update={"facts": honest.facts.model_copy(update={"outputs": 2})})
    assert sent.resolved(sources) == honest
    with pytest.raises(DataError, match="does not give the facts"):
        sent.load(sources)


def test_an_unresolved_task_knows_nothing(sources: DataSources) -> None:
    task = Dataset(id="up")
    for ask in (lambda: task.metric, task.signature, task.meter, lambda: task.load(sources)):
        with pytest.raises(TaskUnresolved, match="up was not looked at"):
            ask()


def test_a_load_after_the_first_needs_the_upload_no_more(
    sources: DataSources, shelf: FolderShelf
) -> None:
    task, splits = loaded(sources, shelf, gestures())
    shelf.remove("up")
    assert torch.equal(task.load(sources).train.x, splits.train.x)


def test_an_upload_that_is_gone_or_another_one_is_refused(
    sources: DataSources, shelf: FolderShelf, tmp_path: Path
) -> None:
    task, _ = loaded(sources, shelf, gestures())
    fresh = DataSources(cache=tmp_path / "fresh", datasets=shelf)
    shelf.add("up", prices())
    with pytest.raises(DataError, match="but this study was stored with"):
        task.load(fresh)
    shelf.remove("up")
    with pytest.raises(DataError, match="no data set 'up'"):
        task.load(fresh)
    with pytest.raises(DataError, match="no data set 'up'"):
        task.resolved(fresh)
    with pytest.raises(DataError, match="no uploads are kept here"):
        task.load(DataSources(cache=tmp_path / "other"))


@pytest.mark.parametrize("dataset_id", ["", "../up", "a b", "x" * 65, "a/b", "a\n"])
def test_an_id_is_a_plain_name(dataset_id: str) -> None:
    with pytest.raises(ValidationError):
        Dataset(id=dataset_id)


def test_shares_must_leave_something_to_train_on() -> None:
    with pytest.raises(ValidationError, match=r"0\.5 and test_share 0\.5 leave nothing"):
        Dataset(id="up", validation_share=0.5, test_share=0.5)
