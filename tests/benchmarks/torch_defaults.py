"""`python -m tests.benchmarks.torch_defaults`: what the search's defaults for torch.nn cost.

Runs a study, the README's by default, as it is submitted now, and with the architectures' own
defaults in its `space`, over several seeds: before and after, in turn, on a server of its own with
one slot. Prints the hypervolume of each, and that over quality and parameters alone, into which no
clock enters.
"""

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from search.measuring.devices import device_model
from search.spaces import ARCHITECTURE_KINDS, TORCH_DEFAULTS
from search.studies.spec import StudySpec
from tests.service.running import Server

_SPEC = Path(__file__).parents[2] / "deploy" / "examples" / "small_digits.json"
_WITHOUT_CLOCK = "quality,parameters"


def own_defaults(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document of a study whose architectures have their own defaults."""
    spec = StudySpec.model_validate(document)
    own = {
        name: ARCHITECTURE_KINDS[kind].model_fields[field].default
        for name in TORCH_DEFAULTS
        for kind, _, field in [name.partition(".")]
        if kind in spec.architectures
    }
    return {**document, "space": {**document.get("space", {}), **own}}


def hypervolumes(server: Server, document: Mapping[str, Any]) -> tuple[float, float, float]:
    """A study's hypervolume, that without throughput, and its best quality."""
    study = server.submit(dict(document))
    server.wait(study, seconds=3600)
    front = server.get(f"/v1/studies/{study}/front")
    without_clock = server.get(f"/v1/studies/{study}/front?objectives={_WITHOUT_CLOCK}")
    best = max(point["values"]["quality"] for point in front["points"])
    return front["hypervolume"], without_clock["hypervolume"], best


def main() -> None:
    """Print a line for each seed, and the medians."""
    write = sys.stdout.write
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--spec", type=Path, default=_SPEC, help="the study's document")
    parser.add_argument("--seeds", type=int, default=6)
    given = parser.parse_args()
    document = json.loads(given.spec.read_text())
    write(f"{device_model('cpu')}, one slot; before / after\n\n")
    write("| seed | hypervolume | of quality and parameters | best quality |\n|---|---|---|---|\n")
    columns: list[tuple[tuple[float, float], ...]] = []
    with tempfile.TemporaryDirectory() as name:
        server = Server(Path(name) / "data", workers=1)
        try:
            server.start()
            for seed in range(given.seeds):
                before = hypervolumes(server, {**own_defaults(document), "seed": seed})
                after = hypervolumes(server, {**document, "seed": seed})
                columns.append(tuple(zip(before, after, strict=True)))
                write(_line(str(seed), columns[-1]))
                sys.stdout.flush()
        finally:
            server.close()
    medians = [
        (statistics.median(b for b, _ in column), statistics.median(a for _, a in column))
        for column in zip(*columns, strict=True)
    ]
    write(_line("median", medians))


def _line(name: str, pairs: Sequence[tuple[float, float]]) -> str:
    cells = (f"{before:.4f} / {after:.4f}" for before, after in pairs)
    return f"| {name} | {' | '.join(cells)} |\n"


if __name__ == "__main__":
    main()
