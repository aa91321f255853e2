"""A cell's own loop over the steps, as it is or captured in a CUDA graph.

The loop computes everything on every device, and is what the other backends are tested against.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from models.backends import cuda_graphs
from models.backends.call import ProjectedInputs, SequenceCall, State, with_own_ends
from models.kernels.choice import Backend
from models.kernels.members import is_stacked


class TorchLoop:
    """torch's operations, one after the other."""

    name: Backend = "torch"

    def takes(self, call: SequenceCall) -> bool:  # noqa: ARG002 -- whatever it is
        """Everything."""
        return True

    def run(self, call: SequenceCall) -> tuple[Tensor, State]:
        """Run step by step."""
        steps = call.loop(call.form.for_loop(), call.inputs.projections(), call.initial)
        lengths = call.lengths
        if lengths is not None and not call.ends_are_states:
            steps, lengths = _held_at_their_ends(steps, call.initial, lengths), None
        if lengths is None and not call.return_sequences:
            return call.state.new_empty(0), _last(steps)
        states = list(steps)
        return with_own_ends(torch.stack([h for h, *_ in states]), states[-1], lengths)


class GraphedLoop:
    """The same in CUDA graphs, which save the launches of each step's kernels."""

    name: Backend = "graph"

    def takes(self, call: SequenceCall) -> bool:
        """What depends on tensors alone, on a GPU that captures."""
        return (
            call.kind is not None
            and call.form.replayable
            and call.state.shape[0] > 0
            and not torch.compiler.is_compiling()
            # A graph's own tensors are those of one member.
            and not is_stacked()
            and cuda_graphs.can_be_used(call.state.device)
        )

    def run(self, call: SequenceCall) -> tuple[Tensor, State]:
        """Replay the loop, from the second call with the same shapes on."""
        form = call.form.for_loop()
        matrices = form.tensors()
        lengths = () if call.lengths is None else (call.lengths,)
        begin, end = len(matrices), len(matrices) + len(call.initial)

        def steps(projections: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
            own = call._replace(
                form=form.rebuild(tensors[:begin]),
                inputs=ProjectedInputs(projections),
                initial=tensors[begin:end],
                lengths=tensors[end] if lengths else None,
            )
            states, last = TorchLoop().run(own)
            return (states, *last) if call.return_sequences else last

        name = call.kind, form.structure(), call.return_sequences, bool(lengths), call.carries
        tensors = (call.inputs.projections(), *matrices, *call.initial, *lengths)
        results = cuda_graphs.run(name, steps, tensors)
        return (
            (results[0], results[1:])
            if call.return_sequences
            else (call.state.new_empty(0), results)
        )


def _held_at_their_ends(steps: Iterator[State], initial: State, lengths: Tensor) -> Iterator[State]:
    """The states, each sample's staying as it was after its own length."""
    before = initial
    lengths = lengths.unsqueeze(-1)
    for step, state in enumerate(steps):
        before = tuple(
            torch.where(step < lengths, new, old) for new, old in zip(state, before, strict=True)
        )
        yield before


def _last(steps: Iterator[State]) -> State:
    """The last state, keeping no other."""
    last = next(steps)
    for state in steps:
        last = state
    return last
