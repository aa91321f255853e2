"""Libraries for several processors: the right one is chosen, and each computes the same."""

import ctypes
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

from models.kernels import prebuilt
from models.kernels.calls import Kind, shape_of, with_sines
from models.kernels.compiling import build, digest_of_sources
from models.kernels.library import instructions
from models.kernels.prebuilt import TARGETS, library_for
from models.kernels.sequence import sequence
from models.kernels.structs import CELLS, CellName, UnitaryShape
from models.kernels.unitary import unitary_sequence
from tests.models.kernels.cases import FORMS, FormName, Sizes, random_tensors, random_unitary

ROOT = Path(__file__).parents[3]
ALL = frozenset().union(*(target.needs for target in TARGETS))
SOURCES = digest_of_sources()
CROSS = "aarch64-linux-gnu-g++"
KERNEL_TESTS = ("sequence", "stack", "reflectors", "rotations", "unitary", "optimizer", "checks")
EMULATOR = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for target in TARGETS:
        (tmp_path / target.file_name(SOURCES)).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("machine", "flags", "expected"),
    [
        ("x86_64", ALL, "x86-64-v4"),
        ("x86_64", ALL - {"avx512vl"}, "x86-64-v3"),
        ("x86_64", ALL - {"fma"}, None),
        ("aarch64", frozenset({"fp", "asimd"}), "aarch64"),
        ("riscv64", ALL, None),
    ],
)
def test_the_best_that_a_processor_runs_is_taken(
    folder: Path, machine: str, flags: frozenset[str], expected: str | None
) -> None:
    found = library_for(machine, flags, SOURCES, folder)
    assert (None if found is None else found.name.rsplit("-", 1)[0]) == (
        None if expected is None else f"kernels-{expected}"
    )


def test_a_library_of_other_sources_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "kernels-x86-64-v4-0123456789abcdef.so").touch()
    assert library_for("x86_64", ALL, SOURCES, tmp_path) is None


def run_python(program: str, tree: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=tree,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


WHICH = (
    "from models.kernels.library import library; found = library(); print(found and found._name)"
)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="builds for this kind of processor")
@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler here")
def test_a_wheels_library_is_loaded_without_a_compiler_and_native_builds_one(
    tmp_path: Path,
) -> None:
    tree = tmp_path / "installed"
    shutil.copytree(ROOT / "models", tree / "models")
    kept = tree / "models/kernels/prebuilt"
    kept.mkdir()
    # The most that this processor runs; it is tried by loading it.
    target = next(one for one in TARGETS if one.needs <= instructions())
    build(target.compiler(), kept / target.file_name(SOURCES), target.flags, ())
    cache = tmp_path / "cache"
    environment = {"REFLECTORY_KERNEL_CACHE": str(cache)}
    found = run_python(WHICH, tree, **environment, CXX="no-such-compiler")
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith(str(kept)), found.stderr
    native = run_python(WHICH, tree, **environment, REFLECTORY_KERNELS="native")
    assert native.stdout.startswith(str(cache)), native.stderr
    nothing = run_python(WHICH, tree, **environment, REFLECTORY_KERNELS="torch")
    assert nothing.stdout.strip() == "None"
    wrong = run_python(WHICH, tree, **environment, REFLECTORY_KERNELS="fast")
    assert "REFLECTORY_KERNELS is 'fast'; allowed are native, torch" in wrong.stderr
    # A system too old for it, say: what is here then builds another.
    (kept / target.file_name(SOURCES)).write_text("no library")
    built = run_python(WHICH, tree, **environment)
    assert built.stdout.startswith(str(cache)), built.stderr


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[str]]:
    """The command that runs a program of this folder with the library for aarch64."""
    if shutil.which(CROSS) is None or EMULATOR is None:
        pytest.skip(f"no {CROSS} or no qemu-aarch64 here")
    folder = tmp_path_factory.mktemp("aarch64")
    target = next(one for one in TARGETS if one.name == "aarch64")
    prebuilt.build_all(folder, every=True)
    library = folder / target.file_name(SOURCES)
    start = [EMULATOR, "-L", "/usr/aarch64-linux-gnu", "-E", f"LD_LIBRARY_PATH={folder}"]

    @cache
    def command(name: str) -> list[str]:
        source, program = Path(__file__).with_name(f"{name}.cpp"), folder / name
        subprocess.run([CROSS, "-O1", str(source), str(library), "-o", str(program)], check=True)
        return [*start, str(program)]

    return command


def compare(command: list[str], sent: bytes, expected: Sequence[Tensor]) -> None:
    """What a program answers with what is expected, within 2e-5 of the largest number."""
    answer = subprocess.run(command, input=sent, capture_output=True, check=False)
    assert answer.returncode == 0, answer.stderr
    found = torch.frombuffer(bytearray(answer.stdout), dtype=torch.float32)
    together = torch.cat([part.detach().flatten() for part in expected])
    assert found.shape == together.shape
    assert (found - together).abs().max() <= 2e-5 * together.abs().max()


def bytes_of(tensor: Tensor | None) -> bytes:
    if tensor is None:
        return bytes(ctypes.c_int64(0))
    return bytes(ctypes.c_int64(tensor.numel())) + tensor.detach().contiguous().numpy().tobytes()


@pytest.mark.nightly
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cell", CELLS)
def test_the_library_for_arm_computes_the_same(
    emulated: Callable[[str], list[str]], cell: CellName, form: FormName
) -> None:
    sizes = Sizes(models=2, steps=5, batch=3, size=37, inputs=4)
    tensors = random_tensors(cell, form, sizes)
    kind = Kind(cell, "tanh", 0.0)
    states, _, last_h, last_c = sequence(kind, tensors, None, keep=True)
    total = states.sum() + last_h.sum() + last_c.sum()
    given = [tensor for tensor in tensors.in_order() if tensor is not None]
    gradients = torch.autograd.grad(total, given)
    assert tensors.x is not None
    sent_tensors = replace(tensors, x=tensors.x.contiguous())
    shape = shape_of(kind, sent_tensors)
    shape.threads = 1
    sent = bytes(shape) + b"".join(map(bytes_of, with_sines(sent_tensors).in_order()))
    compare(emulated("emulated"), sent, (states, last_h, last_c, *gradients))


@pytest.mark.nightly
@pytest.mark.parametrize("size", [1, 12, 37, 64, 70, 121])
def test_the_library_for_arm_computes_the_same_urnn(
    emulated: Callable[[str], list[str]], size: int
) -> None:
    tensors = random_unitary(3, 6, size, models=2)
    states, last = unitary_sequence(tensors, None, states=True, keep=True)
    learnt = [tensor for tensor in tensors if tensor.requires_grad]
    gradients = torch.autograd.grad(states.sum() + last.sum(), learnt)
    addends, phases, reflections, order, bias, h0 = tensors
    turns, angles = torch.stack((phases.cos(), phases.sin())), torch.arange(size).double()
    angles *= 2 * torch.pi / size
    roots = torch.stack((angles.cos(), angles.sin())).float()
    sent = bytes(UnitaryShape(*addends.shape[:3], size, 1))
    sent += b"".join(map(bytes_of, (addends, turns, reflections, bias, h0, order, roots)))
    compare(emulated("emulated_unitary"), sent, (states, last, *gradients))


@pytest.mark.nightly
@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_all_kernel_tests_pass_whatever_compiler_built_them(tmp_path: Path, compiler: str) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler} here")
    environment = {
        "CXX": compiler,
        "REFLECTORY_KERNELS": "native",
        "REFLECTORY_KERNEL_CACHE": str(tmp_path),
    }
    files = [f"tests/models/kernels/test_{name}.py" for name in KERNEL_TESTS]
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-3000:]
    assert list(tmp_path.glob("*.so"))
