"""What a run found, as Markdown."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tests.benchmarks.thousands.asking import Timing, Timings, exponent
from tests.benchmarks.thousands.living import Life, median_and_worst

GOAL_SECONDS = 0.05
_STEEPER = 1.15
"""What grows with more than this power of the trials grows faster than linearly."""
_NEGLIGIBLE_SECONDS = 0.005


@dataclass(frozen=True, kw_only=True)
class Found:
    """One run on one database."""

    database: str
    load: str
    """The machine's load average before and after."""
    of_studies: Timings
    of_list: Mapping[str, Timing]
    memory: Mapping[str, Mapping[str, float]]
    life: Life | None


def told(found: Found) -> str:
    """A section for one database."""
    return "\n".join(
        [
            f"## {found.database}",
            "",
            f"Load average {found.load}.",
            "",
            *_latencies(found.of_studies),
            "",
            *_lists(found.of_list),
            "",
            *_memory(found.memory),
            "",
            *(() if found.life is None else _life(found.life)),
        ]
    )


def _latencies(timings: Timings) -> Iterator[str]:
    sizes = sorted(next(iter(timings.values())))
    yield f"| ms: median (quartiles) | {' | '.join(f'{s:,} trials' for s in sizes)} | power | CPU |"
    yield f"|---|{'---:|' * (len(sizes) + 2)}"
    for name, by_size in timings.items():
        cells = [_cell(by_size[size]) for size in sizes]
        largest = by_size[sizes[-1]]
        power = exponent(by_size)
        steep = power > _STEEPER and largest.median > _NEGLIGIBLE_SECONDS
        mark = f"**{power:.2f}**" if steep else f"{power:.2f}"
        yield f"| {name} | {' | '.join(cells)} | {mark} | {1000 * largest.cpu:.0f} |"


def _lists(timings: Mapping[str, Timing]) -> Iterator[str]:
    yield "| of all studies | ms: median (quartiles) | CPU |"
    yield "|---|---:|---:|"
    for name, timing in timings.items():
        yield f"| {name} | {_cell(timing)} | {1000 * timing.cpu:.0f} |"


def _cell(timing: Timing) -> str:
    low, high = timing.quartiles
    spread = "" if len(timing.wall) == 1 else f" ({_ms(low)}-{_ms(high)})"
    median = _ms(timing.median)
    return f"{median}{spread}" if timing.median <= GOAL_SECONDS else f"*{median}*{spread}"


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.0f}" if seconds >= 0.01 else f"{1000 * seconds:.1f}"


def _memory(memory: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    yield "| process | MiB resident | share of them (PSS) | most ever |"
    yield "|---|---:|---:|---:|"
    for name, sizes in memory.items():
        yield f"| {name} | {sizes['rss']:.0f} | {sizes['pss']:.0f} | {sizes['peak']:.0f} |"


def _life(life: Life) -> Iterator[str]:
    assert life.idle is not None
    asked = life.ask_seconds / life.asks if life.asks else 0.0
    yield (
        f"The largest study ran on for {life.trials} trials in {life.seconds:.0f} s: slots stood "
        f"idle because of asks for {life.idle.asks:.2f} of {life.idle.window:.0f} slot seconds, "
        f"and for {life.idle.other:.2f} while something waited to be measured or started. "
        f"{life.asks} asks took {asked:.2f} s each. The first attempt began "
        f"{life.first_attempt:.1f} s after the budget was raised, and {life.after_restart:.1f} s "
        "after a restart. Looks meanwhile, in ms: "
        + ", ".join(f"{name} {median_and_worst(taken)}" for name, taken in life.looks.items())
        + "."
    )
