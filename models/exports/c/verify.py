"""Whether a C file computes what its model computes."""

import copy
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor, nn

from models.errors import ExportError
from models.exports.c.export import CFile
from models.exports.c.toolchain import STRICT, compiler, run, write
from models.exports.comparison import Bound, in_double_precision, normal_inputs
from models.interface import Interface
from models.model import ModelSpec

WHOLE, BY_STEP = 0, -1
"""Steps that are run at a time."""
PROGRAM = "answers"
_DRIVER = Path(__file__).with_name("driver.c")


def verify(
    file: CFile,
    network: nn.Module,
    spec: ModelSpec,
    *,
    interface: Interface | None = None,
    samples: Tensor | None = None,
    lengths: Tensor | None = None,
) -> float:
    """Compile a C file and hold what it computes against its model.

    See `verify_program`.

    Raises:
        ToolMissing: there is no C compiler.
        ExportError: it refuses the file, the program fails, or the answers differ by more.
    """
    with TemporaryDirectory() as name:
        command = [str(build(file, spec, Path(name)))]
        return verify_program(
            command, file, network, spec, interface=interface, samples=samples, lengths=lengths
        )


def verify_program(
    command: Sequence[str],
    file: CFile,
    network: nn.Module,
    spec: ModelSpec,
    *,
    interface: Interface | None = None,
    samples: Tensor | None = None,
    lengths: Tensor | None = None,
) -> float:
    """Run a program of `build` beside the model in evaluation.

    It is given raw `samples` `[B, *sample]`, of which the first `lengths` `[B]` steps are read
    where there are lengths; or such of which the interface makes the inputs of `normal_inputs`.
    The answers' numbers may differ from those of the model in double precision as `Bound` says. A
    sequence in parts has to give the bits of the whole.

    Returns:
        The largest difference found, as a share of what is let pass.

    Raises:
        ExportError: the program fails, or the answers differ by more.
    """
    exact = in_double_precision(network, spec)
    single = copy.deepcopy(exact).float()
    shares: list[float] = []
    for raw in raw_samples(spec, interface) if samples is None else [samples]:
        x = raw if interface is None else interface.preprocess(raw, lengths)
        steps = [x.shape[1]] * len(x) if lengths is None else _counted(lengths)
        with torch.no_grad():
            expected = exact(x.double() if x.is_floating_point() else x, lengths)
            rounded = single(x, lengths)
            if interface is not None:
                expected = interface.answer.numbers(expected)
                rounded = interface.answer.numbers(rounded)
        found = answers(command, spec, raw, steps=steps)
        if spec.signature.output_steps == "every":
            # Behind a sequence's end answers mean nothing.
            valid = torch.arange(x.shape[1]) < torch.tensor(steps).unsqueeze(1)
            expected, rounded = (part * valid.unsqueeze(2) for part in (expected, rounded))
            given = torch.zeros(rounded.shape)
            given[valid] = found.reshape(-1, given.shape[-1])
            found = given
        shares.append(Bound(expected, rounded).share(found.double(), f"{file.name}.c"))
        _check_parts(command, file, spec, raw[:1], steps[0])
    return max(shares)


def build(
    file: CFile,
    spec: ModelSpec,
    folder: Path,
    *,
    by: str | None = None,
    flags: Sequence[str] = ("-O1",),
) -> Path:
    """A program in the folder that answers samples, see `driver.c`; every warning is an error.

    Raises:
        ToolMissing: there is no C compiler.
        ExportError: it refuses the file.
    """
    write(file, folder)
    (folder / "the-driver.c").write_text(driver(file, spec))
    program = folder / PROGRAM
    command = [
        by or compiler(),
        *STRICT,
        *flags,
        f"{file.name}.c",
        "the-driver.c",
        "-o",
        program.name,
    ]
    run(command, folder)
    return program


def driver(file: CFile, spec: ModelSpec) -> str:
    """The text of `driver.c` for a file."""
    recurrent, signature = spec.architecture.any_length, spec.signature
    every = signature.output_steps == "every"
    words = {
        "READS": file.reads,
        "EVERY": str(int(every)),
        "STEP": "NAME_step(&state, from);" if recurrent else "exit(5);",
        "RUN": f"NAME_run(&state, from, steps{', to' if every else ''});",
    }
    text = _DRIVER.read_text()
    for word, meaning in words.items():
        text = text.replace(word, meaning)
    # Constants have the name in upper case.
    text = re.sub(r"NAME_(?=STRIDE|OUTPUTS)", f"{file.name.upper()}_", text)
    return text.replace("NAME", file.name)


def answers(
    command: Sequence[str],
    spec: ModelSpec,
    raw: Tensor,
    *,
    steps: int | Sequence[int],
    at_a_time: int | Sequence[int] = WHOLE,
) -> Tensor:
    """What a program of `build` answers to raw samples `[B, *sample]`, `[B, out]` or `[B, T, out]`.

    Args:
        command: how it is run.
        spec: that of the model.
        raw: numbers of single precision, or tokens.
        steps: each sample's, or those of all. Where every one of several lengths is answered,
            answers are `[sum, out]`.
        at_a_time: how many steps are run in one call, for each sample or for all.

    Raises:
        ExportError: the program fails.
    """
    lengths, parts = (
        [one] * len(raw) if isinstance(one, int) else list(one) for one in (steps, at_a_time)
    )
    numbers = raw.flatten(1).to(raw.dtype if raw.is_floating_point() else torch.int32)
    sent = [_bytes(len(raw))]
    for sample, length, part in zip(numbers, lengths, parts, strict=True):
        sent += [_bytes(length, part, sample.numel()), sample.contiguous().numpy().tobytes()]
    given = run(command, Path.cwd(), b"".join(sent))
    found = torch.frombuffer(bytearray(given), dtype=torch.float32)
    outputs = spec.signature.output_size
    if spec.signature.output_steps == "last":
        return found.view(len(raw), outputs)
    return found.view(-1, outputs) if len(set(lengths)) > 1 else found.view(len(raw), -1, outputs)


def raw_samples(spec: ModelSpec, interface: Interface | None) -> Iterator[Tensor]:
    """Samples of which the interface makes about the inputs of `normal_inputs`."""
    own_length = interface is not None and "steps" not in interface.sample
    for x in normal_inputs(spec, own_length=own_length):
        yield x if interface is None else interface.raw(x)


def _check_parts(
    command: Sequence[str], file: CFile, spec: ModelSpec, raw: Tensor, steps: int
) -> None:
    """A sample `[1, *sample]` has to give the same bits in parts as as a whole."""
    if not spec.architecture.any_length:
        return
    parts = (WHOLE, BY_STEP, 1, 7, max(steps - 7, 1))
    repeated = raw.expand(len(parts), *raw.shape[1:])
    found = answers(command, spec, repeated, steps=steps, at_a_time=parts).view(torch.int32)
    for part, other in zip(parts, found, strict=True):
        if not torch.equal(other, found[0]):
            raise ExportError(f"{file.name}.c gives other bits for {part} steps at a time")


def _counted(lengths: Tensor) -> list[int]:
    return [int(length) for length in lengths]


def _bytes(*numbers: int) -> bytes:
    return torch.tensor(numbers, dtype=torch.int32).numpy().tobytes()
