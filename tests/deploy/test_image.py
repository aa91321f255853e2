"""The Dockerfile, as far as it can be judged without building it."""

import fnmatch
import json
import re
import tomllib
from typing import Any

import pytest
from dockerfile_parse import DockerfileParser

from tests.deploy.files import DEPLOY, ROOT, compose

FILE = DEPLOY / "Dockerfile"


def stages() -> dict[str, list[tuple[str, str]]]:
    """The instructions of each stage, by its name."""
    found: dict[str, list[tuple[str, str]]] = {}
    name = ""
    for step in DockerfileParser(path=str(FILE)).structure:
        if step["instruction"] == "FROM":
            name = step["value"].split(" AS ")[1]
            found[name] = []
        if name and step["instruction"] != "COMMENT":
            found[name].append((step["instruction"], step["value"]))
    return found


def values(stage: str, instruction: str) -> list[str]:
    return [value for name, value in stages()[stage] if name == instruction]


def test_the_image_that_is_named_is_a_target_and_the_default_is_the_small_one() -> None:
    named = list(stages())
    assert named[-1] == "cpu"
    for service in compose()["services"].values():
        if "build" in service:
            assert service["build"]["target"] in named
            assert (DEPLOY / service["build"]["context"]).resolve() == ROOT


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_a_target_runs_as_nobody_in_particular_and_tells_how_it_is(target: str) -> None:
    assert values(target, "USER") == ["10001:10001"]
    (health,) = values(target, "HEALTHCHECK")
    (command,) = re.findall(r"CMD (\[.*\])", health)
    compile(json.loads(command)[2], "healthcheck", "exec")
    # Nothing that builds comes along: the stage holds what was installed, and its own commands.
    assert values(target, "RUN") == []
    assert all(value.startswith("--from=packages-") for value in values(target, "COPY"))


def test_every_base_has_a_version_and_a_digest() -> None:
    images = set(DockerfileParser(path=str(FILE)).parent_images) - set(stages())
    assert images
    for image in images:
        assert re.search(r":\d+\.\d+\.\d+[\w.-]*@sha256:[0-9a-f]{64}$", image), image


def test_no_layer_holds_a_secret() -> None:
    text = FILE.read_text()
    assert not re.search(r"^(ARG|ENV) .*(KEY|SECRET|PASSWORD|TOKEN)", text, re.MULTILINE)
    assert "COPY . " not in text
    assert "ADD " not in text


def test_what_is_copied_is_there_and_reaches_the_builder() -> None:
    ignored = (ROOT / ".dockerignore").read_text().split("\n")
    kept = [line[1:] for line in ignored if line.startswith("!")]
    copied = [source for value in values("wheel", "COPY") for source in value.split()[:-1]]
    assert {"models", "search", "storage", "service", "pyproject.toml"} <= set(copied)
    for source in copied:
        assert (ROOT / source).exists(), source
        assert any(fnmatch.fnmatch(source, pattern) for pattern in kept), source
    assert set(kept) == set(copied), "the builder is sent what it does not need"


def test_extras_that_are_installed_exist() -> None:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for target in ("packages-cpu", "packages-cuda"):
        (extras,) = re.findall(r"\$1\[([\w,]+)\]", " ".join(values(target, "RUN")))
        assert set(extras.split(",")) <= set(project["optional-dependencies"])
