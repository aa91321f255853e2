"""`reflectory serve`, one process of which is killed at a chosen point, as `kill -9` would.

The point is the content of the file that the environment variable `POINT_FILE` names. Whoever comes
there takes the file away and dies, so that each file kills once.
"""

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any, Final

from search.agents.forking.environment import PRELOAD

# Before anything imports torch, as `serve` has it.
os.environ.update(PRELOAD)

from search.agents.executors.remote import RemoteExecutor
from search.agents.outbox import Outbox, Word
from search.agents.protocol import Orders, Sync, Synced
from search.running.agent_handler import AgentHandler
from search.sampling.optuna_study import OptunaStudy
from service.cli import main
from storage.records import TrialRecord
from tests.patience import wait_while_it_moves

POINT_FILE: Final = "REFLECTORY_TEST_POINT_FILE"
BETWEEN: Final = "between the last word and the exit"
POINTS: Final = (
    "words taken, not answered",
    "last word taken, not answered",
    "exit taken, not answered",
    "orders given, not answered",
    "place booked, not told",
    "before the last word",
    BETWEEN,
    "before the exit is heard",
    "asked",
    "before it is told",
    "after it is told",
)
"""Of the API, of the coordinator, of the agent, and of the coordinator with its sampler."""


def _die_at(point: str) -> None:
    file = Path(os.environ[POINT_FILE])
    with suppress(FileNotFoundError):
        if file.read_text() == point:
            file.unlink()
            os.kill(os.getpid(), signal.SIGKILL)


def _after_sync(_handler: AgentHandler, synced: Synced, _machine: str, body: Sync, *_: Any) -> None:
    # All is committed, and nobody has heard of it.
    kinds = {item.kind for item in body.items}
    if "epoch" in kinds:
        _die_at("words taken, not answered")
    if "end" in kinds:
        _die_at("last word taken, not answered")
    if "exit" in kinds:
        _die_at("exit taken, not answered")


def _after_poll(_handler: AgentHandler, given: tuple[Orders, int] | Orders, *_: Any) -> None:
    orders = given if isinstance(given, Orders) else given[0]
    if orders.start:
        _die_at("orders given, not answered")


def _before_start(*_: Any) -> None:
    _die_at("place booked, not told")


def _before_word(outbox: Outbox, word: Word, **given: Any) -> None:
    if word.item["kind"] == "end":
        _die_at("before the last word")
    file = Path(os.environ[POINT_FILE])
    if given.get("last") and file.exists() and file.read_text() == BETWEEN:
        # Of all that was said before, nothing is left that was not heard.
        wait_while_it_moves(outbox.is_empty, what="an outbox without words")
        _die_at(BETWEEN)


def _after_word(_outbox: Outbox, _nothing: None, _word: Word, **given: Any) -> None:
    if given.get("last"):
        _die_at("before the exit is heard")


def _after_ask(*_: Any) -> None:
    _die_at("asked")


def _before_tell(_study: OptunaStudy, trial: TrialRecord) -> None:
    # When the study is made of its rows it is told again what it was told.
    if trial.told_at is None:
        _die_at("before it is told")


def _after_tell(_study: OptunaStudy, _nothing: None, trial: TrialRecord) -> None:
    if trial.told_at is None:
        _die_at("after it is told")


def _have(
    kind: type,
    name: str,
    *,
    before: Callable[..., None] | None = None,
    after: Callable[..., None] | None = None,
) -> None:
    """Have a method of a class call these first, and then with what it returns."""
    method = getattr(kind, name)

    @wraps(method)
    def dying(self: Any, *words: Any, **given: Any) -> Any:
        if before is not None:
            before(self, *words, **given)
        answer = method(self, *words, **given)
        if after is not None:
            after(self, answer, *words, **given)
        return answer

    setattr(kind, name, dying)


def _install() -> None:
    _have(AgentHandler, "sync", after=_after_sync)
    _have(AgentHandler, "poll", after=_after_poll)
    _have(AgentHandler, "again", after=_after_poll)
    _have(RemoteExecutor, "start", before=_before_start)
    _have(Outbox, "add", before=_before_word, after=_after_word)
    _have(OptunaStudy, "ask", after=_after_ask)
    _have(OptunaStudy, "tell", before=_before_tell, after=_after_tell)


if __name__ == "__main__":
    _install()
    main()
