"""Sizes of files before training are those of the files of trained models, byte for byte."""

import re
from collections.abc import Mapping
from typing import get_args

import pytest
from pydantic import ValidationError

from models.architectures import Architecture, Gru
from models.checkpoint import save_bytes
from models.errors import SlotError
from models.exports.c.export import export
from models.exports.files import (
    FILES,
    ExportedFile,
    FileName,
    FileParts,
    exported_size,
    onnx_file,
)
from models.exports.onnx.choice import forms_of
from models.interface import Classes, Interface, Standardise
from models.model import ModelSpec, NumberBits
from models.parametrizations import Family, HouseholderSvd, LowRank
from tests.conformance.model_specs import LAST, pair_name, pairs, specs, trained

EXTRA = {"checkpoint_sha256": "0" * 64}
KINDS = (
    ExportedFile(file="checkpoint"),
    ExportedFile(file="onnx", form="auto"),
    ExportedFile(file="onnx", form="node"),
    ExportedFile(file="onnx", form="loop"),
    ExportedFile(file="c"),
)

TYPE_BYTES = {
    "float": 4,
    "signed char": 1,
    "unsigned char": 1,
    "uint16_t": 2,
    "uint32_t": 4,
}

Pair = tuple[type[Architecture], type[Family]]


def test_every_file_has_a_name_in_the_registry() -> None:
    assert set(FILES) == set(get_args(FileName))


def written(spec: ModelSpec, exported: ExportedFile, extra: Mapping[str, str]) -> list[int]:
    """Bytes of the file of a trained model; of an ONNX file whose form is open, of either one."""
    network = trained(spec)
    if exported.file == "checkpoint":
        return [len(save_bytes(network, spec, extra=extra))]
    if exported.file == "c":
        return [table_bytes(export(network, spec).source)]
    parts = FileParts(form=exported.form, extra=extra)
    return [
        len(onnx_file(network, spec, parts, faster=lambda form=form: form))
        for form in forms_of(network)
    ]


def table_bytes(source: str) -> int:
    """Of the constant tables that a C source declares."""
    declared = re.findall(r"^static const ([\w ]+) \w+\[(\d+)\]", source, re.MULTILINE)
    assert declared
    return sum(TYPE_BYTES[c_type] * int(count) for c_type, count in declared)


@pytest.mark.parametrize("pair", pairs(), ids=pair_name)
@pytest.mark.parametrize("exported", KINDS, ids=lambda one: f"{one.file} {one.form}")
def test_a_size_known_before_training_is_that_of_the_trained_models_file(
    pair: Pair, exported: ExportedFile
) -> None:
    for spec in specs(*pair):
        files = written(spec, exported, {"checkpoint_sha256": "f" * 64})
        size = exported_size(spec, exported, extra=EXTRA)
        assert set(files) == {size.bytes}, spec


@pytest.mark.parametrize("file", ["onnx", "checkpoint"])
def test_numbers_that_change_no_shape_change_the_size_by_their_digits_alone(
    file: FileName,
) -> None:
    def size(r: float) -> int:
        spec = ModelSpec(
            architecture=Gru(hidden_size=12),
            parametrization=HouseholderSvd(m1=3, m2=3, r=r),
            signature=LAST,
        )
        found = exported_size(spec, ExportedFile(file=file), extra=EXTRA).bytes
        assert set(written(spec, ExportedFile(file=file), EXTRA)) == {found}
        return found

    assert size(0.1) == size(0.2)
    assert size(0.123456789) > size(0.1)


def test_wider_metadata_count() -> None:
    spec = ModelSpec(architecture=Gru(hidden_size=12), parametrization=LowRank(d=3), signature=LAST)
    short, long = ({"task": "x" * width} for width in (10, 1000))
    for file, wider in (("onnx", 990), ("checkpoint", 990), ("c", 0)):
        exported = ExportedFile.model_validate({"file": file})
        found = [exported_size(spec, exported, extra=extra).bytes for extra in (short, long)]
        assert found[1] - found[0] == pytest.approx(wider, abs=8)


def test_a_c_file_says_what_its_caller_keeps_and_others_do_not() -> None:
    spec = ModelSpec(architecture=Gru(hidden_size=12), parametrization=LowRank(d=3), signature=LAST)
    kept = [exported_size(spec, exported, extra=EXTRA).state_bytes for exported in KINDS]
    for exported, found in zip(KINDS, kept, strict=True):
        assert exported.has_state == (found is not None)
    # The state and three gates of addends, at least.
    assert max(found or 0 for found in kept) >= 4 * (12 + 3 * 12)


def test_what_stands_around_a_model_counts_in_c_as_well() -> None:
    spec = ModelSpec(architecture=Gru(hidden_size=12), parametrization=LowRank(d=3), signature=LAST)
    features = spec.signature.input_size
    scaled = Interface(
        sample=("steps", features),
        inputs=(Standardise(means=(0.5,) * features, deviations=(2.0,) * features),),
        answer=Classes(classes=tuple("abcd")),
    )
    bare, whole = (
        exported_size(spec, ExportedFile(file="c"), interface, extra=EXTRA).bytes
        for interface in (None, scaled)
    )
    # Means in two parts, and deviations.
    assert whole - bare == 3 * 4 * features


def test_a_form_of_onnx_files_is_none_of_c_files() -> None:
    with pytest.raises(ValidationError, match="file is 'c'; allowed is 'auto'"):
        ExportedFile(file="c", form="loop")


def test_a_model_that_cannot_be_built_has_no_size() -> None:
    spec = ModelSpec(
        architecture=Gru(hidden_size=4), parametrization=LowRank(d=400), signature=LAST
    )
    with pytest.raises(SlotError):
        exported_size(spec, ExportedFile(), extra=EXTRA)


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
        sizes.append(exported_size(spec, exported, extra=EXTRA).bytes)
        assert written(spec, exported, EXTRA) == [sizes[-1]]
    assert (sizes[1] < sizes[0]) == (bits < 32)
