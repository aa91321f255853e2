"""One member, computed by its own module and torch's optimizer."""

import math
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from torch import Tensor

from models.backends.loops import State
from models.errors import CheckpointError
from models.generalization import generalization_term
from models.linear import cached_forms
from models.model import after_step, penalty, spectral_margin
from models.network import GradientProbe, Network, observed
from models.quantization import rounded_for_a_step, rounded_weights
from search.tasks import Batch, Criterion, Samples
from search.training.gradients import clip_gradients, shrink_instead
from search.training.optimizers import decay_weights, make_optimizer, restore_state, state_of
from search.training.resume import Tensors
from search.training.stacks.engine import first_state, settle
from search.training.stacks.member import Member, Step
from search.training.stacks.member_numbers import Drawing, GlobalGenerators, Numbers
from search.training.trained_losses import readout_penalty


class OneNetwork:
    """A network as the only one of its kind."""

    def __init__(self, module: Network, task: Criterion) -> None:
        self._module, self._task = module, task

    @contextmanager
    def for_inference(self) -> Generator[None]:
        """Without dropout, and with forms made once."""
        self._module.eval()
        with cached_forms(self._module):
            yield

    def answer(self, samples: Samples, batch: Batch, carried: State) -> tuple[Tensor, State]:
        """See `Networks`."""
        output, carried = answer(self._module, samples, batch, carried)
        return output.unsqueeze(0), carried

    def losses(self, outputs: Tensor, y: Tensor) -> list[float]:
        """See `Networks`."""
        return [self._task.loss(outputs[0], y).item()]


def answer(module: Network, samples: Samples, batch: Batch, carried: State) -> tuple[Tensor, State]:
    """A model's output, and the state in which it ended where the samples carry it on."""
    if not samples.carries_state:
        return module(batch.x, lengths=batch.lengths), ()
    return module.step(batch.x, carried)


class Alone:
    """The engine of one member."""

    def __init__(
        self, member: Member, numbers: Numbers, samples: Samples, generators: GlobalGenerators
    ) -> None:
        """Go on from numbers.

        Raises:
            CheckpointError: they are of another model or optimizer.
        """
        self.members = [member]
        self._samples, self._device, self._task = samples, member.device, member.task
        self._module, self._training = member.module, member.training
        self._optimizer = make_optimizer(self._module, self._training)
        self._first_rates: list[float] = [group["lr"] for group in self._optimizer.param_groups]
        try:
            self._module.load_state_dict(numbers.model)
            restore_state(self._optimizer, self._module, numbers.optimizer)
            self._drawing = Drawing(numbers.generators)
            self._generators = generators
            generators.lend(self._drawing)
        except (KeyError, RuntimeError) as error:
            raise CheckpointError(f"the resume file does not fit the model: {error}") from error
        self.networks = OneNetwork(self._module, self._task)
        self._carried = numbers.carried
        if member.teacher is not None:
            # Both models are of one architecture: their states have as many parts.
            half = len(self._carried) // 2
            self._carried, member.teacher.carried = self._carried[:half], self._carried[half:]

    def begin_epoch(self) -> None:
        """See `Engine`."""
        (member,) = self.members
        for group, first in zip(self._optimizer.param_groups, self._first_rates, strict=True):
            group["lr"] = first * member.rate_factor
        self._forget_at_pass()
        self._module.train()

    def step(self, *, watched: bool) -> Sequence[Step]:
        """See `Engine`."""
        (member,) = self.members
        self._generators.lend(self._drawing)
        self._forget_at_pass()
        batch = self._samples.take(member.batches[member.progress.batch])
        self._optimizer.zero_grad(set_to_none=True)
        # One batch of an epoch is enough to see by, and costs the others nothing.
        watching = observed(self._module) if watched else nullcontext(GradientProbe())
        norm = None
        with rounded_for_a_step(self._module, member.bits_of_steps), watching as probe:
            output, carried = answer(self._module, self._samples, batch, self._carried)
            loss = self._task.loss(output, batch.y)
            wanted = loss if member.teacher is None else self._taught(output, batch, loss)
            own = penalty(self._module)
            total = wanted if own is None else wanted + own
            if self._training.readout_penalty:
                total = total + readout_penalty(self._module, self._training.readout_penalty)
            value = total.item()
            if math.isfinite(value):
                total.backward()  # pyright: ignore[reportUnknownMemberType] -- untyped
                norm = clip_gradients(self._module, self._training)
        step = Step(value, norm, loss.item(), batch.counts, probe.first, probe.last)
        if not step.is_finite:
            if self._training.nan_recovery is None:
                return [step]
            shrink_instead(self._module, self._training.nan_recovery)
        decay_weights(self._optimizer, self._training.weight_decay)
        self._optimizer.step()  # pyright: ignore[reportUnknownMemberType] -- untyped
        after_step(self._module)
        self._carried = self._gone_on_from(tuple(part.detach() for part in carried), step)
        settle(self._device)
        return [step]

    def rounded(self) -> AbstractContextManager[None]:
        """See `Engine`."""
        return rounded_weights(self._module, self.members[0].bits)

    def state(self, place: int) -> Tensors:  # noqa: ARG002 -- there is one
        """See `Engine`."""
        state: dict[str, Tensor] = self._module.state_dict()
        return {name: tensor.detach().clone() for name, tensor in state.items()}

    def margins(self) -> Sequence[float | None]:
        """See `Engine`."""
        return [spectral_margin(self._module)]

    def terms(self) -> Sequence[float | None]:
        """See `Engine`."""
        steps = self.members[0].job.trial.model.signature.sequence_length
        found = generalization_term(self._module, steps=steps)
        term = None if found is None else float(found)
        return [term if term is not None and math.isfinite(term) else None]

    def numbers(self, place: int) -> Numbers:  # noqa: ARG002 -- there is one
        """See `Engine`."""
        teacher = self.members[0].teacher
        return Numbers(
            model=self._module.state_dict(),
            optimizer=state_of(self._optimizer, self._module),
            generators=self._generators.states_of(self._drawing),
            carried=self._carried if teacher is None else self._carried + teacher.carried,
        )

    def keep(self, places: Sequence[int]) -> None:
        """See `Engine`."""
        self.members = [self.members[place] for place in places]

    def _gone_on_from(self, ended: State, step: Step) -> State:
        """Where the next batch begins: anew where recovery is from a state that is no number."""
        if not ended or self._training.nan_recovery is None:
            return ended
        sound = step.is_finite and all(bool(part.isfinite().all()) for part in ended)
        return ended if sound else first_state(self._module, ended)

    def _forget_at_pass(self) -> None:
        """Carry nothing over from one pass over the samples to the next."""
        (member,) = self.members
        if not member.begins_pass:
            return
        self._carried = ()
        if member.teacher is not None:
            member.teacher.carried = ()

    def _taught(self, output: Tensor, batch: Batch, loss: Tensor) -> Tensor:
        """The loss with the distance from the original's answers."""
        teacher = self.members[0].teacher
        assert teacher is not None
        carries_state = self._samples.carries_state
        return teacher.loss(output, batch, loss, task=self._task, carries_state=carries_state)
