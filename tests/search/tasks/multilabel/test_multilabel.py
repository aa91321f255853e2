from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from search.errors import DataError, TaskUnresolved
from search.tasks import DataSources, Multilabel, Split, Splits
from search.tasks.multilabel import multilabel
from search.tasks.multilabel.multilabel import MultilabelFacts
from tests.real_data import real_data

FEATURES, LABELS = 6, 3


def samples(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.RandomState(seed)
    x = random.randn(count, FEATURES).round(3) * (random.rand(count, FEATURES) < 0.6)
    return x.astype(np.float32), (random.rand(count, LABELS) < [0.2, 0.5, 0.8]).astype(np.float32)


TRAIN, TEST = samples(20, seed=0), samples(8, seed=1)


def arff(x: np.ndarray, y: np.ndarray) -> str:
    # A label's column stands among the features.
    names = [("l0", "{0,1}"), *((f"x{i}", "numeric") for i in range(FEATURES)), ("l 1", "{0,1}")]
    header = "".join(f"@attribute '{name}' {kind}\n" for name, kind in [*names, ("l2", "{0,1}")])
    rows = np.concatenate([y[:, :1], x, y[:, 1:]], axis=1)
    return f"{header}@data\n" + "".join(",".join(map(repr, row)) + "\n" for row in rows.tolist())


def text(x: np.ndarray, y: np.ndarray) -> str:
    lines = [
        ",".join(map(str, np.flatnonzero(labels)))
        + "".join(f" {i}:{features[i]!r}" for i in np.flatnonzero(features))
        for features, labels in zip(x.tolist(), y, strict=True)
    ]
    return "\n".join([f"{len(x)} {FEATURES} {LABELS}", *lines, ""])


def write_arff(folder: Path) -> None:
    (folder / "some-train.arff").write_text(arff(*TRAIN))
    (folder / "some-test.arff").write_text(arff(*TEST))
    names = "".join(f'<label name="{name}"></label>' for name in ("l0", "l 1", "l2"))
    (folder / "some.xml").write_text(f"<labels>{names}</labels>")


def write_pair(folder: Path) -> None:
    (folder / "some_train.txt").write_text(text(*TRAIN))
    (folder / "some_test.txt").write_text(text(*TEST))


def write_splits(folder: Path) -> None:
    both = [np.concatenate([test, train]) for train, test in zip(TRAIN, TEST, strict=True)]
    (folder / "Some_data.txt").write_text(text(*both))
    rows = [f"{row} {1 + row % 3}\n" for row in range(1, 29)]
    (folder / "some_trSplit.txt").write_text("".join(rows[8:]))
    (folder / "some_tstSplit.txt").write_text("".join(rows[:8]))


@pytest.fixture
def sources(tmp_path: Path) -> DataSources:
    (tmp_path / "data" / "multilabel" / "some").mkdir(parents=True)
    return DataSources(cache=tmp_path / "cache", folder=tmp_path / "data")


def folder_of(sources: DataSources) -> Path:
    assert sources.folder
    return sources.folder / "multilabel" / "some"


def everything(splits: Splits) -> list[tuple[torch.Tensor, torch.Tensor]]:
    batches = [
        split.take(split.batches(len(split), None)[0])
        for split in (splits.train, splits.validation, splits.test)
    ]
    return [(batch.x, batch.y) for batch in batches]


@pytest.mark.parametrize("write", [write_arff, write_pair, write_splits])
def test_every_layout_gives_the_same_samples(sources: DataSources, write) -> None:
    write(folder_of(sources))
    task = Multilabel(name="some").resolved(sources)
    signature = task.signature()
    assert (signature.sequence_length, signature.input_size) == (1, FEATURES)
    assert signature.output_size == LABELS
    splits = task.load(sources)
    assert splits.sizes == {"train": 16, "validation": 4, "test": 8}
    train, validation, test = everything(splits)
    np.testing.assert_array_equal(test[0][:, 0], TEST[0])
    np.testing.assert_array_equal(test[1], TEST[1])
    order = np.random.RandomState(0).permutation(20)
    np.testing.assert_array_equal(validation[0][:, 0], TRAIN[0][order[:4]])
    np.testing.assert_array_equal(validation[1], TRAIN[1][order[:4]])
    np.testing.assert_array_equal(train[0][:, 0], TRAIN[0][order[4:]])
    np.testing.assert_array_equal(train[1], TRAIN[1][order[4:]])


def test_large_sets_are_written_out_batch_by_batch_with_the_same_numbers(
    sources: DataSources, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_arff(folder_of(sources))
    task = Multilabel(name="some", steps=2).resolved(sources)
    dense = task.load(sources)
    assert isinstance(dense.train, Split)
    monkeypatch.setattr(multilabel, "MOST_DENSE_BYTES", 28 * (FEATURES + LABELS) * 4 - 1)
    sparse = task.load(sources).to(torch.device("cpu"))
    assert not isinstance(sparse.train, Split)
    assert not sparse.train.carries_state
    for name in ("train", "validation", "test"):
        one, other = getattr(dense, name), getattr(sparse, name)
        assert len(one) == len(other)
        generators = [torch.Generator().manual_seed(5) for _ in range(2)]
        batches = [part.batches(3, g) for part, g in zip((one, other), generators, strict=True)]
        for first, second in zip(*batches, strict=True):
            assert torch.equal(one.take(first).x, other.take(second).x)
            assert torch.equal(one.take(first).y, other.take(second).y)


def test_the_baseline_is_the_entropy_of_answering_each_labels_frequency(
    sources: DataSources,
) -> None:
    write_arff(folder_of(sources))
    task = Multilabel(name="some").resolved(sources)
    target = torch.from_numpy(TRAIN[1])
    meter = task.meter()
    logits = target.mean(dim=0).logit().expand(20, LABELS)
    meter.add(logits, target)
    assert task.metric.name in meter.values()
    assert meter.values()["bce"] == pytest.approx(task.metric.baseline, abs=1e-6)
    assert task.loss(logits, target).item() == pytest.approx(task.metric.baseline, abs=1e-6)


def test_labels_that_no_sample_has_cost_the_baseline_nothing() -> None:
    facts = MultilabelFacts(
        samples={"train": 3, "validation": 1, "test": 1},
        features=2,
        labels=3,
        label_counts=(0, 4, 2),
        sha256=("a", "b"),
    )
    assert Multilabel(name="some", facts=facts).metric.baseline == pytest.approx(np.log(2) / 3)


def test_the_metrics_over_batches_are_those_of_all_samples() -> None:
    random = np.random.RandomState(0)
    logits, target = random.randn(50, 8), (random.rand(50, 8) < 0.3).astype(float)
    meter = Multilabel(name="some").meter()
    for rows in (slice(0, 7), slice(7, 8), slice(8, 50)):
        meter.add(torch.tensor(logits[rows]).float(), torch.tensor(target[rows]).float())
    values = meter.values()
    chance = 1 / (1 + np.exp(-logits))
    entropy = -(target * np.log(chance) + (1 - target) * np.log(1 - chance)).mean()
    assert values["bce"] == pytest.approx(entropy, abs=1e-6)
    ranked = np.argsort(-logits, axis=1)
    for k in (1, 3, 5):
        hits = [target[row, ranked[row, :k]].mean() for row in range(50)]
        assert values[f"p_at_{k}"] == pytest.approx(np.mean(hits))
    positive = chance >= 0.5
    true, wrong = (positive & (target == 1)).sum(), (positive & (target == 0)).sum()
    missed = (~positive & (target == 1)).sum()
    assert values["micro_f1"] == pytest.approx(2 * true / (2 * true + wrong + missed))


def test_steps_fold_the_features(sources: DataSources) -> None:
    write_pair(folder_of(sources))
    task = Multilabel(name="some", steps=3).resolved(sources)
    x, _ = everything(task.load(sources))[2]
    np.testing.assert_array_equal(x, TEST[0].reshape(8, 3, 2))
    with pytest.raises(DataError, match="steps 4 does not divide 6, the number of features"):
        Multilabel(name="some", steps=4).resolved(sources)


@pytest.mark.parametrize(
    ("file", "old", "new", "sentence"),
    [
        ("some-test.arff", "'x3'", "'y'", "differ in their attributes"),
        ("some.xml", "l2", "l7", "names the label 'l7', which .*some-train.arff has no column of"),
        ("some-train.arff", "{0,1}", "{1}", "line 1. *: the attribute 'l0' is '0.0'"),
    ],
)
def test_files_that_do_not_go_together_are_refused(
    sources: DataSources, file: str, old: str, new: str, sentence: str
) -> None:
    write_arff(folder_of(sources))
    path = folder_of(sources) / file
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(DataError, match=sentence):
        Multilabel(name="some").resolved(sources)


def test_a_label_is_0_or_1(sources: DataSources) -> None:
    write_arff(folder_of(sources))
    path = folder_of(sources) / "some-test.arff"
    wider = path.read_text().replace("'l2' {0,1}", "'l2' numeric")
    path.write_text(wider)
    Multilabel(name="some").resolved(sources)
    path.write_text(wider.rstrip().rpartition(",")[0] + ",2\n")
    with pytest.raises(DataError, match=r"some-test.arff: a label is 2; allowed are 0 and 1"):
        Multilabel(name="some").resolved(sources)


def test_columns_that_are_all_labels_are_refused(sources: DataSources) -> None:
    for part in ("train", "test"):
        (folder_of(sources) / f"some-{part}.arff").write_text("@attribute a {0,1}\n@data\n1\n0\n")
    (folder_of(sources) / "some.xml").write_text('<labels><label name="a"/></labels>')
    with pytest.raises(DataError, match=r"names all columns of .* as labels"):
        Multilabel(name="some").resolved(sources)


def test_parts_of_one_file_must_be_disjoint_and_parts_of_two_equally_wide(
    sources: DataSources,
) -> None:
    write_splits(folder_of(sources))
    (folder_of(sources) / "some_tstSplit.txt").write_text("1\n9\n")
    with pytest.raises(DataError, match=r"sample 9 of .* is in .*trSplit.txt and in .*tstSplit"):
        Multilabel(name="some").resolved(sources)
    write_pair(folder_of(sources))
    (folder_of(sources) / "some_test.txt").write_text("1 5 3\n0 1:1\n")
    with pytest.raises(DataError, match=r"has 6 features and 3 labels, but .* has 5 and 3"):
        Multilabel(name="some").resolved(sources)


@pytest.mark.parametrize("header", ["2 6 10001", "2 1000001 3"])
def test_sizes_that_no_model_could_have_are_refused(sources: DataSources, header: str) -> None:
    for part in ("train", "test"):
        (folder_of(sources) / f"some_{part}.txt").write_text(f"{header}\n0 1:1\n1 1:1\n")
    with pytest.raises(DataError, match="at most 1000000 and 10000 are allowed"):
        Multilabel(name="some").resolved(sources)


def test_a_missing_file_is_asked_for_by_its_name_and_place(sources: DataSources) -> None:
    with pytest.raises(DataError, match=r"needs multilabel/some/some-train.arff.*put it at "):
        Multilabel(name="some").resolved(sources)
    write_arff(folder_of(sources))
    (folder_of(sources) / "some.xml").unlink()
    with pytest.raises(DataError, match=r"put it at .*/data/multilabel/some/some\.xml"):
        Multilabel(name="some").resolved(sources)
    with pytest.raises(DataError, match="name it in REFLECTORY_DATA"):
        Multilabel(name="some").resolved(DataSources(cache=sources.cache))


@pytest.mark.parametrize("name", ["../some", "a/b", "", "some\n", "."])
def test_a_name_that_could_lead_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="name"):
        Multilabel(name=name)


def test_a_single_sample_cannot_be_divided(sources: DataSources) -> None:
    for part in ("train", "test"):
        (folder_of(sources) / f"some_{part}.txt").write_text("1 2 2\n0 1:1\n")
    with pytest.raises(DataError, match=r"holds 1 samples, all of which validation_share 0\.2"):
        Multilabel(name="some").resolved(sources)


def test_a_second_load_parses_nothing_and_another_division_is_another_cache(
    sources: DataSources,
) -> None:
    write_arff(folder_of(sources))
    task = Multilabel(name="some").resolved(sources)
    task.load(sources)
    cached = {path: path.stat().st_mtime_ns for path in sources.cache.rglob("*.npy")}
    first = everything(task.load(sources))
    assert {path: path.stat().st_mtime_ns for path in sources.cache.rglob("*.npy")} == cached
    other = everything(Multilabel(name="some", split_seed=1).resolved(sources).load(sources))
    assert not torch.equal(first[1][0], other[1][0])
    assert torch.equal(first[2][0], other[2][0])


def test_facts_come_from_the_files_and_hold_for_them_alone(sources: DataSources) -> None:
    write_arff(folder_of(sources))
    with pytest.raises(TaskUnresolved, match="some"):
        Multilabel(name="some").load(sources)
    task = Multilabel(name="some").resolved(sources)
    assert task.facts
    claimed = task.model_copy(update={"facts": task.facts.model_copy(update={"labels": 99})})
    assert claimed.resolved(sources) == task
    with pytest.raises(DataError, match="what changed: labels"):
        claimed.load(sources)


@pytest.mark.parametrize(
    ("name", "features", "labels", "train", "test", "cardinality"),
    [
        ("bibtex", 1836, 159, 4880, 2515, 2.380),
        ("yeast", 103, 14, 1500, 917, 4.228),
        ("mediamill_reduced", 120, 101, 1500, 500, 4.437),
    ],
)
def test_known_sets_have_their_published_sizes(
    tmp_path: Path,
    name: str,
    features: int,
    labels: int,
    train: int,
    test: int,
    cardinality: float,
) -> None:
    sources = DataSources(cache=tmp_path, folder=real_data())
    task = Multilabel(name=name).resolved(sources)
    facts = task.facts
    assert facts
    assert (facts.features, facts.labels) == (features, labels)
    assert facts.samples["train"] + facts.samples["validation"] == train
    assert facts.samples["test"] == test
    assert sum(facts.label_counts) / train == pytest.approx(cardinality, abs=5e-4)
    for x, y in everything(task.load(sources)):
        assert x.shape[1:] == (1, features)
        assert x.isfinite().all()
        assert set(y.unique().tolist()) == {0, 1}
