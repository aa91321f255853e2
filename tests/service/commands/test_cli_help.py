"""What every command of the command line has: words, an example, `--json`, completion."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.client import Client
from tests.command_help import COMMANDS, help_of
from tests.patience import LONG_SECONDS, wait_while_it_moves
from tests.service.listening import listening
from tests.service.site import Site

_PROGRAM = "from service.cli import application; application(prog_name='reflectory')"


def test_there_are_commands_to_check() -> None:
    assert {("submit",), ("trials",), ("datasets", "upload")} <= set(COMMANDS)


@pytest.mark.parametrize("way", COMMANDS, ids=" ".join)
def test_a_command_has_words_an_example_and_json(way: tuple[str, ...]) -> None:
    text = help_of(*way)
    assert "--json" in text
    assert "--key" not in text, "a key in an argument is seen by everybody on the machine"
    example = re.search(r"Example: reflectory (.+)", text)
    assert example is not None
    words = example[1].split()
    assert tuple(words[: len(way)]) == way
    for option in re.findall(r"--[a-z-]+", example[1]):
        assert option in text
    for line in re.findall(r"│[ *]+(--\S+.*)│", text):
        assert re.search(r" {2,}(?!URL)[A-Z]\w", line), f"an option without words: {line}"


def test_the_overview_has_the_exit_codes() -> None:
    text = help_of()
    for code in ("0 done", "2 wrong usage", "3 the server", "4 no server", "130 interrupted"):
        assert code in text


@pytest.fixture
def server(site: Site) -> Iterator[str]:
    with listening(site) as (host, port):
        yield f"http://{host}:{port}"


def completion(server: str, **environment: str) -> str:
    """What the program prints for a shell that asks to complete a line."""
    run = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        capture_output=True,
        text=True,
        timeout=LONG_SECONDS,
        env={**os.environ, "REFLECTORY_SERVER": server, **environment},
    )
    assert run.stderr == ""
    return run.stdout


def completed(server: str, *words: str) -> list[str]:
    """What bash would offer after these words."""
    return completion(
        server,
        _REFLECTORY_COMPLETE="complete_bash",
        COMP_WORDS=" ".join(("reflectory", *words)),
        COMP_CWORD=str(len(words)),
    ).split()


def offered(server: str, *words: str) -> list[str]:
    """The first answer that is one: a person waits no second for a server that is busy."""
    return wait_while_it_moves(lambda: completed(server, *words), what=f"words after {words}")


def test_ids_and_states_are_completed(site: Site, server: str, tmp_path: Path) -> None:
    study = site.study()
    other = site.study(name='a name "of $(anybody)`s"')
    site.trial(study, 0)
    site.trial(study, 1)
    assert set(offered(server, "front", "")) == {study.id, other.id}
    assert offered(server, "front", study.id[:5]) == [study.id]
    assert offered(server, "download", study.id, "") == ["0", "1"]
    assert offered(server, "list", "--state", "pa") == ["paused"]
    assert "importance" in offered(server, "im")
    file = tmp_path / "pets.csv"
    file.write_text("species,weight\n" + "cat,4\ndog,20\n" * 20)
    with Client(server) as client:
        dataset = client.upload_dataset(file)
    assert offered(server, "datasets", "show", "") == [dataset.id]


def test_without_a_server_nothing_is_completed_and_nothing_is_said() -> None:
    for server in ("http://127.0.0.1:1", "nonsense"):
        assert completed(server, "front", "") == []


def test_a_name_cannot_speak_to_the_shell(site: Site, server: str) -> None:
    site.study(name="x$(touch here)`id`\"';y")
    zsh = {"_REFLECTORY_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "reflectory front "}
    printed = wait_while_it_moves(lambda: completion(server, **zsh), what="a study's name")
    assert "touch here" in printed
    assert not set(printed) & set("$`;")
