"""A file built by every compiler and at every level: all have to give the same bits."""

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from models.exports.c.export import CFile, export
from models.exports.c.verify import answers, build, raw_samples, verify
from models.interface import Interface
from models.model import ModelSpec
from tests.conformance.model_specs import trained

SANITIZED = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
LEVELS = (("-O0",), ("-O2",), ("-Os",), ("-O3", "-march=native", "-fno-trapping-math"), SANITIZED)
COMPILERS = ("gcc", "clang")


@dataclass(frozen=True)
class Build:
    """A compiler with its flags."""

    compiler: str
    flags: tuple[str, ...]


def builds() -> list[Build]:
    """Those that link a program here: sanitizers may be a package of their own."""
    return list(filter(_links, _all()))


def missing() -> list[Build]:
    """Those that do not; Debian's packages gcc, clang and libclang-rt-dev bring them."""
    return [one for one in _all() if not _links(one)]


def _all() -> list[Build]:
    return [Build(compiler, flags) for compiler in COMPILERS for flags in LEVELS]


@cache
def _links(one: Build) -> bool:
    if shutil.which(one.compiler) is None:
        return False
    with TemporaryDirectory() as folder:
        (Path(folder) / "it.c").write_text("int main(void) { return 0; }\n")
        command = [one.compiler, *one.flags, "it.c", "-o", "it"]
        return not subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode


def check(spec: ModelSpec, tried: list[Build], *, interface: Interface | None = None) -> CFile:
    """Raise where a build is refused, is wrong, or gives other bits than the first one."""
    network = trained(spec)
    file = export(network, spec, interface=interface)
    verify(file, network, spec, interface=interface)
    first: list[Tensor] | None = None
    for one in tried:
        found = list(_answers(file, spec, one, interface))
        first = found if first is None else first
        for mine, theirs in zip(found, first, strict=True):
            assert same_bits(mine, theirs), f"{one} gives other bits than {tried[0]}: {spec}"
    return file


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Whether all numbers are equal, NaN among them."""
    return torch.equal(one.view(torch.int32), other.view(torch.int32))


def _answers(
    file: CFile, spec: ModelSpec, one: Build, interface: Interface | None
) -> Iterator[Tensor]:
    with TemporaryDirectory() as name:
        program = build(file, spec, Path(name), by=one.compiler, flags=one.flags)
        for raw in raw_samples(spec, interface):
            steps = raw.shape[1] if interface is None else spec.signature.sequence_length
            yield answers([str(program)], spec, raw, steps=steps)
