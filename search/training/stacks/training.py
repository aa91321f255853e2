"""Training trials together: who joins, what each batch and epoch brings, and who leaves."""

import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from search.errors import TrainingDiverged
from search.tasks import Criterion, Splits
from search.training.resume import Tensors
from search.training.stacks.alone import OneNetwork
from search.training.stacks.engine import Engine
from search.training.stacks.engines import Engines, halves, warn
from search.training.stacks.entries import Clock, Entry, Left, StackHooks
from search.training.stacks.evaluation import evaluate
from search.training.stacks.key import stack_key
from search.training.stacks.member import Found, Member, Step
from search.training.stacks.member_numbers import GlobalGenerators
from search.training.stacks.together import ManyNetworks
from search.training.stacks.widths import KnownWidths, WidthPolicy, Widths


def train_stack(
    splits: Splits,
    *,
    task: Criterion,
    hooks: StackHooks,
    device: torch.device | str = "cpu",
    width: WidthPolicy = "auto",
    known: KnownWidths | None = None,
) -> None:
    """Train trials of one `stack_key` until nobody is left.

    Each is trained as `search.training.run.train` says, with the same numbers up to rounding, and
    for a trial that is computed alone bit for bit. Trials join and leave while others go on: all
    take their batches in step, so that who comes joins where the others stand at the batch that it
    begins with. What a trial's own hooks raise, and whatever goes wrong with it, ends that trial
    alone.

    Where a call for several fails, for want of memory or however, these go on from before it in
    calls for fewer. What `hooks` themselves raise ends all, and is raised.

    Args:
        splits: the task's data.
        task: gives the loss and the metric.
        hooks: who joins, who ended, and the lock around batches.
        device: where to train.
        width: how many trials are computed in one call, at most; `auto`: see `Widths`.
        known: which widths were the fastest before, in this process.
    """
    _Stack(
        splits,
        task=task,
        hooks=hooks,
        device=torch.device(device),
        width=width,
        known=known or KnownWidths(),
    ).run()


@dataclass(frozen=True)
class _Validated:
    """What an epoch made of a member."""

    found: Found
    margin: float | None
    term: float | None
    """Of generalization."""
    state: Tensors | None
    """The numbers that were validated, if they are the best so far."""
    unrounded: Tensors
    """What they were before they were rounded, if training may go on from there; else empty."""
    optimizer: Tensors
    """Its state then, likewise."""


class _Stack:
    """The trials that are trained now."""

    def __init__(
        self,
        splits: Splits,
        *,
        task: Criterion,
        hooks: StackHooks,
        device: torch.device,
        width: WidthPolicy,
        known: KnownWidths,
    ) -> None:
        self._splits = splits.to(device)
        self._task, self._hooks, self._device = task, hooks, device
        self._widths, self._known = Widths(width), known
        self._engines = Engines(
            self._splits.train,
            generators=GlobalGenerators(device),
            widths=self._widths,
            ended=hooks.ended,
        )
        self._waiting: list[Member] = []
        self._at = 0
        """Batches of the epoch underway that are done."""
        self._clock = _Stopwatch(hooks)
        self._key: str | None = None

    def run(self) -> None:
        """Train until nobody is left."""
        try:
            while self._admit():
                self._train_epoch()
                self._end_epoch(self._engines.members)
        except _OfHooks as error:
            raise error.error from None

    def _admit(self) -> bool:
        """Begin an epoch with those who stayed and those who join; whether there is anybody."""
        self._at = 0
        self._begin_epoch(self._engines.members)
        while True:
            self._take_newcomers()
            self._join()
            if not self._engines.members and self._waiting:
                # Nobody is in the way: who is in the middle of an epoch goes on there.
                self._at = self._waiting[0].progress.batch
                self._join()
            if self._engines.members:
                return True
            if not self._waiting:
                return False

    def _take_newcomers(self) -> None:
        for entry in self._hooks.newcomers():
            try:
                self._check_key(entry)
                member = Member(
                    entry,
                    task=self._task,
                    device=self._device,
                    chooses=self._splits.chooses,
                )
            except Exception as error:  # whatever it is, the others have no part in it
                self._hooks.ended(entry, error)
                continue
            if member.is_over:
                self._finish([member])
            else:
                self._waiting.append(member)

    def _check_key(self, entry: Entry) -> None:
        """Refuse who cannot be trained with those who came first."""
        key = stack_key(entry.job)
        if self._key not in (None, key):
            raise ValueError(
                f"trials of one stack have one stack_key; this one's is {key}, not {self._key}"
            )
        if self._key is None:
            self._widths.begin_with(self._known.of(entry.job, device=str(self._device)))
        self._key = key

    def _join(self) -> None:
        """Have those begin who wait for the batch that comes next."""
        joining = [one for one in self._waiting if one.progress.batch == self._at]
        if not joining:
            return
        self._waiting = [one for one in self._waiting if one not in joining]
        self._engines.form(
            [*self._engines.members, *joining], {member: member.take_start() for member in joining}
        )
        # What is not trained yet is validated first.
        self._end_epoch([one for one in joining if one.progress.epoch == 0])
        self._begin_epoch([one for one in joining if one in self._engines.members])

    def _begin_epoch(self, members: Sequence[Member]) -> None:
        for member in members:
            member.begin_epoch(self._splits.train)
        self._engines.begin_epoch()

    def _train_epoch(self) -> None:
        self._clock.restart()
        while (members := self._engines.members) and self._at < len(members[0].batches):
            self._engines.regroup()
            last = self._at + 1 == len(members[0].batches)
            watched = last or any(member.is_probed for member in members)
            began = self._clock.now()
            steps = self._engines.of_each(
                lambda engine, watched=watched: self._step(engine, watched=watched)
            )
            self._widths.took(self._clock.now() - began, members=len(members))
            self._share_seconds(members)
            self._guard(
                (member, lambda member=member, step=step: member.batch_done(step))
                for member, step in steps
            )
            self._at += 1
            self._save_if_due(self._engines.members)
            self._let_go()
            self._join()

    def _step(self, engine: Engine, *, watched: bool) -> Sequence[Step]:
        with self._batch():
            return engine.step(watched=watched)

    def _end_epoch(self, members: Sequence[Member]) -> None:
        """Validate, report, and move on; who is over leaves."""
        if not members:
            return
        self._guard((member, member.check_epoch) for member in members)
        self._clock.restart()
        validating = [one for one in self._engines.members if one in members]
        found = self._engines.of_each(self._validated, validating)
        self._share_seconds(validating)
        self._guard(
            (member, lambda member=member, found=found: self._report(member, found))
            for member, found in found
        )
        self._guard(
            (member, lambda member=member: member.end_epoch(member.entry.hooks.hear_verdict()))
            for member in [one for one in self._engines.members if one in members]
        )
        self._lower_rates([one for one in self._engines.members if one in members])
        self._save_if_due([one for one in self._engines.members if one in members])
        over = [one for one in self._engines.members if one in members and one.is_over]
        paused = [one for one in over if one.outcome == "paused"]
        self._guard((member, lambda member=member: self._save(member)) for member in paused)
        over = [one for one in over if one in self._engines.members]
        self._engines.leave(over)
        self._finish(over)
        self._clock.restart()

    def _lower_rates(self, members: Sequence[Member]) -> None:
        """Lower the rates of those at a plateau, of whom some go back to their best epoch."""
        back = [member for member in members if member.lower_rate()]
        if back:
            best = {member: member.at_best(self._engines.numbers(member)) for member in back}
            self._engines.form(self._engines.members, best)

    def _validated(self, engine: Engine) -> Sequence[_Validated | TrainingDiverged]:
        """What an epoch made of an engine's members."""
        validation = self._splits.validation
        with engine.rounded():
            found = evaluate(engine.networks, engine.members, validation, batch=self._batch)
            margins, terms = engine.margins(), engine.terms()
            states = [_best_state(engine, place, one) for place, one in enumerate(found)]
        return [
            one
            if isinstance(one, TrainingDiverged)
            else _kept(engine, place, one, state, margin=margin, term=term)
            for place, (one, state, margin, term) in enumerate(
                zip(found, states, margins, terms, strict=True)
            )
        ]

    def _report(self, member: Member, validated: _Validated | TrainingDiverged) -> None:
        if isinstance(validated, TrainingDiverged):
            raise validated
        member.count_stale(validated.found)
        if validated.state is not None:
            member.take_best(
                validated.found,
                validated.state,
                unrounded=validated.unrounded,
                optimizer=validated.optimizer,
            )
        report = member.report(
            validated.found,
            margin=validated.margin,
            term=validated.term,
            stood_still_seconds=self._hooks.stood_still_seconds,
        )
        member.entry.hooks.say_epoch(report)

    def _finish(self, members: Sequence[Member]) -> None:
        """Test those who are over, and say what came of them."""
        tested: list[Member] = []
        for member in members:
            try:
                member.use_best()
            except Exception as error:  # whatever it is, the others have no part in it
                self._hooks.ended(member.entry, error)
                continue
            if member.outcome == "paused":
                self._hooks.ended(member.entry, member.result({}))
            else:
                tested.append(member)
        for some in self._engines.parts(tested):
            self._test(some)

    def _test(self, members: Sequence[Member]) -> None:
        """Test some in one call; those for whom that fails in smaller parts."""
        try:
            networks = (
                OneNetwork(members[0].module, members[0].task)
                if len(members) == 1
                else ManyNetworks.of(members, [member.best for member in members])
            )
            found = evaluate(networks, members, self._splits.test, batch=self._batch)
        except Exception as error:  # fewer need less, and one has but itself to blame
            if len(members) == 1:
                self._hooks.ended(members[0].entry, error)
                return
            warn(len(members), error)
            for half in halves(members):
                self._test(half)
            return
        for member, one in zip(members, found, strict=True):
            failed = isinstance(one, TrainingDiverged)
            self._hooks.ended(member.entry, one if failed else member.result(one.values))

    def _guard(self, acts: Iterable[tuple[Member, Callable[[], None]]]) -> None:
        """Do something for each member; one for whom it fails leaves."""
        failed: dict[Member, Exception] = {}
        for member, act in acts:
            try:
                act()
            except Exception as error:  # whatever it is, the others have no part in it
                failed[member] = error
        self._engines.leave([*failed])
        for member, error in failed.items():
            self._hooks.ended(member.entry, error)

    def _save_if_due(self, members: Sequence[Member]) -> None:
        self._guard(
            (member, lambda member=member: self._save(member))
            for member in members
            if member.is_save_due
        )

    def _let_go(self) -> None:
        """Have those store where they are who are to leave, and go on without them."""
        waiting = [one for one in self._waiting if one.entry.hooks.leaves]
        self._waiting = [one for one in self._waiting if one not in waiting]
        for member in waiting:
            # What it begins with is stored.
            self._hooks.ended(member.entry, Left())

        def leave(member: Member) -> None:
            self._save(member)
            raise Left

        self._guard(
            (member, lambda member=member: leave(member))
            for member in self._engines.members
            if member.entry.hooks.leaves
        )

    def _save(self, member: Member) -> None:
        member.save(self._engines.numbers(member))

    def _share_seconds(self, members: Sequence[Member]) -> None:
        """Share the time since the last time among those who were computed."""
        seconds = self._clock.lap() / max(1, len(members))
        for member in members:
            member.progress.seconds += seconds

    @contextmanager
    def _batch(self) -> Generator[None]:
        """The hooks' own, whose errors end training as a whole."""
        with _raised_as_theirs():
            context = self._hooks.batch()
            context.__enter__()
        try:
            yield
        finally:
            with _raised_as_theirs():
                context.__exit__(None, None, None)


def _best_state(engine: Engine, place: int, found: Found | TrainingDiverged) -> Tensors | None:
    """A member's numbers as they are now, where they are the best so far."""
    if isinstance(found, TrainingDiverged) or not engine.members[place].is_best(found):
        return None
    return engine.state(place)


def _kept(
    engine: Engine,
    place: int,
    found: Found,
    state: Tensors | None,
    *,
    margin: float | None,
    term: float | None,
) -> _Validated:
    """What an epoch made of a member, with all that it may go back to."""
    member = engine.members[place]
    unrounded: Tensors = {}
    optimizer: Tensors = {}
    if state is not None and member.goes_back:
        kept = engine.numbers(place).optimizer
        optimizer = {name: tensor.clone() for name, tensor in kept.items()}
        unrounded = {} if member.bits is None else engine.state(place)
    return _Validated(found, margin, term, state, unrounded, optimizer)


class _OfHooks(BaseException):
    """What the hooks of all raised, which is no failure of the engine."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


@contextmanager
def _raised_as_theirs() -> Generator[None]:
    try:
        yield
    except Exception as error:
        raise _OfHooks(error) from error


class _Stopwatch:
    """Seconds between its laps, without those in which all stood still for a measurer."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._started = self.now()

    def restart(self) -> None:
        """Begin a lap now."""
        self._started = self.now()

    def lap(self) -> float:
        """What this one took; the next one begins."""
        before, self._started = self._started, self.now()
        return max(0.0, self._started - before)

    def now(self) -> float:
        """Seconds since some time."""
        return time.monotonic() - self._clock.stood_still_seconds
