"""Integers of 2, 3 and 4 bits in words, and the nodes that take them out again."""

from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from models.graphs.layers import AnyArray, NodeWriter

StoredBits: TypeAlias = Literal[2, 3, 4, 8]

# How many integers are in a word, and its type; a word's sign is never used.
_WORDS: dict[int, tuple[int, type[np.integer]]] = {
    8: (1, np.int8),
    4: (2, np.uint8),
    3: (10, np.int32),
    2: (4, np.uint8),
}


def packed_bytes(count: int, bits: int) -> int:
    """What `count` integers of 2, 3, 4 or 8 bits take, packed: words are never split."""
    integers, kind = _WORDS[bits]
    return -(-count // integers) * np.dtype(kind).itemsize


def packed(integers: NDArray[np.int8], bits: StoredBits) -> AnyArray:
    """Words `[ceil(N / n)]` of N signed integers, n in each.

    Word w has the integers w, w + W, w + 2 W, ... of all W words, the first in its lowest bits;
    `2^(bits-1)` is added to each. 8 bits are left as they are.
    """
    if bits == 8:
        return integers
    count, kind = _WORDS[bits]
    flat = integers.reshape(-1).astype(np.int32) + 2 ** (bits - 1)
    planes = np.pad(flat, (0, -len(flat) % count)).reshape(count, -1)
    places = bits * np.arange(count, dtype=np.int32)[:, None]
    return np.bitwise_or.reduce(planes << places, axis=0).astype(kind)


def unpacked(writer: NodeWriter, integers: NDArray[np.int8], bits: StoredBits) -> str:
    """Nodes that make integers of this shape, as float32, of their packed words.

    They divide and take remainders in int32, which ONNX has from operator set 10 on.
    """
    stored = writer.constant(packed(integers, bits))
    if bits == 8:
        return writer.node("Cast", stored, to=TensorProto.FLOAT)
    count, _ = _WORDS[bits]
    words = writer.node("Cast", stored, to=TensorProto.INT32)
    places = (1 << bits * np.arange(count, dtype=np.int32))[:, None].astype(np.int32)
    shifted = writer.node("Div", words, writer.shared(places))
    value = writer.node("Mod", shifted, writer.shared(np.array(2**bits, np.int32)))
    value = writer.node("Reshape", value, writer.integers(-1))
    if integers.size % count:
        value = writer.node("Slice", value, writer.integers(0), writer.integers(integers.size))
    offset = writer.shared(np.array(2 ** (bits - 1), np.int32))
    value = writer.node("Cast", writer.node("Sub", value, offset), to=TensorProto.FLOAT)
    return writer.node("Reshape", value, writer.integers(*integers.shape))
