"""What the files of `deploy/` name exists: variables, commands, options."""

import re

import pytest

from service.cli import application
from tests.deploy.files import (
    ROOT,
    compose,
    invocations,
    known_options,
    known_variables,
    manifests,
    texts,
)


@pytest.mark.parametrize("file", texts())
def test_every_variable_that_is_named_is_one_that_the_program_reads(file: str) -> None:
    named = set(re.findall(r"\bREFLECTORY_[A-Z_]*[A-Z]", texts()[file]))
    assert named <= known_variables()


def test_kernel_variables_are_read() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "models").rglob("*.py"))
    for variable in ("REFLECTORY_KERNELS", "REFLECTORY_KERNEL_CACHE", "REFLECTORY_BACKEND"):
        assert f'"{variable}"' in sources


@pytest.mark.parametrize("file", texts())
def test_every_command_and_option_that_is_named_exists(file: str) -> None:
    for words in invocations(texts()[file]):
        _check(words)


def test_every_process_of_the_site_is_a_command_with_its_options() -> None:
    containers = [
        ["args", container["args"]]
        for _, document in manifests()
        for container in document.get("spec", {})
        .get("template", {})
        .get("spec", {})
        .get("containers", [])
    ]
    services = [
        ["command", service["command"]]
        for service in compose()["services"].values()
        if service["image"].startswith("reflectory") and "entrypoint" not in service
    ]
    assert len(containers) >= 5
    assert len(services) >= 7
    for _, words in containers + services:
        _check(words)


def _check(words: list[str]) -> None:
    if words == ["--help"]:
        return
    options = known_options(words)
    for word in words:
        if word.startswith("-") and word != "-":
            assert word.partition("=")[0] in options, (words, sorted(options))


def test_the_program_is_the_one_that_is_installed() -> None:
    assert application.info.name == "reflectory"


def test_every_test_that_proves_something_is_there() -> None:
    threats = texts()["docs/explanation/threats.md"]
    named = set(re.findall(r"`(tests/[\w/]+\.py)`", threats))
    assert len(named) >= 40
    assert sorted(name for name in named if not (ROOT / name).is_file()) == []
    lines = [line for line in threats.splitlines() if line.startswith("| ")]
    doors = lines[lines.index("| door | who | what holds | proved by |") + 1 :]
    assert len(doors) >= 20
    assert all("`tests/" in line for line in doors), "what is claimed is proved"
