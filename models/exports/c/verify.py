"""Whether a C file computes what its model computes."""

import copy
import re
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
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
FILE = "the C file"
FAST = ("-O3", "-march=native", "-fno-trapping-math")
"""All flags give the same bits; these are over soonest for thousands of samples."""
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
    """Compile a C file and run it beside the model in evaluation.

    It is given raw `samples` `[B, *sample]`, of which the first `lengths` `[B]` steps are read
    where there are lengths; or such of which the interface makes the inputs of `normal_inputs`.
    The answers' numbers may differ from those of the model in double precision as `Bound` says. A
    sequence in parts has to give the bits of the whole.

    Returns:
        The largest difference found, as a share of what is let pass.

    Raises:
        ToolMissing: there is no C compiler.
        ExportError: it refuses the file, the program fails, or the answers differ by more.
    """
    with compiled(file, spec, interface) as program:
        return program.share(network, samples=samples, lengths=lengths)


@contextmanager
def compiled(file: CFile, spec: ModelSpec, interface: Interface | None) -> Generator["Program"]:
    """The program of a file, which is gone at the end.

    Raises:
        ToolMissing: there is no C compiler.
        ExportError: it refuses the file.
    """
    with TemporaryDirectory() as folder:
        yield Program(build(file, spec, Path(folder), flags=FAST), spec, interface)


class Program:
    """A compiled C file, as `build` makes it."""

    def __init__(self, path: Path, spec: ModelSpec, interface: Interface | None) -> None:
        self._command = [str(path)]
        self._spec = spec
        self._interface = interface

    def answers(self, raw: Tensor, lengths: Tensor | None = None) -> Tensor:
        """The numbers answered to raw samples `[B, *sample]`: `[B, out]`, or `[B, T, out]`.

        Behind the end of a sample, of which `lengths` `[B]` steps are read, stands 0.

        Raises:
            ExportError: the program fails.
        """
        longest = self._steps(raw)
        if lengths is None:
            return answers(self._command, self._spec, raw, steps=longest)
        steps = [int(length) for length in lengths]
        found = answers(self._command, self._spec, raw, steps=steps)
        if self._spec.signature.output_steps == "last":
            return found
        given = torch.zeros(len(raw), longest, found.shape[-1])
        given[_own(longest, lengths)] = found.reshape(-1, found.shape[-1])
        return given

    @torch.no_grad()
    def share(
        self, network: nn.Module, *, samples: Tensor | None = None, lengths: Tensor | None = None
    ) -> float:
        """The largest difference from the model, as a share of what is let pass; see `verify`."""
        exact = in_double_precision(network, self._spec)
        single = copy.deepcopy(exact).float()
        interface = self._interface
        shares: list[float] = []
        for raw in raw_samples(self._spec, interface) if samples is None else [samples]:
            x = raw if interface is None else interface.preprocess(raw, lengths)
            bound = Bound(
                exact(x.double() if x.is_floating_point() else x, lengths),
                single(x, lengths),
                answer=None if interface is None else interface.answer,
                own=None if lengths is None else _own(x.shape[1], lengths),
            )
            shares.append(bound.share(self.answers(raw, lengths).double(), FILE))
            self.check_parts(raw, None if lengths is None else int(lengths[0]))
        return max(shares)

    def check_parts(self, raw: Tensor, steps: int | None = None) -> tuple[int, ...]:
        """The first of some raw samples has to give the same bits in parts as as a whole.

        Returns:
            The steps of the parts that were tried; none where there are no single steps.

        Raises:
            ExportError: it gives others.
        """
        if not self._spec.architecture.any_length:
            return ()
        steps = steps or self._steps(raw)
        sizes = tuple(sorted({size for size in (1, 7, steps - 7) if 1 <= size < steps}))
        parts = (WHOLE, BY_STEP, *sizes)
        repeated = raw[:1].expand(len(parts), *raw.shape[1:])
        found = answers(self._command, self._spec, repeated, steps=steps, at_a_time=parts)
        bits = found.view(torch.int32)
        for part, other in zip(parts, bits, strict=True):
            if not torch.equal(other, bits[0]):
                raise ExportError(f"{FILE} gives other bits for {part} steps at a time")
        return sizes

    def _steps(self, raw: Tensor) -> int:
        interface = self._interface
        own = interface is None or "steps" in interface.sample
        return raw.shape[1] if own else self._spec.signature.sequence_length


def _own(steps: int, lengths: Tensor) -> Tensor:
    return torch.arange(steps) < lengths.unsqueeze(1)


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


def _bytes(*numbers: int) -> bytes:
    return torch.tensor(numbers, dtype=torch.int32).numpy().tobytes()
