"""Several members, computed in the same calls."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from models.backends.loops import State
from models.kernels.optimizer import foreach_copy_
from models.network import Network
from models.stacked import StackedNetwork, penalty_of
from search.tasks import Batch, Batches, Criterion, Samples, take_each
from search.training.resume import Tensors
from search.training.stacks.engine import first_state, listed, settle
from search.training.stacks.member import Member, Step
from search.training.stacks.member_numbers import Numbers
from search.training.stacks.stacked_optimizer import QUANTITIES, StackedOptimizer
from search.training.trained_losses import readout_penalty


class ManyNetworks:
    """Networks of one architecture."""

    def __init__(self, stack: StackedNetwork, task: Criterion) -> None:
        self._stack, self._task = stack, task

    @classmethod
    def of(cls, members: Sequence[Member], states: Sequence[Tensors]) -> "ManyNetworks":
        """Those of some members with these numbers, for inference."""
        device = members[0].device
        specs = [member.job.trial.model.unrounded for member in members]
        nobody = [torch.Generator(device) for _ in members]
        stack = StackedNetwork(specs, states, generators=nobody).to(device)
        return cls(stack, members[0].task)

    @contextmanager
    def for_inference(self) -> Generator[None]:
        """Without dropout."""
        self._stack.train(training=False)
        yield

    def answer(self, samples: Samples, batch: Batch, carried: State) -> tuple[Tensor, State]:
        """See `Networks`."""
        if not samples.carries_state:
            return self._stack(batch.x, lengths=batch.lengths, shared=True), ()

        def step(one: Network, x: Tensor, *state: Tensor) -> tuple[Tensor, State]:
            return one.step(x, state)

        return self._stack.of_each(step, batch.x, *carried, shared=1)

    def losses(self, outputs: Tensor, y: Tensor) -> list[float]:
        """See `Networks`."""
        over_members: Any = torch.vmap(self._task.loss, in_dims=(0, None))
        return listed(over_members(outputs, y))


class Together:
    """The engine of several members."""

    def __init__(
        self, members: Sequence[Member], numbers: Sequence[Numbers], samples: Samples
    ) -> None:
        """Go on from each member's numbers.

        Raises:
            ValueError: they cannot be laid out as one, or are of other models.
        """
        self.members = [*members]
        self._samples, self._device, self._task = samples, members[0].device, members[0].task
        specs = [member.job.trial.model.unrounded for member in members]
        generators = [_generator(one.generators, self._device) for one in numbers]
        states = [one.model for one in numbers]
        self._stack = StackedNetwork(specs, states, generators=generators).to(self._device)
        self.networks = ManyNetworks(self._stack, self._task)
        # Of torch's generator of the other kind of device, from which nothing is drawn here.
        self._generators = [one.generators for one in numbers]
        self._quantities = QUANTITIES[members[0].training.optimizer]
        steps = [[_steps(one, name) for one in numbers] for name in self._stack.parameters]
        self._optimizer = StackedOptimizer(
            [member.training for member in members],
            moments=[self._laid_out(quantity, numbers) for quantity in self._quantities],
            steps=torch.tensor(steps),
        )
        self._readout_penalty = members[0].training.readout_penalty
        self._has_penalties = self._stack.has_penalties or self._readout_penalty > 0
        parts = zip(*(one.carried for one in numbers), strict=True)
        carried = tuple(torch.stack(part).to(self._device) for part in parts)
        half = len(carried) // 2 if self._is_taught else len(carried)
        self._carried, self._carried_by_teacher = carried[:half], carried[half:]
        self._kept: list[Tensor] = []
        self._keep_room()

    def begin_epoch(self) -> None:
        """See `Engine`."""
        if all(member.begins_pass for member in self.members):
            self._carried = self._carried_by_teacher = ()
        self._stack.train()
        scales, plain = self._stack.learning_rate_scales, [1.0] * len(self.members)
        self._optimizer.set_rates(
            [member.learning_rate for member in self.members],
            [scales.get(name, plain) for name in self._stack.parameters],
        )

    def step(self, *, watched: bool) -> Sequence[Step]:
        """See `Engine`."""
        self._remember()
        try:
            return self._stepped(watched=watched)
        except Exception:
            self._undo()
            raise

    def _stepped(self, *, watched: bool) -> Sequence[Step]:
        members, stack = self.members, self._stack
        batches = take_each(
            self._samples, [member.batches[member.progress.batch] for member in members]
        )
        parameters = [*stack.parameters.values()]
        watching = stack.observed() if watched else nullcontext(None)
        with self._rounded_for_a_step(), watching as probe:
            outputs, losses, *carried = self._forward(batches)
            totals = losses
            by_teacher: State = ()
            if self._is_taught:
                totals, by_teacher = self._taught(outputs, batches, losses)
            if self._has_penalties:
                totals = totals + carried.pop()
            leaves = [] if probe is None else probe.leaves
            gradients = torch.autograd.grad(
                totals.sum(), [*parameters, *leaves], allow_unused=True
            )[: len(parameters)]
        norms = self._optimizer.step(parameters, gradients, totals)
        stack.after_step()
        found = [totals, losses]
        if probe is not None:
            found += probe.norms(losses)
        rows: list[list[float]] = listed(torch.stack([one.detach().double() for one in found], 1))
        self._carried = self._gone_on_from(tuple(part.detach() for part in carried), totals, norms)
        self._carried_by_teacher = by_teacher
        settle(self._device)
        steps: list[Step] = []
        for (total, loss, *probed), norm, counts in zip(
            rows, listed(norms), batches.counts, strict=True
        ):
            first, end = probed if probed else (None, None)
            steps.append(Step(total, norm, loss, counts, first, end))
        return steps

    def rounded(self) -> AbstractContextManager[None]:
        """See `Engine`."""
        return self._stack.rounded(self.members[0].bits)

    def state(self, place: int) -> Tensors:
        """See `Engine`."""
        return {name: tensor.clone() for name, tensor in self._stack.state_of(place).items()}

    def margins(self) -> Sequence[float | None]:
        """See `Engine`."""
        return self._stack.spectral_margins()

    def terms(self) -> Sequence[float | None]:
        """See `Engine`."""
        steps = self.members[0].job.trial.model.signature.sequence_length
        return self._stack.generalization_terms(steps=steps)

    def numbers(self, place: int) -> Numbers:
        """See `Engine`."""
        optimizer: dict[str, Tensor] = {}
        steps: list[int] = listed(self._optimizer.steps[:, place])
        for quantity, kept in zip(self._quantities, self._optimizer.moments, strict=True):
            for count, name, one in zip(steps, self._stack.parameters, kept, strict=True):
                if count and self._stack.has(place, name):
                    own = self._stack.own_part(place, name, one)
                    optimizer[f"{name}/{quantity}"] = own.clone()
                    optimizer[f"{name}/step"] = torch.tensor(count, dtype=torch.float32)
        generator = self._stack.generators[place].get_state()
        drawn = self._generators[place]
        kind = "cuda" if self._device.type == "cuda" else "torch"
        return Numbers(
            model=self.state(place),
            optimizer=optimizer,
            generators={**drawn, kind: generator},
            carried=tuple(part[place].clone() for part in self._carried + self._carried_by_teacher),
        )

    def keep(self, places: Sequence[int]) -> None:
        """See `Engine`."""
        self._stack.keep(places)
        self._optimizer.keep(places)
        self._generators = [self._generators[place] for place in places]
        rows = torch.tensor([*places], device=self._device)
        self._carried = tuple(part[rows] for part in self._carried)
        self._carried_by_teacher = tuple(part[rows] for part in self._carried_by_teacher)
        self.members = [self.members[place] for place in places]
        self._keep_room()
        self.begin_epoch()

    @property
    def _is_taught(self) -> bool:
        return self.members[0].teacher is not None

    def _forward(self, batches: Batches) -> tuple[Tensor, ...]:
        """Outputs, losses, where members ended if that is carried on, and penalties if any."""
        carries = self._samples.carries_state
        task_loss, has_penalties = self._task.loss, self._has_penalties
        weight = self._readout_penalty

        def of_one(
            one: Network, x: Tensor, y: Tensor, lengths: Tensor | None, *state: Tensor
        ) -> tuple[Tensor, ...]:
            output, ended = one.step(x, state) if carries else (one(x, lengths=lengths), ())
            own = penalty_of(one) if has_penalties else None
            if own is not None and weight:
                own = own + readout_penalty(one, weight)
            return output, task_loss(output, y), *ended, *(() if own is None else (own,))

        return self._stack.of_each(of_one, batches.x, batches.y, batches.lengths, *self._carried)

    def _taught(self, outputs: Tensor, batches: Batches, losses: Tensor) -> tuple[Tensor, State]:
        """The losses with the distances from the original's answers."""
        teacher = self.members[0].teacher
        assert teacher is not None
        answers, carried = teacher.answers(
            batches, self._carried_by_teacher, carries_state=self._samples.carries_state
        )
        settings = [one.distillation for one in self.members if one.distillation is not None]
        soft = torch.stack(
            [
                self._task.soft_loss(output, answer, y, one.temperature)
                for output, answer, y, one in zip(
                    outputs, answers, batches.y, settings, strict=True
                )
            ]
        )
        weights = losses.new_tensor([one.distillation_weight for one in settings])
        return (1 - weights) * losses + weights * soft, carried

    @torch.no_grad()
    def _gone_on_from(self, ended: State, totals: Tensor, norms: Tensor) -> State:
        """Where next batches begin: anew where recovery is from a state that is no number."""
        recover = [member.training.nan_recovery is not None for member in self.members]
        if not ended or not any(recover):
            return ended
        sound = totals.isfinite() & norms.isfinite().to(totals.device)
        for part in ended:
            sound = sound & part.isfinite().flatten(1).all(1)
        anew = torch.tensor(recover, device=sound.device) & ~sound
        if not bool(anew.any()):
            return ended

        def first(one: Network, *parts: Tensor) -> State:
            return first_state(one, parts)

        firsts = self._stack.of_each(first, *ended)
        return tuple(
            torch.where(anew[:, None, None], a, b) for a, b in zip(firsts, ended, strict=True)
        )

    def _rounded_for_a_step(self) -> AbstractContextManager[None]:
        who = [member.bits_of_steps is not None for member in self.members]
        if not any(who):
            return nullcontext()
        return self._stack.rounded(self.members[0].bits, for_a_step=True, who=who)

    def _laid_out(self, quantity: str, numbers: Sequence[Numbers]) -> list[Tensor]:
        """What members kept of past steps with each parameter, `[K, ...]`."""
        return [
            self._stack.laid_out(name, [one.optimizer.get(f"{name}/{quantity}") for one in numbers])
            for name in self._stack.parameters
        ]

    def _tensors(self) -> list[Tensor]:
        """All that a step writes over on the device."""
        moments = [one for kept in self._optimizer.moments for one in kept]
        return [*self._stack.parameters.values(), *self._stack.buffers.values(), *moments]

    def _keep_room(self) -> None:
        self._kept = [torch.empty_like(one, requires_grad=False) for one in self._tensors()]

    def _undo(self) -> None:
        """Go back to before the step."""
        with torch.no_grad():
            foreach_copy_(self._tensors(), self._kept)
        self._optimizer.steps = self._past_steps
        for generator, state in zip(self._stack.generators, self._drawn, strict=True):
            generator.set_state(state)

    @torch.no_grad()
    def _remember(self) -> None:
        foreach_copy_(self._kept, self._tensors())
        self._past_steps = self._optimizer.steps.clone()
        self._drawn = [generator.get_state() for generator in self._stack.generators]


def _generator(states: Mapping[str, Tensor], device: torch.device) -> torch.Generator:
    generator = torch.Generator(device)
    generator.set_state(states["cuda" if device.type == "cuda" else "torch"])
    return generator


def _steps(numbers: Numbers, name: str) -> int:
    """How many were made with a parameter."""
    count = numbers.optimizer.get(f"{name}/step")
    return 0 if count is None else int(count)
