"""Wrong arguments of the kernels are refused: none crashes the process or is computed with."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from models.kernels import library
from models.kernels.calls import Kind, Packed, Tensors
from models.kernels.compiling import BuildError
from models.kernels.sequence import sequence
from tests.models.kernels.cases import Sizes, random_tensors
from tests.patience import LONG_SECONDS

needs_kernels = pytest.mark.skipif(library.library() is None, reason="there are no kernels here")

KIND = Kind("rnn", "tanh", 0.0)


@needs_kernels
def test_wrong_arguments_raise_and_never_crash() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tests.models.kernels.hostile_calls"],
        capture_output=True,
        text=True,
        timeout=LONG_SECONDS,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    assert int(run.stdout) > 5000


@needs_kernels
def test_a_refusal_names_the_tensor_and_what_is_allowed() -> None:
    tensors = random_tensors("rnn", "dense", Sizes(1, 2, 3, 4, 5))
    assert tensors.bias is not None
    wrong = replace(tensors, bias=tensors.bias.double())
    expected = r"bias is torch\.float64 \[1, 2, 1, 4\] on cpu; .*float32 \[1, 2, 1, 4\] on the CPU"
    with pytest.raises(ValueError, match=expected):
        sequence(KIND, wrong, None, keep=False)


@needs_kernels
def test_packed_weights_are_known_for_as_long_as_they_are_held() -> None:
    tensors = random_tensors("rnn", "dense", Sizes(1, 2, 3, 4, 5))
    given = Tensors(*(None if t is None else t.detach() for t in tensors.in_order()))  # pyright: ignore[reportArgumentType] -- h0 is given
    packed = Packed(KIND, given)
    handle = packed.handle
    run = torch.ops.reflectory.sequence
    arguments = (*given.in_order(), None, "rnn", "tanh", 0.0, False, False)
    torch.testing.assert_close(run(*arguments, handle)[2], run(*arguments, 0)[2])
    wider = random_tensors("rnn", "dense", Sizes(1, 2, 3, 6, 5))
    with pytest.raises(ValueError, match=r"packed for \('rnn', 4, .* are none for \('rnn', 6,"):
        run(*wider.in_order(), None, "rnn", "tanh", 0.0, False, False, handle)
    del packed
    with pytest.raises(ValueError, match=f"{handle} is no handle of packed weights"):
        run(*arguments, handle)


@needs_kernels
def test_a_library_with_other_structs_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = library.cache_folder()
    assert library.load(folder)
    expected = library.layout()
    monkeypatch.setattr(library, "layout", lambda: [*expected[:-1], expected[-1] + 1])
    with pytest.raises(BuildError, match="has other structs than this program"):
        library.load(folder)
