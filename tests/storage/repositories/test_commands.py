"""Commands outlive their study, are found oldest first, and go once."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from storage.engine import Database
from storage.errors import NotFound
from storage.records import CommandKind, CommandRecord
from storage.repositories.commands import Commands
from storage.repositories.studies import Studies
from tests.storage.records import add_study


def command(name: str, *, age: int) -> CommandRecord:
    return CommandRecord(
        id=name,
        study_id="gone",
        kind=CommandKind.FORGET,
        payload={"study_name": f"a study [{name}]"},
        created_at=datetime(2025, 1, 1, tzinfo=UTC) - timedelta(seconds=age),
    )


def test_open_commands_are_the_oldest_first_and_go_once(database: Database) -> None:
    young, old = command("a", age=1), command("b", age=2)
    with database.write() as session:
        Commands(session).add(young)
        Commands(session).add(old)
    with database.read() as session:
        assert Commands(session).open(CommandKind.FORGET) == [old, young]
        assert Commands(session).find("b") == old
    for _ in range(2):
        with database.write() as session:
            Commands(session).drop("b")
    with database.read() as session:
        assert Commands(session).open(CommandKind.FORGET) == [young]
        assert Commands(session).find("b") is None


def test_a_command_outlives_its_study(database: Database) -> None:
    with database.write() as session:
        study_id = add_study(session).id
        Commands(session).add(command("a", age=0))
        Studies(session).delete(study_id)
    with database.read() as session:
        assert len(Commands(session).open(CommandKind.FORGET)) == 1


def test_a_command_that_a_trial_came_of_is_open_no_more_and_tells_which(
    database: Database,
) -> None:
    asked = replace(command("a", age=1), kind=CommandKind.ENQUEUE)
    other = replace(command("b", age=0), kind=CommandKind.ENQUEUE, study_id="other")
    with database.write() as session:
        for one in (asked, other):
            Commands(session).add(one)
        Commands(session).answer("a", 0)
        with pytest.raises(NotFound, match="'c'"):
            Commands(session).answer("c", 0)
    with database.read() as session:
        commands = Commands(session)
        assert commands.find("a") == replace(asked, trial=0)
        assert commands.open(CommandKind.ENQUEUE, "gone") == []
        assert commands.open(CommandKind.ENQUEUE, "other") == [other]
        assert commands.open(CommandKind.ENQUEUE) == [other]
    with database.write() as session:
        Commands(session).drop_of_study("gone", CommandKind.ENQUEUE)
    with database.read() as session:
        assert Commands(session).find("a") is None
        assert Commands(session).find("b") == other
