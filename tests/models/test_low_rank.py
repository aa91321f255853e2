from typing import TypeAlias

import pytest
import torch

from models.architectures import Gru
from models.forms import LowRankForm
from models.math.weight_norm import LONGEST_ROW, NormalisedRows
from models.model import ModelSpec, after_step, parameter_groups
from models.parametrizations import LowRank, LowRankDiagonal
from models.parametrizations.parts.low_rank_factors import LowRankLinear
from models.spec import Signature, Slot
from search.spaces.dimension import ChoiceDimension, Options
from search.spaces.draws import NamedSource, Recorder, SpaceDraw
from tests.models.structure import jacobian_rank, trained

Variant: TypeAlias = type[LowRank] | type[LowRankDiagonal]

VARIANTS = [LowRank, LowRankDiagonal]
FORMS = [(False, False), (False, True), (True, False), (True, True)]

both_variants = pytest.mark.parametrize("variant", VARIANTS)
all_forms = pytest.mark.parametrize(
    ("tied", "weight_norm"), FORMS, ids=["plain", "normalised", "tied", "tied-normalised"]
)


def square(size: int, gates: int = 3, layers: int = 2) -> Slot:
    return Slot(out_features=size, in_features=size, gates=gates, layers=layers)


def linear_of(spec: LowRank | LowRankDiagonal, slot: Slot) -> LowRankLinear:
    linear = spec.build(slot, generator=torch.Generator().manual_seed(1))
    assert isinstance(linear, LowRankLinear)
    return linear


def rows_of(rows: torch.Tensor | NormalisedRows) -> torch.Tensor:
    """Matrices with normalised rows by torch's own normalisation."""
    if not isinstance(rows, NormalisedRows):
        return rows
    unit = torch.nn.functional.normalize(rows.direction, dim=-1)
    return unit if rows.gain is None else unit * rows.gain[..., None]


@both_variants
@all_forms
def test_weight_is_left_times_its_layers_right_plus_the_diagonal(
    variant: Variant, tied: bool, weight_norm: bool
) -> None:
    slot = square(7)
    linear = linear_of(variant(d=3, tied=tied, weight_norm=weight_norm), slot).double()
    left, right = rows_of(linear.left), rows_of(linear.right)
    assert left.shape == (6, 7, 3)
    assert right.shape == ((2, 3, 7) if tied else (6, 3, 7))
    named = dict(linear.named_parameters())
    for copy, weight in enumerate(linear.dense_weight()):
        expected = left[copy] @ right[copy // 3 if tied else copy]
        if variant is LowRankDiagonal:
            expected = expected + torch.diag(named["diagonal"][copy])
        torch.testing.assert_close(weight, expected, atol=1e-13, rtol=0)


@both_variants
@all_forms
@pytest.mark.parametrize(("gates", "layers"), [(1, 1), (3, 1), (4, 2), (1, 3)])
def test_numbers_stored_and_multiplied_are_those_of_the_formulas(
    variant: Variant, tied: bool, weight_norm: bool, gates: int, layers: int
) -> None:
    spec, slot = variant(d=4, tied=tied, weight_norm=weight_norm), square(9, gates, layers)
    num_matrices, num_right = gates * layers, layers if tied else gates * layers
    diagonal = num_matrices * 9 if variant is LowRankDiagonal else 0
    factors = num_matrices * 9 * 4 + num_right * 4 * 9
    linear = linear_of(spec, slot)
    stored = sum(parameter.numel() for parameter in linear.parameters())
    gains = num_matrices * 9 if weight_norm else 0
    assert stored == spec.parameter_count(slot) == factors + diagonal + gains
    assert linear.multiply_adds() == factors + diagonal
    assert linear.inner_size == 4


@all_forms
@pytest.mark.parametrize(("out_features", "in_features"), [(3, 8), (8, 3), (1, 5)])
def test_rectangles_are_counted_by_both_sides(
    tied: bool, weight_norm: bool, out_features: int, in_features: int
) -> None:
    slot = Slot(out_features=out_features, in_features=in_features, gates=2)
    spec = LowRank(d=1, tied=tied, weight_norm=weight_norm)
    linear = linear_of(spec, slot)
    assert sum(p.numel() for p in linear.parameters()) == spec.parameter_count(slot)
    assert linear.degrees_of_freedom() == jacobian_rank(linear)


@both_variants
@all_forms
@pytest.mark.parametrize(("size", "gates", "layers"), [(1, 2, 1), (3, 3, 2), (4, 2, 1), (5, 3, 1)])
def test_degrees_of_freedom_are_the_rank_of_the_jacobian(
    variant: Variant, tied: bool, weight_norm: bool, size: int, gates: int, layers: int
) -> None:
    for d in range(1, size + 1):
        spec = variant(d=d, tied=tied, weight_norm=weight_norm)
        linear = linear_of(spec, square(size, gates, layers))
        assert linear.degrees_of_freedom() == jacobian_rank(linear)


@all_forms
def test_training_keeps_the_rank_and_the_shared_row_space(tied: bool, weight_norm: bool) -> None:
    start = linear_of(LowRank(d=3, tied=tied, weight_norm=weight_norm), square(8)).double()
    linear = trained(linear_of(LowRank(d=3, tied=tied, weight_norm=weight_norm), square(8)))
    weight = linear.dense_weight()
    assert (weight - start.dense_weight()).abs().amax((1, 2)).min() > 0.1
    assert torch.linalg.matrix_rank(weight, rtol=1e-10).tolist() == [3] * 6
    for layer in weight.view(2, 24, 8):
        assert torch.linalg.matrix_rank(layer, rtol=1e-10) == (3 if tied else 8)


@all_forms
def test_training_keeps_low_rank_beside_the_diagonal(tied: bool, weight_norm: bool) -> None:
    spec = LowRankDiagonal(d=2, tied=tied, weight_norm=weight_norm)
    linear = trained(linear_of(spec, square(8)))
    weight, diagonal = linear.dense_weight(), linear.get_parameter("diagonal")
    assert torch.linalg.matrix_rank(weight).tolist() == [8] * 6
    rest = weight - torch.diag_embed(diagonal)
    assert torch.linalg.matrix_rank(rest, rtol=1e-10).tolist() == [2] * 6


@both_variants
def test_tied_gates_share_one_tensor(variant: Variant) -> None:
    linear = linear_of(variant(d=2, tied=True), square(6))
    assert isinstance(linear.right, torch.nn.Parameter)
    factors = linear.make_form()
    assert isinstance(factors, LowRankForm)
    assert factors.right is linear.right
    for layer in (0, 1):
        own = factors.select(3 * layer, 3 * layer + 3)
        assert own.right.data_ptr() == linear.right[layer].data_ptr()
        assert own.shared_by == 3


@both_variants
def test_normalised_rows_have_gains_on_the_left_and_length_one_on_the_right(
    variant: Variant,
) -> None:
    linear = linear_of(variant(d=3, weight_norm=True), square(8)).double()
    plain = linear_of(variant(d=3), square(8)).double()
    assert isinstance(linear.left, NormalisedRows)
    assert isinstance(linear.right, NormalisedRows)
    assert isinstance(plain.left, torch.nn.Parameter)
    # Glorot's start is kept, lengths included, but for those of R.
    torch.testing.assert_close(linear.left(), plain.left.detach(), atol=1e-7, rtol=0)
    linear = trained(linear)
    assert isinstance(linear, LowRankLinear)
    lengths = linear.make_form().right.norm(dim=-1)
    torch.testing.assert_close(lengths, torch.ones(6, 3, dtype=torch.float64))


def test_raw_rows_are_cut_after_each_step() -> None:
    linear = linear_of(LowRank(d=3, weight_norm=True), square(8)).double()
    optimizer = torch.optim.SGD(parameter_groups(linear, 1e4))
    linear.dense_weight().square().sub(1).square().sum().backward()
    optimizer.step()
    assert isinstance(linear.left, NormalisedRows)
    assert linear.left.direction.norm(dim=-1).max() > LONGEST_ROW
    before = linear.dense_weight()
    after_step(linear)
    for side in (linear.left, linear.right):
        assert isinstance(side, NormalisedRows)
        assert side.direction.norm(dim=-1).max() < LONGEST_ROW * 1.0001
    torch.testing.assert_close(linear.dense_weight(), before)


def test_tied_character_gru_has_the_count_of_the_papers_formula() -> None:
    """Miceli Barone, table 2, n = 1000, d = 64, 51 characters: 364,051, misprinted as 0.46M.

    The paper counts one input matrix of three.
    """
    spec = ModelSpec(
        architecture=Gru(hidden_size=1000, reset="after", learned_initial_state=False),
        parametrization=LowRankDiagonal(d=64, tied=True),
        signature=Signature(
            input_size=51, sequence_length=100, output_size=51, output_steps="every"
        ),
    )
    recurrent = 3 * 1000 * 64 + 64 * 1000 + 3 * 1000
    assert spec.paper_count() == recurrent + 51 * 1000 + 3 * 1000 + 1001 * 51 == 364_051
    stored = sum(parameter.numel() for parameter in spec.build_on_meta().parameters())
    assert stored == spec.parameter_count() == 364_051 + 2 * 51 * 1000


@pytest.mark.parametrize("reset", ["before", "after"])
@all_forms
def test_a_gru_computes_the_same_as_with_the_matrices_written_out(
    reset: str, tied: bool, weight_norm: bool
) -> None:
    document = {
        "architecture": {"kind": "gru", "hidden_size": 6, "layers": 2, "reset": reset},
        "signature": {"input_size": 3, "sequence_length": 5, "output_size": 2},
    }
    low_rank = LowRankDiagonal(d=2, tied=tied, weight_norm=weight_norm)
    network = ModelSpec.model_validate({**document, "parametrization": low_rank}).build(seed=0)
    twin = ModelSpec.model_validate({**document, "parametrization": {"kind": "dense"}}).build()
    network, twin = network.double(), twin.double()
    linear = next(part for part in network.modules() if isinstance(part, LowRankLinear))
    others = {k: v for k, v in network.state_dict().items() if not k.startswith("recurrent.")}
    twin.load_state_dict({**others, "recurrent.weight": linear.dense_weight().detach()})
    x = torch.randn(4, 5, 3, dtype=torch.float64)
    torch.testing.assert_close(network(x), twin(x), atol=1e-12, rtol=0)


@both_variants
@pytest.mark.parametrize("field", ["tied", "weight_norm"])
@pytest.mark.parametrize("chosen", [True, False])
def test_either_form_can_be_a_dimension_of_a_study(
    variant: Variant, field: str, chosen: bool
) -> None:
    kind = variant.model_fields["kind"].default
    name = f"{kind}.{field}"
    recorder = Recorder(NamedSource({f"{kind}.d": 2, name: chosen}))
    draw = SpaceDraw(kind, {name: Options(options=(True, False))}, recorder)
    spec = draw.complete(variant.suggest(draw, square(12), largest=12))
    assert getattr(spec, field) is chosen
    dimension = recorder.dimensions[name]
    assert isinstance(dimension, ChoiceDimension)
    assert dimension.options == (True, False)
