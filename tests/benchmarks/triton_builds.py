"""`python -m tests.benchmarks.triton_builds [FILE]`: Triton's kernels compiled without a GPU.

For A100 (sm_80) and H100 (sm_90), at the papers' sizes, what a thread holds in registers, what it
has to spill to memory, and what a program takes of shared memory. Needs triton, no GPU; writes a
Markdown table to the terminal, and with a file into its section "Builds".
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from models.backends.triton.launches import thin_weights
from models.backends.triton.tiles import (
    SHARED_BYTES,
    Precision,
    ThinTiles,
    Tiles,
    Weights,
    WholeTiles,
    tiles_for,
)
from models.kernels.calls import GATES, Kind
from models.kernels.structs import CellName

FILE = Path(__file__).parents[2] / "deploy/docs/benchmarks/gpu.md"
BEGIN, END = "<!-- builds -->\n", "<!-- end of builds -->\n"
Pass = Literal["forward", "backward"]


@dataclass(frozen=True)
class Shape:
    """A sequence as far as it decides what is compiled."""

    cell: CellName
    size: int
    rank: int = 0
    """0 of whole matrices"""
    tied: bool = False
    precision: Precision = "ieee"

    @property
    def kind(self) -> Kind:
        return Kind(self.cell, "tanh", 0.0)

    @property
    def weights(self) -> Weights:
        gates = GATES[self.cell]
        if self.rank == 0:
            return Weights(gates, self.size)
        return thin_weights(self.kind, self.size, self.rank, 1 if self.tied else gates)

    @property
    def named(self) -> str:
        form = f"d = {self.rank}{', one R' if self.tied else ''} + diagonal"
        return f"{self.cell} n = {self.size}, {form if self.rank else 'whole'}"


SHAPES: tuple[Shape, ...] = (
    Shape("rnn", 128, 32),
    Shape("rnn", 512, 32),
    Shape("gru_reset_after", 128, 24),
    Shape("gru_reset_after", 256, 16),
    Shape("gru_reset_after", 256, 24),
    Shape("gru_reset_after", 256, 24, tied=True),
    Shape("gru_reset_after", 512, 16),
    Shape("gru_reset_after", 512, 32),
    Shape("gru_reset_after", 1024, 64),
    Shape("gru_reset_before", 128, 24),
    Shape("gru_reset_before", 256, 24),
    Shape("gru_reset_before", 512, 4),
    Shape("lstm", 128, 24),
    Shape("lstm", 256, 16),
    Shape("lstm", 256, 24, tied=True),
    Shape("lstm", 512, 4),
    Shape("lstm", 512, 32),
    Shape("lstm", 1024, 64),
    Shape("rnn", 128),
    Shape("gru_reset_after", 128),
    Shape("gru_reset_after", 128, precision="bf16"),
    Shape("lstm", 128, precision="bf16"),
    Shape("rnn", 128, precision="tf32"),
)


@dataclass(frozen=True)
class Build:
    """What a compiled kernel takes."""

    registers: int
    spilled_bytes: int
    """Of a thread, written and read again at every step or once"""
    shared_bytes: int


def build(
    shape: Shape, tiles: Tiles, which: Pass, capability: int, *, ragged: bool = False
) -> Build:
    """Compile one kernel for a GPU that is not here."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from models.backends.triton import thin_kernels, whole_kernels

    kernels = thin_kernels if isinstance(tiles, ThinTiles) else whole_kernels
    kernel = getattr(kernels, f"{which}_steps")
    constants = _constants(shape, tiles, which, ragged=ragged)
    signature = {name: _type(name, shape, constants) for name in kernel.arg_names}
    # What a call finds out of its arguments: tensors start at multiples of 16 bytes.
    aligned = {
        (place,): [["tt.divisibility", 16]]
        for place, name in enumerate(kernel.arg_names)
        if signature[name].startswith("*") or (name == "n" and shape.size % 16 == 0)
    }
    compiled = triton.compile(
        ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=aligned),
        target=GPUTarget("cuda", capability, 32),
        options={"num_warps": tiles.warps, "num_stages": 1},
    )
    return _measured(compiled.asm["ptx"], capability, compiled.metadata.shared)


def _constants(shape: Shape, tiles: Tiles, which: Pass, *, ragged: bool) -> dict[str, Any]:
    biased = shape.cell == "gru_reset_after"
    own: Mapping[str, Any] = (
        {"KEPT": True} if which == "forward" else {"OF_STATES": True, "OF_CELLS": False}
    )
    common = {
        "CELL": shape.cell,
        "ACTIVATION": "tanh",
        "GATES": shape.weights.gates,
        "RAGGED": ragged,
        **own,
    }
    if isinstance(tiles, WholeTiles):
        rounded = shape.precision == "bf16"
        if which == "forward":
            common["BIASED"] = biased
        return {
            **common,
            "ROUNDED": rounded,
            "PRECISION": "ieee" if rounded else shape.precision,
            "ROWS": tiles.rows,
            "N": tiles.units,
        }
    if which == "backward":
        common["AHEAD"] = tiles.fetches_ahead
    return {
        **common,
        "RIGHTS": shape.weights.rights,
        "DIAGONAL": True,
        "BIASED": biased,
        "MEETS": True,
        "PARTS": tiles.parts,
        "UNITS": tiles.units,
        "K": tiles.inner,
    }


_OWN_TYPES = {
    "lengths": "*i64",
    "counters": "*i32",
    "addends_member": "i64",
    **dict.fromkeys(("slope", "one0", "one1", "one2", "one3"), "fp32"),
    **dict.fromkeys(("chunk", "chunk_steps", "start", "steps", "total", "batch"), "i32"),
    **dict.fromkeys(("first_member", "each", "n", "d"), "i32"),
    **dict.fromkeys(("h_carried", "c_carried", "shares", "sums", "totals"), "*fp32"),
}


def _type(name: str, shape: Shape, constants: Mapping[str, Any]) -> str:
    if name in constants:
        return "constexpr"
    return _OWN_TYPES.get(name, "*bf16" if shape.precision == "bf16" else "*fp32")


def _measured(ptx: str, capability: int, shared_bytes: int) -> Build:
    """What ptxas says of it."""
    import triton

    ptxas = Path(triton.__path__[0]) / "backends" / "nvidia" / "bin" / "ptxas"
    target = re.search(r"^\.target (\S+)$", ptx, re.MULTILINE)
    assert target is not None
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.ptx"
        source.write_text(ptx)
        said = subprocess.run(
            [ptxas, "-v", f"--gpu-name={target[1]}", source, "-o", Path(folder) / "kernel.cubin"],
            capture_output=True,
            text=True,
            check=True,
        ).stderr
    registers = re.search(r"Used (\d+) registers", said)
    spilled = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", said)
    assert registers is not None, said
    assert spilled is not None, said
    assert f"sm_{capability}" in target[1]
    return Build(int(registers[1]), int(spilled[1]) + int(spilled[2]), shared_bytes)


def table(shapes: tuple[Shape, ...] = SHAPES) -> Iterator[list[str]]:
    """The lines, each once it is built."""
    yield [
        *("sequence", "products", "GPU", "samples", "programs", "warps"),
        *("forward: registers", "spilled bytes", "shared KiB"),
        *("backward: registers", "spilled bytes", "shared KiB"),
    ]
    yield ["---"] * 12
    for shape in shapes:
        for capability, shared_bytes in SHARED_BYTES.items():
            head = [shape.named, shape.precision, f"sm_{capability}"]
            tiles = tiles_for(shape.weights, precision=shape.precision, shared_bytes=shared_bytes)
            if tiles is None:
                yield [*head, "does not fit", *[""] * 8]
                continue
            # Samples of a program, programs of a sample.
            thin = isinstance(tiles, ThinTiles)
            rows, parts = (1, tiles.parts) if thin else (tiles.rows, 1)
            line = [*head, str(rows), str(parts), str(tiles.warps)]
            for which in ("forward", "backward"):
                found = build(shape, tiles, which, capability)
                line += [
                    str(found.registers),
                    str(found.spilled_bytes),
                    f"{found.shared_bytes / 1024:.0f}",
                ]
                if found.shared_bytes > shared_bytes:
                    line[-1] += " (too much)"
            yield line


def written(document: str, section: str) -> str:
    """A document with its section of builds replaced."""
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{section}{END}{after}"


def main() -> None:
    """Build all, print, and write into the file that is named."""
    lines: list[str] = []
    for cells in table():
        lines.append(f"| {' | '.join(cells)} |\n")
        sys.stdout.write(lines[-1])
        sys.stdout.flush()
    if len(sys.argv) > 1:
        file = Path(sys.argv[1])
        file.write_text(written(file.read_text(), f"\n{''.join(lines)}\n"))


if __name__ == "__main__":
    main()
