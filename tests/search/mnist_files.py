"""MNIST's four files, made of scikit-learn's digits enlarged to 28x28."""

import gzip
import hashlib
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits


def enlarged_digits() -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """The 1,797 digits, each pixel made 3x3, with a margin of two, in 0..255."""
    digits: Any = load_digits()
    images, labels = digits.data, digits.target
    small = np.rint(images.reshape(-1, 8, 8) * 255 / 16).astype(np.uint8)
    large = np.kron(small, np.ones((1, 3, 3), dtype=np.uint8))
    return np.pad(large, ((0, 0), (2, 2), (2, 2))), labels.astype(np.uint8)


def idx_bytes(array: NDArray[np.uint8]) -> bytes:
    header = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.tobytes()


def write_mnist(
    folder: Path, *, train: int = 1200, test: int = 300, compressed: bool = True
) -> dict[str, str]:
    """Write the four files and give their SHA-256 by name."""
    folder.mkdir(parents=True, exist_ok=True)
    images, labels = enlarged_digits()
    contents = {
        "train-images-idx3-ubyte": images[:train],
        "train-labels-idx1-ubyte": labels[:train],
        "t10k-images-idx3-ubyte": images[train : train + test],
        "t10k-labels-idx1-ubyte": labels[train : train + test],
    }
    checksums: dict[str, str] = {}
    for name, array in contents.items():
        file = f"{name}.gz" if compressed else name
        content = idx_bytes(array)
        content = gzip.compress(content, mtime=0) if compressed else content
        (folder / file).write_bytes(content)
        checksums[file] = hashlib.sha256(content).hexdigest()
    return checksums
