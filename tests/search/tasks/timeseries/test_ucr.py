import gzip
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from search.errors import DataError, TaskUnresolved
from search.tasks import DataSources, Ucr
from search.tasks.timeseries.ucr_archive import papers_depth
from tests.real_data import real_data

# Sizes of 2015 (train, test, length, classes) and, in the papers' table, values per step and
# outputs: Chen et al., The UCR Time Series Classification Archive, 2015; Zhang, Lei, Dhillon, ICLR
# 2018 submission. MiddlePhalanxTW is not in that table.
PAPERS = {
    "50words": (450, 455, 270, 50, 10, 50),
    "Adiac": (390, 391, 176, 37, 11, 38),
    "ArrowHead": (36, 175, 251, 3, 1, 3),
    "Beef": (30, 30, 470, 5, 10, 6),
    "BeetleFly": (20, 20, 512, 2, 16, 3),
    "CBF": (30, 900, 128, 3, 8, 4),
    "Coffee": (28, 28, 286, 2, 13, 2),
    "Cricket_X": (390, 390, 300, 12, 15, 13),
    "DistalPhalanxOutlineCorrect": (276, 600, 80, 2, 8, 2),
    "DistalPhalanxTW": (139, 400, 80, 6, 8, 9),
    "ECG200": (100, 100, 96, 2, 8, 2),
    "ECG5000": (500, 4500, 140, 5, 10, 6),
    "ECGFiveDays": (23, 861, 136, 2, 8, 3),
    "FaceAll": (560, 1690, 131, 14, 1, 15),
    "FaceFour": (24, 88, 350, 4, 14, 5),
    "FacesUCR": (200, 2050, 131, 14, 1, 15),
    "Gun_Point": (50, 150, 150, 2, 10, 3),
    "InsectWingbeatSound": (220, 1980, 256, 11, 16, 12),
    "ItalyPowerDemand": (67, 1029, 24, 2, 4, 3),
    "Lighting2": (60, 61, 637, 2, 13, 2),
    "MiddlePhalanxOutlineCorrect": (291, 600, 80, 2, 8, 2),
    "MiddlePhalanxTW": (154, 399, 80, 6, 8, 9),
}


def series(count: int, length: int, labels: list[int], seed: int) -> list[list[float]]:
    values = np.random.RandomState(seed).randn(count, length).round(4)
    return [[labels[i % len(labels)], *row] for i, row in enumerate(values.tolist())]


def write(folder: Path, name: str, part: str, rows: list[list[float]], mark: str = "\t") -> Path:
    path = folder / name / f"{name}_{part}.tsv"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(mark.join(map(str, row)) + "\n" for row in rows))
    return path


@pytest.fixture
def sources(tmp_path: Path) -> DataSources:
    folder = tmp_path / "data" / "ucr"
    for name in ("Some", "MiddlePhalanxTW"):
        write(folder, name, "TRAIN", series(20, 12, [-1, 3], seed=0))
        write(folder, name, "TEST", series(10, 12, [-1, 3], seed=1))
    return DataSources(cache=tmp_path / "cache", folder=tmp_path / "data")


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> DataSources:
    return DataSources(cache=tmp_path_factory.mktemp("cache"), folder=real_data())


def test_series_are_cut_into_steps_and_divided_as_the_files_say(sources: DataSources) -> None:
    task = Ucr(name="Some").resolved(sources)
    signature = task.signature()
    assert (signature.sequence_length, signature.input_size, signature.output_size) == (4, 3, 2)
    splits = task.load(sources)
    assert splits.sizes == {"train": 16, "validation": 4, "test": 10}
    written = {
        tuple(np.array(row[1:], np.float32)): row[0] for row in series(20, 12, [-1, 3], seed=0)
    }
    seen = [
        (tuple(x.flatten().numpy()), [-1, 3][y])
        for split in (splits.train, splits.validation)
        for x, y in zip(split.x, split.y.tolist(), strict=True)
    ]
    assert dict(seen) == written
    assert len(seen) == 20
    test = np.array([row[1:] for row in series(10, 12, [-1, 3], seed=1)], np.float32)
    np.testing.assert_array_equal(splits.test.x.flatten(1), test)
    assert splits.test.lengths is None


def test_the_baseline_is_the_share_of_the_largest_class(sources: DataSources) -> None:
    assert sources.folder
    write(sources.folder, "Uneven", "TRAIN", series(12, 4, [0, 0, 7], seed=0))
    write(sources.folder, "Uneven", "TEST", series(5, 4, [7], seed=0))
    task = Ucr(name="Uneven").resolved(sources)
    assert task.metric.baseline == pytest.approx(8 / 12)
    meter = task.meter()
    target = task.load(sources).test.y
    meter.add(torch.nn.functional.one_hot(target, 2).float(), target)
    assert meter.values() == {"accuracy": 1.0}


def test_each_class_keeps_a_series_for_training(sources: DataSources) -> None:
    assert sources.folder
    write(sources.folder, "Few", "TRAIN", series(10, 4, [1, 2, 3, 4, 5, 6, 7], seed=0))
    write(sources.folder, "Few", "TEST", series(7, 4, [1, 2, 3, 4, 5, 6, 7], seed=1))
    validated: list[set[int]] = []
    for seed in range(20):
        splits = Ucr(name="Few", split_seed=seed, validation_share=0.9).resolved(sources)
        drawn = splits.load(sources)
        assert set(drawn.train.y.tolist()) == set(range(7))
        assert drawn.sizes == {"train": 7, "validation": 3, "test": 7}
        validated.append({hash(x.numpy().tobytes()) for x in drawn.validation.x})
    assert len(set(map(frozenset, validated))) > 1
    write(sources.folder, "Alone", "TRAIN", series(3, 4, [1, 2, 3], seed=0))
    write(sources.folder, "Alone", "TEST", series(3, 4, [1, 2, 3], seed=1))
    with pytest.raises(DataError, match="3 series, each alone in its class"):
        Ucr(name="Alone").resolved(sources)


@pytest.mark.parametrize(
    ("mark", "split", "trained"),
    [("\t", "2015", 10), ("\t", "2018", 20), (",", "2015", 20), (",", "2018", 10)],
)
def test_the_sets_that_2018_exchanged_are_trained_on_as_the_split_says(
    sources: DataSources, mark: str, split: str, trained: int
) -> None:
    assert sources.folder
    for part, count in (("TRAIN", 20), ("TEST", 10)):
        rows = series(count, 12, [3, 8], seed=count)
        write(sources.folder / "ucr", "MiddlePhalanxTW", part, rows, mark)
        write(sources.folder / "ucr", "Some", part, rows, mark)
    task = Ucr.model_validate({"name": "MiddlePhalanxTW", "split": split}).resolved(sources)
    sizes = task.load(sources).sizes
    assert sizes["train"] + sizes["validation"] == trained
    assert sizes["test"] == 30 - trained
    other = Ucr.model_validate({"name": "Some", "split": split}).resolved(sources).facts
    assert other
    assert other.samples["test"] == 10


def test_an_explicit_depth_divides_the_length(sources: DataSources) -> None:
    assert Ucr(name="Some", depth=6).resolved(sources).signature().input_size == 2
    with pytest.raises(DataError, match=r"depth 5 does not divide 12, .* are 1, 2, 3, 4, 6, 12"):
        Ucr(name="Some", depth=5).resolved(sources)


def test_the_papers_depth_makes_steps_about_as_long_as_they_are_many() -> None:
    for length in range(1, 300):
        sizes = [size for size in range(1, length + 1) if length % size == 0 and size**2 <= length]
        assert papers_depth(length) == length / max(sizes)


def test_legacy_outputs_go_up_to_the_largest_label(sources: DataSources) -> None:
    task = Ucr(name="Some", legacy_labels=True).resolved(sources)
    assert task.signature().output_size == 4
    assert task.load(sources).train.y.max() == 1
    assert sources.folder
    write(sources.folder, "Huge", "TRAIN", series(4, 4, [1, 10**6], seed=0))
    write(sources.folder, "Huge", "TEST", series(4, 4, [1, 10**6], seed=0))
    assert Ucr(name="Huge").resolved(sources).signature().output_size == 2
    with pytest.raises(DataError, match="ask for 1000001 outputs; at most 10000 are allowed"):
        Ucr(name="Huge", legacy_labels=True).resolved(sources)


def test_unequal_lengths_are_refused_or_padded_and_told(sources: DataSources) -> None:
    assert sources.folder
    rows = series(10, 6, [1, 2], seed=0)
    rows[3][4:] = [float("nan")] * 3
    write(sources.folder, "Ragged", "TRAIN", rows)
    write(sources.folder, "Ragged", "TEST", series(4, 8, [1, 2], seed=1))
    with pytest.raises(DataError, match="series of 3 to 8 values; unequal_lengths 'pad' allows"):
        Ucr(name="Ragged").resolved(sources)
    with pytest.raises(DataError, match=r"depth is 4, but .* of unequal lengths.*allowed is null"):
        Ucr(name="Ragged", unequal_lengths="pad", depth=4).resolved(sources)
    task = Ucr(name="Ragged", unequal_lengths="pad").resolved(sources)
    assert (task.signature().sequence_length, task.signature().input_size) == (8, 1)
    splits = task.load(sources)
    for split in (splits.train, splits.validation, splits.test):
        assert split.x.shape[1:] == (8, 1)
        assert split.lengths is not None
        for x, length in zip(split.x, split.lengths.tolist(), strict=True):
            assert not x[length:].any()
            assert x[:length].all()
    parts = (splits.train.lengths, splits.validation.lengths)
    lengths = torch.cat([part for part in parts if part is not None])
    assert sorted(lengths.tolist()) == [3] + [6] * 9


def test_a_missing_file_is_asked_for_by_its_name_and_place(sources: DataSources) -> None:
    with pytest.raises(DataError, match=r"needs ucr/Coffee/Coffee_TRAIN.tsv.*put it at .*/data/"):
        Ucr(name="Coffee").resolved(sources)
    with pytest.raises(DataError, match="in a data folder; there is none: name it in REFLECTORY_D"):
        Ucr(name="Coffee").resolved(DataSources(cache=sources.cache))


@pytest.mark.parametrize("ending", ["_{}.txt", "_{}", "_{}.tsv.gz"])
def test_files_of_2015_are_found_under_its_names(tmp_path: Path, ending: str) -> None:
    for part in ("TRAIN", "TEST"):
        path = tmp_path / "Gun_Point" / f"Gun_Point{ending.format(part)}"
        path.parent.mkdir(exist_ok=True)
        content = "".join(f"{1 + i % 2},0.5,{i}\n" for i in range(10)).encode()
        path.write_bytes(gzip.compress(content) if ending.endswith("gz") else content)
    sources = DataSources(cache=tmp_path / "cache", folder=tmp_path)
    task = Ucr(name="Gun_Point").resolved(sources)
    assert task.name == "GunPoint"
    assert task.load(sources).sizes == {"train": 8, "validation": 2, "test": 10}


@pytest.mark.parametrize("name", ["../Coffee", "a/b", "", "a\\b", "Coffee\n", "ä", ".", "x" * 101])
def test_a_name_that_could_lead_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="name"):
        Ucr(name=name)


def test_a_second_load_parses_nothing(sources: DataSources) -> None:
    task = Ucr(name="Some").resolved(sources)
    task.load(sources)
    cached = {path: path.stat().st_mtime_ns for path in sources.cache.rglob("*.npy")}
    first, second = task.load(sources), Ucr(name="Some", depth=12).resolved(sources).load(sources)
    assert {path: path.stat().st_mtime_ns for path in sources.cache.rglob("*.npy")} == cached
    assert torch.equal(first.train.x.flatten(1), second.train.x.flatten(1))


def test_facts_come_from_the_files_and_hold_for_them_alone(sources: DataSources) -> None:
    with pytest.raises(TaskUnresolved, match="Some"):
        Ucr(name="Some").load(sources)
    task = Ucr(name="Some").resolved(sources)
    assert task.facts
    claimed = task.model_copy(update={"facts": task.facts.model_copy(update={"outputs": 99})})
    assert claimed.resolved(sources) == task
    with pytest.raises(DataError, match="what changed: outputs"):
        claimed.load(sources)
    assert sources.folder
    write(sources.folder / "ucr", "Some", "TEST", series(11, 12, [-1, 3], seed=1))
    with pytest.raises(DataError, match=r"Some_TEST.tsv .*what changed: samples, test_sha256"):
        task.load(sources)


@pytest.mark.parametrize("name", PAPERS)
def test_the_archives_sets_have_the_papers_sizes(archive: DataSources, name: str) -> None:
    train, test, length, classes, features, outputs = PAPERS[name]
    task = Ucr(name=name).resolved(archive)
    facts = task.facts
    assert facts
    assert facts.samples["train"] + facts.samples["validation"] == train
    assert facts.samples["validation"] == round(0.2 * train)
    assert facts.samples["test"] == test
    assert (facts.features, facts.steps * facts.features) == (features, length)
    assert len(facts.classes) == facts.outputs == classes
    legacy = Ucr(name=name, legacy_labels=True).resolved(archive).signature()
    assert legacy.output_size == outputs
    splits = task.load(archive)
    for split in (splits.train, splits.validation, splits.test):
        flat = split.x.flatten(1).double()
        # The archive's series have mean 0 and sample deviation 1.
        assert flat.mean(dim=1).abs().max() < 1e-4
        assert (flat.std(dim=1) - 1).abs().max() < 1e-4


@pytest.mark.parametrize(
    ("name", "error"), [("ArrowHead", 0.2000), ("Coffee", 0.0), ("GunPoint", 0.0867)]
)
def test_the_nearest_neighbour_errs_as_published(
    archive: DataSources, name: str, error: float
) -> None:
    splits = Ucr(name=name).resolved(archive).load(archive)
    known = torch.cat([splits.train.x, splits.validation.x]).flatten(1).double()
    labels = torch.cat([splits.train.y, splits.validation.y])
    nearest = torch.cdist(splits.test.x.flatten(1).double(), known).argmin(dim=1)
    wrong = (labels[nearest] != splits.test.y).double().mean().item()
    assert wrong == pytest.approx(error, abs=5e-5)
