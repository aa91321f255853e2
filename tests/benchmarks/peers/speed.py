"""`python -m tests.benchmarks.peers.speed SETTING`: how fast what the contestants gave answers.

Inference on one thread, 64 samples at a time, interleaved with the original in torch's own layers;
speed does not depend on what the numbers are, so that nothing is trained. Who makes whole matrices
of fewer numbers (pruning, a truncated SVD or a tensor train in the place of a stack's matrix) has
them made before the clock starts: it runs as the original does.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import torch
from torch import Tensor, nn
from torch.nn.utils import prune

from models.linear import cached_forms
from tests.benchmarks.cpu.timing import timed
from tests.benchmarks.peers import rivals
from tests.benchmarks.peers.contestant import Given, Replaced
from tests.benchmarks.peers.runs import CONTESTANTS, splits_of
from tests.benchmarks.peers.settings import SETTINGS

BATCH = 64
ORIGINAL = "original"


def main(arguments: Sequence[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.peers.speed")
    parser.add_argument("setting", choices=SETTINGS)
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    setting = SETTINGS[options.setting]
    train = splits_of(setting.name).train
    original = setting.original(0)
    entries = sum(weight.numel() for weight in setting.weights(original).values())
    given = Given(
        setting=setting,
        original=original,
        numbers=int(options.share * entries),
        train=train,
        seed=0,
    )
    modules = {ORIGINAL: original}
    for name, make in CONTESTANTS.items():
        if rivals.is_installed(name) and (contestant := make(given)) is not None:
            contestant.before_epoch(1.0)
            modules[name] = contestant.module
    x = train.x[:BATCH]
    with ExitStack() as stack, torch.no_grad():
        runs = {name: _ready(module, x, stack) for name, module in modules.items()}
        timings = timed(runs, baseline=ORIGINAL, rounds=options.rounds)
    sys.stdout.write(
        f"| {setting.name} | ms per {len(x)} | times as fast [quartiles] |\n|---|---|---|\n"
    )
    for name, timing in sorted(timings.items(), key=lambda item: item[1].ratio):
        fast = [1 / ratio for ratio in (timing.ratio, timing.ratio_high, timing.ratio_low)]
        sys.stdout.write(
            f"| {name} | {timing.median_ms:.2f} | {fast[0]:.2f} [{fast[1]:.2f}, {fast[2]:.2f}] |\n"
        )
    return 0


def _ready(module: nn.Module, x: Tensor, stack: ExitStack) -> Callable[[], Tensor]:
    """The module's answer, with whatever it would make anew in each call made once."""
    module.eval()
    module(x)
    if isinstance(module, Replaced):
        module = module.module
    for part in module.modules():
        if prune.is_pruned(part):
            for key in [name.removesuffix("_orig") for name, _ in part.named_parameters()]:
                if hasattr(part, f"{key}_mask"):
                    prune.remove(part, key)  # pyright: ignore[reportUnknownMemberType] -- untyped
    stack.enter_context(cached_forms(module))
    return lambda: module(x)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
