"""The Ray cluster's file: valid by Ray's own schema, with commands that Ray's program has."""

import json
import re
import shlex
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from jsonschema.validators import validator_for

from tests.deploy.files import DEPLOY


def document() -> dict[str, Any]:
    return yaml.safe_load((DEPLOY / "ray-cluster.yaml").read_text())


def starts() -> list[str]:
    """The `ray start` of the head, and of the others."""
    lists = ("head_start_ray_commands", "worker_start_ray_commands")
    return [line for name in lists for line in document()[name] if " start " in line]


def test_it_is_what_ray_takes() -> None:
    schema = json.loads((files("ray") / "autoscaler" / "ray-schema.json").read_text())
    validator = validator_for(schema)(schema)
    validator.validate(document())
    with pytest.raises(jsonschema.ValidationError):
        validator.validate({**document(), "cluster": "misspelt"})


def test_every_option_is_one_of_rays_program() -> None:
    ray = Path(sys.executable).parent / "ray"
    shown = subprocess.run([ray, "start", "--help"], capture_output=True, text=True, check=True)
    for line in starts():
        options = re.findall(r"(--[a-z-]+)", line)
        assert options
        for option in options:
            assert option in shown.stdout, option


def test_every_node_wants_a_token() -> None:
    assert len(starts()) == 2
    for line in starts():
        words = shlex.split(line.replace(";", " "))
        assert "RAY_AUTH_MODE=token" in words
