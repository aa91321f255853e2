import gzip
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from search.errors import DataError
from search.tasks import DataSources, Mnist
from search.tasks.images.mnist import OFFICIAL_CHECKSUMS
from tests.search.mnist_files import enlarged_digits, idx_bytes, write_mnist


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mnist-files")
    write_mnist(folder)
    return folder


@pytest.fixture
def sources(files: Path, tmp_path: Path) -> DataSources:
    return DataSources(cache=tmp_path / "cache", folder=files)


def keys(x: torch.Tensor) -> list[bytes]:
    return [row.tobytes() for row in x.flatten(1).numpy()]


def test_validation_is_cut_from_the_training_files_and_test_is_the_test_files(
    sources: DataSources,
) -> None:
    splits = Mnist(layout="pixels").load(sources)
    assert splits.sizes == {"train": 1000, "validation": 200, "test": 300}
    images, labels = enlarged_digits()
    flat = images.reshape(len(images), -1).astype(np.float32) / np.float32(255)
    learned = keys(splits.train.x) + keys(splits.validation.x)
    assert sorted(learned) == sorted(row.tobytes() for row in flat[:1200])
    assert keys(splits.test.x) == [row.tobytes() for row in flat[1200:1500]]
    assert splits.test.y.tolist() == labels[1200:1500].tolist()
    label_of = {row.tobytes(): label for row, label in zip(flat, labels.tolist(), strict=True)}
    assert [label_of[key] for key in keys(splits.train.x)] == splits.train.y.tolist()


def test_60k_trains_on_the_images_of_validation_too(sources: DataSources) -> None:
    usual, whole = Mnist().load(sources), Mnist(split="60k").load(sources)
    assert whole.sizes == {"train": 1200, "validation": 200, "test": 300}
    assert keys(whole.train.x) == keys(usual.train.x) + keys(usual.validation.x)
    assert torch.equal(whole.train.y, torch.cat((usual.train.y, usual.validation.y)))
    assert keys(whole.test.x) == keys(usual.test.x)
    assert (usual.chooses, whole.chooses) == (True, False)
    assert whole.to(torch.device("cpu")).chooses is False
    assert "split" not in Mnist().model_dump(mode="json")


def test_no_sample_is_in_two_splits(sources: DataSources) -> None:
    splits = Mnist().load(sources)
    train, validation, test = (
        set(keys(part.x)) for part in (splits.train, splits.validation, splits.test)
    )
    assert not train & validation
    assert not train & test
    assert not validation & test


@pytest.mark.parametrize(
    ("layout", "shape"),
    [("rows", (28, 28)), ("pixels", (784, 1)), ("392x2", (392, 2)), ("112x7", (112, 7))],
)
def test_a_layout_is_a_view_of_the_same_pixels(
    sources: DataSources, layout: str, shape: tuple[int, int]
) -> None:
    splits = Mnist.model_validate({"layout": layout}).load(sources)
    assert splits.train.x.shape[1:] == shape
    assert keys(splits.validation.x) == keys(Mnist(layout="pixels").load(sources).validation.x)


@pytest.mark.parametrize("seed", [0, 1234])
def test_permuted_is_one_order_of_pixels_for_all_splits(sources: DataSources, seed: int) -> None:
    order = np.random.RandomState(seed).permutation(784)
    plain = Mnist(layout="pixels").load(sources)
    permuted = Mnist(layout="permuted", permutation_seed=seed).load(sources)
    for before, after in (
        (plain.train, permuted.train),
        (plain.validation, permuted.validation),
        (plain.test, permuted.test),
    ):
        assert torch.equal(after.x, before.x[:, order])
        assert torch.equal(after.y, before.y)


def test_a_permutation_seed_without_a_permutation_is_refused() -> None:
    with pytest.raises(ValidationError, match="permutation_seed 3 has no meaning in layout 'rows'"):
        Mnist(permutation_seed=3)


def test_plain_files_in_a_subfolder_give_the_same_samples(
    sources: DataSources, tmp_path: Path
) -> None:
    write_mnist(tmp_path / "data" / "mnist", compressed=False)
    plain = Mnist().load(DataSources(cache=tmp_path / "other", folder=tmp_path / "data"))
    assert torch.equal(plain.train.x, Mnist().load(sources).train.x)


def test_a_second_load_maps_the_first_ones_arrays(sources: DataSources) -> None:
    first = Mnist().load(sources)
    cached = {path: path.stat().st_mtime_ns for path in sources.cache.rglob("*.npy")}
    assert len(cached) == 6
    second = Mnist(layout="pixels", train_samples=10).load(sources)
    assert {path: path.stat().st_mtime_ns for path in sources.cache.rglob("*.npy")} == cached
    assert keys(second.train.x) == keys(first.train.x[:10])


def test_writing_to_a_sample_leaves_the_cache_as_it_was(sources: DataSources) -> None:
    first = Mnist().load(sources)
    before = first.train.x.clone()
    first.train.x.zero_()
    assert torch.equal(Mnist().load(sources).train.x, before)


def test_other_files_in_the_same_place_are_read_anew(tmp_path: Path) -> None:
    sources = DataSources(cache=tmp_path / "cache", folder=tmp_path / "data")
    write_mnist(tmp_path / "data", train=120, test=30)
    assert Mnist().load(sources).sizes["train"] == 100
    write_mnist(tmp_path / "data", train=240, test=30)
    assert Mnist().load(sources).sizes["train"] == 200


def test_a_damaged_cache_is_made_again(
    sources: DataSources, caplog: pytest.LogCaptureFixture
) -> None:
    before = Mnist().load(sources).train.x.clone()
    damaged = next(sources.cache.rglob("train_x.npy"))
    damaged.write_bytes(damaged.read_bytes()[:5000])
    assert torch.equal(Mnist().load(sources).train.x, before)
    assert "damaged cache" in caplog.text


def test_a_cache_that_cannot_be_written_is_named(files: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where a folder should be")
    with pytest.raises(DataError, match=f"{tmp_path}/cache/mnist-.* cannot be used"):
        Mnist().load(DataSources(cache=tmp_path / "cache", folder=files))


def test_a_missing_data_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere does not exist"):
        Mnist().load(DataSources(cache=tmp_path, folder=tmp_path / "nowhere"))


def test_a_folder_with_a_part_of_the_files_is_refused_and_the_rest_named(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    write_mnist(folder, train=12, test=3)
    (folder / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(DataError, match=r"but not t10k-labels-idx1-ubyte\[\.gz\]"):
        Mnist().load(DataSources(cache=tmp_path / "cache", folder=folder))


@pytest.mark.parametrize(
    ("file", "content", "sentence"),
    [
        (
            "train-labels-idx1-ubyte.gz",
            idx_bytes(np.full(12, 10, dtype=np.uint8)),
            "label 0 is 10; expected are 0 to 9",
        ),
        (
            "train-labels-idx1-ubyte.gz",
            idx_bytes(np.zeros(11, dtype=np.uint8)),
            "holds 11 labels, but .*train-images-idx3-ubyte.gz holds 12 images",
        ),
        (
            "t10k-images-idx3-ubyte.gz",
            idx_bytes(np.zeros((3, 27, 28), dtype=np.uint8)),
            "t10k-images-idx3-ubyte.gz holds images of 27x28 pixels; expected are 28x28",
        ),
        (
            "t10k-images-idx3-ubyte.gz",
            gzip.compress(idx_bytes(np.zeros((3, 28, 28), dtype=np.uint8)))[:40],
            "t10k-images-idx3-ubyte.gz is damaged",
        ),
    ],
    ids=["label", "count", "size", "gzip"],
)
def test_contents_that_do_not_fit_are_refused_with_the_file(
    tmp_path: Path, file: str, content: bytes, sentence: str
) -> None:
    folder = tmp_path / "data"
    write_mnist(folder, train=12, test=3)
    (folder / file).write_bytes(content)
    with pytest.raises(DataError, match=sentence):
        Mnist().load(DataSources(cache=tmp_path / "cache", folder=folder))
    assert not list((tmp_path / "cache").rglob("*.npy"))


@pytest.mark.parametrize(
    ("train", "test", "sentence"),
    [(5, 3, "holds 5 images; at least 6"), (12, 0, "t10k-images.* holds no images")],
)
def test_too_few_images_are_refused(tmp_path: Path, train: int, test: int, sentence: str) -> None:
    write_mnist(tmp_path / "data", train=train, test=test)
    with pytest.raises(DataError, match=sentence):
        Mnist().load(DataSources(cache=tmp_path / "cache", folder=tmp_path / "data"))


def test_more_train_samples_than_the_files_hold_is_refused(sources: DataSources) -> None:
    with pytest.raises(DataError, match=r"train_samples is 1001, but .* leaves 1000 images"):
        Mnist(train_samples=1001).load(sources)


def test_the_official_checksums_name_the_four_files() -> None:
    assert len(OFFICIAL_CHECKSUMS) == 4
    assert all(len(bytes.fromhex(checksum)) == 32 for checksum in OFFICIAL_CHECKSUMS.values())
