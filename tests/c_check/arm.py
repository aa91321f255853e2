"""A Cortex-M4 in qemu: the same bits, and how many instructions a step takes."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from torch import Tensor

from models.exports.c.export import CFile
from models.exports.c.toolchain import STRICT, flash_bytes, run, write
from models.exports.c.verify import answers, driver
from models.model import ModelSpec

_HERE = Path(__file__).parent
COMPILER = "arm-none-eabi-gcc"
EMULATOR = "qemu-system-arm"
CORE = ("-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16")
_LINKED = ("--specs=rdimon.specs", "-T", str(_HERE / "cortex.ld"), str(_HERE / "cortex.c"))
_STEPS = 8


def missing() -> list[str]:
    """Programs that are not here; Debian's packages gcc-arm-none-eabi,
    libnewlib-arm-none-eabi and qemu-system-arm have them."""
    return [program for program in (COMPILER, EMULATOR) if shutil.which(program) is None]


def emulated(program: Path) -> list[str]:
    """The command that runs a program; its input and output are those of the command."""
    board = [EMULATOR, "-M", "mps2-an386", "-display", "none", "-monitor", "none"]
    rest = ["-serial", "none", "-semihosting-config", "enable=on,target=native"]
    return [*board, *rest, "-icount", "shift=0", "-kernel", str(program)]


def answered(file: CFile, spec: ModelSpec, raw: Tensor, *, steps: int) -> Tensor:
    """What the file answers there to raw samples."""
    with TemporaryDirectory() as name:
        program = _built(file, driver(file, spec), Path(name), ("-O2",))
        return answers(emulated(program), spec, raw, steps=steps)


def instructions(file: CFile, spec: ModelSpec, *, level: str = "-O2") -> int:
    """Of a step, or of a sample of a feed-forward network."""
    signature, recurrent = spec.signature, spec.architecture.any_length
    tokens = signature.vocabulary is not None
    steps = _STEPS if recurrent else signature.sequence_length
    call = "NAME_run(&state, x, STEPS);"
    if recurrent:
        call = f"for (int t = 0; t < STEPS; t++) {{ NAME_step(&state, x + t * {_stride(spec)}); }}"
    words = {
        "CALL": call,
        "READS": "int32_t" if tokens else "float",
        "NUMBERS": str(steps * _stride(spec)),
        "STEPS": str(steps),
        "NAME": file.name,
    }
    text = (_HERE / "count.c").read_text()
    for word, meaning in words.items():
        text = text.replace(word, meaning)
    with TemporaryDirectory() as name:
        program = _built(file, text, Path(name), (level,))
        return int(run(emulated(program), Path(name)))


def flash(file: CFile) -> int:
    """Bytes of code and tables at -Os."""
    return flash_bytes(file, by=COMPILER, flags=("-Os", *CORE), size="arm-none-eabi-size")


def _stride(spec: ModelSpec) -> int:
    return 1 if spec.signature.vocabulary is not None else spec.signature.input_size


def _built(file: CFile, main: str, folder: Path, flags: Sequence[str]) -> Path:
    write(file, folder)
    (folder / "the-main.c").write_text(main)
    command = [COMPILER, *STRICT, *flags, *CORE, f"{file.name}.c", "the-main.c", *_LINKED]
    run([*command, "-o", "it.elf"], folder)
    return folder / "it.elf"
