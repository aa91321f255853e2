"""Which members are computed in the same calls, and what becomes of them where a call fails."""

import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar, final

from search.tasks import Samples
from search.training.stacks.alone import Alone
from search.training.stacks.engine import Engine
from search.training.stacks.entries import Entry
from search.training.stacks.member import Member
from search.training.stacks.member_numbers import GlobalGenerators, Numbers
from search.training.stacks.together import Together
from search.training.stacks.widths import Widths

_log = logging.getLogger(__name__)

T = TypeVar("T")


@final
class Engines:
    """All members, each in one engine; engines are of about equal widths.

    Where a call for several fails, for want of memory or however, these go on from before it in
    calls for fewer: fewer need less, and one has but itself to blame, which ends it.

    Args:
        samples: what is trained on.
        generators: the process's own, from which one that is computed alone draws.
        widths: how many are computed in one call.
        ended: takes a trial that failed.
    """

    def __init__(
        self,
        samples: Samples,
        *,
        generators: GlobalGenerators,
        widths: Widths,
        ended: Callable[[Entry, Exception], None],
    ) -> None:
        self._samples, self._generators = samples, generators
        self._widths, self._ended = widths, ended
        self._engines: list[Engine] = []

    @property
    def members(self) -> list[Member]:
        """All of them, in the order of their places."""
        return [member for engine in self._engines for member in engine.members]

    def begin_epoch(self) -> None:
        """See `Engine`."""
        for engine in self._engines:
            engine.begin_epoch()

    def numbers(self, member: Member) -> Numbers:
        """All that a member takes along; it may be written over by the next step."""
        (engine,) = (one for one in self._engines if member in one.members)
        return engine.numbers(engine.members.index(member))

    def form(self, members: Sequence[Member], fresh: Mapping[Member, Numbers]) -> None:
        """Have these members computed, of whom those that are not here yet have fresh numbers."""
        numbers = {**_numbers_of(self._engines), **fresh}
        self._engines = [e for some in self.parts(members) for e in self._built(some, numbers)]

    def regroup(self) -> None:
        """Compute members in as many calls as it takes by now."""
        if len(self._engines) != len(self.parts(self.members)):
            self.form(self.members, {})
            self.begin_epoch()

    def leave(self, members: Sequence[Member]) -> None:
        """Have the others go on without these."""
        engines: list[Engine] = []
        for engine in self._engines:
            places = [p for p, member in enumerate(engine.members) if member not in members]
            if len(places) == 1 and len(engine.members) > 1:
                left = [engine.members[places[0]]]
                engines += self._built(left, _numbers_of([engine]))
                engines[-1].begin_epoch()
            elif places:
                if len(places) < len(engine.members):
                    engine.keep(places)
                engines.append(engine)
        self._engines = engines

    def of_each(
        self, work: Callable[[Engine], Sequence[T]], members: Sequence[Member] | None = None
    ) -> list[tuple[Member, T]]:
        """What work gives for all members, or some; smaller engines replace one that fails."""
        if members is not None and len(members) < len(self.members):
            self._separate(members)
        todo = [
            engine
            for engine in self._engines
            if members is None or all(member in members for member in engine.members)
        ]
        found: list[tuple[Member, T]] = []
        while todo:
            engine = todo.pop(0)
            try:
                results = work(engine)
            except Exception as error:  # see `Engines`
                todo = [*self._replaced(engine, error), *todo]
                continue
            found += zip(engine.members, results, strict=True)
        return found

    def parts(self, members: Sequence[Member]) -> list[Sequence[Member]]:
        """As few parts as there must be, of about equal sizes."""
        count = -(-len(members) // self._widths.width(len(members)))
        bounds = [len(members) * part // count for part in range(count + 1)] if members else []
        return [members[a:b] for a, b in itertools.pairwise(bounds)]

    def _replaced(self, engine: Engine, error: Exception) -> list[Engine]:
        """What goes on in the place of an engine that failed, from before that."""
        place = self._engines.index(engine)
        engines: list[Engine] = []
        ended: list[Member] = []
        if len(engine.members) == 1:
            ended = engine.members
            self._widths.limit(None)
        else:
            warn(len(engine.members), error)
            numbers = _numbers_of([engine])
            self._widths.limit(-(-len(engine.members) // 2))
            for half in halves(engine.members):
                engines += self._built(half, numbers)
            for one in engines:
                one.begin_epoch()
        self._engines[place : place + 1] = engines
        for member in ended:
            self._ended(member.entry, error)
        return engines

    def _separate(self, members: Sequence[Member]) -> None:
        """Have none of these be computed with any other."""
        numbers = _numbers_of(self._engines)
        others = [one for one in self.members if one not in members]
        self._engines = [
            engine
            for kind in (others, members)
            for some in self.parts(kind)
            for engine in self._built(some, numbers)
        ]

    def _built(self, members: Sequence[Member], numbers: Mapping[Member, Numbers]) -> list[Engine]:
        """One engine for all; more where that fails."""
        taken = [numbers[member] for member in members]
        try:
            if len(members) == 1:
                return [Alone(members[0], taken[0], self._samples, self._generators)]
            return [Together(members, taken, self._samples)]
        except Exception as error:  # see `Engines`
            if len(members) == 1:
                self._widths.limit(None)
                self._ended(members[0].entry, error)
                return []
            warn(len(members), error)
            self._widths.limit(-(-len(members) // 2))
        return [engine for half in halves(members) for engine in self._built(half, numbers)]


def halves(members: Sequence[Member]) -> tuple[Sequence[Member], Sequence[Member]]:
    """Two parts that differ by one at most."""
    half = -(-len(members) // 2)
    return members[:half], members[half:]


def warn(members: int, error: Exception) -> None:
    """Say in the log that a call for several failed."""
    _log.warning("%d trials cannot be computed in one call: %s", members, error, exc_info=True)


def _numbers_of(engines: Sequence[Engine]) -> dict[Member, Numbers]:
    return {
        member: engine.numbers(place)
        for engine in engines
        for place, member in enumerate(engine.members)
    }
