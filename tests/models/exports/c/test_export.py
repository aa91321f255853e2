"""A C file computes what its model computes, whatever compiles it."""

import itertools
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

from models.architectures import ARCHITECTURES, Architecture, Mlp
from models.errors import ExportError
from models.exports.c import export as export_module
from models.exports.c import toolchain
from models.exports.c.activations import ACTIVATIONS
from models.exports.c.export import WRITERS, CFile, export, sizes
from models.exports.c.tables import BLOCK, GROUP, grouped
from models.exports.c.toolchain import STRICT, compiler, flash_bytes, run, write
from models.exports.c.verify import BY_STEP, answers, build, verify
from models.math.activations import Activation
from models.model import ModelSpec
from models.parametrizations import Family
from tests.c_check import arm
from tests.c_check.__main__ import on_arm
from tests.c_check.builds import (
    LEVELS,
    PACKAGES,
    SANITIZED,
    Build,
    builds,
    check,
    missing,
    same_bits,
)
from tests.c_check.jobs import BITS, jobs, variants
from tests.conformance.model_specs import LAST, pair_name, pairs, specs, trained

Pair = tuple[type[Architecture], type[Family]]

CELLS: list[dict[str, Any]] = [
    {"kind": "rnn", "activation": "tanh"},
    {"kind": "gru", "reset": "before"},
    {"kind": "gru", "reset": "after", "candidate_bias": True},
    {"kind": "lstm", "peephole": True},
    {"kind": "highway"},
    {"kind": "highway", "stack": "batch_normalised"},
    {"kind": "resnet"},
]
FACTORS: list[dict[str, Any]] = [
    {"kind": "low_rank", "d": 3},
    {"kind": "low_rank", "d": 3, "tied": True},
    {"kind": "low_rank", "d": 3, "weight_norm": True},
    {"kind": "low_rank_diagonal", "d": 3},
    {"kind": "householder", "m": 3},
    {"kind": "householder_svd", "m1": 3, "m2": 4, "r": 0.3},
    {"kind": "packed_rotations", "count": 3},
    {"kind": "rotation_svd", "count_u": 3, "count_v": 2},
]


def spec_of(
    architecture: dict[str, Any],
    parametrization: dict[str, Any] | None = None,
    *,
    size: int = 20,
    **signature: Any,
) -> ModelSpec:
    return ModelSpec.model_validate(
        {
            "architecture": {"hidden_size": size, **architecture},
            "parametrization": parametrization or {"kind": "dense"},
            "signature": {**LAST.model_dump(), **signature},
        }
    )


GRU = spec_of({"kind": "gru", "reset": "after"})


@pytest.fixture(params=pairs(), ids=pair_name)
def pair(request: pytest.FixtureRequest) -> Pair:
    return request.param


def test_every_activation_and_architecture_can_be_written() -> None:
    assert set(ACTIVATIONS) == set(get_args(Activation))
    assert set(WRITERS) == set(ARCHITECTURES)


def test_an_architecture_that_nothing_writes_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_module, "WRITERS", {Mlp: WRITERS[Mlp]})
    with pytest.raises(ExportError, match="no C writer for gru; written are mlp"):
        export(GRU.build(seed=0), GRU)


@pytest.mark.parametrize("name", ["", "1st", "a-b", "a b", "é", "_own", "int", "x" * 64, "a\n"])
def test_a_name_that_is_none_in_c_is_refused(name: str) -> None:
    with pytest.raises(ExportError, match="is no name for C files; allowed are a letter"):
        export(GRU.build(seed=0), GRU, name=name)


@pytest.mark.parametrize("name", ["x", "Digits_2", "x" * 63, "NAME", "layer", "accumulate"])
def test_other_names_are_those_of_all_that_is_public(name: str, tmp_path: Path) -> None:
    network = trained(GRU)
    file = export(network, GRU, name=name)
    verify(file, network, GRU)
    write(file, tmp_path)
    run([compiler(), *STRICT, "-c", f"{name}.c", "-o", "it.o"], tmp_path)
    listed = run(["nm", "-g", "it.o"], tmp_path).decode().split("\n")
    symbols = {line.split()[-1] for line in listed if line}
    functions = ("reset", "step", "run", "answer", "class")
    assert symbols == {f"{name}_{function}" for function in functions}


def test_models_of_a_pair_are_verified(pair: Pair) -> None:
    spec = next(specs(*pair, LAST))
    network = trained(spec)
    file = export(network, spec)
    verify(file, network, spec)
    found = sizes(spec)
    assert (found.tables_bytes, found.state_bytes) == (file.tables_bytes, file.state_bytes)


@pytest.mark.nightly
def test_all_models_give_equal_bits_whatever_builds_them(pair: Pair) -> None:
    """By the compilers that are here; `test_every_build_links_here` says which these are."""
    for job in jobs(pair, builds()):
        check(job.spec, job.builds)


@pytest.mark.nightly
def test_every_build_links_here() -> None:
    if missing():
        pytest.skip(f"not here: {'; '.join(map(str, missing()))}. {PACKAGES}")


@pytest.mark.nightly
def test_a_cortex_m4_gives_the_bits_of_this_machine(pair: Pair) -> None:
    if arm.missing():
        pytest.skip(f"no {' and no '.join(arm.missing())} here. {PACKAGES}")
    on_arm(jobs(pair, [])[0].spec)


def test_jobs_have_every_model_with_sanitizers_and_every_build_at_all_bits(pair: Pair) -> None:
    every = [
        Build(compiler, flags) for compiler in ("gcc", "clang") for flags in (*LEVELS, SANITIZED)
    ]
    found = jobs(pair, every)
    sanitized = {one for one in every if one.flags == SANITIZED}
    assert all(job.builds[0] in sanitized for job in found)
    models = {spec.model_dump_json() for spec in variants(pair)}
    for few in (False, True):
        taken = {
            job.spec.unrounded.model_dump_json() for job in found if few == (job.spec.bits < 32)
        }
        assert taken == models
    built = {(job.spec.bits, one) for job in found for one in job.builds}
    assert built == set(itertools.product(BITS, every))
    assert {job.spec.bits for job in found if job.on_arm} == set(BITS)
    quick = jobs(pair, every, quick=True)
    assert {job.spec.bits for job in quick} == set(BITS)
    assert len({job.builds for job in quick}) == len(quick) == len(BITS)


def test_levels_and_compilers_give_equal_bits() -> None:
    tried = [one for one in builds() if one.compiler == "gcc"] or [Build(compiler(), ("-O0",))]
    check(spec_of({"kind": "gru", "reset": "after"}, FACTORS[1]), tried)


@pytest.mark.parametrize(
    ("cell", "factors"), list(zip(itertools.cycle(CELLS), FACTORS, strict=False))
)
def test_factors_stay_factors(cell: dict[str, Any], factors: dict[str, Any]) -> None:
    assert_factors_are_kept(cell, factors)


@pytest.mark.nightly
@pytest.mark.parametrize("factors", FACTORS, ids=str)
@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_factors_stay_factors_in_all(cell: dict[str, Any], factors: dict[str, Any]) -> None:
    assert_factors_are_kept(cell, factors)


def assert_factors_are_kept(cell: dict[str, Any], factors: dict[str, Any]) -> None:
    """In even and odd sizes; their files are smaller than those of the whole matrices."""
    for size in (20, 21):
        spec = spec_of(cell, factors, size=size)
        network = trained(spec)
        file = export(network, spec)
        verify(file, network, spec)
        assert file.tables_bytes < sizes(spec.dense_twin()).tables_bytes


@pytest.mark.parametrize("size", [30, 45, 64])
def test_fourier_transforms_of_any_size_stay_transforms(size: int) -> None:
    spec = spec_of({"kind": "urnn"}, {"kind": "unitary_fft"}, size=size)
    network = trained(spec)
    file = export(network, spec)
    verify(file, network, spec)
    assert "fourier(" in file.source
    assert file.tables_bytes < sizes(spec.dense_twin()).tables_bytes


@pytest.mark.parametrize("parametrization", [{"kind": "dense"}, *FACTORS[:2], FACTORS[5]], ids=str)
@pytest.mark.parametrize("architecture", ["gru", "mlp"])
def test_structured_inputs_and_several_layers(
    architecture: str, parametrization: dict[str, Any]
) -> None:
    fields = {"kind": architecture, "layers": 2, "structured_inputs": "all"}
    spec = spec_of(fields, parametrization, size=24)
    network = trained(spec)
    verify(export(network, spec), network, spec)


def test_layers_that_are_stored_each_in_its_own_way() -> None:
    members = {"kind": "per_layer", "layers": [FACTORS[1], {"kind": "dense"}, FACTORS[5]]}
    for fields in ({"kind": "gru"}, {"kind": "highway", "stack": "batch_normalised"}):
        spec = spec_of({**fields, "layers": 3}, members, size=24)
        network = trained(spec)
        verify(export(network, spec), network, spec)


def test_the_state_is_as_large_as_the_compiler_makes_it(tmp_path: Path) -> None:
    architectures = [*CELLS, {"kind": "urnn"}, {"kind": "mlp", "structured_inputs": "all"}]
    for index, fields in enumerate(architectures):
        spec = spec_of(fields)
        file = export(spec.build(seed=0), spec, name=f"m{index}")
        write(file, tmp_path)
        asserted = f"typedef char it[sizeof(m{index}_state) == {file.state_bytes} ? 1 : -1];"
        (tmp_path / "it.c").write_text(f'#include "m{index}.h"\n{asserted}\n')
        run([compiler(), *STRICT, "-c", "it.c"], tmp_path)


def test_headers_are_taken_by_cpp_too(tmp_path: Path) -> None:
    if shutil.which("c++") is None:
        pytest.skip("no c++ here")
    write(export(GRU.build(seed=0), GRU), tmp_path)
    (tmp_path / "it.cpp").write_text('#include "model.h"\n')
    run(["c++", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-c", "it.cpp"], tmp_path)


def test_no_library_is_asked_for_anything(tmp_path: Path) -> None:
    for fields in (*CELLS, {"kind": "urnn"}):
        spec = spec_of(fields)
        write(export(spec.build(seed=0), spec), tmp_path)
        run([compiler(), *STRICT, "-O0", "-ffreestanding", "-c", "model.c"], tmp_path)
        undefined = run(["nm", "-u", "model.o"], tmp_path).decode().split()
        assert set(undefined) <= {"U", "_GLOBAL_OFFSET_TABLE_", "__stack_chk_fail"}
        assert "malloc" not in (tmp_path / "model.c").read_text()


def test_tables_hold_the_numbers_of_the_model_exactly() -> None:
    network = trained(GRU)
    file = export(network, GRU)
    found = re.search(r"readout\[\d+\] = \{(.*?)\}", file.source, re.DOTALL)
    assert found is not None
    values = [float(value.strip().rstrip("f")) for value in found[1].split(",")]
    weight = network.get_submodule("readout").get_parameter("weight")
    # Of four rows, which fill no block, columns follow each other.
    assert torch.equal(torch.tensor(values), weight.detach().t().flatten())


@pytest.mark.parametrize(("rows", "columns"), [(8, 4), (19, 11), (3, 9), (16, 3), (1, 1)])
def test_matrices_lie_in_blocks_of_groups(rows: int, columns: int) -> None:
    expected: list[int] = []
    for group in range(0, columns - columns % GROUP, GROUP):
        for block in [*range(0, rows, BLOCK)]:
            whole = range(block, min(block + BLOCK, rows))
            expected += [
                row * columns + column for column in range(group, group + GROUP) for row in whole
            ]
    behind = range(columns - columns % GROUP, columns)
    expected += [row * columns + column for column in behind for row in range(rows)]
    places = torch.arange(rows * columns).view(rows, columns)
    assert grouped(places).tolist() == expected


def test_numbers_that_are_not_finite_are_refused_by_name() -> None:
    network = GRU.build(seed=0)
    with torch.no_grad():
        network.get_submodule("readout").get_parameter("weight")[0, 0] = torch.inf
    with pytest.raises(ExportError, match="readout holds inf; C files hold finite numbers"):
        export(network, GRU)


def test_what_is_no_number_stays_none(tmp_path: Path) -> None:
    for fields in (*CELLS, {"kind": "urnn"}, {"kind": "rnn", "activation": "relu"}):
        spec = spec_of(fields)
        program = build(export(trained(spec), spec), spec, tmp_path)
        x = torch.zeros(1, 5, 3)
        x[0, 1, 0] = torch.nan
        assert answers([str(program)], spec, x, steps=5).isnan().all()


@pytest.mark.parametrize("every", [False, True])
def test_tokens_are_looked_up_and_others_are_zeros(tmp_path: Path, every: bool) -> None:
    steps = "every" if every else "last"
    fields = {"kind": "gru", "reset": "after"}
    spec = spec_of(fields, vocabulary=7, output_steps=steps)
    network = trained(spec)
    file = export(network, spec)
    verify(file, network, spec)
    program = [str(build(file, spec, tmp_path))]
    outside = torch.tensor([[3, 7, -1, 2**31 - 1, 2]])
    found = answers(program, spec, outside, steps=5)
    with torch.no_grad():
        weight = network.get_submodule("embedding").get_parameter("weight")
        weight[0] = 0
        expected = network(outside.where((outside >= 0) & (outside < 7), 0))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_sequences_of_several_lengths_are_stepped_to_their_ends(tmp_path: Path) -> None:
    spec = spec_of({"kind": "lstm"}, FACTORS[0])
    network = trained(spec)
    program = [str(build(export(network, spec), spec, tmp_path))]
    x, lengths = torch.randn(3, 9, 3), torch.tensor([9, 1, 4])
    with torch.no_grad():
        expected = network(x, lengths)
    for at_a_time in (0, BY_STEP, 2):
        found = answers(program, spec, x, steps=lengths.tolist(), at_a_time=at_a_time)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_a_sample_that_lacks_steps_counts_as_one_with_zeros_behind_it(tmp_path: Path) -> None:
    for structured in ("none", "all"):
        spec = spec_of({"kind": "mlp", "structured_inputs": structured}, FACTORS[0], size=16)
        network = trained(spec)
        program = [str(build(export(network, spec), spec, tmp_path))]
        x, lengths = torch.randn(3, 5, 3), [5, 1, 3]
        for sample, length in zip(x, lengths, strict=True):
            sample[length:] = 0
        with torch.no_grad():
            expected = network(x)
        found = answers(program, spec, x, steps=lengths)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
        more = answers(program, spec, torch.cat((x, x), dim=1), steps=[10, 5, 5])
        assert same_bits(more, answers(program, spec, x, steps=5))


def test_without_a_compiler_the_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    network = GRU.build(seed=0)
    file = export(network, GRU)
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(toolchain, "COMPILERS", ("no-such-cc",))
    with pytest.raises(ExportError, match="no C compiler here; looked for were no-such-cc"):
        verify(file, network, GRU)
    monkeypatch.setenv("CC", "no-such-gcc")
    with pytest.raises(ExportError, match="CC = 'no-such-gcc' is not found here"):
        flash_bytes(file)


def test_a_file_that_computes_something_else_is_refused() -> None:
    network = trained(GRU)
    file = export(network, GRU)
    changed = file.source.replace("y[j] += a * w[j];", "y[j] += a * w[j] * 1.01f;")
    assert changed != file.source
    wrong = CFile(file.name, file.header, changed, file.tables_bytes, file.state_bytes)
    with pytest.raises(ExportError, match=r"the C file differs from the model by"):
        verify(wrong, network, GRU)
    broken = CFile(file.name, file.header, file.source + "int", 0, 0)
    with pytest.raises(ExportError, match="failed with 1"):
        verify(broken, network, GRU)


def test_flash_is_code_and_tables() -> None:
    network = trained(GRU)
    file = export(network, GRU)
    found = flash_bytes(file)
    assert file.tables_bytes < found < file.tables_bytes + 6000


def test_no_warning_of_a_missing_function_is_left_out(tmp_path: Path) -> None:
    """The flags under which all this is compiled do refuse what they name."""
    (tmp_path / "it.c").write_text("int f(void);\nint f(void) { float x = 1; return x; }\n")
    done = subprocess.run(
        [compiler(), *STRICT, "-c", "it.c"], cwd=tmp_path, capture_output=True, check=False
    )
    assert done.returncode


@pytest.mark.parametrize(
    ("kind", "inputs", "bits"), [("mlp", 1, 32), ("mlp", 3, 8), ("highway", 2, 4), ("resnet", 2, 8)]
)
def test_a_layer_may_read_fewer_numbers_than_a_group_has(kind: str, inputs: int, bits: int) -> None:
    assert inputs < GROUP
    spec = ModelSpec.model_validate(
        {
            "architecture": {"kind": kind, "hidden_size": 16},
            "parametrization": {"kind": "dense"},
            "signature": {"input_size": inputs, "sequence_length": 1, "output_size": 2},
            "bits": bits,
        }
    )
    network = trained(spec)
    verify(export(network, spec), network, spec)


@pytest.mark.parametrize(
    ("hidden_size", "input_size", "bits"), [(16, 1, 8), (1, 3, 32), (1, 3, 4)], ids=str
)
def test_a_side_of_one_number_has_no_reflectors(
    hidden_size: int, input_size: int, bits: int
) -> None:
    spec = ModelSpec.model_validate(
        {
            "architecture": {"kind": "gru", "hidden_size": hidden_size, "structured_inputs": "all"},
            "parametrization": {"kind": "householder_svd", "m1": 1, "m2": 1},
            "signature": {"input_size": input_size, "sequence_length": 6, "output_size": 2},
            "bits": bits,
        }
    )
    network = trained(spec)
    verify(export(network, spec), network, spec)
