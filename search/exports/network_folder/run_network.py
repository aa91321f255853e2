"""Runs model.onnx on zeros, or on the first samples of an .npz file with arrays for its inputs.

    pip install numpy onnxruntime
    python example.py
    python example.py data.npz

It reads the files beside it and the one that is named. `data.json` says which array each input
takes. It ends with 1 if the arrays do not fit the network.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime  # type: ignore

FOLDER = Path(__file__).resolve().parent
DATA: Any = json.loads((FOLDER / "data.json").read_text(encoding="utf-8"))
SAMPLES = 3
SHOWN = 8
TYPES = {
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    "tensor(float16)": "float16",
    "tensor(bool)": "bool",
}


def dtype_of(port: Any) -> Any:
    """The numpy type of an input; integers are called in onnxruntime as they are in numpy."""
    name = port.type.removeprefix("tensor(").removesuffix(")")
    return np.dtype(TYPES.get(port.type, name))


def zeros(port: Any, sizes: dict[str, int]) -> Any:
    """Zeros for an input; sizes that its file leaves open are those of the other inputs, or 1."""
    shape = [one if isinstance(one, int) else sizes.get(one, 1) for one in port.shape]
    return np.zeros(shape, dtype_of(port))


def samples_of(array: Any, port: Any, number: int) -> Any:
    """What an input takes in one call."""
    if DATA["each"]:
        return array[number]
    together = samples_of_a_call(port)
    return array[number * together : (number + 1) * together]


def samples_of_a_call(port: Any) -> int:
    """How many samples an input takes at once."""
    first = port.shape[0] if port.shape and not DATA["each"] else 1
    return first if isinstance(first, int) else 1


def calls_with(arrays: Any, ports: list[Any], path: str) -> int:
    """For how many calls the arrays have samples, of those that are made."""
    calls = SAMPLES
    for port in ports:
        name = DATA["arrays"].get(port.name)
        if name in arrays:
            there, together = len(arrays[name]), samples_of_a_call(port)
            if there < together:
                raise SystemExit(f"{path}: {name!r} has {there} samples; a call takes {together}")
            calls = min(calls, there // together)
    return calls


def feeds(session: Any, path: str | None) -> list[dict[str, Any]]:
    """What the calls are given: one call with zeros, or one for each of the first samples."""
    ports = session.get_inputs()
    if path is None:
        return [{port.name: zeros(port, {}) for port in ports}]
    found: list[dict[str, Any]] = []
    with np.load(path, allow_pickle=False) as arrays:
        for number in range(calls_with(arrays, ports, path)):
            feed: dict[str, Any] = {}
            sizes: dict[str, int] = {}
            for port in ports:
                name = DATA["arrays"].get(port.name)
                if name is None:
                    continue
                if name not in arrays:
                    listed = ", ".join(arrays)
                    raise SystemExit(f"{path} has no array {name!r}; its arrays are {listed}")
                fed = samples_of(arrays[name], port, number).astype(dtype_of(port))
                feed[port.name] = fed
                pairs = zip(port.shape, fed.shape, strict=False)
                sizes |= {size: have for size, have in pairs if isinstance(size, str)}
            for port in ports:
                if port.name not in feed:
                    feed[port.name] = zeros(port, sizes)
            found.append(feed)
    return found


def main() -> int:
    """Print the first numbers of all outputs."""
    session: Any = onnxruntime.InferenceSession(
        str(FOLDER / "model.onnx"), providers=["CPUExecutionProvider"]
    )
    path = sys.argv[1] if len(sys.argv) > 1 else None
    names = [one.name for one in session.get_outputs()]
    for number, feed in enumerate(feeds(session, path)):
        sys.stdout.write(f"{'zeros' if path is None else f'sample {number}'}:\n")
        for name, answer in zip(names, session.run(None, feed), strict=True):
            numbers = " ".join(f"{one:.6g}" for one in np.ravel(answer)[:SHOWN].tolist())
            more = " ..." if np.size(answer) > SHOWN else ""
            sys.stdout.write(f"  {name} {list(np.shape(answer))}: {numbers}{more}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
