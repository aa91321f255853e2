"""What the default search finds with real training: `python -m tests.benchmarks.live_study`.

For each seed three searches run one after the other, each on a server of its own with one slot, as
studies that are sent by HTTP: the default (the spec names no sampler), `random` and `tpe`. The spec
is the default one on rows of MNIST (rnn and gru, five parametrizations) but for a batch size of
128, so that a whole training takes some seconds. `REFLECTORY_DATA` names the folder with MNIST's
files. Of these 6,000 training images are served: 1,500 are trained on and 1,000 are for validation.
Objectives are quality and parameters. Throughput, the third of the default objectives, is left out,
so that hypervolumes follow from the trainings alone and not from what else the machine does.

Each has the same budget, 60 trials of 27 epochs, which for the default are the epochs of 60 whole
trainings. Searches are compared at equal processor time: seconds (user and system) of the processes
that train, beside which the coordinator's are told. T of a seed is what random search has used when
its last trial ends. A search that ends before T keeps what it has; of one that ends later no more
is counted, but in the time that it needs until it has random search's hypervolume.

Hypervolume is that of the fully trained trials, as a study's page counts it (validation accuracy
from the baseline 0.1, logarithm of the parameters), and with accuracy from 0.8; as a share of that
of all searches' trials together. With `--file` searches are stored as they end, and those that are
there do not run again.
"""

import argparse
import gzip
import json
import math
import os
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import product
from pathlib import Path
from threading import Event, Thread
from typing import Any

import moocore  # pyright: ignore[reportMissingTypeStubs]
import numpy as np

from search.formats import idx
from tests.benchmarks.trial_cost import processor_seconds
from tests.service.running import Server

SAMPLERS = "freeze_thaw", "random", "tpe"
"""The first is the default: its spec names none."""
BASELINE = "random"
SHARES = 1 / 8, 1 / 4, 1 / 2, 1.0
"""Of T, after which searches are compared."""
_IMAGES = {"train": 6000, "t10k": 1000}
_SPEC: Mapping[str, Any] = {
    "name": "live",
    "task": {"kind": "mnist", "layout": "rows", "train_samples": 1500},
    "objectives": ["quality", "parameters"],
    "space": {"training.batch_size": 128},
}


@dataclass(frozen=True)
class Search:
    """What is kept of a study that has ended."""

    sampler: str
    seed: int
    reference: Mapping[str, float]
    """Of the study's own hypervolume."""
    begun: int
    epochs: int
    wall_seconds: float
    clock: Sequence[Sequence[float]]
    """Every half second: the time, and processor seconds of training, coordinator and the rest."""
    complete: Sequence[Sequence[float]]
    """Of each fully trained trial the time of its end, its accuracy and its parameters."""

    def used(self, at: float, *, deciding: bool) -> float:
        """Processor seconds of training until then, and of the coordinator too if `deciding`."""
        times, training, coordinator, _ = np.array(self.clock).T
        seconds = training + coordinator if deciding else training
        return float(np.interp(at, times, np.maximum.accumulate(seconds - seconds[0])))

    def total(self, *, deciding: bool) -> float:
        """What it had used when its last trial ended."""
        return self.used(max(at for at, _, _ in self.complete), deciding=deciding)

    def volume(self, accuracy: float, seconds: float = math.inf, *, deciding: bool) -> float:
        """Hypervolume after so many processor seconds, accuracy counted from there."""
        rows = [row for row in self.complete if self.used(row[0], deciding=deciding) <= seconds]
        return volume_of(rows, accuracy, self.reference["parameters"])

    def seconds_to(self, target: float, accuracy: float, *, deciding: bool) -> float:
        """Processor seconds until it has such a hypervolume; infinite where it never has."""
        ends = sorted(self.used(at, deciding=deciding) for at, _, _ in self.complete)
        found = (end for end in ends if self.volume(accuracy, end, deciding=deciding) >= target)
        return next(found, math.inf)


def volume_of(rows: Sequence[Sequence[float]], accuracy: float, parameters: float) -> float:
    """Hypervolume of ended trials, on the axes of a study's page."""
    if not rows:
        return 0.0
    points = np.array([(reached, math.log10(count)) for _, reached, count in rows])
    ref = [accuracy, math.log10(parameters)]
    return float(moocore.hypervolume(points, ref=ref, maximise=[True, False]))


def write_images(folder: Path, source: Path) -> None:
    """The first images of MNIST's files in files of their own, which a server splits alike."""
    folder.mkdir()
    for part, count in _IMAGES.items():
        for name, dimensions in (
            (f"{part}-images-idx3-ubyte", 3),
            (f"{part}-labels-idx1-ubyte", 1),
        ):
            plain = source / "mnist" / name
            file = plain if plain.is_file() else plain.with_name(f"{name}.gz")
            array = idx.read(file, dimensions=dimensions)[:count]
            header = struct.pack(f">HBB{dimensions}I", 0, 8, dimensions, *array.shape)
            (folder / f"{name}.gz").write_bytes(gzip.compress(header + array.tobytes(), mtime=0))


def searched(folder: Path, sampler: str, seed: int, budget: Mapping[str, int]) -> Search:
    """Run one study on a server of its own."""
    named = {} if sampler == SAMPLERS[0] else {"sampler": {"kind": sampler}}
    environment = {"REFLECTORY_DATA": str(folder / "images"), "OMP_NUM_THREADS": "1"}
    server = Server(folder / f"{sampler}-{seed}", workers=1, environment=environment)
    clock: list[list[float]] = []
    over = Event()

    def look() -> None:
        used = processor_seconds(server)
        known = [used.pop(role, 0.0) for role in ("fork_server", "coordinator")]
        clock.append([time.time(), *known, sum(used.values())])

    def watch() -> None:
        while not over.wait(0.5):
            look()

    watching = Thread(target=watch)
    try:
        server.start()
        # The first study finds everything cold.
        warm = {"budget": {"trials": 1, "epochs": 1}, "sampler": {"kind": BASELINE}}
        server.wait(server.submit({**_SPEC, **warm}))
        look()
        study_id = server.submit({**_SPEC, "budget": budget, "seed": seed, **named})
        watching.start()
        while (study := server.study(study_id))["state"] not in ("finished", "failed", "cancelled"):
            time.sleep(2)
        trials, front = server.trials(study_id), server.get(f"/v1/studies/{study_id}/front")
    finally:
        over.set()
        if watching.ident is not None:
            watching.join()
        server.close()
    assert study["state"] == "finished", study
    assert study["spec"]["sampler"]["kind"] == sampler, study["spec"]
    complete = [trial for trial in trials if trial["outcome"] == "complete"]
    found = Search(
        sampler=sampler,
        seed=seed,
        reference=front["reference_point"],
        begun=sum(trial["epochs_trained"] > 0 for trial in trials),
        epochs=study["progress"]["epochs_trained"],
        wall_seconds=study["progress"]["wall_seconds"],
        clock=clock,
        complete=[
            (
                datetime.fromisoformat(trial["finished_at"]).timestamp(),
                trial["values"]["quality"],
                trial["values"]["parameters"],
            )
            for trial in complete
        ],
    )
    own = found.volume(found.reference["quality"], deciding=False)
    assert math.isclose(own, front["hypervolume"]), (own, front["hypervolume"])
    return found


def report(searches: Sequence[Search]) -> str:
    """Tables of all searches, for the seeds of which all are there."""
    seeds: dict[int, dict[str, Search]] = {}
    for one in searches:
        seeds.setdefault(one.seed, {})[one.sampler] = one
    whole = [found for _, found in sorted(seeds.items()) if len(found) == len(SAMPLERS)]
    rows = [row for found in whole for one in found.values() for row in one.complete]
    reference = whole[0][BASELINE].reference
    parts = [f"Medians over {len(whole)} seeds (and each).", "What each search did:", _costs(whole)]
    for accuracy in (reference["quality"], 0.8):
        best = volume_of(rows, accuracy, reference["parameters"]) or 1.0
        parts.append(f"Share of the best hypervolume, accuracy from {accuracy:g}, after:")
        parts.append(_volumes(whole, accuracy, best))
        parts.append(
            f"Processor time until random search's last hypervolume, accuracy from {accuracy:g}, "
            "as a share of random search's whole:"
        )
        parts.append(_times(whole, accuracy))
    return "\n\n".join(parts) + "\n"


def _costs(seeds: Sequence[Mapping[str, Search]]) -> str:
    def cells(one: Search, _: Search) -> Sequence[float]:
        training, coordinator, rest = (np.array(one.clock[-1]) - one.clock[0])[1:].tolist()
        counts = one.begun, len(one.complete), one.epochs
        return *counts, training, coordinator, rest, one.wall_seconds

    head = "trials begun", "trained to the end", "epochs", "training, s", "coordinator, s"
    return _table((*head, "other processes, s", "wall, s"), seeds, cells, digits=0)


def _volumes(seeds: Sequence[Mapping[str, Search]], accuracy: float, best: float) -> str:
    def cells(one: Search, base: Search) -> Sequence[float]:
        ends = [share * base.total(deciding=False) for share in SHARES]
        return [one.volume(accuracy, end, deciding=False) / best for end in ends]

    return _table(["T / 8", "T / 4", "T / 2", "T"], seeds, cells, digits=3)


def _times(seeds: Sequence[Mapping[str, Search]], accuracy: float) -> str:
    def cells(one: Search, base: Search) -> Sequence[float]:
        target = base.volume(accuracy, deciding=False)
        return [
            one.seconds_to(target, accuracy, deciding=deciding) / base.total(deciding=deciding)
            for deciding in (False, True)
        ]

    return _table(["training alone", "with the coordinator"], seeds, cells, digits=2)


def _table(
    head: Sequence[str],
    seeds: Sequence[Mapping[str, Search]],
    cells: Callable[[Search, Search], Sequence[float]],
    *,
    digits: int,
) -> str:
    """A row for each search; its numbers follow from it and from the seed's random search."""
    lines = [f"| search | {' | '.join(head)} |", f"|---|{'---:|' * len(head)}"]
    for name in SAMPLERS:
        told = zip(*(cells(found[name], found[BASELINE]) for found in seeds), strict=True)
        lines.append(f"| {name} | {' | '.join(_shown(values, digits) for values in told)} |")
    return "\n".join(lines)


def _shown(values: Sequence[float], digits: int) -> str:
    each = ", ".join(f"{value:.{digits}f}" for value in values)
    return f"{statistics.median(values):.{digits}f} ({each})"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--epochs", type=int, default=27)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--file", type=Path, help="where searches are stored, one a line")
    given = parser.parse_args()
    stored = given.file.read_text() if given.file and given.file.exists() else ""
    searches = [Search(**json.loads(line)) for line in stored.splitlines()]
    known = {(one.sampler, one.seed) for one in searches}
    with tempfile.TemporaryDirectory(prefix="reflectory-live-") as name:
        write_images(Path(name) / "images", Path(os.environ["REFLECTORY_DATA"]))
        for seed, sampler in product(given.seeds, SAMPLERS):
            if (sampler, seed) in known:
                continue
            budget = {"trials": given.trials, "epochs": given.epochs}
            searches.append(searched(Path(name), sampler, seed, budget))
            if given.file:
                with given.file.open("a") as file:
                    file.write(json.dumps(asdict(searches[-1])) + "\n")
    sys.stdout.write(report(searches))


if __name__ == "__main__":
    main()
