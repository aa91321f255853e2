"""`python -m tests.benchmarks.any_network`: networks of others, as smaller ONNX files.

`--networks FOLDER` holds wheels of silero-vad, magika and rapidocr-onnxruntime (`pip download
--no-deps`), out of which the networks are read; each is named by its sha256 and skipped where it is
absent, where espeak-ng (speech) or Pillow (lines of text) is missing, or where it is another. A
small transformer is trained here. For every network: 8 bits beside onnxruntime's own quantizers,
and a search of all choices beside one of bits alone, with as many trials, on several splits of the
samples. `--out FILE` writes the tables too, after each split.

`--peers` compares the files of other tools with ours of as many bits, without searches. NNCF and
Olive take part where they are installed (`pip install nncf olive-ai`).

`--fine-tune` measures something else instead: for each network the first file of a search within a
limit on multiply-adds, before and after it is trained further.
"""

import argparse
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

import onnx
import onnxruntime
import torch

from tests.benchmarks.cpu.machine import described
from tests.benchmarks.networks.beside import beside_others
from tests.benchmarks.networks.case import Case, Further, Skipped
from tests.benchmarks.networks.characters import characters
from tests.benchmarks.networks.evaluators import evaluator_of
from tests.benchmarks.networks.file_types import file_types
from tests.benchmarks.networks.printed_lines import printed_lines
from tests.benchmarks.networks.speech import speech
from tests.benchmarks.networks.study import Found, searched
from tests.benchmarks.networks.tables import beside_section, section
from tests.benchmarks.networks.targets import target_lines
from tests.benchmarks.networks.trained_further import (
    Trained,
    further_lines,
    further_targets,
    trained_further,
)

CASES: Mapping[str, Callable[[Path | None], Case]] = {
    "vad": speech,
    "transformer": characters,
    "magika": file_types,
    "recogniser": printed_lines,
}

FURTHER: Mapping[str, Callable[[Path | None], Case]] = {
    "vad": speech,
    "magika": partial(file_types, count=1200),
    "recogniser": partial(printed_lines, count=800),
}
"""Networks that are trained further; it takes more samples than fits do."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.any_network")
    parser.add_argument("--networks", type=Path, help="folder of wheels that hold the networks")
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=9, help="of timing, interleaved")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--peers", action="store_true", help="files of other tools, and no more")
    what.add_argument("--fine-tune", action="store_true", help="train files further, and no more")
    parser.add_argument("--out", type=Path, help="file that the tables are written to as well")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.fine_tune:
        _further(arguments)
    elif arguments.peers:
        _peers(arguments)
    else:
        _searches(arguments)


def _further(arguments: argparse.Namespace) -> None:
    """Files that are trained further."""
    names = [name for name in arguments.only if name in FURTHER]
    head = _head(["--fine-tune", "--only", *names])
    found: list[tuple[Case, Further, Trained]] = []
    skipped: list[str] = []
    for name in names:
        try:
            case = FURTHER[name](arguments.networks)
        except Skipped as reason:
            skipped.append(f"{name} is skipped: {reason}.")
            continue
        assert case.further is not None, name
        one = trained_further(case, case.further, rounds=arguments.rounds)
        found.append((case, case.further, one))
        if arguments.out is not None:
            arguments.out.write_text(_further_text(head, found, skipped))
    sys.stdout.write(_further_text(head, found, skipped))


def _further_text(
    head: Sequence[str], found: Sequence[tuple[Case, Further, Trained]], skipped: Sequence[str]
) -> str:
    targets = [line for one in found for line in further_targets(*one)]
    lines = [
        *head,
        *(f"- {'met:' if met else '**missed**'} {text}" for met, text in targets),
        "",
        *further_lines(found),
        "",
        *(f"- {case.title}: {case.data}." for case, _, _ in found),
        *skipped,
        "",
    ]
    return "\n".join(lines)


def _peers(arguments: argparse.Namespace) -> None:
    """Files of other tools."""
    lines = _head(["--peers", "--splits", str(arguments.splits), "--only", *arguments.only])
    for name in arguments.only:
        try:
            case = CASES[name](arguments.networks)
        except Skipped as reason:
            lines += [f"## {name}", "", f"Skipped: {reason}.", ""]
            continue
        found = [
            beside_others(evaluator_of(case, seed=seed), case, rounds=arguments.rounds)
            for seed in range(arguments.splits)
        ]
        lines += beside_section(case, found)
        if arguments.out is not None:
            arguments.out.write_text("\n".join(lines))
    sys.stdout.write("\n".join(lines))


def _searches(arguments: argparse.Namespace) -> None:
    """Files of searches, and those of others."""
    options = ["--splits", str(arguments.splits), "--only", *arguments.only]
    head = [
        *_head(options),
        "Nothing is trained after the fact. Loss is the Kullback-Leibler divergence of the file's "
        "answers from the original's, in nats. Speed is that of the original over the file's: "
        "processor time, interleaved; medians, and quartiles of rounds in brackets.",
        "",
    ]
    parts: dict[str, _Part] = {}
    for name in arguments.only:
        try:
            case = CASES[name](arguments.networks)
        except Skipped as reason:
            parts[name] = _Part([f"## {name}", "", f"Skipped: {reason}.", ""], [])
            continue
        splits: list[Found] = []
        for seed in range(arguments.splits):
            splits.append(searched(case, seed=seed, rounds=arguments.rounds))
            sys.stderr.write(f"{name}, split {seed}: {splits[-1].seconds}\n")
            parts[name] = _Part(section(case, splits), list(target_lines(case, splits)))
            if arguments.out is not None:
                arguments.out.write_text(_text(head, parts.values()))
    sys.stdout.write(_text(head, parts.values()))


def _head(options: Sequence[str]) -> list[str]:
    """How it was measured, and on what."""
    return [
        "# Any network: ONNX files in, smaller ONNX files out",
        "",
        f"- `python -m tests.benchmarks.any_network --networks FOLDER {shlex.join(options)}`",
        *(f"- {fact}" for fact in (f"{datetime.now():%Y-%m-%d}", *described())),
        f"- onnxruntime {onnxruntime.__version__}, onnx {onnx.__version__}, one thread",
        "",
    ]


@dataclass(frozen=True)
class _Part:
    """What is written of one network."""

    section: Sequence[str]
    targets: Sequence[tuple[bool, str]]


def _text(head: Sequence[str], parts: Iterable[_Part]) -> str:
    """All of it, with the targets that are missed first."""
    known = list(parts)
    found = [one for part in known for one in part.targets]
    missed, met = ([text for done, text in found if done == wanted] for wanted in (False, True))
    lines = [
        *head,
        f"## Targets: {len(missed)} of {len(found)} missed",
        "",
        *(f"- **missed** {text}" for text in missed),
        *(f"- met: {text}" for text in met),
        "",
        *(line for part in known for line in part.section),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
