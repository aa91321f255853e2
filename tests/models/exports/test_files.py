"""Sizes of files before training are those of the files of trained models, byte for byte."""

from collections.abc import Mapping
from typing import get_args

import pytest

from models.architectures import Architecture, Gru
from models.checkpoint import save_bytes
from models.errors import SlotError
from models.exports.files import (
    FILES,
    ExportedFile,
    FileName,
    FileParts,
    exported_bytes,
    onnx_file,
)
from models.exports.onnx.choice import forms_of
from models.model import ModelSpec, NumberBits
from models.parametrizations import Family, HouseholderSvd, LowRank
from tests.conformance.model_specs import LAST, pair_name, pairs, specs, trained

EXTRA = {"checkpoint_sha256": "0" * 64}
KINDS = (
    ExportedFile(file="checkpoint"),
    ExportedFile(file="onnx", form="auto"),
    ExportedFile(file="onnx", form="node"),
    ExportedFile(file="onnx", form="loop"),
)

Pair = tuple[type[Architecture], type[Family]]


def test_every_file_has_a_name_in_the_registry() -> None:
    assert set(FILES) == set(get_args(FileName))


def written(spec: ModelSpec, exported: ExportedFile, extra: Mapping[str, str]) -> list[bytes]:
    """The file of a trained model; of an ONNX file whose form is open, either one."""
    network = trained(spec)
    if exported.file == "checkpoint":
        return [save_bytes(network, spec, extra=extra)]
    parts = FileParts(form=exported.form, extra=extra)
    return [
        onnx_file(network, spec, parts, faster=lambda form=form: form) for form in forms_of(network)
    ]


@pytest.mark.parametrize("pair", pairs(), ids=pair_name)
@pytest.mark.parametrize("exported", KINDS, ids=lambda one: f"{one.file} {one.form}")
def test_a_size_known_before_training_is_that_of_the_trained_models_file(
    pair: Pair, exported: ExportedFile
) -> None:
    for spec in specs(*pair):
        files = written(spec, exported, {"checkpoint_sha256": "f" * 64})
        size = exported_bytes(spec, exported, extra=EXTRA)
        assert {len(content) for content in files} == {size}, spec


@pytest.mark.parametrize("file", FILES)
def test_numbers_that_change_no_shape_change_the_size_by_their_digits_alone(
    file: FileName,
) -> None:
    def size(r: float) -> int:
        spec = ModelSpec(
            architecture=Gru(hidden_size=12),
            parametrization=HouseholderSvd(m1=3, m2=3, r=r),
            signature=LAST,
        )
        found = exported_bytes(spec, ExportedFile(file=file), extra=EXTRA)
        assert {len(content) for content in written(spec, ExportedFile(file=file), EXTRA)} == {
            found
        }
        return found

    assert size(0.1) == size(0.2)
    assert size(0.123456789) > size(0.1)


def test_wider_metadata_count() -> None:
    spec = ModelSpec(architecture=Gru(hidden_size=12), parametrization=LowRank(d=3), signature=LAST)
    short, long = ({"task": "x" * width} for width in (10, 1000))
    for file in get_args(FileName):
        found = [
            exported_bytes(spec, ExportedFile(file=file), extra=extra) for extra in (short, long)
        ]
        assert found[1] - found[0] == pytest.approx(990, abs=8)


def test_a_model_that_cannot_be_built_has_no_size() -> None:
    spec = ModelSpec(
        architecture=Gru(hidden_size=4), parametrization=LowRank(d=400), signature=LAST
    )
    with pytest.raises(SlotError):
        exported_bytes(spec, ExportedFile(), extra=EXTRA)


@pytest.mark.parametrize("bits", [32, 8, 4])
def test_a_checkpoint_of_fewer_bits_is_as_large_as_it_was_said_to_be(bits: NumberBits) -> None:
    """And smaller, which is what bits are searched for."""
    exported, sizes = ExportedFile(file="checkpoint"), list[int]()
    for width in (32, bits):
        spec = ModelSpec(
            architecture=Gru(hidden_size=24),
            parametrization=LowRank(d=6),
            signature=LAST,
            bits=width,
        )
        (content,) = written(spec, exported, EXTRA)
        sizes.append(exported_bytes(spec, exported, extra=EXTRA))
        assert len(content) == sizes[-1]
    assert (sizes[1] < sizes[0]) == (bits < 32)
