"""The network of magika, and files of this machine."""

import os
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

from search.graphs.fine_tune import FineTune
from search.graphs.metrics import Agreement, Kl
from tests.benchmarks.networks.case import Case, Further, Skipped, Wanted, packaged

FILES = 320
_OF_A_KIND = 0.05
"""Of all files, those of one suffix at most."""
_ROOTS = (sys.prefix, sys.base_prefix, "/usr/share", "/usr/lib", "/etc")
_MOST_LOOKED_AT = 60_000
_ENDS, _BLOCK, _PADDING = 1024, 4096, 256
_MEMBER = "magika/models/standard_v3_3/model.onnx"
_SHA256 = "fe2d2eb49c5f88a9e0a6c048e15d6ffdf86235519c2afc535044de433169ec8c"


def file_types(folder: Path | None, count: int = FILES) -> Case:
    """The network with samples, at most so many."""
    content = packaged(folder, "magika", _MEMBER, _SHA256)
    files = _files(count)
    if len(files) < count // 2:
        raise Skipped(
            f"this machine has {len(files)} files of unlike kinds; {count // 2} are needed"
        )
    return Case(
        title="magika",
        original=content,
        arrays={"bytes": np.stack([_ends(path) for path in files])},
        metric=Kl(),
        decisions=Agreement(),
        outputs=("target_label",),
        data=f"{len(files)} files of this machine of {len({path.suffix for path in files})} "
        "suffixes, first and last 1,024 bytes",
        trials=60,
        wanted=Wanted(ratio=5.8, decided=0.99, rough_ratio=11),
        further=Further(left=0.55, how=FineTune(epochs=12), decided=0.97),
    )


def _files(count: int) -> list[Path]:
    """Up to a twentieth of each suffix, of which there are many first."""
    found: dict[str, list[Path]] = defaultdict(list)
    looked, of_a_kind = 0, round(_OF_A_KIND * count)
    for root in _ROOTS:
        for folder, folders, names in os.walk(root):
            folders.sort()
            for name in sorted(names):
                path = Path(folder, name)
                kept = found[path.suffix.lower()]
                looked += 1
                if len(kept) < of_a_kind and path.is_file() and path.stat().st_size >= 64:
                    kept.append(path)
            if looked > _MOST_LOOKED_AT:
                break
    files = [path for kept in found.values() for path in kept if os.access(path, os.R_OK)]
    order = np.random.default_rng(0).permutation(len(files))
    return [files[place] for place in order[:count]]


def _ends(path: Path) -> np.ndarray:
    """Both ends without white space, filled up with 256 [2048]; as the package reads files."""
    whole = path.read_bytes()
    first, last = whole[:_BLOCK].lstrip()[:_ENDS], whole[-_BLOCK:].rstrip()[-_ENDS:]
    row = np.full(2 * _ENDS, _PADDING, np.int32)
    row[: len(first)] = np.frombuffer(first, np.uint8)
    row[2 * _ENDS - len(last) :] = np.frombuffer(last, np.uint8)
    return row
