"""Sizes of files before training are those of the files of trained models, byte for byte."""

from typing import get_args

import pytest
import torch

from models.architectures import Architecture, Gru
from models.errors import SlotError
from models.exports.files import FILES, Export, FileName, exported_bytes
from models.model import ModelSpec
from models.network import Network
from models.parametrizations import Family, HouseholderSvd, LowRank
from tests.conformance.model_specs import LAST, pair_name, pairs, specs

EXTRA = {"checkpoint_sha256": "0" * 64}

Pair = tuple[type[Architecture], type[Family]]


def trained(spec: ModelSpec) -> Network:
    """A model whose every number is away from its start."""
    network = spec.build(seed=1).eval()
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return network


def test_every_file_has_a_name_in_the_registry() -> None:
    assert set(FILES) == set(get_args(FileName))


@pytest.mark.parametrize("pair", pairs(), ids=pair_name)
@pytest.mark.parametrize("file", FILES)
def test_a_size_known_before_training_is_that_of_the_trained_models_file(
    pair: Pair, file: FileName
) -> None:
    for spec in specs(*pair):
        written = FILES[file](trained(spec), spec, {"checkpoint_sha256": "f" * 64})
        assert exported_bytes(spec, Export(file=file), EXTRA) == len(written), spec


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
        found = exported_bytes(spec, Export(file=file), EXTRA)
        assert found == len(FILES[file](trained(spec), spec, EXTRA))
        return found

    assert size(0.1) == size(0.2)
    assert size(0.123456789) > size(0.1)


def test_wider_metadata_count() -> None:
    spec = ModelSpec(architecture=Gru(hidden_size=12), parametrization=LowRank(d=3), signature=LAST)
    short, long = ({"task": "x" * width} for width in (10, 1000))
    for file in get_args(FileName):
        found = [exported_bytes(spec, Export(file=file), extra) for extra in (short, long)]
        assert found[1] - found[0] == pytest.approx(990, abs=8)


def test_a_model_that_cannot_be_built_has_no_size() -> None:
    spec = ModelSpec(
        architecture=Gru(hidden_size=4), parametrization=LowRank(d=400), signature=LAST
    )
    with pytest.raises(SlotError):
        exported_bytes(spec, Export(), EXTRA)
