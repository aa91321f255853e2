"""What two processes hand each other of a file that is run: names in a folder."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from models.graphs.sessions import AnyArray

MODEL, FEEDS, ANSWERS, TYPES = "model.onnx", "feeds.npz", "answers.npz", "types.json"


def save(path: Path, rows: Sequence[Mapping[str, AnyArray]]) -> None:
    """Arrays by name for each row, without pickles."""
    # Names begin with what no argument of savez does.
    arrays = {
        f"_{row}:{name}": value for row, values in enumerate(rows) for name, value in values.items()
    }
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def load(path: Path, rows: int) -> tuple[dict[str, AnyArray], ...]:
    """What `save` saved of so many rows."""
    found: tuple[dict[str, AnyArray], ...] = tuple({} for _ in range(rows))
    with np.load(path, allow_pickle=False) as file:
        for key in file.files:
            row, _, name = key.removeprefix("_").partition(":")
            # By the name of its file: another key may be that already.
            found[int(row)][name] = file[f"{key}.npy"]
    return found
