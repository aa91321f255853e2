"""What a convolution's matrix reads."""

import math
from collections.abc import Sequence

import numpy as np

from models.graphs.layers.role import AnyArray, Matrix, Spatial


def paddings(sizes: Sequence[int], window: Spatial) -> list[tuple[int, int]]:
    """Zeros before and behind each spatial axis of these sizes.

    `SAME_UPPER` and `SAME_LOWER` as ONNX has them: outputs are as many as `ceil(size / stride)`,
    and an odd zero stands behind or before.
    """
    axes = len(sizes)
    if window.auto_pad == "VALID":
        return [(0, 0)] * axes
    if window.auto_pad == "NOTSET":
        return list(zip(window.pads[:axes], window.pads[axes:], strict=True))
    found: list[tuple[int, int]] = []
    for size, reach, stride in zip(sizes, reaches(window), window.strides, strict=True):
        total = max(0, (-(-size // stride) - 1) * stride + reach - size)
        less, more = total // 2, total - total // 2
        found.append((less, more) if window.auto_pad == "SAME_UPPER" else (more, less))
    return found


def reaches(window: Spatial) -> tuple[int, ...]:
    """How many neighbours the window spans on each axis."""
    pairs = zip(window.kernel, window.dilations, strict=True)
    return tuple((kernel - 1) * dilation + 1 for kernel, dilation in pairs)


def window_counts(sizes: Sequence[int], window: Spatial) -> tuple[int, ...]:
    """At how many places of each axis the window stands; 0 where it does not fit."""
    rows = zip(sizes, paddings(sizes, window), reaches(window), window.strides, strict=True)
    return tuple(
        max(0, (size + before + behind - reach) // stride + 1)
        for size, (before, behind), reach, stride in rows
    )


def patches(
    value: AnyArray, window: Spatial, generator: np.random.Generator, most: int
) -> tuple[Matrix, int]:
    """Up to `most` patches `[N, in * k]` of an input `[B, in, ...]`, and how many there are.

    They are drawn without repetition; a patch has its channels outermost, as weights have.
    """
    sizes = value.shape[2:]
    counts = window_counts(sizes, window)
    total = len(value) * math.prod(counts)
    numbers = value.shape[1] * math.prod(window.kernel)
    if total == 0:
        return np.zeros((0, numbers), np.float32), 0
    padded = np.pad(value, [(0, 0), (0, 0), *paddings(sizes, window)])
    axes = tuple(range(2, value.ndim))
    view = np.lib.stride_tricks.sliding_window_view(padded, reaches(window), axis=axes)
    moved = tuple(slice(None, None, stride) for stride in window.strides)
    spread = tuple(slice(None, None, dilation) for dilation in window.dilations)
    view = np.moveaxis(view[(slice(None), slice(None), *moved, *spread)], 1, 1 + len(sizes))
    picked = generator.permutation(total)[:most]
    places = np.unravel_index(picked, (len(value), *counts))
    return view[places].reshape(len(picked), numbers).astype(np.float32), total
