"""All that a member's next number follows from, beside its data: what it takes along."""

from dataclasses import dataclass

import torch
from torch import Tensor

from models.backends.loops import State
from search.training.resume import Tensors


@dataclass(frozen=True)
class Numbers:
    """What resume files hold of a member's engine."""

    model: Tensors
    """The module's state."""
    optimizer: Tensors
    """By `<parameter>/<quantity>`, as torch's optimizers name them; empty before the first step."""
    generators: Tensors
    """`torch`, and on a GPU `cuda`: states of what the model draws from while it trains."""
    carried: State = ()
    """See `ResumeState.carried`."""


def seeded(seed: int, device: torch.device) -> Tensors:
    """The states of torch's generators behind `torch.manual_seed`."""
    states = {"torch": torch.Generator().manual_seed(seed).get_state()}
    if device.type == "cuda":
        states["cuda"] = torch.Generator(device).manual_seed(seed).get_state()
    return states


class GlobalGenerators:
    """Torch's own generators, which members that are computed alone use in turns."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._user: Drawing | None = None

    def lend(self, drawing: "Drawing") -> None:
        """Have what is drawn from now on be a member's, which goes on where it was."""
        if self._user is drawing:
            return
        if self._user is not None:
            self._user.states = self.states()
        self._user = drawing
        torch.set_rng_state(drawing.states["torch"])
        if "cuda" in drawing.states and self._device.type == "cuda":
            torch.cuda.set_rng_state(drawing.states["cuda"], self._device)

    def states_of(self, drawing: "Drawing") -> Tensors:
        """Where a member is."""
        return self.states() if self._user is drawing else drawing.states

    def states(self) -> Tensors:
        """Where the generators are."""
        found: dict[str, Tensor] = {"torch": torch.get_rng_state()}
        if self._device.type == "cuda":
            found["cuda"] = torch.cuda.get_rng_state(self._device)
        return found


@dataclass(eq=False)
class Drawing:
    """Where a member's draws are while others use torch's generators."""

    states: Tensors
