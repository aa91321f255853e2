"""Memory for large results, kept from one call to the next.

A system hands out fresh pages filled with zeros, which for the states of a long sequence takes as
long as a tenth of a training step. What a step gave back serves the next one.
"""

import ctypes
import math
import mmap
import weakref
from collections.abc import Sequence

import torch
from torch import Tensor

_LEAST_BYTES = 1 << 20
"""Below this torch's own allocator keeps memory by itself."""
_MOST_BYTES = 256 << 20
"""What is kept at most while nobody uses it."""
_HUGE_PAGE = 2 << 20

_free: list[mmap.mmap] = []
# Blocks come back whenever a tensor dies, wherever that is: in the middle of what follows, too. So
# there is no lock, but operations of lists that nothing comes between.


def empty(shape: Sequence[int]) -> Tensor:
    """A contiguous float32 tensor on the CPU, with whatever numbers its memory holds."""
    count = math.prod(shape)
    size = 4 * count
    if size < _LEAST_BYTES:
        return torch.empty(shape, dtype=torch.float32, device="cpu")
    block = _kept(size) or _fresh(size)
    owner = (ctypes.c_float * count).from_buffer(block)
    # The tensor's memory holds the owner, whatever else comes to share it.
    weakref.finalize(owner, _give_back, block).atexit = False
    storage = torch.frombuffer(owner, dtype=torch.float32, count=count).untyped_storage()
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    # Not a view of another tensor, which operators do not like to see among their results.
    nothing = torch.empty(0, dtype=torch.float32, device="cpu")
    return nothing.set_(storage, 0, torch.Size(shape), tuple(strides))


def kept_bytes() -> int:
    """What is kept now while nobody uses it."""
    return sum(map(len, list(_free)))


def _kept(size: int) -> mmap.mmap | None:
    """The smallest block that fits, if it is not far too large."""
    for block in sorted(_free, key=len):
        if size <= len(block) <= 2 * size + _HUGE_PAGE:
            try:
                _free.remove(block)
            except ValueError:  # another thread was faster
                continue
            return block
    return None


def _fresh(size: int) -> mmap.mmap:
    size = -(-size // _HUGE_PAGE) * _HUGE_PAGE
    try:
        block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"no memory for a tensor of {size} bytes") from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        block.madvise(mmap.MADV_HUGEPAGE)
    return block


def _give_back(block: mmap.mmap) -> None:
    """Keep it, and in its place give up those that came back first."""
    if len(block) > _MOST_BYTES:
        return
    _free.append(block)
    while kept_bytes() > _MOST_BYTES:
        try:
            _free.pop(0)
        except IndexError:  # another thread was faster
            return
