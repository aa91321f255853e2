"""Answers the three samples of samples.json with model.onnx, and compares the answers.

    pip install numpy onnxruntime
    python example.py

It reads the files beside it and nothing else. It ends with 1 if an answer is not the one that
samples.json has.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime  # type: ignore

FOLDER = Path(__file__).resolve().parent


def document(name: str) -> Any:
    """One of the JSON files; None if there is none of that name."""
    file = FOLDER / name
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None


LABELS: Any = document("labels.json")
VOCABULARY = document("vocabulary.json")


def encode(text: str) -> list[Any]:
    """The numbers of a text's tokens, for models that read text."""
    numbers = {symbol: number for number, symbol in enumerate(VOCABULARY["symbols"])}
    unknown = VOCABULARY["unknown"]
    tokens = list(text)
    if VOCABULARY["level"] == "word":
        tokens = text.replace("\n", " <eos> ").split()
    lost = [token for token in tokens if token not in numbers]
    if lost and unknown is None:
        raise ValueError(f"the model knows no {lost[0]!r}")
    return [numbers.get(token, unknown) for token in tokens]


def decode(tokens: list[int]) -> str:
    """The text that numbers of tokens stand for."""
    symbols = [VOCABULARY["symbols"][token] for token in tokens]
    if VOCABULARY["level"] == "word":
        return " ".join(symbols).replace("<eos>", "\n")
    return "".join(symbols)


def predict(session: Any, sample: Any, steps: int) -> tuple[Any, Any]:
    """The model's numbers for one raw sample, and what it decides (None: it decides nothing)."""
    first = session.get_inputs()[0]
    dtype = np.int64 if first.type == "tensor(int64)" else np.float32
    # A number that is missing is null in JSON, and NaN for the model.
    x = np.array(sample, dtype=dtype)
    given = {}
    if any(one.name == "lengths" for one in session.get_inputs()):
        given["lengths"] = np.array([steps], dtype=np.int64)
        if isinstance(first.shape[1], int):
            # Behind its end a sample is padded with 0, up to the length that the model has.
            padding = [(0, first.shape[1] - len(x))] + [(0, 0)] * (x.ndim - 1)
            x = np.pad(x, padding)
    given["input"] = x[np.newaxis]
    names = [one.name for one in session.get_outputs()]
    found = dict(zip(names, session.run(None, given), strict=True))
    numbers, label = found["output"][0], found.get("label")
    label = None if label is None else label[0]
    if numbers.ndim > 1:
        # There is an answer at every step; the last one is compared.
        numbers, label = numbers[steps - 1], None if label is None else label[steps - 1]
    return numbers, label


def in_words(numbers: Any, label: Any) -> str:
    """An answer as a person says it."""
    if label is None:
        return " ".join(f"{number:.6g}" for number in numbers)
    places: Any = [label] if np.ndim(label) == 0 else np.flatnonzero(label)
    # Where labels are too many to be named, their numbers stand for them.
    names: list[Any] = LABELS["names"] or list(range(len(numbers)))
    return ", ".join(repr(names[int(place)]) for place in places) or "none"


def main() -> int:
    """Print the answers; 1 if one of them is another than in samples.json, else 0."""
    session = onnxruntime.InferenceSession(
        str(FOLDER / "model.onnx"), providers=["CPUExecutionProvider"]
    )
    wrong = 0
    for number, one in enumerate(document("samples.json")["samples"]):
        numbers, label = predict(session, one["sample"], one["steps"])
        difference = np.abs(numbers.astype(np.float64) - np.array(one["answer"])).max()
        same = difference <= one["tolerance"]
        if one["label"] is not None:
            same = same and np.array_equal(label, one["label"])
        if VOCABULARY is not None:
            sys.stdout.write(f"{decode(one['sample'])[-60:]!r} goes on with ")
        words = in_words(numbers, label)
        verdict = "as in samples.json" if same else f"NOT as in samples.json, by {difference:.3g}"
        sys.stdout.write(f"sample {number}: {words}, {verdict}\n")
        wrong += not same
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
