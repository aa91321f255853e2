"""Which models are built how: each in several ways, and together in all."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from models.architectures import Architecture
from models.model import ModelSpec, NumberBits
from models.parametrizations import Family
from tests.c_check.builds import LEVELS, SANITIZED, Build
from tests.conformance.model_specs import EVERY, LAST, specs

FEW: tuple[NumberBits, ...] = (8, 4)
BITS: tuple[NumberBits, ...] = (32, *FEW)


@dataclass(frozen=True)
class Job:
    """A model and the builds that have to give equal bits."""

    spec: ModelSpec
    builds: tuple[Build, ...]
    on_arm: bool
    """Whether an emulated Cortex-M4 has to give them, too"""


def variants(pair: tuple[type[Architecture], type[Family]]) -> Iterator[ModelSpec]:
    """Every model of a pair, with answers after the last step and after every one."""
    yield from itertools.chain(specs(*pair, LAST), specs(*pair, EVERY))


def jobs(
    pair: tuple[type[Architecture], type[Family]], tried: list[Build], *, quick: bool = False
) -> list[Job]:
    """Every model of a pair at 32 bits and at 8 or 4: with sanitizers, and by every compiler.

    Levels change from model to model: at all bits the pair has all levels by every compiler, and
    the sanitizers of each. A quick run has the first model alone, at each of the bits.
    """
    models = list(variants(pair))
    if quick:
        return [_job(models[0], bits, turn, tried, on_arm=True) for turn, bits in enumerate(BITS)]
    count = max(len(models), len(FEW) * len(LEVELS))
    found: list[Job] = []
    for index, spec in enumerate(itertools.islice(itertools.cycle(models), count)):
        turn, place = divmod(index, len(FEW))
        found.append(_job(spec, 32, index, tried, on_arm=index == 0))
        found.append(_job(spec, FEW[place], turn, tried, on_arm=turn == 0))
    return found


def _job(spec: ModelSpec, bits: NumberBits, turn: int, tried: list[Build], *, on_arm: bool) -> Job:
    sanitized = [one for one in tried if one.flags == SANITIZED]
    # What is checked first is what the model is compared with.
    first = [sanitized[turn % len(sanitized)]] if sanitized else []
    level = [one for one in tried if one.flags == LEVELS[turn % len(LEVELS)]]
    return Job(spec.model_copy(update={"bits": bits}), (*first, *level), on_arm)
