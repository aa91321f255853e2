"""Whether an ONNX file computes what its model computes."""

import copy
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from models.exports.comparison import BATCH, Bound, in_double_precision, normal_inputs
from models.exports.onnx.export import (
    NEXT_STATE,
    OUTPUT,
    PLAIN,
    STATE,
    FileOptions,
)
from models.exports.onnx.interface import LABEL
from models.exports.onnx.runtime import Session
from models.model import ModelSpec
from models.network import Network

FILE = "the ONNX file"


def verify(
    content: bytes, network: nn.Module, spec: ModelSpec, options: FileOptions = PLAIN
) -> float:
    """Run an exported file in onnxruntime beside the model in evaluation, on normal inputs.

    A batch of 8 and its first sample alone are tried at the lengths of `normal_inputs`. Samples
    that are padded get lengths of their own; a stream is given in two pieces, from its first state
    on. Answers may differ from those of the model in double precision as `Bound` says.

    Returns:
        The largest difference found, as a share of what is let pass.

    Raises:
        ExportError: they differ by more, or the file cannot be run.
    """
    every_step = spec.signature.output_steps == "every"
    exact = in_double_precision(network, spec)
    check = _Check(Session(content), exact, options, every_step=every_step)
    interface = options.interface
    own_length = interface is not None and not options.stream and "steps" not in interface.sample
    return max(max(check.shares(x)) for x in normal_inputs(spec, own_length=own_length))


class _Check:
    """A file beside its model."""

    def __init__(
        self, session: Session, exact: Network, options: FileOptions, *, every_step: bool
    ) -> None:
        self.session = session
        self.exact = exact
        self.single = copy.deepcopy(exact).float()
        self.options = options
        self.every_step = every_step

    @torch.no_grad()
    def shares(self, x: Tensor) -> Iterator[float]:
        """The largest differences on a batch of samples as the network reads them."""
        interface = self.options.interface
        lengths = None
        raw = x
        if interface is not None:
            if interface.padded and not self.options.stream:
                lengths = 1 + torch.arange(len(x)) % x.shape[1]
            # A stream is given single steps, of which the others know nothing.
            steps = [
                step for step in interface.inputs if not (self.options.stream and step.whole_sample)
            ]
            view = interface.model_copy(update={"inputs": tuple(steps)})
            raw = view.raw(x)
            x = view.preprocess(raw, lengths)
        expected = self.exact(x.double() if x.is_floating_point() else x, lengths=lengths)
        bound = Bound(
            expected,
            self.single(x, lengths=lengths),
            answer=None if interface is None else interface.answer,
            own=None if lengths is None else torch.arange(x.shape[1]) < lengths.unsqueeze(1),
        )
        for batch in (BATCH, 1):
            found = self._run(raw[:batch], None if lengths is None else lengths[:batch])
            yield bound.share(found[OUTPUT].double(), FILE)
            if LABEL in found:
                bound.check_label(found[LABEL], FILE)

    def _run(self, raw: Tensor, lengths: Tensor | None) -> Mapping[str, Tensor]:
        if not self.options.stream:
            return self.session.run(raw, lengths)
        middle = raw.shape[1] // 2
        pieces = [raw] if middle == 0 else [raw[:, :middle], raw[:, middle:]]
        states = [
            first.float().unsqueeze(1).repeat(1, len(raw), 1) for first in self.exact.first_states()
        ]
        answers: list[Mapping[str, Tensor]] = []
        for piece in pieces:
            named = {STATE.format(part): state for part, state in enumerate(states)}
            answers.append(self.session.run(piece, None, named))
            states = [answers[-1][NEXT_STATE.format(part)] for part in range(len(states))]
        if not self.every_step:
            return answers[-1]
        names = [name for name in (OUTPUT, LABEL) if name in answers[-1]]
        return {name: torch.cat([one[name] for one in answers], dim=1) for name in names}
