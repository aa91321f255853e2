"""Whether torch's tracer, `torch._dynamo`, is imported where tensors have shapes and no numbers.

Torch computes shapes on `meta` in Python, in functions that first tell the tracer to leave them
alone, and import it for that: 70 MiB and more than a second of every process that counts a model's
parameters. A process that traces nothing has nobody to tell.
"""

import gc
from importlib import import_module
from types import FunctionType
from typing import Final

import torch

_MARK: Final = "__dynamo_disable"
"""Where torch keeps what the tracer made of a function, which it calls from then on."""

_kept_out: Final[list[FunctionType]] = []


def keep_out() -> None:
    """Have this process, and what it forks, compute shapes without the tracer.

    Where another torch does it in another way, nothing changes but that it is imported.
    """
    wrap = getattr(import_module("torch._compile"), "_disable_dynamo", None)
    if _kept_out or wrap is None:
        return
    # Imports the functions in question.
    torch.empty(1, device="meta").sigmoid()
    # All that were wrapped have this code; what each of them wraps is what differs.
    wrapper = wrap(keep_out).__code__
    for one in gc.get_objects():
        if type(one) is FunctionType and one.__code__ is wrapper:
            inside = dict(zip(wrapper.co_freevars, one.__closure__ or (), strict=True))
            function = inside["fn"].cell_contents if "fn" in inside else keep_out
            if function is not keep_out and not hasattr(function, _MARK):
                setattr(function, _MARK, function)
                _kept_out.append(function)


def let_in() -> None:
    """Undo `keep_out`, in a process that may trace."""
    while _kept_out:
        delattr(_kept_out.pop(), _MARK)
